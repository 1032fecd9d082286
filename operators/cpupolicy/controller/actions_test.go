// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/action"
)

// account makes a ServiceAccount with rights, and returns its token for these audiences.
func (c *cluster) account(t *testing.T, name string, rules []rbacv1.PolicyRule, audiences ...string) (token string) {
	t.Helper()
	role := "test-" + name
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}}},
	} {
		hooks{c.Installed}.admin(t).create(t, object)
	}
	return c.Token(t, "default", name, nil, audiences...)
}

// audiencesOf returns those of a token (RFC 7519).
func audiencesOf(t *testing.T, token string) []string {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	var claims struct {
		Audiences []string `json:"aud"`
	}
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		t.Fatal(err)
	}
	return claims.Audiences
}

func mayNodes(verbs string, names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: strings.Split(verbs, ","), ResourceNames: names}}
}

// manifest creates an object, and removes it after the test.
func (c *cluster) manifest(t *testing.T, text string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	hooks{c.Installed}.admin(t).create(t, object)
}

// forbid has a ValidatingAdmissionPolicy keep a ServiceAccount from doing something.
func (c *cluster) forbid(t *testing.T, account, group, resource, unless, message string) {
	t.Helper()
	name := account + "." + resource
	c.manifest(t, fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: %s}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [%q], apiVersions: [v1], resources: [%s], operations: [UPDATE]}]},
  validations: [{expression: "request.userInfo.username != 'system:serviceaccount:default:%s' || %s", message: %s}]}}`, name, group, resource, account, unless, message))
	c.manifest(t, fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %[1]s, validationActions: [Deny]}}`, name))
}

// tool posts actions.
type tool struct {
	c      *cluster
	client *http.Client
}

func (c *cluster) tool() tool {
	// The certificate is that of the webhooks, and verified in their tests.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	c.t.Cleanup(transport.CloseIdleConnections)
	return tool{c, &http.Client{Transport: transport}}
}

func (to tool) call(t *testing.T, method, path, token string) (*http.Response, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, to.c.Own()+"/v1/harvester/nodes"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := to.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, body
}

func TestWhatAnActionAnswers(t *testing.T) {
	c := startCluster(t).in(t)
	names := []string{"asked", "busy", "free", "mine", "viewed"}
	for _, name := range names {
		c.addNode(name, nil)
	}
	c.awaitObserved(names...)
	if err := c.annotate("asked", "workload.openshift.io/paused", ""); err != nil {
		t.Fatal(err)
	}
	c.hosts["busy"].hold(t)
	for _, name := range []string{"asked", "busy"} {
		if err := c.ask(name, cpupolicy.Static); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitStatus("busy", nodestatus.Running)
	tokens := map[string]string{
		"nobody":           "",
		"a liar":           "abc",
		"admin":            c.account(t, "admin", mayNodes("update"), action.Audience),
		"a careless admin": c.Token(t, "default", "admin", nil),
		"viewer":           c.account(t, "viewer", mayNodes("get,list"), action.Audience),
		"of-one":           c.account(t, "of-one", mayNodes("update", "mine"), action.Audience),
		"barred":           c.account(t, "barred", mayNodes("update"), action.Audience),
		"a mixed one":      "",
		"the companion":    c.Token(t, c.Namespace, "partition-controller", nil, action.Audience),
	}
	tokens["a mixed one"] = c.Token(t, "default", "admin", nil, append(audiencesOf(t, tokens["a careless admin"]), action.Audience)...)
	c.forbid(t, "barred", "", "nodes", "false", "tenants leave nodes alone")
	to := c.tool()
	c.eventually(func() error { // rights and policies may be new to kube-apiserver
		for _, name := range []string{"admin", "barred"} {
			if _, text := to.call(t, "POST", "/busy?action=disableCPUManager", tokens[name]); !strings.Contains(string(text), map[string]string{"admin": "wait until", "barred": "tenants leave"}[name]) {
				return errors.New(string(text))
			}
		}
		if _, text := to.call(t, "POST", "/gone?action=enableCPUManager", tokens["of-one"]); !strings.Contains(string(text), "forbidden") {
			return errors.New(string(text))
		}
		return nil
	})
	for name, test := range map[string]struct {
		who, method, path string
		code              int
		reason            metav1.StatusReason
		// want are parts of the message.
		want []string
	}{
		"without a token":                 {"nobody", "POST", "/viewed?action=enableCPUManager", 401, metav1.StatusReasonUnauthorized, []string{"no token", action.Audience}},
		"with what is no token":           {"a liar", "POST", "/viewed?action=enableCPUManager", 401, metav1.StatusReasonUnauthorized, []string{action.Audience, "invalid bearer token"}},
		"with a token for kube-apiserver": {"a careless admin", "POST", "/viewed?action=enableCPUManager", 401, metav1.StatusReasonUnauthorized, []string{action.Audience, "token audiences"}},
		"with a token for both":           {"a mixed one", "POST", "/viewed?action=enableCPUManager", 401, metav1.StatusReasonUnauthorized, []string{"for kube-apiserver as well"}},
		"by the companion":                {"the companion", "POST", "/viewed?action=enableCPUManager", 403, metav1.StatusReasonForbidden, []string{c.User(), "ServiceAccount of a companion"}},
		"without the right":               {"viewer", "POST", "/viewed?action=enableCPUManager", 403, metav1.StatusReasonForbidden, []string{`nodes "viewed" is forbidden`, "system:serviceaccount:default:viewer", `cannot update resource "nodes"`}},
		"with the right for another node": {"of-one", "POST", "/viewed?action=enableCPUManager", 403, metav1.StatusReasonForbidden, []string{`nodes "viewed" is forbidden`}},
		"against a policy about users":    {"barred", "POST", "/viewed?action=enableCPUManager", 422, metav1.StatusReasonInvalid, []string{`nodes "viewed" is forbidden`, "barred.nodes", "tenants leave nodes alone"}},
		"on no node":                      {"admin", "POST", "/gone?action=enableCPUManager", 404, metav1.StatusReasonNotFound, []string{`nodes "gone" not found`}},
		"on what is no name":              {"admin", "POST", "/a%2Fb?action=enableCPUManager", 404, metav1.StatusReasonNotFound, []string{`nodes "a/b" not found`}},
		"what is requested already":       {"admin", "POST", "/asked?action=enableCPUManager", 409, metav1.StatusReasonConflict, []string{"node asked", "policy static is refused", "requested already"}},
		"what is in force":                {"admin", "POST", "/viewed?action=disableCPUManager", 409, metav1.StatusReasonConflict, []string{"node viewed", "has the CPU manager policy none already"}},
		"on a node under way":             {"admin", "POST", "/busy?action=disableCPUManager", 409, metav1.StatusReasonConflict, []string{"policy static is running", "wait until"}},
		"an unknown action":               {"admin", "POST", "/viewed?action=reboot", 400, metav1.StatusReasonBadRequest, []string{`action "reboot"`, "enableCPUManager", "disableCPUManager"}},
		"no action":                       {"admin", "POST", "/viewed", 400, metav1.StatusReasonBadRequest, []string{`action ""`}},
		"another method":                  {"admin", "GET", "/viewed?action=enableCPUManager", 405, metav1.StatusReasonMethodNotAllowed, []string{"GET"}},
		"on all nodes":                    {"admin", "POST", "?action=enableCPUManager", 404, metav1.StatusReasonNotFound, []string{"/v1/harvester/nodes"}},
		"elsewhere":                       {"admin", "POST", "/../vms/viewed?action=enableCPUManager", 404, metav1.StatusReasonNotFound, []string{"there is nothing at"}},
		"elsewhere, without a token":      {"nobody", "GET", "/../vms", 401, metav1.StatusReasonUnauthorized, []string{action.Audience}},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := to.call(t, test.method, test.path, tokens[test.who])
			var status metav1.Status
			if err := json.Unmarshal(body, &status); err != nil {
				t.Fatalf("%d: %s: %v", response.StatusCode, body, err)
			}
			if response.StatusCode != test.code || status.Kind != "Status" || status.APIVersion != "v1" || status.Status != "Failure" || int(status.Code) != test.code || status.Reason != test.reason {
				t.Errorf("the answer is %d, want %d with the reason %s: %s", response.StatusCode, test.code, test.reason, body)
			}
			for _, want := range test.want {
				if !strings.Contains(status.Message, want) {
					t.Errorf("the message does not name %s: %s", want, status.Message)
				}
			}
			if (response.Header.Get("WWW-Authenticate") != "") != (test.code == 401) || (response.Header.Get("Allow") != "") != (test.code == 405) {
				t.Errorf("the headers are %v", response.Header)
			}
			if status := c.node("viewed").Annotations[nodestatus.StatusAnnotation]; status != "" {
				t.Errorf("the status has become %s", status)
			}
		})
	}
	for _, test := range []struct {
		who, node, action string
		policy            cpupolicy.Policy
	}{
		{"admin", "free", "enableCPUManager", cpupolicy.Static},
		{"admin", "free", "disableCPUManager", cpupolicy.None},
		{"of-one", "mine", "enableCPUManager", cpupolicy.Static},
	} {
		t.Run(test.action+" of "+test.node, func(t *testing.T) {
			if response, body := to.call(t, "POST", "/"+test.node+"?action="+test.action, tokens[test.who]); response.StatusCode != http.StatusNoContent || len(body) > 0 {
				t.Fatalf("the answer is %d: %s", response.StatusCode, body)
			}
			if status := c.awaitStatus(test.node, nodestatus.Complete); status.Policy != test.policy {
				t.Errorf("the status is %s", status)
			}
			c.eventually(func() error {
				return c.says(test.node, "CPUPolicyRequested", fmt.Sprintf("User %q has asked for the policy %s", "system:serviceaccount:default:"+test.who, test.policy))
			})
		})
	}
}
