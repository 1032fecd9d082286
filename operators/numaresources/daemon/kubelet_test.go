// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/operators/numaresources"
)

// authority is a CA of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &authority{key: key, file: filepath.Join(t.TempDir(), name)}
	a.certificate = certify(t, template, template, key, key)
	writePEM(t, a.file, a.certificate.Raw)
	return a
}

func certify(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func writePEM(t *testing.T, path string, certificates ...[]byte) {
	t.Helper()
	var text []byte
	for _, der := range certificates {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serving returns a certificate for an address, of the authority or of itself.
func (a *authority) serving(t *testing.T, address string, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "system:node:n"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	parent, signer := template, key
	if a != nil {
		parent, signer = a.certificate, a.key
	}
	return tls.Certificate{Certificate: [][]byte{certify(t, template, parent, key, signer).Raw}, PrivateKey: key}
}

const answer = `{"kubeletconfig":{"topologyManagerPolicy":"restricted","topologyManagerScope":"pod","cpuManagerPolicy":"static","memoryManagerPolicy":"Static"}}`

// TestAPolicyIsKnownOrNot asks servers that play the kubelet.
func TestAPolicyIsKnownOrNot(t *testing.T) {
	configured, cluster := newAuthority(t, "configured"), newAuthority(t, "cluster")
	byConfigured := configured.serving(t, "127.0.0.1", x509.ExtKeyUsageServerAuth)
	byCluster := cluster.serving(t, "127.0.0.1", x509.ExtKeyUsageServerAuth)
	elsewhere := cluster.serving(t, "127.0.0.2", x509.ExtKeyUsageServerAuth)
	client := cluster.serving(t, "127.0.0.1", x509.ExtKeyUsageClientAuth)
	own, other := (*authority)(nil).serving(t, "10.0.0.1", x509.ExtKeyUsageServerAuth), (*authority)(nil).serving(t, "127.0.0.1", x509.ExtKeyUsageServerAuth)
	ownFile, bundle := filepath.Join(t.TempDir(), "kubelet.crt"), filepath.Join(t.TempDir(), "kubelet.crt")
	writePEM(t, ownFile, own.Certificate[0], cluster.certificate.Raw)
	writePEM(t, bundle, other.Certificate[0], own.Certificate[0])
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, test := range map[string]struct {
		serves  tls.Certificate
		kubelet Kubelet
		handler http.HandlerFunc
		code    numaresources.PolicyUnknown
		err     string
	}{
		"the configured CA vouches for it":                  {serves: byConfigured, kubelet: Kubelet{CA: configured.file, ClusterCA: cluster.file}},
		"the cluster's CA does":                             {serves: byCluster, kubelet: Kubelet{CA: configured.file, ClusterCA: cluster.file}},
		"it is the one in the kubelet's file":               {serves: own, kubelet: Kubelet{ClusterCA: cluster.file, Certificate: ownFile}},
		"nobody vouches for it":                             {serves: own, kubelet: Kubelet{ClusterCA: cluster.file}, code: numaresources.CertificateNotVerified, err: "CA " + cluster.file},
		"the kubelet's file has another one":                {serves: other, kubelet: Kubelet{ClusterCA: cluster.file, Certificate: ownFile}, code: numaresources.CertificateNotVerified, err: "it has another certificate"},
		"the kubelet's file has it, but not first":          {serves: own, kubelet: Kubelet{Certificate: bundle}, code: numaresources.CertificateNotVerified, err: "it has another certificate"},
		"the cluster's CA vouches for another address":      {serves: elsewhere, kubelet: Kubelet{ClusterCA: cluster.file}, code: numaresources.CertificateNotVerified, err: "127.0.0.2"},
		"the cluster's CA vouches for it as a client":       {serves: client, kubelet: Kubelet{ClusterCA: cluster.file}, code: numaresources.CertificateNotVerified, err: "incompatible key usage"},
		"files that are missing or empty vouch for nothing": {serves: own, kubelet: Kubelet{CA: empty, ClusterCA: "/no/such", Certificate: empty}, code: numaresources.CertificateNotVerified, err: "it has no certificate"},
		"with nothing to verify it by it is not verified":   {serves: own, code: numaresources.CertificateNotVerified, err: "not verified"},
		"the kubelet refuses":                               {serves: byCluster, kubelet: Kubelet{ClusterCA: cluster.file}, handler: say(http.StatusForbidden, ""), code: numaresources.ConfigzForbidden, err: "nodes/configz"},
		"the kubelet does not know the token":               {serves: byCluster, kubelet: Kubelet{ClusterCA: cluster.file}, handler: say(http.StatusUnauthorized, ""), code: numaresources.ConfigzForbidden, err: "401"},
		"the kubelet has no configz":                        {serves: byCluster, kubelet: Kubelet{ClusterCA: cluster.file}, handler: say(http.StatusNotFound, ""), code: numaresources.ConfigzNotServed, err: "enableDebuggingHandlers"},
		"the kubelet fails":                                 {serves: byCluster, kubelet: Kubelet{ClusterCA: cluster.file}, handler: say(http.StatusInternalServerError, ""), code: numaresources.KubeletUnreachable, err: "500"},
		"the answer is none":                                {serves: byCluster, kubelet: Kubelet{ClusterCA: cluster.file}, handler: say(http.StatusOK, "{}"), code: numaresources.ConfigzInvalid, err: "no kubeletconfig"},
		"an answer without an end is cut off":               {serves: byCluster, kubelet: Kubelet{ClusterCA: cluster.file}, handler: say(http.StatusOK, strings.Repeat(" ", 2<<20)+answer), code: numaresources.ConfigzInvalid, err: "unexpected end"},
		"the token does not follow the kubelet to elsewhere": {serves: byCluster, kubelet: Kubelet{ClusterCA: cluster.file}, handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/configz", http.StatusFound)
		}, code: numaresources.KubeletUnreachable, err: "302"},
	} {
		t.Run(name, func(t *testing.T) {
			handler := test.handler
			if handler == nil {
				handler = say(http.StatusOK, answer)
			}
			asked := ""
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.Path + " " + r.Header.Get("Authorization")
				handler(w, r)
			}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{test.serves}}
			server.Config.ErrorLog = nil
			server.StartTLS()
			defer server.Close()
			at, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			k := test.kubelet
			k.Host, k.Port = at.Hostname(), at.Port()
			k.Token = func() (string, error) { return "secret", nil }
			got, err := k.Running(t.Context())
			if got.Unknown != test.code || test.code == "" && got.TopologyManagerPolicy != "restricted" {
				t.Errorf("got %+v (%v), want the code %q", got, err, test.code)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("the error is %v, want %q", err, test.err)
			}
			if test.code == numaresources.CertificateNotVerified && asked != "" || test.code == "" && asked != "/configz Bearer secret" {
				t.Errorf("the server was asked for %q", asked)
			}
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		k := Kubelet{Host: "127.0.0.1", Port: "1", Token: func() (string, error) { return "secret", nil }}
		if got, err := k.Running(t.Context()); got.Unknown != numaresources.KubeletUnreachable || err == nil {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestNodeOf(t *testing.T) {
	token := func(payload string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
	}
	for name, test := range map[string]struct{ token, want, err string }{
		"a pod's token":              {token(`{"kubernetes.io":{"namespace":"s","node":{"name":"n","uid":"u"},"pod":{"name":"p"}}}`) + "\n", "n u s/p", ""},
		"a token of a node alone":    {token(`{"kubernetes.io":{"namespace":"s","node":{"name":"n","uid":"u"}}}`), "n u /", ""},
		"a token of no pod":          {token(`{"kubernetes.io":{"serviceaccount":{"name":"a"}}}`), "", "bound to no node"},
		"a node without UID":         {token(`{"kubernetes.io":{"node":{"name":"n"}}}`), "", "bound to no node"},
		"a token of another kind":    {"abc", "", "no JSON Web Token"},
		"a payload that is not text": {"e30.!.c2ln", "", "illegal base64"},
		"a payload that is no JSON":  {"e30.YWJj.c2ln", "", "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			node, err := NodeOf(test.token)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("the error is %v, want %q", err, test.err)
				}
				return
			}
			if got := node.Name + " " + string(node.UID) + " " + node.Pod.String(); err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}
