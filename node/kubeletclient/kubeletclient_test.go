// SPDX-License-Identifier: Apache-2.0

package kubeletclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// identity returns the certificate and the key of a kubelet, in one file as the kubelet keeps them.
func identity(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})) + string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}

// kubeconfigWith returns a kubeconfig with further fields of its cluster and of its user.
func kubeconfigWith(server, cluster, user string) string {
	return fmt.Sprintf(`
current-context: default
contexts: [{name: other, context: {cluster: x, user: x}}, {name: default, context: {cluster: k, user: u}}]
clusters: [{name: x, cluster: {server: "https://192.0.2.1"}}, {name: k, cluster: {server: %q, %s}}]
users: [{name: x, user: {token: wrong}}, {name: u, user: {%s}}]
`, server, cluster, user)
}

func TestTheNodeAndItsPodsAreReadAsTheKubelet(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kubelet := len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].Subject.CommonName == "system:node:n1"
		switch {
		case !kubelet && r.Header.Get("Authorization") != "Bearer secret":
			http.Error(w, "who are you", http.StatusUnauthorized)
		case r.Method != http.MethodGet:
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
		case r.URL.Path == "/k8s/api/v1/nodes/n1":
			fmt.Fprint(w, `{"metadata": {"name": "n1", "labels": {"a": "b"}}}`)
		case r.URL.Path == "/k8s/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed":
			if r.URL.Query().Get("continue") == "" {
				fmt.Fprint(w, `{"metadata": {"continue": "here"}, "items": [{"metadata": {"name": "runs"}, "status": {"phase": "Running"}}]}`)
				return
			}
			fmt.Fprint(w, `{"items": [{"metadata": {"name": "waits"}, "status": {"phase": "Pending"}}]}`)
		case r.URL.Path == "/k8s/api/v1/nodes/moved":
			http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	at := server.URL + "/k8s"
	files := map[string]string{
		"/etc/kubernetes/pki/ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
		"/var/lib/kubelet/pem":       identity(t, "system:node:n1"),
		"/etc/kubernetes/someone":    identity(t, "someone"),
		"/etc/kubernetes/token":      "secret\n",
		"/etc/kubernetes/empty":      "",
	}
	const verified = "certificate-authority: pki/ca.crt"
	for _, test := range []struct {
		name, kubeconfig, node string
		// opens is a part of the error of New, and asks one of that of Node; empty means that there is none.
		opens, asks string
	}{
		{name: "by its certificate, as kubeadm configures it", kubeconfig: kubeconfigWith(at, verified, "client-certificate: /var/lib/kubelet/pem, client-key: /var/lib/kubelet/pem")},
		{name: "by its token in a file", kubeconfig: kubeconfigWith(at, verified, "tokenFile: token"), node: "n1"},
		{name: "by its token", kubeconfig: kubeconfigWith(at+"/", verified, "token: secret"), node: "n1"},
		{name: "by another's certificate", kubeconfig: kubeconfigWith(at, verified, "client-certificate: someone, client-key: someone"), node: "n1", asks: "401 Unauthorized: who are you"},
		{name: "a Node that is not there", kubeconfig: kubeconfigWith(at, verified, "token: secret"), node: "n2", asks: "GET /api/v1/nodes/n2: 404"},
		{name: "a server that sends it elsewhere gets no second request", kubeconfig: kubeconfigWith(at, verified, "token: secret"), node: "moved", asks: "302 Found"},
		{name: "a server with an untrusted certificate", kubeconfig: kubeconfigWith(at, "tls-server-name: example.com", "token: secret"), node: "n1", asks: "certificate"},
		{name: "a name that is not the server's", kubeconfig: kubeconfigWith(at, verified+", tls-server-name: other.invalid", "token: secret"), node: "n1", asks: "other.invalid"},
		{name: "the Node is not named", kubeconfig: kubeconfigWith(at, verified, "token: secret"), opens: "does not say the name of the Node"},
		{name: "a certificate that is no node's", kubeconfig: kubeconfigWith(at, verified, "client-certificate: someone, client-key: someone"), opens: "does not say the name of the Node"},
		{name: "a server without TLS", kubeconfig: kubeconfigWith("http://127.0.0.1", verified, "token: secret"), node: "n1", opens: `server "http://127.0.0.1" is not https`},
		{name: "a server that is not verified", kubeconfig: kubeconfigWith(at, "insecure-skip-tls-verify: true", "token: secret"), node: "n1", opens: "insecure-skip-tls-verify"},
		{name: "a proxy", kubeconfig: kubeconfigWith(at, verified+", proxy-url: 'https://192.0.2.1'", "token: secret"), node: "n1", opens: "proxy-url"},
		{name: "credentials of a program", kubeconfig: kubeconfigWith(at, verified, "exec: {command: aws}"), node: "n1", opens: "exec"},
		{name: "an authority that is none", kubeconfig: kubeconfigWith(at, "certificate-authority: token", "token: secret"), node: "n1", opens: "no certificate"},
		{name: "a file that is missing", kubeconfig: kubeconfigWith(at, "certificate-authority: gone", "token: secret"), node: "n1", opens: "/etc/kubernetes/gone"},
		{name: "a certificate without its key", kubeconfig: kubeconfigWith(at, verified, "client-certificate: someone, client-key: empty"), node: "n1", opens: "kubeconfig /etc/kubernetes/kubelet.conf of the kubelet: "},
		{name: "no such context", kubeconfig: "current-context: gone", node: "n1", opens: `no context "gone"`},
		{name: "no such user", kubeconfig: "{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}]}", node: "n1", opens: `no cluster "b" or no user "c"`},
		{name: "no YAML", kubeconfig: "[", node: "n1", opens: "/etc/kubernetes/kubelet.conf"},
	} {
		t.Run(test.name, func(t *testing.T) {
			files["/etc/kubernetes/kubelet.conf"] = test.kubeconfig
			client, err := New("/etc/kubernetes/kubelet.conf", test.node, func(path string) ([]byte, error) {
				content, has := files[path]
				if !has {
					return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
				}
				return []byte(content), nil
			})
			if test.opens != "" {
				if err == nil || !strings.Contains(err.Error(), test.opens) {
					t.Errorf("the error is %v, want one with %q", err, test.opens)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			node, err := client.Node(t.Context())
			if test.asks != "" {
				if err == nil || !strings.Contains(err.Error(), test.asks) {
					t.Errorf("the error is %v, want one with %q", err, test.asks)
				}
				return
			}
			if err != nil || node.Labels["a"] != "b" {
				t.Fatalf("the Node is %+v (%v)", node, err)
			}
			pods, err := client.Pods(t.Context())
			if err != nil || len(pods) != 2 || pods[0].Name != "runs" || pods[1].Name != "waits" {
				t.Errorf("the pods are %+v (%v)", pods, err)
			}
		})
	}
}
