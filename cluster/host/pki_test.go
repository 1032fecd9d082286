// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

func TestEtcdAndItsClientsAcceptNobodyElse(t *testing.T) {
	c := New(Config{Paths: Paths{Data: t.TempDir()}})
	if err := c.writeCertificates(); err != nil {
		t.Fatal(err)
	}
	const server, client = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for name, test := range map[string]struct {
		component        Component
		certificate, key string
		verifier         Component
		authority        string
		usage            x509.ExtKeyUsage
	}{
		"etcd, to kube-apiserver":            {c.Etcd, "cert-file", "key-file", c.APIServer, "etcd-cafile", server},
		"etcd, to the second kube-apiserver": {c.Etcd, "cert-file", "key-file", c.SecondAPIServer, "etcd-cafile", server},
		"etcd, to a peer":                    {c.Etcd, "peer-cert-file", "peer-key-file", c.Etcd, "peer-trusted-ca-file", server},
		"kube-apiserver, to etcd":            {c.APIServer, "etcd-certfile", "etcd-keyfile", c.Etcd, "trusted-ca-file", client},
		"the second kube-apiserver, to etcd": {c.SecondAPIServer, "etcd-certfile", "etcd-keyfile", c.Etcd, "trusted-ca-file", client},
		"etcd's gateway from JSON, to etcd":  {c.Etcd, "client-cert-file", "client-key-file", c.Etcd, "trusted-ca-file", client},
	} {
		t.Run(name, func(t *testing.T) {
			key := argument(t, test.component, test.key)
			pair, err := tls.LoadX509KeyPair(argument(t, test.component, test.certificate), key)
			if err != nil {
				t.Fatal(err)
			}
			roots, err := cert.NewPool(argument(t, test.verifier, test.authority))
			if err != nil {
				t.Fatal(err)
			}
			options := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{test.usage}}
			if test.usage == server {
				options.DNSName = "127.0.0.1"
			}
			if _, err := pair.Leaf.Verify(options); err != nil {
				t.Error(err)
			}
			if info, err := os.Stat(key); err != nil {
				t.Error(err)
			} else if info.Mode() != 0o600 {
				t.Errorf("the key has the mode %v, want one for its owner alone", info.Mode())
			}
			for _, other := range []string{"kubelet-client.crt", "client-kubelet.kubeconfig.crt", "front-proxy/client.crt"} {
				certificates, err := cert.CertsFromFile(c.pki(other))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := certificates[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{client}}); err == nil {
					t.Errorf("%s is accepted, too", other)
				}
			}
		})
	}
	args := c.Etcd.Args()
	for _, flag := range []string{"--client-cert-auth", "--peer-client-cert-auth"} {
		if !slices.Contains(args, flag) {
			t.Errorf("etcd has the arguments %q, want %s", args, flag)
		}
	}
	for _, arg := range slices.Concat(args, c.APIServer.Args(), c.SecondAPIServer.Args()) {
		if strings.Contains(arg, "http://") {
			t.Errorf("%s is without TLS", arg)
		}
	}
}

// argument returns the value of a component's flag.
func argument(t *testing.T, c Component, flag string) string {
	t.Helper()
	for _, arg := range c.Args() {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			return value
		}
	}
	t.Fatalf("%s has no --%s", c.Name(), flag)
	return ""
}
