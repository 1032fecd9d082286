/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package console

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/cpupolicy"
)

// jwt is a token with these claims, which nobody has signed.
func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

var right = jwt(`{"aud":["cpupolicy.workload.openshift.io"],"sub":"system:serviceaccount:team-a:<alice>"}`)

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got the error %v, want one with %q", err, want)
	}
}

func TestOnlyATokenForTheConsoleIsTakenFromAKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(right), 0o600); err != nil {
		t.Fatal(err)
	}
	one := jwt(`{"aud":"cpupolicy.workload.openshift.io"}`)
	for name, test := range map[string]struct {
		config rest.Config
		want   string
	}{
		"for the console":             {rest.Config{BearerToken: right}, right},
		"for the console, as a text":  {rest.Config{BearerToken: one}, one},
		"from a file":                 {rest.Config{BearerTokenFile: file}, right},
		"for kube-apiserver":          {rest.Config{BearerToken: jwt(`{"aud":["https://kubernetes.default.svc"]}`)}, ""},
		"for both":                    {rest.Config{BearerToken: jwt(`{"aud":["https://kubernetes.default.svc","cpupolicy.workload.openshift.io"]}`)}, ""},
		"without an audience":         {rest.Config{BearerToken: jwt(`{}`)}, ""},
		"without claims":              {rest.Config{BearerToken: "secret"}, ""},
		"with claims that are broken": {rest.Config{BearerToken: "a.b.c"}, ""},
		"no token but a password":     {rest.Config{Username: "alice", Password: "secret"}, ""},
		"nothing":                     {rest.Config{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := OfConfig(&test.config)(t.Context())
			if test.want == "" {
				checkError(t, err, "no token for the audience cpupolicy.workload.openshift.io")
				if test.config.BearerToken != "" && strings.Contains(err.Error(), test.config.BearerToken) {
					t.Errorf("the error has the token: %v", err)
				}
			} else if err != nil {
				t.Error(err)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestATokenOfAServiceAccountIsForTheConsoleAlone(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		request := create.GetObject().(*authenticationv1.TokenRequest)
		if create.GetSubresource() != "token" || create.Name != "alice" || create.GetNamespace() != "team-a" || len(request.Spec.Audiences) != 1 || request.Spec.Audiences[0] != "cpupolicy.workload.openshift.io" || *request.Spec.ExpirationSeconds != 3600 {
			return true, nil, fmt.Errorf("asked for %+v", create)
		}
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "made"}}, nil
	})
	if got, err := OfServiceAccount(client, "team-a", "alice")(t.Context()); err != nil || got != "made" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := OfServiceAccount(client, "team-a", "bob")(t.Context())
	checkError(t, err, "token of ServiceAccount team-a/bob: ")
}

func TestThePagePostsTheTokenToTheConsole(t *testing.T) {
	tokens := 0
	p := newPage(Opened{Console: "https://localhost:1234", Fingerprint: "AB:CD"}, func(context.Context) (string, error) {
		tokens++
		return right, nil
	})
	server := httptest.NewServer(p)
	defer server.Close()
	get := func(method, path string) (*http.Response, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"Cache-Control":           "no-store",
			"Content-Security-Policy": "default-src 'none'; form-action https://localhost:1234; frame-ancestors 'none'; base-uri 'none'",
			"Referrer-Policy":         "origin",
		} {
			if got := response.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		return response, string(body)
	}
	for _, other := range []struct {
		method, path string
		code         int
	}{{http.MethodGet, "/", http.StatusNotFound}, {http.MethodGet, p.path + "/", http.StatusNotFound}, {http.MethodPost, p.path, http.StatusMethodNotAllowed}} {
		if response, body := get(other.method, other.path); response.StatusCode != other.code || strings.Contains(body, right) {
			t.Errorf("%s %s is answered with %d and %s, want %d", other.method, other.path, response.StatusCode, body, other.code)
		}
	}
	if tokens > 0 {
		t.Errorf("%d tokens were made for nobody", tokens)
	}
	if strings.Contains(p.path, right) || len(p.path) < 20 {
		t.Errorf("the path is %s", p.path)
	}
	response, body := get(http.MethodGet, p.path)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the page is answered with %d and %s", response.StatusCode, body)
	}
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	attributes := map[string]string{}
	text := ""
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			attributes[n.Data+" "+a.Key] += a.Val
		}
		if n.Type == html.TextNode {
			text += n.Data
		}
	}
	for key, want := range map[string]string{"html lang": "en", "form action": "https://localhost:1234/sign-in", "form method": "post", "input name": "token", "input type": "hidden", "input value": right} {
		if attributes[key] != want {
			t.Errorf("%s is %q, want %q", key, attributes[key], want)
		}
	}
	for _, want := range []string{"Sign in as system:serviceaccount:team-a:<alice>", "AB:CD"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q: %s", want, text)
		}
	}
	p.token = func(context.Context) (string, error) { return "", errors.New("not you") }
	if response, body := get(http.MethodGet, p.path); response.StatusCode != http.StatusBadGateway || body != "not you\n" {
		t.Errorf("without a token it is answered with %d and %s", response.StatusCode, body)
	}
}

// readyPod is one of the Deployment's, or not.
func readyPod(name string, ready corev1.ConditionStatus, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
}

func TestAReadyPodOfTheDeploymentIsFound(t *testing.T) {
	labels := map[string]string{"app": "a"}
	of := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "partition-webhooks"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	find := func(objects ...runtime.Object) (string, error) {
		pod, err := Options{Client: fake.NewClientset(objects...), Namespace: "ns"}.pod(t.Context())
		if err != nil {
			return "", err
		}
		return pod.Name, nil
	}
	if got, err := find(of, readyPod("a", corev1.ConditionFalse, labels), readyPod("b", corev1.ConditionTrue, nil), readyPod("c", corev1.ConditionTrue, labels)); err != nil || got != "c" {
		t.Errorf("got %q, %v, want c", got, err)
	}
	_, err := find(of, readyPod("a", corev1.ConditionFalse, labels))
	checkError(t, err, "deployment ns/partition-webhooks: none of its 1 pods is ready")
	_, err = find()
	checkError(t, err, "deployment ns/partition-webhooks: ")
	pod := readyPod("a", corev1.ConditionTrue, nil)
	if got := portOf(pod); got != 8444 {
		t.Errorf("the port is %d", got)
	}
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "webhook", ContainerPort: 1}, {Name: "console", ContainerPort: 2}}}}
	if got := portOf(pod); got != 2 {
		t.Errorf("the port is %d, want 2", got)
	}
}

func TestTheCertificateMustBeTheCompanions(t *testing.T) {
	serve := func(name string) (uint16, []byte, *x509.Certificate) {
		t.Helper()
		certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		server.StartTLS()
		t.Cleanup(server.Close)
		return uint16(server.Listener.Addr().(*net.TCPAddr).Port), certificate, pair.Leaf
	}
	port, authority, leaf := serve("partition-webhooks.ns.svc")
	other, otherAuthority, _ := serve("partition-webhooks.elsewhere.svc")
	verify := func(port uint16, bundles ...[]byte) (*x509.Certificate, error) {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: cpupolicy.Group}}
		for _, bundle := range bundles {
			configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.ValidatingWebhook{ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: bundle}})
		}
		o := Options{Client: fake.NewClientset(configuration), Namespace: "ns"}
		roots, err := o.roots(t.Context())
		if err != nil {
			return nil, err
		}
		return o.verify(t.Context(), port, roots)
	}
	got, err := verify(port, nil, authority)
	if err != nil || !got.Equal(leaf) {
		t.Errorf("the companion's own is %v, %v", got, err)
	}
	if text := Fingerprint(leaf.Raw); len(text) != 95 || strings.ToUpper(text) != text {
		t.Errorf("the fingerprint is %s", text)
	}
	_, err = verify(port, otherAuthority)
	checkError(t, err, "it is not the companion's: ")
	_, err = verify(other, otherAuthority)
	checkError(t, err, "partition-webhooks.ns.svc")
	_, err = verify(port)
	checkError(t, err, "ValidatingWebhookConfiguration cpupolicy.workload.openshift.io: webhooks[].clientConfig.caBundle")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	_, err = verify(uint16(listener.Addr().(*net.TCPAddr).Port), authority)
	checkError(t, err, "nobody answers")
}
