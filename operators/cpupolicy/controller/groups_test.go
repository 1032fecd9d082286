// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/nodeclient"
	"workload.openshift.io/operators/nodejob"
)

func (c *cluster) group(name string, spec v1alpha1.CPUManagerPolicySpec) *v1alpha1.CPUManagerPolicy {
	c.t.Helper()
	group := &v1alpha1.CPUManagerPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if err := c.Client.Create(c.t.Context(), group); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := c.Client.Delete(context.Background(), group); err != nil {
			c.t.Error(err)
		}
	})
	return group
}

// awaitCondition waits until a group has a condition.
func (c *cluster) awaitCondition(group *v1alpha1.CPUManagerPolicy, kind string) {
	c.t.Helper()
	c.eventually(func() error {
		if err := c.Client.Get(c.t.Context(), client.ObjectKeyFromObject(group), group); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(group.Status.Conditions, kind) {
			return fmt.Errorf("CPUManagerPolicy %s is not %s: %+v", group.Name, kind, group.Status)
		}
		return nil
	})
}

func aGroupIsSwitchedAFewNodesAtATime(t *testing.T, c *cluster) {
	var mu sync.Mutex
	now, most := 0, 0
	goOn := make(chan struct{})
	free := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(free)
	var names []string
	for i := range 5 {
		name := fmt.Sprint("w", i)
		names = append(names, name)
		c.addNode(name, map[string]string{"pool": "w"}).run = func(request operation.Request) operation.Result {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			if !c.node(name).Spec.Unschedulable {
				t.Errorf("node %s is switched and not cordoned", name)
			}
			<-goOn
			mu.Lock()
			now--
			mu.Unlock()
			return operation.Result{ID: request.ID, Outcome: operation.Succeeded, Step: "report", Policy: request.Policy}
		}
	}
	c.awaitObserved(names...)
	group := c.group("workers", v1alpha1.CPUManagerPolicySpec{
		Nodes:  v1alpha1.NodeSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "w"}}},
		Policy: v1alpha1.PolicyStatic, MaxUnavailable: ptr.To(intstr.FromInt32(2)), Cordon: true,
	})
	atOnce := func(want int) error {
		mu.Lock()
		defer mu.Unlock()
		if now != want {
			return fmt.Errorf("%d nodes are switched at once, want %d", now, want)
		}
		return nil
	}
	c.eventually(func() error { return atOnce(2) })
	testenv.Always(t, 2*time.Second, func() error { return atOnce(2) })
	free()
	c.awaitCondition(group, v1alpha1.ConditionAvailable)
	if s := group.Status; s.Nodes != 5 || s.UpdatedNodes != 5 || s.FailedNodes != 0 {
		t.Errorf("the status is %+v", s)
	}
	if most > 2 {
		t.Errorf("%d nodes were switched at once, and 2 may be", most)
	}
	for _, name := range names {
		status := c.awaitStatus(name, nodestatus.Complete)
		if node := c.node(name); node.Spec.Unschedulable || node.Annotations[CordonedAnnotation] != "" || status.Group != "workers" {
			t.Errorf("node %s is left with %v, unschedulable %t", name, node.Annotations, node.Spec.Unschedulable)
		}
	}
}

func aNodeThatFailsIsNotTriedAgainByItsGroup(t *testing.T, c *cluster) {
	h := c.addNode("w0", nil)
	fails := func(request operation.Request) operation.Result {
		return operation.Result{ID: request.ID, Outcome: operation.RolledBack, Step: "healthy", Policy: operation.None, Message: "it did not start"}
	}
	h.run = fails
	c.awaitObserved("w0")
	group := c.group("one", v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Names: []string{"w0"}}, Policy: v1alpha1.PolicyStatic})
	c.awaitCondition(group, v1alpha1.ConditionDegraded)
	first := c.awaitStatus("w0", nodestatus.Failed)
	if degraded := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionDegraded); !strings.Contains(degraded.Message, "w0") || !strings.Contains(degraded.Message, "it did not start") {
		t.Errorf("the condition says %q", degraded.Message)
	}
	c.kill()
	c.awaitCondition(group, v1alpha1.ConditionDegraded)
	if again := c.status("w0"); again.ID != first.ID || h.runs[first.ID] != 1 {
		t.Errorf("it was tried again: %s, %v", again, h.runs)
	}
	// A change of the group is a new reason.
	c.mu.Lock()
	h.run = nil
	c.mu.Unlock()
	group.Spec.MaxUnavailable = ptr.To(intstr.FromString("50%"))
	if err := c.Client.Update(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	c.awaitCondition(group, v1alpha1.ConditionAvailable)
}

// What breaks one node may break all of them. A refusal breaks none.
func aGroupStopsWhereItsNodesFail(t *testing.T, c *cluster) {
	names := []string{"w0", "w1", "w2"}
	hosts := map[string]*host{}
	for _, name := range names {
		hosts[name] = c.addNode(name, nil)
		hosts[name].run = func(request operation.Request) operation.Result {
			return operation.Result{ID: request.ID, Outcome: operation.RolledBack, Step: "healthy", Policy: operation.None, Message: "it did not start"}
		}
	}
	hosts["w0"].run = func(request operation.Request) operation.Result {
		return operation.Result{ID: request.ID, Outcome: operation.Failed, Step: operation.StepValidate, Message: "its disk is full"}
	}
	c.awaitObserved(names...)
	group := c.group("broken", v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Names: names}, Policy: v1alpha1.PolicyStatic})
	c.awaitStatus("w1", nodestatus.Failed)
	c.eventually(func() error {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(group), group); err != nil {
			return err
		}
		degraded := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionDegraded)
		if degraded == nil || !strings.HasPrefix(degraded.Message, "no further node is switched: w1 failed once the kubelet had been stopped, and maxUnavailable is 1") || group.Status.FailedNodes != 2 {
			return fmt.Errorf("the status is %+v", group.Status)
		}
		return nil
	})
	testenv.Always(t, 2*time.Second, func() error {
		if status := c.status("w2"); status.State != "" {
			return fmt.Errorf("the status of w2 is %s", status)
		}
		return nil
	})
	if w0, w1 := c.status("w0"), c.status("w1"); w0.Begun || !w1.Begun {
		t.Errorf("the node that nothing was changed on has %s, and the one that was rolled back %s", w0, w1)
	}
	// A person who tries one again and fails lets nobody go on.
	if err := c.ask("w1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	if status := c.awaitStatus("w1", nodestatus.Failed); status.Group != "" || status.Generation != group.Generation {
		t.Errorf("the status of what a person asked for is %s", status)
	}
	testenv.Always(t, 2*time.Second, func() error {
		if w1, w2 := c.status("w1"), c.status("w2"); w1.Group != "" || w2.State != "" {
			return fmt.Errorf("the status of w1 is %s, and that of w2 %s", w1, w2)
		}
		return nil
	})
	c.mu.Lock()
	for _, h := range hosts {
		h.run = nil
	}
	c.mu.Unlock()
	for _, name := range names[:2] {
		if err := c.ask(name, cpupolicy.Static); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitCondition(group, v1alpha1.ConditionAvailable)
}

// A node that was rolled back takes the place of one that is unavailable, for this generation of the spec.
func TestNodesThatFailedCountUntilTheSpecChanges(t *testing.T) {
	const rolledBack = `{"status":"failed","policy":"static","id":"a1","group":"g","groupUID":"u","generation":2,"begun":true}`
	node := func(name, status, policy string, ready bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{nodestatus.StatusAnnotation: status}}}
		(&nodestatus.Observed{Observation: operation.Observation{Policy: operation.Policy(policy)}, At: clock()}).Put(n)
		if ready {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		return n
	}
	for name, test := range map[string]struct {
		node *corev1.Node
		most int
		next int
		says string
	}{
		"rolled back":                             {node("a", rolledBack, "none", true), 1, 0, "no further node is switched: a failed"},
		"rolled back, and not ready":              {node("a", rolledBack, "none", false), 2, 1, ""},
		"rolled back, with room for one more":     {node("a", rolledBack, "none", true), 2, 1, ""},
		"refused before anything was changed":     {node("a", strings.Replace(rolledBack, `,"begun":true`, "", 1), "none", true), 1, 1, ""},
		"rolled back for an earlier spec":         {node("a", strings.Replace(rolledBack, `"generation":2`, `"generation":1`, 1), "none", true), 2, 2, ""},
		"rolled back after a person has asked":    {node("a", strings.Replace(rolledBack, `"group":"g",`, "", 1), "none", true), 1, 0, "no further node is switched: a failed"},
		"rolled back for a person, before it":     {node("a", strings.Replace(rolledBack, `"group":"g","groupUID":"u","generation":2,`, "", 1), "none", true), 2, 2, ""},
		"rolled back for another group":           {node("a", strings.Replace(rolledBack, `"g"`, `"h"`, 1), "none", true), 2, 2, ""},
		"rolled back, and has the policy by now":  {node("a", rolledBack, "static", true), 1, 1, ""},
		"rolled back, and is tried again":         {node("a", `{"status":"requested","policy":"static"}`, "none", true), 1, 0, ""},
		"rolled back, by a clock that is behind":  {node("a", strings.Replace(rolledBack, `"group"`, `"since":"2026-11-23T09:00:00Z","group"`, 1), "none", true), 1, 0, "no further node is switched: a failed"},
		"rolled back for one of the same name":    {node("a", strings.Replace(rolledBack, `"u"`, `"v"`, 1), "none", true), 2, 2, ""},
		"rolled back, by an older release":        {node("a", strings.Replace(rolledBack, `"groupUID":"u"`, `"since":"2026-11-23T11:00:00Z"`, 1), "none", true), 1, 0, "no further node is switched: a failed"},
		"rolled back, and its annotation removed": {node("a", `-`, "none", true), 2, 2, ""},
	} {
		group := &v1alpha1.CPUManagerPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "u", Generation: 2, CreationTimestamp: metav1.NewTime(time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC))},
			Spec:       v1alpha1.CPUManagerPolicySpec{Policy: v1alpha1.PolicyStatic, MaxUnavailable: ptr.To(intstr.FromInt32(int32(test.most)))},
		}
		v := viewOf(group, []*corev1.Node{test.node, node("b", "-", "none", true), node("c", "-", "none", true)})
		if problems := strings.Join(v.problems, "\n"); len(v.next) != test.next || strings.Contains(problems, "no further node") != (test.says != "") || !strings.HasPrefix(problems, test.says) {
			t.Errorf("%s: %d nodes are next, and the problems are %q; want %d and %q", name, len(v.next), problems, test.next, test.says)
		}
	}
}

func TestADrainThatGetsLessThanItsTimeoutIsSaid(t *testing.T) {
	for timeout, want := range map[time.Duration]string{
		52 * time.Minute: "",
		time.Hour:        "spec.drain.timeout is 1h0m0s, and pods get 52m30s",
	} {
		group := &v1alpha1.CPUManagerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "g"}, Spec: v1alpha1.CPUManagerPolicySpec{
			Policy: v1alpha1.PolicyStatic, Cordon: true, Drain: &v1alpha1.Drain{Timeout: &metav1.Duration{Duration: timeout}},
		}}
		c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithObjects(group).WithStatusSubresource(group).Build()
		var settings Settings
		settings.Default()
		r := groupsReconciler{client: c, nodes: nodeclient.Client{Reader: c, Writer: c}, now: clock, longestDrain: longestDrain(settings)}
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(group), group); err != nil {
			t.Fatal(err)
		}
		degraded := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionDegraded)
		if degraded == nil || (degraded.Status == metav1.ConditionTrue) != (want != "") || !strings.Contains(degraded.Message, want) {
			t.Errorf("with the timeout %s the condition is %+v, want %q", timeout, degraded, want)
		}
	}
}

func nodesOfTheControlPlaneDoNotWaitForOthers(t *testing.T, c *cluster) {
	var names []string
	for i := range 3 {
		names = append(names, fmt.Sprint("cp", i))
		c.addNode(names[i], map[string]string{"node-role.kubernetes.io/control-plane": ""})
	}
	c.awaitObserved(names...)
	group := c.group("control-plane", v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Names: names}, Policy: v1alpha1.PolicyStatic, MaxUnavailable: ptr.To(intstr.FromInt32(3))})
	c.awaitCondition(group, v1alpha1.ConditionAvailable)
}

func aGroupThatIsCreatedAgainTriesAgain(t *testing.T, c *cluster) {
	h := c.addNode("w0", nil)
	h.run = func(request operation.Request) operation.Result {
		return operation.Result{ID: request.ID, Outcome: operation.RolledBack, Step: "healthy", Policy: operation.None, Message: "it did not start"}
	}
	c.awaitObserved("w0")
	spec := v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Names: []string{"w0"}}, Policy: v1alpha1.PolicyStatic}
	first := &v1alpha1.CPUManagerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "again"}, Spec: spec}
	if err := c.Client.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus("w0", nodestatus.Failed)
	c.mu.Lock()
	h.run = nil
	c.mu.Unlock()
	if err := c.Client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	group := c.group("again", spec)
	c.awaitCondition(group, v1alpha1.ConditionAvailable)
}

func aNodeThatHasLeftItsGroupIsNotSwitched(t *testing.T, c *cluster) {
	h := c.addNode("w0", nil)
	c.awaitObserved("w0")
	claim := nodegroup.Claim{Owner: "tuning", Operation: "t1", Since: clock()}.String()
	if err := c.annotate("w0", nodegroup.ClaimAnnotation, claim); err != nil {
		t.Fatal(err)
	}
	group := c.group("left", v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Names: []string{"w0"}}, Policy: v1alpha1.PolicyStatic})
	c.awaitStatus("w0", nodestatus.Requested)
	c.eventually(func() error {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(group), group); err != nil {
			return err
		}
		group.Spec.Nodes.Names = []string{"w1"}
		return c.Client.Update(t.Context(), group)
	})
	c.eventually(func() error {
		if status := c.status("w0"); status.State != nodestatus.Failed {
			return fmt.Errorf("the status is %s", status)
		}
		return nil
	})
	status := c.status("w0")
	if !strings.Contains(status.Message, "the CPUManagerPolicy left does not have this node any longer") || len(h.runs) > 0 {
		t.Errorf("the message is %q, and runs are %v", status.Message, h.runs)
	}
	if now := c.node("w0").Annotations[nodegroup.ClaimAnnotation]; now != claim {
		t.Errorf("the claim is %q, want %q", now, claim)
	}
}

// A node that somebody else has, or that died in a person's operation, is not available for a group.
func TestUnavailableNodesOfAGroupCount(t *testing.T) {
	claimed := func(owner, id string) string {
		return nodegroup.Claim{Owner: owner, Operation: id, Since: clock()}.String()
	}
	group := &v1alpha1.CPUManagerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "g"}}
	for name, test := range map[string]struct {
		status, claim string
		counts        int
	}{
		"not ready":                                      {"", "", 1},
		"claimed by another companion":                   {"", claimed("tuning", "t1"), 1},
		"being switched":                                 {`{"status":"running","policy":"static","id":"a1","group":"g"}`, claimed(Name, "a1"), 0},
		"lost in an operation of the group":              {`{"status":"failed","policy":"static","id":"a1","group":"g"}`, claimed(Name, "a1"), 0},
		"lost in a person's operation":                   {`{"status":"failed","policy":"static","id":"a1"}`, claimed(Name, "a1"), 1},
		"lost in an operation before the one that ended": {`{"status":"failed","policy":"static","id":"a2","group":"g"}`, claimed(Name, "a1"), 1},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{nodestatus.StatusAnnotation: test.status, nodegroup.ClaimAnnotation: test.claim}}}
		if got := unavailableOthers(group, []*corev1.Node{node}); got != test.counts {
			t.Errorf("%s: %d nodes count, want %d", name, got, test.counts)
		}
	}
}

// A group never has more nodes down than it allows, no matter who took them down.
func TestTheLockOfAGroupAllowsForWhatElseIsDown(t *testing.T) {
	node := func(name, status, owner, id string, ready bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{nodestatus.StatusAnnotation: status}}}
		if owner != "" {
			n.Annotations[nodegroup.ClaimAnnotation] = nodegroup.Claim{Owner: owner, Operation: id, Since: clock()}.String()
		}
		if ready {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		return n
	}
	requested := func(id string) string {
		return `{"status":"requested","policy":"static","id":"` + id + `","group":"g"}`
	}
	const running = `{"status":"running","policy":"static","id":"p1"}`
	for name, test := range map[string]struct {
		most    int
		members []*corev1.Node
		max     int
		waits   bool
	}{
		"all are there":                            {1, []*corev1.Node{node("a", requested("a1"), "", "", true), node("b", "", "", "", true)}, 1, false},
		"a person's switch is under way":           {1, []*corev1.Node{node("a", running, Name, "p1", true), node("b", requested("b1"), "", "", true)}, 1, true},
		"the only one that may be down has died":   {1, []*corev1.Node{node("a", requested("a1"), "", "", false), node("b", requested("b1"), "", "", true)}, 1, true},
		"one that waits for its switch has died":   {2, []*corev1.Node{node("a", requested("a1"), "", "", false), node("b", requested("b1"), "", "", true), node("c", "", "", "", false)}, 1, true},
		"one of the group's own is being switched": {2, []*corev1.Node{node("a", `{"status":"running","policy":"static","id":"a1","group":"g"}`, Name, "a1", false), node("b", requested("b1"), "", "", true)}, 2, false},
		"another companion has one":                {2, []*corev1.Node{node("a", "", "tuning", "t1", true), node("b", requested("b1"), "", "", true)}, 1, false},
	} {
		group := &v1alpha1.CPUManagerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "g"}, Spec: v1alpha1.CPUManagerPolicySpec{MaxUnavailable: ptr.To(intstr.FromInt32(int32(test.most)))}}
		l := newGroupLock(group, test.members)
		if waits := l.waitsFor("b"); l.lock.Max != test.max || (waits != "") != test.waits {
			t.Errorf("%s: the lock has room for %d, and %q; want %d, and a reason: %t", name, l.lock.Max, waits, test.max, test.waits)
		}
		// What is down itself is looked at, or nobody would say so.
		if unavailable(test.members[0]) && len(l.down) == 1 && l.waitsFor(l.down[0]) != "" {
			t.Errorf("%s: %s waits for itself", name, l.down[0])
		}
	}
}

// A node whose agent never answers must not make a group look well.
func TestAGroupSaysWhichNodesNobodyHasObserved(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	group := &v1alpha1.CPUManagerPolicy{Spec: v1alpha1.CPUManagerPolicySpec{Policy: v1alpha1.PolicyStatic}}
	joins := node.DeepCopy()
	joins.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clock())
	if v := viewOf(group, []*corev1.Node{node, joins}); !v.unobserved || len(v.problems) != 1 || !strings.Contains(v.problems[0], "node n: nobody has observed its policy; ") {
		t.Errorf("the problems are %q, want one, of the node that has been Ready for long", v.problems)
	}
}

func aNodeOfTwoGroupsIsInNone(t *testing.T, c *cluster) {
	c.addNode("w0", nil)
	c.awaitObserved("w0")
	spec := v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Names: []string{"w0"}}, Policy: v1alpha1.PolicyNone}
	a := c.group("a", spec)
	c.awaitCondition(a, v1alpha1.ConditionAvailable)
	spec.Policy = v1alpha1.PolicyStatic
	b := c.group("b", spec)
	for _, group := range []*v1alpha1.CPUManagerPolicy{a, b} {
		c.awaitCondition(group, v1alpha1.ConditionDegraded)
		if degraded := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionDegraded); !strings.Contains(degraded.Message, "a and b") {
			t.Errorf("the condition says %q", degraded.Message)
		}
	}
	if status := c.status("w0"); status.State != "" {
		t.Errorf("the node has the status %s", status)
	}
}

// pod adds a pod that runs on a node, of an owner that would bring it back. It is Guaranteed if it has CPUs.
func (c *cluster) pod(node, namespace, name string, owner metav1.OwnerReference, cpus int64) {
	c.t.Helper()
	owner.Controller = ptr.To(true)
	var resources corev1.ResourceRequirements
	if cpus > 0 {
		resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Mi")}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Containers: []corev1.Container{{Name: "main", Image: "image", Resources: resources, SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), RunAsNonRoot: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}}},
		},
	}
	if err := c.Client.Create(c.t.Context(), pod); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0))); err != nil {
			c.t.Error(err)
		}
	})
}

// leaving returns an error until a pod was told to go.
func (c *cluster) leaving(namespace, name string) error {
	var pod corev1.Pod
	if err := c.Client.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return err
	}
	if pod.DeletionTimestamp == nil {
		return fmt.Errorf("pod %s was not evicted", name)
	}
	return nil
}

func aNodeIsDrainedBeforeItsPolicyIsSwitched(t *testing.T, c *cluster) {
	h := c.addNode("w0", nil)
	var daemons appsv1.DaemonSet
	daemons.Namespace, daemons.Name = "default", "daemons"
	daemons.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "daemons"}}
	daemons.Spec.Template.Labels = daemons.Spec.Selector.MatchLabels
	daemons.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "image"}}
	if err := c.Client.Create(t.Context(), &daemons); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Client.Delete(context.Background(), &daemons); err != nil {
			t.Error(err)
		}
	}()
	c.pod("w0", "default", "daemon", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "daemons", UID: daemons.UID}, 0)
	replicas := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web"}
	// The restarted kubelet would reject it.
	c.pod("w0", "default", "web", replicas, 4)
	// It may have no other place, and nobody else would uncordon the node.
	c.pod("w0", c.Namespace, "controller", replicas, 0)
	c.awaitObserved("w0")
	group := c.group("drained", v1alpha1.CPUManagerPolicySpec{
		Nodes: v1alpha1.NodeSelection{Names: []string{"w0"}}, Policy: v1alpha1.PolicyStatic, Cordon: true, Drain: &v1alpha1.Drain{},
	})
	c.eventually(func() error { return c.leaving("default", "web") })
	if len(h.runs) > 0 || !c.node("w0").Spec.Unschedulable {
		t.Errorf("while a pod is still there, runs are %v, and the node is %+v", h.runs, c.node("w0").Spec)
	}
	if c.leaving("default", "daemon") == nil || c.leaving(c.Namespace, "controller") == nil {
		t.Error("the pod of a DaemonSet, or one of the companions, was evicted")
	}
	if err := c.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.awaitCondition(group, v1alpha1.ConditionAvailable)
	c.awaitStatus("w0", nodestatus.Complete)
	if c.node("w0").Spec.Unschedulable {
		t.Error("the node is left cordoned")
	}
}

// A drain may take an hour, and what was true before it is not after it.
func aDrainedNodeWaitsForTheRestOfTheControlPlane(t *testing.T, c *cluster) {
	role := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	h := c.addNode("cp0", role)
	c.addNode("cp1", role)
	c.pod("cp0", "default", "web", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web"}, 0)
	c.awaitObserved("cp0", "cp1")
	c.group("drained", v1alpha1.CPUManagerPolicySpec{
		Nodes: v1alpha1.NodeSelection{Names: []string{"cp0"}}, Policy: v1alpha1.PolicyStatic, Cordon: true, Drain: &v1alpha1.Drain{},
	})
	c.eventually(func() error { return c.leaving("default", "web") })
	ready := func(status corev1.ConditionStatus) {
		t.Helper()
		c.eventually(func() error { // the controller may write it, too
			other := c.node("cp1")
			other.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
			return c.Client.Status().Update(t.Context(), other)
		})
	}
	ready(corev1.ConditionFalse)
	if err := c.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.eventually(func() error {
		return c.says("cp0", "CPUPolicyWaits", "node cp1 is of the control plane, too, and is not Ready")
	})
	c.mu.Lock()
	if len(h.runs) > 0 {
		t.Errorf("with another node of the control plane down, runs are %v", h.runs)
	}
	c.mu.Unlock()
	ready(corev1.ConditionTrue)
	c.awaitStatus("cp0", nodestatus.Complete)
}

func aDrainThatTakesTooLongChangesNothing(t *testing.T, c *cluster) {
	h := c.addNode("w0", nil)
	c.pod("w0", "default", "stays", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web"}, 0)
	c.awaitObserved("w0")
	group := c.group("hurried", v1alpha1.CPUManagerPolicySpec{
		Nodes: v1alpha1.NodeSelection{Names: []string{"w0"}}, Policy: v1alpha1.PolicyStatic, Cordon: true,
		Drain: &v1alpha1.Drain{Timeout: &metav1.Duration{Duration: 2 * time.Second}},
	})
	status := c.awaitStatus("w0", nodestatus.Failed)
	if !strings.Contains(status.Message, "nothing was changed") || !strings.Contains(status.Message, "default/stays") {
		t.Errorf("the message is %q", status.Message)
	}
	c.awaitCondition(group, v1alpha1.ConditionDegraded)
	if len(h.runs) > 0 || c.node("w0").Spec.Unschedulable {
		t.Errorf("runs are %v, and the node is left %+v", h.runs, c.node("w0").Spec)
	}
	// A controller that is late finds the name of the Job taken, for a day.
	var job batchv1.Job
	c.eventually(func() error {
		if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: agentNamespace, Name: jobName("w0", status.ID)}, &job); err != nil {
			return err
		}
		if at, _ := nodejob.Ended(&job); at.IsZero() || job.Status.Succeeded > 0 || ptr.Deref(job.Spec.TTLSecondsAfterFinished, 0) != 24*60*60 {
			return fmt.Errorf("the Job does not go by itself: %+v", job)
		}
		return nil
	})
	if err := c.Client.Delete(t.Context(), &job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	// Once it has gone nobody misses it.
	c.addNode("w1", nil)
	c.awaitObserved("w1")
	err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(&job), &job)
	if now := c.status("w0"); now != status || !apierrors.IsNotFound(err) || len(h.runs) > 0 {
		t.Errorf("without the Job the status is %s, runs are %v, and the Job is %v", now, h.runs, err)
	}
}
