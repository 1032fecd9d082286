// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/testenv"
)

// TestRequests has one control plane and one controller for all that may become of a request.
func TestRequests(t *testing.T) {
	c := startCluster(t)
	for name, test := range map[string]func(*testing.T, *cluster){
		"a request is carried out":                            aRequestIsCarriedOut,
		"what fails shows and the next request is free":       whatFailsShowsAndTheNextRequestIsFree,
		"a deleted job is replaced and nothing is done twice": aDeletedJobIsReplacedAndNothingIsDoneTwice,
		"what the agent refuses is refused with its words":    whatTheAgentRefusesIsRefusedWithItsWords,
		"a node that goes keeps nobody from anything":         aNodeThatGoesKeepsNobodyFromAnything,
		"a frozen node is not released before it has settled": aFrozenNodeIsNotReleasedBeforeItHasSettled,
		"what the agent refuses keeps a node from its drain":  whatTheAgentRefusesKeepsANodeFromItsDrain,
		"a mark of what has ended goes with its cordon":       aMarkOfWhatHasEndedGoesWithItsCordon,
		"a paused node waits":                                 aPausedNodeWaits,
		"a paused group waits":                                aPausedGroupWaits,
		"a controller that is killed is no loss":              aControllerThatIsKilledIsNoLoss,
		"a group is switched a few nodes at a time":           aGroupIsSwitchedAFewNodesAtATime,
		"a node that fails is not tried again by its group":   aNodeThatFailsIsNotTriedAgainByItsGroup,
		"a group stops where its nodes fail":                  aGroupStopsWhereItsNodesFail,
		"a node of two groups is in none":                     aNodeOfTwoGroupsIsInNone,
		"a node is drained before its policy is switched":     aNodeIsDrainedBeforeItsPolicyIsSwitched,
		"a drain that takes too long changes nothing":         aDrainThatTakesTooLongChangesNothing,
		"a drained node waits for the control plane":          aDrainedNodeWaitsForTheRestOfTheControlPlane,
		"nodes of the control plane do not wait for others":   nodesOfTheControlPlaneDoNotWaitForOthers,
		"a group that is created again tries again":           aGroupThatIsCreatedAgainTriesAgain,
		"a node that has left its group is not switched":      aNodeThatHasLeftItsGroupIsNotSwitched,
		"two nodes of the control plane at once":              twoNodesOfTheControlPlaneAtOnce,
		"a lock with a holder that is none is repaired":       aLockWithAHolderThatIsNoneIsRepaired,
		"forged claims make one Job":                          forgedClaimsMakeOneJob,
		"a node that boots without an end makes one Job":      aNodeThatBootsWithoutAnEndMakesOneJob,
		"a node that another manager writes is left alone":    aNodeThatAnotherManagerWritesIsLeftAlone,
	} {
		t.Run(name, func(t *testing.T) { test(t, c.in(t)) })
	}
}

func aRequestIsCarriedOut(t *testing.T, c *cluster) {
	h := c.addNode("n1", nil)
	c.awaitObserved("n1")
	c.eventually(func() error {
		if got := c.node("n1").Labels[cpupolicy.Label]; got != "false" {
			return fmt.Errorf("an observed node has the label %q, want false", got)
		}
		return nil
	})
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	status := c.awaitStatus("n1", nodestatus.Complete)
	if status.Policy != cpupolicy.Static || status.ID == "" || status.Job != jobName("n1", status.ID) || status.Message != "" {
		t.Errorf("the status is %s", status)
	}
	node := c.node("n1")
	if node.Labels[cpupolicy.Label] != "true" || nodestatus.InForce(node) != cpupolicy.Static {
		t.Errorf("the node has the label %q and %v", node.Labels[cpupolicy.Label], nodestatus.ObservedOf(node))
	}
	if h.runs[status.ID] != 1 {
		t.Errorf("the switch was done %d times", h.runs[status.ID])
	}
	// The Job stays for a day, and keeps its name from a controller that is late.
	var job batchv1.Job
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: agentNamespace, Name: status.Job}, &job); err != nil || job.Spec.TTLSecondsAfterFinished == nil {
		t.Errorf("the Job is %+v, %v", job.Spec, err)
	}
	if err := c.ask("n1", cpupolicy.Static); err == nil || !strings.Contains(err.Error(), "has the CPU manager policy static already") {
		t.Errorf("asked again, the answer is %v", err)
	}
}

func whatFailsShowsAndTheNextRequestIsFree(t *testing.T, c *cluster) {
	h := c.addNode("n1", nil)
	h.run = func(request operation.Request) operation.Result {
		return operation.Result{ID: request.ID, Outcome: operation.RolledBack, Step: "healthy", Policy: operation.None, Message: "the kubelet ended 3 times", KubeletError: "E1103 command failed"}
	}
	c.awaitObserved("n1")
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	first := c.awaitStatus("n1", nodestatus.Failed)
	for _, part := range []string{"rolled back, the policy in force is none", "the kubelet ended 3 times", "E1103 command failed"} {
		if !strings.Contains(first.Message, part) {
			t.Errorf("the message is %q, and lacks %q", first.Message, part)
		}
	}
	c.mu.Lock()
	h.run = nil
	c.mu.Unlock()
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	if second := c.awaitStatus("n1", nodestatus.Complete); second.ID == first.ID {
		t.Errorf("two operations have the id %s", second.ID)
	}
}

func aDeletedJobIsReplacedAndNothingIsDoneTwice(t *testing.T, c *cluster) {
	h := c.addNode("n1", nil)
	goOn := h.hold(t)
	c.awaitObserved("n1")
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	status := c.awaitStatus("n1", nodestatus.Running)
	job := &batchv1.Job{}
	key := client.ObjectKey{Namespace: agentNamespace, Name: status.Job}
	c.eventually(func() error { return c.Client.Get(t.Context(), key, job) })
	first := job.UID
	if err := c.Client.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	c.eventually(func() error {
		if err := c.Client.Get(t.Context(), key, job); err != nil || job.UID == first {
			return fmt.Errorf("the Job was not replaced: %w", err)
		}
		return nil
	})
	if status := c.status("n1"); status.State != nodestatus.Running {
		t.Errorf("while the Job was gone the status became %s", status)
	}
	goOn()
	c.awaitStatus("n1", nodestatus.Complete)
}

func whatTheAgentRefusesIsRefusedWithItsWords(t *testing.T, c *cluster) {
	h := c.addNode("n1", nil)
	c.awaitObserved("n1")
	// What was observed at boot has changed: only another look shows it.
	const why = "/etc/kubernetes/kubelet.conf:7: cpuManagerPolicyOptions"
	c.mu.Lock()
	h.refused[operation.Static] = operation.Refuse(why)
	c.mu.Unlock()
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	if status := c.awaitStatus("n1", nodestatus.Failed); !strings.Contains(status.Message, why) {
		t.Errorf("the message is %q, and lacks %q", status.Message, why)
	}
	if err := c.ask("n1", cpupolicy.Static); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("asked again, the answer is %v, and lacks %q", err, why)
	}
	if len(h.runs) > 0 {
		t.Errorf("it was begun: %v", h.runs)
	}
}

func whatTheAgentRefusesKeepsANodeFromItsDrain(t *testing.T, c *cluster) {
	h := c.addNode("w0", nil)
	const why = "the kubelet has no --config-dir"
	h.refused[operation.Static] = operation.Refusals{{Text: why}, {Code: operation.ContainersHoldCPUs, Text: "container c of pod default/web has CPU 1 exclusively; migrate or stop it first"}}
	c.pod("w0", "default", "web", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web"}, 0)
	c.awaitObserved("w0")
	c.group("drained", v1alpha1.CPUManagerPolicySpec{
		Nodes: v1alpha1.NodeSelection{Names: []string{"w0"}}, Policy: v1alpha1.PolicyStatic, Cordon: true, Drain: &v1alpha1.Drain{},
	})
	if status := c.awaitStatus("w0", nodestatus.Failed); !strings.Contains(status.Message, why) || strings.Contains(status.Message, "exclusively") {
		t.Errorf("the message is %q, want %q alone", status.Message, why)
	}
	if c.leaving("default", "web") == nil || c.node("w0").Spec.Unschedulable {
		t.Error("a pod was evicted, or the node cordoned, for a switch that is refused")
	}
}

// A person has released the claim of a node that nobody had uncordoned.
func aMarkOfWhatHasEndedGoesWithItsCordon(t *testing.T, c *cluster) {
	c.addNode("n1", nil)
	c.awaitObserved("n1")
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	status := c.awaitStatus("n1", nodestatus.Complete)
	c.eventually(func() error {
		if claim := c.node("n1").Annotations[nodegroup.ClaimAnnotation]; claim != "" {
			return fmt.Errorf("the claim is %s", claim)
		}
		return nil
	})
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"unschedulable":true}}`, CordonedAnnotation, status.ID)
	if err := (hooks{c.Installed}).controller(t).Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	c.eventually(func() error {
		if node := c.node("n1"); node.Spec.Unschedulable || node.Annotations[CordonedAnnotation] != "" {
			return fmt.Errorf("the node is left with %v, unschedulable %t", node.Annotations, node.Spec.Unschedulable)
		}
		return nil
	})
}

func aNodeThatGoesKeepsNobodyFromAnything(t *testing.T, c *cluster) {
	role := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	h := c.addNode("n1", role)
	h.hold(t)
	c.addNode("n2", role)
	c.awaitObserved("n1", "n2")
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus("n1", nodestatus.Running)
	if err := c.ask("n2", cpupolicy.Static); err == nil || !strings.Contains(err.Error(), "n1") {
		t.Fatalf("asked for another node of the control plane, the answer is %v", err)
	}
	if err := c.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	c.eventually(func() error { return c.ask("n2", cpupolicy.Static) })
	c.awaitStatus("n2", nodestatus.Complete)
}

// A node stands still in the middle of a switch for longer than the time limit, and somebody deletes the Job.
func aFrozenNodeIsNotReleasedBeforeItHasSettled(t *testing.T, c *cluster) {
	role := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	h := c.addNode("n1", role)
	thaw := h.hold(t)
	c.addNode("n2", role)
	c.awaitObserved("n1", "n2")
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	status := c.awaitStatus("n1", nodestatus.Running)
	jobs := func(command string) (found []batchv1.Job) {
		t.Helper()
		var list batchv1.JobList
		if err := c.Client.List(t.Context(), &list, client.InNamespace(agentNamespace)); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(list.Items, func(job batchv1.Job) bool { return job.Spec.Template.Spec.Containers[0].Args[1] != command })
	}
	var pods corev1.PodList
	c.eventually(func() error { // it has begun
		err := c.Client.List(t.Context(), &pods, client.InNamespace(agentNamespace), client.MatchingLabels{batchv1.JobNameLabel: jobName("n1", status.ID)})
		if len(pods.Items) == 0 {
			return fmt.Errorf("there is no pod: %w", err)
		}
		return nil
	})
	status.Since = time.Now().Add(-time.Hour)
	if err := (hooks{c.Installed}).controller(t).ask("n1", status.String()); err != nil {
		t.Fatal(err)
	}
	c.eventually(func() error {
		if status := c.status("n1"); status.State != nodestatus.Failed || !status.Overdue {
			return fmt.Errorf("the status is %s", status)
		}
		return nil
	})
	for _, job := range jobs("run") {
		if err := c.Client.Delete(t.Context(), &job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually(func() error {
		if run, settle := jobs("run"), jobs("settle"); len(run) != 0 || len(settle) != 1 {
			return fmt.Errorf("%d Jobs run the operation, and %d settle it", len(run), len(settle))
		}
		return nil
	})
	c.kill() // the next one does not know better
	testenv.Always(t, 2*time.Second, func() error {
		if claim := c.node("n1").Annotations[nodegroup.ClaimAnnotation]; !strings.Contains(claim, status.ID) {
			return fmt.Errorf("the claim is %q", claim)
		}
		if got := (hooks{c.Installed}).holders(t); got != status.ID+" n1" {
			return fmt.Errorf("the holders of the lock are %q", got)
		}
		return nil
	})
	c.eventually(func() error {
		if err := c.ask("n2", cpupolicy.Static); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "n1") {
			return fmt.Errorf("asked for another node of the control plane, the answer is %w", err)
		}
		return nil
	})
	thaw()
	if status := c.awaitStatus("n1", nodestatus.Failed); !strings.HasPrefix(status.Message, "no result after ") || !strings.HasSuffix(status.Message, "; then: Succeeded") {
		t.Errorf("the message is %q", status.Message)
	}
	if h.runs[status.ID] != 1 || nodestatus.InForce(c.node("n1")) != cpupolicy.Static {
		t.Errorf("runs are %v, and what is observed is %+v", h.runs, nodestatus.ObservedOf(c.node("n1")))
	}
	c.eventually(func() error { return c.ask("n2", cpupolicy.Static) })
	c.awaitStatus("n2", nodestatus.Complete)
}

func aPausedNodeWaits(t *testing.T, c *cluster) {
	c.addNode("n1", nil)
	c.awaitObserved("n1")
	if err := c.annotate("n1", "workload.openshift.io/paused", "true"); err != nil {
		t.Fatal(err)
	}
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	c.eventually(func() error { return c.says("n1", "CPUPolicyWaits", "The request waits: the node is paused") })
	if status := c.status("n1"); status.State != nodestatus.Requested {
		t.Errorf("the status is %s", status)
	}
	if err := c.annotate("n1", "workload.openshift.io/paused", "false"); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus("n1", nodestatus.Complete)
}

// What a group has asked for before it was paused waits, too.
func aPausedGroupWaits(t *testing.T, c *cluster) {
	h := c.addNode("n1", nil)
	thaw := h.hold(t)
	c.addNode("n2", nil)
	c.awaitObserved("n1", "n2")
	group := c.group("pauses", v1alpha1.CPUManagerPolicySpec{
		Nodes: v1alpha1.NodeSelection{Names: []string{"n1", "n2"}}, Policy: v1alpha1.PolicyStatic, MaxUnavailable: ptr.To(intstr.FromInt32(1)),
	})
	c.awaitStatus("n1", nodestatus.Running)
	pause := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata": {"annotations": {"workload.openshift.io/paused": ` + value + `}}}`)
		if err := c.Client.Patch(t.Context(), group, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
	pause(`""`)
	c.awaitCondition(group, v1alpha1.ConditionPaused)
	thaw()
	c.awaitStatus("n1", nodestatus.Complete) // it had begun
	testenv.Always(t, 2*time.Second, func() error {
		if status := c.status("n2"); status.State != "" {
			return fmt.Errorf("the status of n2 is %s", status)
		}
		return nil
	})
	pause("null")
	c.awaitStatus("n2", nodestatus.Complete)
}

// A controller that is killed at any moment leaves nothing that the next one does not finish, and
// nothing is done twice.
func aControllerThatIsKilledIsNoLoss(t *testing.T, c *cluster) {
	h := c.addNode("n1", map[string]string{"node-role.kubernetes.io/control-plane": ""})
	seed := time.Now().UnixNano()
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	h.run = func(request operation.Request) operation.Result {
		time.Sleep(200 * time.Millisecond)
		return operation.Result{ID: request.ID, Outcome: operation.Succeeded, Step: "report", Policy: request.Policy}
	}
	c.awaitObserved("n1")
	const rounds = 3
	policy := cpupolicy.None
	for range rounds {
		policy = map[cpupolicy.Policy]cpupolicy.Policy{cpupolicy.None: cpupolicy.Static, cpupolicy.Static: cpupolicy.None}[policy]
		c.eventually(func() error { return c.ask("n1", policy) })
		time.Sleep(time.Duration(random.Int64N(int64(1500 * time.Millisecond))))
		c.kill()
		status := c.awaitStatus("n1", nodestatus.Complete)
		if status.Policy != policy || h.runs[status.ID] != 1 {
			t.Fatalf("the status is %s, and it was done %d times", status, h.runs[status.ID])
		}
	}
	if len(h.runs) != rounds {
		t.Errorf("%d requests became %d operations", rounds, len(h.runs))
	}
}

// Both are accepted if neither saw the other. Then the controller lets one of them win, and says so to the other.
func twoNodesOfTheControlPlaneAtOnce(t *testing.T, c *cluster) {
	role := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	names := []string{"cp-1", "cp-2"}
	hosts := map[string]*host{}
	for _, name := range names {
		hosts[name] = c.addNode(name, role)
	}
	c.awaitObserved(names...)
	lost := 0
	for round := range 5 {
		policy := operation.Policies()[(round+1)%2]
		errs := make([]error, len(names))
		var group sync.WaitGroup
		for i, name := range names {
			group.Go(func() { errs[i] = c.ask(name, policy) })
		}
		group.Wait()
		won := 0
		for i, name := range names {
			if errs[i] != nil {
				if !apierrors.IsConflict(errs[i]) || !strings.Contains(errs[i].Error(), "lock of the control plane") {
					t.Errorf("node %s is refused: %v", name, errs[i])
				}
				continue
			}
			c.eventually(func() error {
				if status := c.status(name); status.UnderWay() {
					return fmt.Errorf("node %s: %s", name, status)
				}
				return nil
			})
			switch status := c.status(name); {
			case status.State == nodestatus.Complete:
				won++
			case strings.Contains(status.Message, "lock of the control plane") && !status.Begun:
				lost++
			default:
				t.Errorf("node %s: %s", name, status)
			}
		}
		if won != 1 {
			t.Errorf("%d of the two were switched: %v", won, errs)
		}
		// Both have the same policy again.
		for _, name := range names {
			c.eventually(func() error {
				if c.hosts[name].policy == policy {
					return nil
				}
				return cmp.Or(c.ask(name, policy), fmt.Errorf("node %s is asked again", name))
			})
			c.awaitStatus(name, nodestatus.Complete)
		}
	}
	t.Logf("the controller's lock decided %d of 5 times", lost)
}

func aLockWithAHolderThatIsNoneIsRepaired(t *testing.T, c *cluster) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nodegroup.ControlPlaneLock.Namespace, Name: nodegroup.ControlPlaneLock.Name}}
	if err := client.IgnoreNotFound(c.Client.Delete(t.Context(), lease)); err != nil {
		t.Fatal(err)
	}
	lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nodegroup.ControlPlaneLock.Namespace, Name: nodegroup.ControlPlaneLock.Name, Annotations: map[string]string{
		nodegroup.HoldersAnnotation: `[{"operation":"request-","node":"","since":"2026-11-23T10:00:00Z"}]`,
	}}}
	if err := c.Client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	c.addNode("n1", map[string]string{"node-role.kubernetes.io/control-plane": ""})
	c.awaitObserved("n1")
	if err := c.ask("n1", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus("n1", nodestatus.Complete)
}

// writeAs writes a node's status as another field manager, which everybody can who may write that node.
func (c *cluster) writeAs(manager, node, value string) {
	c.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": node, "annotations": map[string]any{nodestatus.StatusAnnotation: value}},
	}}
	if err := c.Client.Apply(c.t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(manager)); err != nil {
		c.t.Fatal(err)
	}
}

func aNodeThatAnotherManagerWritesIsLeftAlone(t *testing.T, c *cluster) {
	before := c.addNode("under-way", nil)
	goOn := before.hold(t)
	c.addNode("theirs", nil)
	c.addNode("ours", nil)
	c.awaitObserved("under-way", "theirs", "ours")
	if err := c.ask("under-way", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus("under-way", nodestatus.Running)

	c.writeAs("harvester", "theirs", requested)
	c.writeAs("harvester", "under-way", c.node("under-way").Annotations[nodestatus.StatusAnnotation])
	c.eventually(func() error { return c.says("theirs", "ForeignManager", "Harvester manages the same objects") })
	if err := c.ask("ours", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus("ours", nodestatus.Complete)
	if status := c.status("theirs"); status.State != nodestatus.Requested || status.ID != "" {
		t.Errorf("the other manager's node has the status %s", status)
	}
	goOn() // what has begun ends
	c.awaitStatus("under-way", nodestatus.Complete)
	if !c.process.Running() {
		t.Error("the controllers have ended")
	}
	// The next request has the annotation.
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, nodestatus.StatusAnnotation)
	if err := c.Client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	if err := c.ask("theirs", cpupolicy.Static); err != nil {
		t.Fatal(err)
	}
	c.awaitStatus("theirs", nodestatus.Complete)
}

// jobsOf counts the Jobs of a node that there ever were, from now on.
func (c *cluster) jobsOf(t *testing.T, node string) func() int {
	t.Helper()
	watcher, err := client.NewWithWatch(c.Config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := watcher.Watch(t.Context(), &batchv1.JobList{}, client.InNamespace(agentNamespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(seen.Stop)
	jobs := map[types.UID]bool{}
	return func() int {
		for {
			select {
			case event := <-seen.ResultChan():
				if job, is := event.Object.(*batchv1.Job); is && job.Annotations[nodeAnnotation] == node {
					jobs[job.UID] = true
				}
			case <-time.After(time.Second):
				return len(jobs)
			}
		}
	}
}

// The admission policies are not asked here: one who gets round them must not fill the cluster with Jobs.
func forgedClaimsMakeOneJob(t *testing.T, c *cluster) {
	c.addNode("n1", nil)
	c.awaitObserved("n1")
	jobs := c.jobsOf(t, "n1")
	before := jobs()
	controller := hooks{c.Installed}.controller(t)
	for i := range 50 {
		claim := nodegroup.Claim{Owner: Name, Operation: fmt.Sprintf("forged-%d", i), Since: clock()}.String()
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, nodegroup.ClaimAnnotation, claim)
		if err := controller.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	if made := jobs() - before; made > 1 {
		t.Errorf("50 forged claims have made %d Jobs", made)
	}
}

// A kubelet says when its node has booted, and anyone who may update a node removes what was observed.
func aNodeThatBootsWithoutAnEndMakesOneJob(t *testing.T, c *cluster) {
	c.addNode("n1", nil)
	jobs := c.jobsOf(t, "n1")
	before := jobs()
	c.awaitObserved("n1")
	for i := range 20 {
		node := c.node("n1")
		removed := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, nodestatus.ObservedAnnotation)
		if err := c.Client.Patch(t.Context(), node, client.RawPatch("application/merge-patch+json", removed)); err != nil {
			t.Fatal(err)
		}
		booted := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":"forged-%d"}}}`, i)
		if err := c.Client.Status().Patch(t.Context(), node, client.RawPatch("application/merge-patch+json", booted)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	if made := jobs() - before; made > 1 {
		t.Errorf("20 boots have made %d Jobs", made)
	}
}
