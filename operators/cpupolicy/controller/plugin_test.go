// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy/policyclient"
)

// pluginClient is the plugin's, and what it was warned of.
func (c *cluster) pluginClient() (policyclient.Client, *rest.Config, *user) {
	c.t.Helper()
	u := &user{}
	config := rest.CopyConfig(c.Config)
	config.WarningHandler = u
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return policyclient.Client{Kube: kube, Namespace: c.Namespace}, config, u
}

func TestThePluginForetellsWhatAGroupDoes(t *testing.T) {
	c := startCluster(t).in(t)
	names := []string{"alone", "free", "other", "paused", "web"}
	for _, name := range names {
		c.addNode(name, nil)
	}
	c.addNode("outside", nil)
	c.awaitObserved(names...)
	if err := c.annotate("paused", "workload.openshift.io/paused", ""); err != nil {
		t.Fatal(err)
	}
	replicas := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web"}
	// The restarted kubelet would reject it, unless it is evicted before.
	c.pod("web", "default", "web", replicas, 4)
	hooks{c.Installed}.admin(t).create(t, pod("database", "alone", "1"))
	t.Cleanup(func() {
		_ = c.Client.Delete(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "database"}}, client.GracePeriodSeconds(0))
	})
	// It asks for what is in force, so it does nothing.
	c.group("second", v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Names: []string{"other"}}, Policy: v1alpha1.PolicyNone})
	kubectl, _, admin := c.pluginClient()
	take := func() []string {
		texts := admin.warnings
		admin.warnings = nil
		return texts
	}
	manifest := func(nodes, more string) []byte {
		return fmt.Appendf(nil, "apiVersion: cpupolicy.workload.openshift.io/v1alpha1\nkind: CPUManagerPolicy\nmetadata: {name: first}\nspec: {policy: static, nodes: {names: [%s]}%s}\n", nodes, more)
	}
	plan := func(manifest []byte) *policyclient.GroupPlan {
		t.Helper()
		group, err := kubectl.Applied(t.Context(), manifest)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := kubectl.Plan(t.Context(), group, take)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	all := strings.Join(names, ", ")
	drained := plan(manifest(all+", gone", ", maxUnavailable: 40%, cordon: true, drain: {}"))
	if drained.MaxUnavailable != "40%" || !drained.Cordon || !drained.Drain || !slices.Equal(drained.Missing, []string{"gone"}) {
		t.Errorf("the group is %+v", drained)
	}
	undrained := plan(manifest(all, ""))
	for _, test := range []struct {
		name, reason string
		evicted      []string
		with         *policyclient.GroupPlan
		want         policyclient.Outcome
	}{
		{"alone", "pod default/database has no controller", nil, drained, policyclient.WouldRefuse},
		{"alone", "", nil, undrained, policyclient.WouldSwitch},
		{"free", "", nil, drained, policyclient.WouldSwitch},
		{"other", "the CPUManagerPolicy second has it, too", nil, drained, policyclient.InTwoGroups},
		{"paused", "it is paused", nil, drained, policyclient.Waiting},
		{"web", "", []string{"default/web"}, drained, policyclient.WouldSwitch},
		{"web", "pod default/web ", nil, undrained, policyclient.WouldRefuse},
	} {
		at := slices.IndexFunc(test.with.Nodes, func(n policyclient.PlannedNode) bool { return n.Name == test.name })
		if at < 0 {
			t.Errorf("node %s is not in the plan", test.name)
			continue
		}
		n := test.with.Nodes[at]
		if n.Outcome != test.want || !slices.Equal(n.Evicted, test.evicted) || (test.reason == "") != (len(n.Reasons) == 0) || !strings.Contains(strings.Join(n.Reasons, "\n"), test.reason) || n.Policy != "none" {
			t.Errorf("with a drain %t: got %+v, want it %s: %q, with %q evicted", test.with.Drain, n, test.want, test.reason, test.evicted)
		}
	}
	if len(drained.Nodes) != len(names) {
		t.Errorf("the plan has the nodes %+v", drained.Nodes)
	}
	for _, name := range names {
		if status := c.node(name).Annotations[nodestatus.StatusAnnotation]; status != "" || c.node(name).Spec.Unschedulable {
			t.Errorf("of node %s was written %s", name, status)
		}
	}
	if _, err := kubectl.NodeGroup(t.Context(), "first"); err == nil || !strings.Contains(err.Error(), `there is no CPUManagerPolicy "first"`) {
		t.Errorf("after dry runs, a group gets %v", err)
	}
	for text, want := range map[string]string{
		string(manifest("a", ", maxUnavailable: 0")): "spec.maxUnavailable",
		string(manifest("a", ", force: true")):       "spec.force",
		"kind: Node":                                 "must be a CPUManagerPolicy",
	} {
		if _, err := kubectl.Applied(t.Context(), []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot error %v, want %q", text, err, want)
		}
	}
	// Of one that is there, the spec is replaced as a whole.
	c.group("fourth", v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Names: []string{"web", "gone"}}, Policy: v1alpha1.PolicyNone, Cordon: true, Drain: &v1alpha1.Drain{}})
	fourth := plan(bytes.Replace(manifest("web", ""), []byte("name: first"), []byte("name: fourth"), 1))
	if fourth.Policy != "static" || fourth.Cordon || fourth.Drain || len(fourth.Nodes) != 1 || len(fourth.Missing) > 0 || fourth.Nodes[0].Outcome != policyclient.WouldRefuse {
		t.Errorf("the plan of a group that has changed is %+v", fourth)
	}
	cordon := func(is string) {
		t.Helper()
		if err := c.Client.Patch(t.Context(), c.node("free"), client.RawPatch(types.MergePatchType, []byte(`{"spec": {"unschedulable": `+is+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	cordon("true")
	if n := plan(manifest("free", "")).Nodes[0]; n.Outcome != policyclient.Waiting || !slices.Equal(n.Reasons, []string{"it is cordoned"}) {
		t.Errorf("the plan of a node that is cordoned is %+v", n)
	}
	cordon("null")
	// One of the cluster that has done what it could.
	c.group("third", v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Names: []string{"free"}}, Policy: v1alpha1.PolicyStatic})
	c.awaitStatus("free", nodestatus.Complete)
	third, err := kubectl.NodeGroup(t.Context(), "third")
	if err != nil {
		t.Fatal(err)
	}
	if plan, err := kubectl.Plan(t.Context(), third, nil); err != nil || len(plan.Nodes) != 1 || plan.Nodes[0].Outcome != policyclient.HasPolicy || plan.Nodes[0].Policy != "static" {
		t.Errorf("the plan of a group that is done is %+v (%v)", plan, err)
	}
}

func TestThePluginSwitchesANode(t *testing.T) {
	c := startCluster(t).in(t)
	c.addNode("n1", nil)
	c.awaitObserved("n1")
	kubectl, _, admin := c.pluginClient()

	dry := policyclient.Request{Node: "n1", Policy: "static", DryRun: true}
	if _, err := kubectl.Ask(t.Context(), dry); err != nil {
		t.Fatal(err)
	}
	if status := c.node("n1").Annotations[nodestatus.StatusAnnotation]; status != "" {
		t.Errorf("a dry run has written %s", status)
	}
	// A kubelet writes between what is read and what is written.
	config := rest.CopyConfig(c.Config)
	var once sync.Once
	outdated := 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodPatch {
				return next.RoundTrip(request)
			}
			once.Do(func() {
				if err := c.annotate("n1", "test", "1"); err != nil {
					t.Error(err)
				}
			})
			response, err := next.RoundTrip(request)
			if err == nil && response.StatusCode == http.StatusConflict {
				outdated++
			}
			return response, err
		})
	})
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := policyclient.Client{Kube: kube, Namespace: c.Namespace}.Ask(t.Context(), policyclient.Request{Node: "n1", Policy: "static"})
	if err != nil || outdated == 0 {
		t.Fatalf("%d writes were outdated, and the answer is %v", outdated, err)
	}
	var states []string
	last, err := kubectl.Follow(t.Context(), asked, func(n policyclient.Node) {
		if len(states) == 0 || states[len(states)-1] != string(n.State) {
			states = append(states, string(n.State))
		}
	})
	if err != nil || last.Policy != "static" || last.Requested != "static" || last.Operation == "" || last.Job != jobName("n1", last.Operation) {
		t.Errorf("it ends with %+v, %v", last, err)
	}
	if got := strings.Join(states, " "); got != "requested running complete" {
		t.Errorf("it was %s", got)
	}

	checkReasons(t, kubectl, policyclient.Request{Node: "n1", Policy: "static"}, "node n1 has the CPU manager policy static already")
	for _, p := range []*corev1.Pod{pod("first", "n1", "1"), pod("second", "n1", "1")} {
		admin := hooks{c.Installed}.admin(t)
		admin.create(t, p)
	}
	dry.Policy = "none"
	checkReasons(t, kubectl, dry, "pod default/first is Guaranteed", "pod default/second is Guaranteed")
	if len(admin.warnings) > 0 {
		t.Errorf("there are the warnings %q", admin.warnings)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// checkReasons checks that a request is refused for these reasons, in this order.
func checkReasons(t *testing.T, kubectl policyclient.Client, request policyclient.Request, reasons ...string) {
	t.Helper()
	_, err := kubectl.Ask(t.Context(), request)
	var refused *policyclient.RefusedError
	if !errors.As(err, &refused) || len(refused.Reasons) != len(reasons) {
		t.Errorf("%+v: got %v, want a refusal for %q", request, err, reasons)
		return
	}
	for i, reason := range reasons {
		if !strings.HasPrefix(refused.Reasons[i].Text, reason) {
			t.Errorf("%+v: reason %d is %q, want %q", request, i, refused.Reasons[i].Text, reason)
		}
	}
}

func TestThePluginTakesALockAndAClaimAwayByForce(t *testing.T) {
	c := startCluster(t).in(t)
	role := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	h := c.addNode("cp-1", role)
	h.hold(t)
	c.addNode("cp-2", role)
	c.awaitObserved("cp-1", "cp-2")
	kubectl, _, _ := c.pluginClient()
	if _, err := kubectl.Ask(t.Context(), policyclient.Request{Node: "cp-1", Policy: "static"}); err != nil {
		t.Fatal(err)
	}
	status := c.awaitStatus("cp-1", nodestatus.Running)
	lock, err := kubectl.Lock(t.Context())
	if err != nil || len(lock.Holders) != 1 || lock.Holders[0].Node != "cp-1" || lock.Holders[0].Operation != status.ID {
		t.Fatalf("the lock is held by %+v, %v, want %s", lock.Holders, err, status.ID)
	}
	checkReasons(t, kubectl, policyclient.Request{Node: "cp-2", Policy: "static"}, "node cp-1 holds the lock of the control plane")
	if err := kubectl.Unlock(t.Context(), lock, "cp-1"); err != nil {
		t.Fatal(err)
	}
	if (hooks{c.Installed}).holders(t) != "" {
		t.Errorf("it is still held by %s", hooks{c.Installed}.holders(t))
	}
	if err := kubectl.Unlock(t.Context(), lock, "cp-1"); err == nil || !strings.Contains(err.Error(), "somebody else has written it meanwhile") {
		t.Errorf("unlocked again, the answer is %v", err)
	}
	// What is under way there is known by the annotation, too.
	checkReasons(t, kubectl, policyclient.Request{Node: "cp-2", Policy: "static"}, "node cp-1 is of the control plane, too, and is being switched")

	if err := c.annotate("cp-2", nodegroup.ClaimAnnotation, nodegroup.Claim{Owner: "tuning", Operation: "t1", Since: clock()}.String()); err != nil {
		t.Fatal(err)
	}
	node, err := kubectl.Node(t.Context(), "cp-2")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.annotate("cp-2", "test", "1"); err != nil { // a newer resource version
		t.Fatal(err)
	}
	if err := kubectl.Release(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if claim, err := nodegroup.ClaimOf(c.node("cp-2")); err != nil || claim != (nodegroup.Claim{}) {
		t.Errorf("it is claimed by %v, %v", claim, err)
	}
}
