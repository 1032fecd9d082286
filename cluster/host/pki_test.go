package host

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

func TestAuthorityIsKeptForOtherHosts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	first, err := newPKI(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.path("ca.key")); !os.IsNotExist(err) {
		t.Errorf("the key of an authority that is not kept: %v, want that there is none", err)
	}
	if err := first.keep(); err != nil {
		t.Fatal(err)
	}
	second, err := newPKI(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !second.cert.Equal(first.cert) {
		t.Error("an authority that was kept has been replaced")
	}
	info, err := os.Stat(first.path("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("the key has the mode %v, want one for its owner alone", info.Mode())
	}
}

func TestCertificatesAreOfTheAuthority(t *testing.T) {
	p, err := newPKI(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.issue("kube-apiserver", pkix.Name{CommonName: "kube-apiserver"}, "10.247.0.1", "localhost"); err != nil {
		t.Fatal(err)
	}
	if err := p.serviceAccountKey(); err != nil {
		t.Fatal(err)
	}
	path := p.path("admin.kubeconfig")
	if err := p.kubeconfig(path, "https://10.247.0.1:6443", "admin", "system:masters"); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(p.path("kube-apiserver.crt"), p.path("kube-apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots, err := cert.NewPool(p.path("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10.247.0.1", "localhost"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("the server's certificate for %s: %v", name, err)
		}
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	client := config.AuthInfos["admin"]
	pair, err = tls.X509KeyPair(client.ClientCertificateData, client.ClientKeyData)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil || pair.Leaf.Subject.Organization[0] != "system:masters" {
		t.Errorf("the client's certificate is of %s: %v", pair.Leaf.Subject, err)
	}
}
