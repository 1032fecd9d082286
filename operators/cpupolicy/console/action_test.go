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
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/cpupolicy"
)

func TestWhatAnActionAnswers(t *testing.T) {
	f := newFixture(t)
	f.account("admin", rule("get,list,update", "nodes"))
	f.account("viewer", rule("get,list", "nodes"))
	f.account("of-one", rule("update", "nodes", "mine"))
	for _, name := range []string{"free", "mine", "viewed"} {
		f.node(name, "false", "")
	}
	f.node("busy", "false", `{"status":"running","policy":"static","id":"a1"}`)
	f.node("asked", "false", `{"status":"requested","policy":"static"}`)
	tokens := map[string]string{
		"nobody":           "",
		"a liar":           "abc",
		"a careless admin": f.token("admin", ""),
	}
	for _, name := range []string{"admin", "viewer", "of-one"} {
		tokens[name] = f.token(name, Audience)
	}
	for name, test := range map[string]struct {
		who, method, path string
		code              int
		reason            metav1.StatusReason
		// want are parts of the message.
		want []string
		// node has the status after it; empty is that no node has changed.
		node, status string
	}{
		"enable":                          {"admin", "POST", "/free?action=enableCPUManager", 204, "", nil, "free", `{"status":"requested","policy":"static"}`},
		"disable, by whom one node is":    {"of-one", "POST", "/mine?action=disableCPUManager", 204, "", nil, "mine", `{"status":"requested","policy":"none"}`},
		"without a token":                 {"nobody", "POST", "/viewed?action=enableCPUManager", 401, metav1.StatusReasonUnauthorized, []string{"no token", Audience}, "", ""},
		"with what is no token":           {"a liar", "POST", "/viewed?action=enableCPUManager", 401, metav1.StatusReasonUnauthorized, []string{Audience, "invalid bearer token"}, "", ""},
		"with a token for kube-apiserver": {"a careless admin", "POST", "/viewed?action=enableCPUManager", 401, metav1.StatusReasonUnauthorized, []string{Audience, "token audiences"}, "", ""},
		"without the right":               {"viewer", "POST", "/viewed?action=enableCPUManager", 403, metav1.StatusReasonForbidden, []string{`nodes "viewed" is forbidden`, f.user("viewer"), `cannot update resource "nodes"`}, "", ""},
		"with the right for another node": {"of-one", "POST", "/viewed?action=enableCPUManager", 403, metav1.StatusReasonForbidden, []string{`nodes "viewed" is forbidden`}, "", ""},
		"on no node":                      {"admin", "POST", "/gone?action=enableCPUManager", 404, metav1.StatusReasonNotFound, []string{`nodes "gone" not found`}, "", ""},
		"on what is no name":              {"admin", "POST", "/a%2Fb?action=enableCPUManager", 404, metav1.StatusReasonNotFound, []string{`nodes "a/b" not found`}, "", ""},
		"what is requested already":       {"admin", "POST", "/asked?action=enableCPUManager", 409, metav1.StatusReasonConflict, []string{`"asked"`, "policy static is requested"}, "", ""},
		"on a node under way":             {"admin", "POST", "/busy?action=disableCPUManager", 409, metav1.StatusReasonConflict, []string{`"busy"`, "policy static is running", "wait until"}, "", ""},
		"an unknown action":               {"admin", "POST", "/viewed?action=reboot", 400, metav1.StatusReasonBadRequest, []string{`action "reboot"`, "enableCPUManager", "disableCPUManager"}, "", ""},
		"no action":                       {"admin", "POST", "/viewed", 400, metav1.StatusReasonBadRequest, []string{`action ""`}, "", ""},
		"another method":                  {"admin", "PUT", "/viewed?action=enableCPUManager", 405, metav1.StatusReasonMethodNotAllowed, []string{"PUT"}, "", ""},
		"on all nodes":                    {"admin", "POST", "?action=enableCPUManager", 405, metav1.StatusReasonMethodNotAllowed, []string{"POST"}, "", ""},
		"elsewhere":                       {"admin", "POST", "/viewed/x?action=enableCPUManager", 404, metav1.StatusReasonNotFound, []string{"/v1/harvester/nodes/viewed/x"}, "", ""},
		"elsewhere, without a token":      {"nobody", "GET", "/viewed/x", 401, metav1.StatusReasonUnauthorized, []string{Audience}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := f.status("viewed") + f.status("busy")
			response, body := f.call(test.method, nodesPath+test.path, tokens[test.who])
			if response.StatusCode != test.code {
				t.Fatalf("the code is %d, want %d: %s", response.StatusCode, test.code, body)
			}
			if test.code == http.StatusNoContent {
				if len(body) > 0 {
					t.Errorf("the answer is %s", body)
				}
				if got := f.status(test.node); got != test.status {
					t.Errorf("the status is %s, want %s", got, test.status)
				}
				return
			}
			var status metav1.Status
			if err := json.Unmarshal(body, &status); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if status.Kind != "Status" || status.APIVersion != "v1" || status.Status != "Failure" || int(status.Code) != test.code || status.Reason != test.reason {
				t.Errorf("the answer is %s", body)
			}
			for _, want := range test.want {
				if !strings.Contains(status.Message, want) {
					t.Errorf("the message does not name %s: %s", want, status.Message)
				}
			}
			if (response.Header.Get("WWW-Authenticate") != "") != (test.code == 401) || (response.Header.Get("Allow") != "") != (test.code == 405) {
				t.Errorf("the headers are %v", response.Header)
			}
			if after := f.status("viewed") + f.status("busy"); after != before {
				t.Errorf("the status has become %s", after)
			}
		})
	}
}

func TestNodesAreShownToWhoeverMaySeeThem(t *testing.T) {
	f := newFixture(t)
	f.account("viewer", rule("get,list", "nodes"))
	f.account("of-one", rule("get", "nodes", "static"))
	f.account("nobody")
	f.node("static", "true", `{"status":"complete","policy":"static","id":"a1","since":"2026-11-23T10:00:00Z"}`)
	f.node("unknown", "", "")
	f.node("wrong", "false", "no")
	f.observed = func(node *corev1.Node) cpupolicy.Policy {
		if node.Name == "static" {
			return cpupolicy.Static
		}
		return ""
	}
	f.server.pageSize = 2
	const static = `{"name":"static","ready":true,"policy":"static","cpumanager":true,"status":"complete","requested":"static","since":"2026-11-23T10:00:00Z"}`

	_, body := f.call("GET", nodesPath, f.token("viewer", Audience))
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 3 || string(list.Items[0]) != static || string(list.Items[1]) != `{"name":"unknown","ready":true}` {
		t.Errorf("the list is %s", body)
	}
	if wrong := string(list.Items[2]); !strings.Contains(wrong, cpupolicy.StatusAnnotation) || !strings.Contains(wrong, `"cpumanager":false`) {
		t.Errorf("a node whose annotation cannot be read is %s", wrong)
	}
	for _, test := range []struct {
		who, path string
		code      int
		want      string
	}{
		{"viewer", "/static", 200, static},
		{"of-one", "/static", 200, static},
		{"of-one", "", 403, `cannot list resource \"nodes\"`},
		{"of-one", "/unknown", 403, `cannot get resource \"nodes\"`},
		{"nobody", "/static", 403, `cannot get resource \"nodes\"`},
		{"viewer", "/gone", 404, `nodes \"gone\" not found`},
	} {
		response, body := f.call("GET", nodesPath+test.path, f.token(test.who, Audience))
		if response.StatusCode != test.code || !strings.Contains(string(body), test.want) {
			t.Errorf("%s gets %d from %q: %s", test.who, response.StatusCode, test.path, body)
		}
	}
}
