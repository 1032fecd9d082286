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
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/node/readmission"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, nil) }

// fixture is a console with the rights of the companion's role, and a namespace with its users.
type fixture struct {
	*testenv.ControlPlane
	t         *testing.T
	server    *server
	namespace string
	base      string
	roots     *x509.CertPool
	// clock is what the sessions' clock is ahead, in nanoseconds.
	clock atomic.Int64
	// stop ends the console, and ended is how it did.
	stop  context.CancelFunc
	ended chan error

	// observed, situation and request may be replaced before the console is called.
	observed  func(*corev1.Node) cpupolicy.Policy
	situation func(*corev1.Node, cpupolicy.Policy) (cpupolicy.Situation, error)
	request   func(ctx context.Context, node string, policy cpupolicy.Policy) error
}

// Request implements Requester.
func (f *fixture) Request(ctx context.Context, node string, policy cpupolicy.Policy) error {
	return f.request(ctx, node, policy)
}

// write asks as the controller would, and knows the precondition that is in the annotation.
func (f *fixture) write(ctx context.Context, name string, policy cpupolicy.Policy) error {
	var node corev1.Node
	if err := f.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return err
	}
	if status, _, err := cpupolicy.ReadStatus(node.Annotations); err == nil && status.UnderWay() {
		return apierrors.NewConflict(nodes, name, fmt.Errorf("policy %s is %s; wait until that is complete or failed", status.Policy, status.State))
	}
	before := node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, cpupolicy.StatusAnnotation, cpupolicy.Status{State: cpupolicy.Requested, Policy: policy}.String())
	return f.Client.Patch(ctx, &node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{ControlPlane: testenv.Start(t), t: t, ended: make(chan error, 1)}
	f.observed = func(*corev1.Node) cpupolicy.Policy { return "" }
	f.situation = func(node *corev1.Node, _ cpupolicy.Policy) (cpupolicy.Situation, error) {
		return cpupolicy.Situation{Node: node, Kubelet: readmission.Kubelet{Reserved: resource.MustParse("1")}}, nil
	}
	f.request = f.write
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "console-"}}
	f.create(namespace)
	f.namespace = namespace.Name

	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	f.roots = x509.NewCertPool()
	f.roots.AppendCertsFromPEM(certificate)

	f.server = New(Options{
		Config:     f.role(),
		FieldOwner: "cpupolicy.workload.openshift.io",
		TLSOpts:    []func(*tls.Config){func(config *tls.Config) { config.Certificates = []tls.Certificate{pair} }},
		Requester:  f,
		InForce:    func(node *corev1.Node) cpupolicy.Policy { return f.observed(node) },
		Situation: func(_ context.Context, node *corev1.Node, policy cpupolicy.Policy) (cpupolicy.Situation, error) {
			return f.situation(node, policy)
		},
	}).(*server)
	f.server.sessions = newSessions(func() time.Time { return time.Now().Add(time.Duration(f.clock.Load())) })
	if err := f.server.connect(); err != nil {
		t.Fatal(err)
	}
	f.serve()
	return f
}

// serve starts the console.
func (f *fixture) serve() {
	f.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.base = "https://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	go func() { f.ended <- f.server.serve(ctx, listener) }()
	f.t.Cleanup(cancel)
}

// role returns a configuration of a ServiceAccount that has the generated ClusterRole.
func (f *fixture) role() *rest.Config {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(testenv.Module(), "deploy", "cpupolicy", "rbac", "role.yaml"))
	if err != nil {
		f.t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.Contains(document, "kind: ClusterRole\n") && strings.Contains(document, "name: cpupolicy-webhooks\n") {
			if err := yaml.UnmarshalStrict([]byte(strings.TrimPrefix(document, "---\n")), role); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	f.account("console", role.Rules...)
	config := rest.AnonymousClientConfig(f.Config)
	config.BearerToken = f.token("console", "")
	return config
}

func (f *fixture) create(object client.Object) {
	f.t.Helper()
	if err := f.Client.Create(f.t.Context(), object); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = f.Client.Delete(context.Background(), object) })
}

// account creates a ServiceAccount with rights in all namespaces, and returns its binding.
func (f *fixture) account(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRoleBinding {
	f.t.Helper()
	f.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}})
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-" + name}, Rules: rules}
	f.create(role)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: f.namespace, Name: name}},
	}
	f.create(binding)
	if len(rules) > 0 {
		// kube-apiserver sees roles a moment after they are written.
		first := nodeAccess(rules[0].Verbs[0], "")
		first.Group, first.Resource = rules[0].APIGroups[0], rules[0].Resources[0]
		if len(rules[0].ResourceNames) > 0 {
			first.Name = rules[0].ResourceNames[0]
		}
		admin := &server{client: f.Client}
		user := authenticationv1.UserInfo{Username: f.user(name), Groups: []string{"system:serviceaccounts"}}
		testenv.Eventually(f.t, 20*time.Second, func() error { return admin.may(f.t.Context(), user, first) })
	}
	return binding
}

func (f *fixture) user(name string) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", f.namespace, name)
}

// token returns a token of an account; without an audience it is one for kube-apiserver.
func (f *fixture) token(name, audience string) string {
	f.t.Helper()
	if audience == "" {
		return f.tokenFor(name).Status.Token
	}
	return f.tokenFor(name, audience).Status.Token
}

// tokenFor returns a token of an account, with its audiences. They are kube-apiserver's if none are
// given.
func (f *fixture) tokenFor(name string, audiences ...string) *authenticationv1.TokenRequest {
	f.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: ptr.To[int64](600)}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
	if err := f.Client.SubResource("token").Create(f.t.Context(), account, request); err != nil {
		f.t.Fatal(err)
	}
	return request
}

func rule(verbs, resource string, names ...string) rbacv1.PolicyRule {
	group := ""
	if strings.HasPrefix(resource, "virtual") {
		group = "kubevirt.io"
	}
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, ","), APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

// node creates a Node with a label cpumanager and a status; empty is none.
func (f *fixture) node(name, label, status string) *corev1.Node {
	f.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	if label != "" {
		node.Labels[cpupolicy.Label] = label
	}
	if status != "" {
		node.Annotations[cpupolicy.StatusAnnotation] = status
	}
	f.create(node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := f.Client.Status().Update(f.t.Context(), node); err != nil {
		f.t.Fatal(err)
	}
	return node
}

// annotate sets the status of a node.
func (f *fixture) annotate(name, status string) {
	f.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{cpupolicy.StatusAnnotation: status}}})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.Client.Patch(f.t.Context(), node, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		f.t.Fatal(err)
	}
}

// status returns the annotation of a node.
func (f *fixture) status(name string) string {
	f.t.Helper()
	var node corev1.Node
	if err := f.Client.Get(f.t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
		f.t.Fatal(err)
	}
	return node.Annotations[cpupolicy.StatusAnnotation]
}

func (f *fixture) httpClient() *http.Client {
	f.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: f.roots}}}
}

// call sends a request as a tool does, and returns the answer with its body.
func (f *fixture) call(method, path, token string) (*http.Response, []byte) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), method, f.base+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return f.do(f.httpClient(), request)
}

func (f *fixture) do(c *http.Client, request *http.Request) (*http.Response, []byte) {
	f.t.Helper()
	response, err := c.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response, body
}

func (f *fixture) post(c *http.Client, path string, form url.Values, headers map[string]string) (*http.Response, []byte) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.base+path, bytes.NewBufferString(form.Encode()))
	if err != nil {
		f.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for key, value := range headers {
		request.Header.Set(key, value)
	}
	return f.do(c, request)
}
