// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// A kubelet that starts again ends pods whose label has gone. KubeVirt takes its label schedulable away when
// the kubelet restarts, and gives it back a minute later.
func TestARollBackWaitsForWhatPodsRequireOfTheirNode(t *testing.T) {
	broken := scene{from: operation.None, to: operation.Static, broken: operation.Static, want: operation.RolledBack}
	away := errors.New("connection refused")
	asked := 0
	for name, test := range map[string]struct {
		scene scene
		unfit func(since time.Duration) (bool, error)
		// least and most are when the kubelet is started again, after it was started for the first time.
		least, most time.Duration
		says        string
	}{
		"the label comes back":                      {broken, comesBack, time.Minute, 62 * time.Second, ""},
		"it is back when the switch fails":          {scene{from: operation.None, to: operation.Static, sick: operation.Static, want: operation.RolledBack}, comesBack, 70 * time.Second, 85 * time.Second, ""},
		"it was away before the switch":             {broken, func(time.Duration) (bool, error) { return true, nil }, 0, 10 * time.Second, ""},
		"it never goes":                             {broken, func(time.Duration) (bool, error) { return false, nil }, 0, 10 * time.Second, ""},
		"it does not come back in time":             {broken, func(since time.Duration) (bool, error) { return since > 2*time.Second, nil }, 110 * time.Second, 120 * time.Second, "; the kubelet was then started again although v/machine requires of its node kubevirt.io/schedulable=true"},
		"nobody can say what was before the switch": {broken, func(since time.Duration) (bool, error) { return since > 0, map[bool]error{true: away}[since == 0] }, 0, 10 * time.Second, ""},
		"kube-apiserver goes away":                  {broken, func(since time.Duration) (bool, error) { return false, map[bool]error{true: away}[since > 0] }, 0, 10 * time.Second, ""},
		"kube-apiserver fails every other time": {broken, func(since time.Duration) (bool, error) {
			asked++
			unfit, _ := comesBack(since)
			return unfit, map[bool]error{true: away}[asked%2 == 0]
		}, time.Minute, 63 * time.Second, ""},
		"what fails before the kubelet is started a first": {scene{from: operation.None, to: operation.Static, full: simDropIn, fills: true, want: operation.RolledBack}, func(time.Duration) (bool, error) { return false, nil }, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.scene.unfit = test.unfit
				w := test.scene.world(t, 1)
				begin := time.Now()
				result, err, _ := w.execute(w.executor(nil))
				if err != nil {
					t.Fatal(err)
				}
				if result.Outcome != test.scene.want {
					t.Errorf("the result is %+v, want %s", result, test.scene.want)
				}
				if took := time.Since(begin); took > operation.MaxTotal {
					t.Errorf("it took %s", took)
				}
				if again := w.startedAt.Sub(w.restarted); again < test.least || again > test.most {
					t.Errorf("the kubelet was started again after %s, want %s to %s", again, test.least, test.most)
				}
				if !strings.HasSuffix(result.Message, test.says) || test.says == "" && strings.Contains(result.Message, "although") {
					t.Errorf("the message is %q, want %q at its end", result.Message, test.says)
				}
			})
		})
	}
}

// kubeAPI plays kube-apiserver for a kubelet whose kubeconfig is on a host.
func kubeAPI(t *testing.T, h *testHost, node map[string]any, pods []map[string]any) *Plan {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/api/v1/nodes/n1":
			answer = node
		case r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed":
			answer = map[string]any{"kind": "PodList", "apiVersion": "v1", "items": pods}
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	h.write("/etc/kubelet.conf", kubeconfigOf(server.URL, server.Certificate()))
	return &Plan{Kubeconfig: "/etc/kubelet.conf", NodeName: "n1"}
}

func kubeconfigOf(server string, authority *x509.Certificate) string {
	data := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}))
	return fmt.Sprintf(`{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
		"clusters": [{"name": "k", "cluster": {"server": %q, "certificate-authority-data": %q, "tls-server-name": "example.com"}}], "users": [{"name": "u", "user": {"token": "secret"}}]}`, server, data)
}

func podThat(uid string, selector map[string]string, phase string) map[string]any {
	return map[string]any{"metadata": map[string]any{"namespace": "d", "name": uid, "uid": uid}, "spec": map[string]any{"nodeSelector": selector}, "status": map[string]any{"phase": phase}}
}

func TestTheNodeIsAskedForWithTheKubeletsCredentials(t *testing.T) {
	h := newTestHost(t)
	labels := map[string]any{"a": "b", "cpumanager": "false"}
	node := map[string]any{"metadata": map[string]any{"name": "n1", "labels": labels}, "spec": map[string]any{"taints": []map[string]any{}}}
	plan := kubeAPI(t, h, node, []map[string]any{
		podThat("fits", map[string]string{"a": "b"}, "Running"), podThat("static", map[string]string{"cpumanager": "true"}, "Running"),
		podThat("none", map[string]string{"cpumanager": "false"}, "Running"), podThat("lacks", map[string]string{"c": "d"}, "Running"),
	})
	for _, test := range []struct {
		name           string
		change         func()
		before         *NodeBefore
		wantLabels     map[string]string
		wantMismatches map[string]string
	}{
		{"before a switch", func() {}, nil, map[string]string{"cpumanager": "false"},
			map[string]string{"static": "d/static requires of its node cpumanager=true, which has cpumanager=false", "lacks": "d/lacks requires of its node c=d, which has no label c"}},
		{"the label of the policy counts as it was", func() { labels["cpumanager"] = "true"; delete(labels, "a") }, &NodeBefore{Labels: map[string]string{"cpumanager": "false"}}, map[string]string{"cpumanager": "true"},
			map[string]string{"fits": "d/fits requires of its node a=b, which has no label a", "static": "d/static requires of its node cpumanager=true, which has cpumanager=false", "lacks": "d/lacks requires of its node c=d, which has no label c"}},
		{"it counts as missing if it was missing", func() { labels["a"] = "b" }, &NodeBefore{}, map[string]string{"cpumanager": "true"},
			map[string]string{"none": "d/none requires of its node cpumanager=false, which has no label cpumanager", "static": "d/static requires of its node cpumanager=true, which has no label cpumanager", "lacks": "d/lacks requires of its node c=d, which has no label c"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.change()
			plan.Node = test.before
			got, mismatches, err := h.open().host.node(t.Context(), plan)
			if err != nil || !maps.Equal(got, test.wantLabels) || !maps.Equal(mismatches, test.wantMismatches) {
				t.Errorf("the labels are %v, and the mismatches %q (%v); want %v and %q", got, mismatches, err, test.wantLabels, test.wantMismatches)
			}
		})
	}
	t.Run("a kubelet without a kubeconfig", func(t *testing.T) {
		if _, _, err := h.open().host.node(context.Background(), &Plan{}); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
			t.Errorf("the error is %v", err)
		}
	})
}
