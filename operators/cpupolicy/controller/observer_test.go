// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/nodeclient"
	"workload.openshift.io/operators/nodejob"
	"workload.openshift.io/operators/rollout"
)

// What was seen once may change on the host, without a reboot, and nobody would say so.
func TestANodeIsObservedAgain(t *testing.T) {
	now := clock()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, test := range map[string]struct {
		seen   *nodestatus.Observed
		ready  time.Time
		change func(*corev1.Node)
		reason string
	}{
		"one that has joined":                 {nil, ago(time.Second), nil, "boot"},
		"one that has booted":                 {&nodestatus.Observed{At: ago(20 * time.Minute), BootID: "b0", Observation: operation.Observation{Policy: "none"}}, ago(time.Second), nil, "boot"},
		"one that boots again and again":      {&nodestatus.Observed{At: ago(time.Minute), BootID: "b0", Observation: operation.Observation{Policy: "none"}}, ago(time.Second), nil, ""},
		"one that could not be read":          {&nodestatus.Observed{At: ago(20 * time.Minute), BootID: "b1"}, ago(time.Hour), nil, "boot"},
		"one that was observed not long ago":  {&nodestatus.Observed{At: ago(50 * time.Minute), BootID: "b1", Observation: operation.Observation{Policy: "none"}}, ago(2 * time.Hour), nil, ""},
		"one that was observed long ago":      {&nodestatus.Observed{At: ago(time.Hour), BootID: "b1", Observation: operation.Observation{Policy: "none"}}, ago(2 * time.Hour), nil, "again " + ago(time.Hour).Format(time.RFC3339)},
		"one that was observed in the future": {&nodestatus.Observed{At: now.Add(time.Hour), BootID: "b1", Observation: operation.Observation{Policy: "none"}}, ago(2 * time.Hour), nil, "again " + now.Add(time.Hour).Format(time.RFC3339)},
		"one that became Ready since":         {&nodestatus.Observed{At: ago(20 * time.Minute), BootID: "b1", Observation: operation.Observation{Policy: "none"}}, ago(time.Minute), nil, "again " + ago(20*time.Minute).Format(time.RFC3339)},
		"one whose clock is ahead":            {&nodestatus.Observed{At: ago(time.Minute), BootID: "b1", Observation: operation.Observation{Policy: "none"}}, now.Add(time.Hour), nil, ""},
		"one that is not Ready":               {nil, time.Time{}, nil, ""},
		"one on which somebody acts":          {nil, ago(time.Hour), func(n *corev1.Node) { n.Annotations[nodegroup.ClaimAnnotation] = "{}" }, ""},
		"one that is paused":                  {nil, ago(time.Hour), func(n *corev1.Node) { n.Annotations[nodegroup.PausedAnnotation] = "" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{}}}
			node.Status.NodeInfo.BootID = "b1"
			if test.seen != nil {
				test.seen.Put(node)
			}
			if !test.ready.IsZero() {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(test.ready)}}
			}
			if test.change != nil {
				test.change(node)
			}
			reason, _, is := observer{now: func() time.Time { return now }}.due(node)
			if is != (test.reason != "") || is && reason != test.reason {
				t.Errorf("it is due %t, because of %q, want %q", is, reason, test.reason)
			}
		})
	}
}

// A large cluster in which all nodes are due gets few Jobs at a time, and those of the same nodes at each look.
func TestFewNodesAreObservedAtATime(t *testing.T) {
	for name, test := range map[string]struct {
		seen *nodestatus.Observed
		most int
	}{
		"that have joined":            {nil, mostObserved},
		"that were observed long ago": {&nodestatus.Observed{At: clock().Add(-observeAgain), Observation: operation.Observation{Policy: operation.None}}, mostObservedAgain},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []*corev1.Node
			for i := range 3 * mostObserved {
				node := worker(fmt.Sprint("n", i))
				node.UID = types.UID(node.Name)
				if test.seen != nil {
					test.seen.Put(node)
				}
				nodes = append(nodes, node)
			}
			c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).Build()
			r := nodesReconciler{observer: observer{looks: map[string]bootLook{}, jobs: jobsIn(c, c, agentNamespace), now: clock}}
			for range 3 {
				rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
				if err := r.keepObserved(t.Context(), nodes); err != nil {
					t.Fatal(err)
				}
			}
			var jobs batchv1.JobList
			if err := c.List(t.Context(), &jobs); err != nil || len(jobs.Items) != test.most {
				t.Errorf("there are %d Jobs, %v, want %d", len(jobs.Items), err, test.most)
			}
		})
	}
}

// While a kubelet restarts an agent sees only a part, and the Job replaces its pod.
func TestAFailedLookCountsOnceItsJobHasEnded(t *testing.T) {
	const all, part = `{"policy":"static"}`, `{"refused":{"none":"the kubelet does not run"}}`
	failed := []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Reason: "BackoffLimitExceeded"}}
	for name, test := range map[string]struct {
		codes  []int32 // of the pods, in their order
		ended  []batchv1.JobCondition
		boot   string // of what was known before
		done   bool
		policy operation.Policy
	}{
		"the first pod has failed":                 {[]int32{1}, nil, "b1", false, operation.None},
		"the second one has not":                   {[]int32{1, 0}, nil, "b1", true, operation.Static},
		"all have failed":                          {[]int32{1, 1, 1}, failed, "b1", true, operation.None},
		"all have failed, and the node has booted": {[]int32{1, 1, 1}, failed, "b0", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := worker("n1")
			node.UID, node.Status.NodeInfo.BootID = "u1", "b1"
			(&nodestatus.Observed{Observation: operation.Observation{Policy: operation.None}, At: clock(), BootID: test.boot}).Put(node)
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				Namespace: agentNamespace, Name: observingJobName(node, "a1"), UID: "j1", Annotations: map[string]string{nodeAnnotation: "n1"},
			}, Status: batchv1.JobStatus{Conditions: test.ended}}
			objects := []client.Object{node, job}
			for i, code := range test.codes {
				text := part
				if code == 0 {
					text = all
				}
				pod := podOf(job, fmt.Sprint("p", i), code, text)
				pod.CreationTimestamp = metav1.NewTime(clock().Add(time.Duration(i) * time.Minute))
				objects = append(objects, pod)
			}
			scheme := testenv.Scheme()
			if err := virtv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
			nodes := nodeclient.Client{Reader: c, Writer: c}
			o := observer{looks: map[string]bootLook{}, nodes: nodes, jobs: jobsIn(c, c, agentNamespace), labels: labels{nodes}, now: clock}
			done, problem, err := o.observe(t.Context(), node, "a1")
			if err != nil || done != test.done || problem != "" {
				t.Errorf("it is done %t, %q, %v", done, problem, err)
			}
			if got := nodestatus.InForce(node); got != test.policy {
				t.Errorf("the policy is %q, want %q", got, test.policy)
			}
		})
	}
}

// Nodes that nobody can look at leave room for the others.
func TestNodesThatCannotBeObservedComeLast(t *testing.T) {
	for name, test := range map[string]struct {
		seen *nodestatus.Observed
		most int
	}{
		"that have joined":            {nil, mostObserved},
		"that were observed long ago": {&nodestatus.Observed{At: clock().Add(-observeAgain), Observation: operation.Observation{Policy: operation.None}}, mostObservedAgain},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []*corev1.Node
			for i := range 3 * test.most {
				node := worker(fmt.Sprint("n", i))
				node.UID = types.UID(node.Name)
				if test.seen != nil {
					test.seen.Put(node)
				}
				nodes = append(nodes, node)
			}
			c, recorder := fake.NewClientBuilder().WithScheme(testenv.Scheme()).Build(), events.NewFakeRecorder(1000)
			r := nodesReconciler{observer: observer{looks: map[string]bootLook{}, jobs: jobsIn(c, c, agentNamespace), now: clock}, recorder: recorder}
			seen := map[string]bool{}
			for round := range 3 {
				for range 2 {
					if err := r.keepObserved(t.Context(), nodes); err != nil {
						t.Fatal(err)
					}
					var all batchv1.JobList
					if err := c.List(t.Context(), &all); err != nil {
						t.Fatal(err)
					}
					for _, job := range all.Items { // their agents do not start
						pod := podOf(&job, job.Name, 0, "")
						pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
						if err := c.Create(t.Context(), pod); client.IgnoreAlreadyExists(err) != nil {
							t.Fatal(err)
						}
					}
				}
				var all batchv1.JobList
				if err := c.List(t.Context(), &all); err != nil {
					t.Fatal(err)
				}
				begun := 0
				for _, job := range all.Items {
					if at, _ := nodejob.Ended(&job); !at.IsZero() {
						if err := c.Delete(t.Context(), &job); err != nil { // its time has come
							t.Fatal(err)
						}
						continue
					}
					if begun++; seen[job.Name] {
						t.Errorf("in round %d node %s is looked at again", round, job.Annotations[nodeAnnotation])
					}
					seen[job.Name] = true
					job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Reason: "DeadlineExceeded"}}
					if err := c.Status().Update(t.Context(), &job); err != nil {
						t.Fatal(err)
					}
				}
				if begun != test.most {
					t.Errorf("in round %d there are %d Jobs, want %d", round, begun, test.most)
				}
			}
		})
	}
}

func TestOnlyAFreshObservationStandsInTheWay(t *testing.T) {
	const why = "the kubelet has no --config-dir"
	for name, test := range map[string]struct {
		ago     time.Duration
		refused string
	}{
		"of a moment ago":           {time.Second, why},
		"of a clock a little ahead": {-time.Second, why},
		"of a while ago":            {2 * time.Minute, ""},
		"of a clock that was wrong": {-time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := testenv.Scheme()
			if err := virtv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&corev1.Node{}, roleIndex, func(client.Object) []string { return nil }).
				WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					switch list.(type) {
					case *corev1.PodList, *metav1.PartialObjectMetadataList: // the fake knows no such selectors
						return nil
					}
					return c.List(ctx, list, options...)
				}}).Build()
			node := worker("n1")
			(&nodestatus.Observed{At: clock().Add(-test.ago), Observation: operation.Observation{Policy: operation.None, Refused: map[operation.Policy]operation.Refusals{operation.Static: operation.Refuse(why)}}}).Put(node)
			situation, err := situations{reader: c, others: c, fresh: time.Minute}.of(t.Context(), node, cpupolicy.Static)
			if err != nil || situation.Refused.String() != test.refused || situation.InForce == "" && situation.Seen != cpupolicy.None {
				t.Errorf("it is %+v, %v, want %q", situation, err, test.refused)
			}
		})
	}
}

// A person asks again. A group does not, once its request has failed.
func TestARequestOfAGroupWaitsUntilItsNodeIsObserved(t *testing.T) {
	const problem = "node n1 could not be observed: Job partition-cpupolicy-agent/%s: DeadlineExceeded: it took too long"
	for group, test := range map[string]struct{ refused, waits bool }{"": {refused: true}, "g": {waits: true}} {
		node := worker("n1")
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: observingJobName(node, "a1"), Annotations: map[string]string{nodeAnnotation: "n1"}}}
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Reason: "DeadlineExceeded", Message: "it took too long"}}
		c := fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithObjects(job).Build()
		r := nodesReconciler{observer: observer{looks: map[string]bootLook{}, jobs: jobsIn(c, c, agentNamespace), now: clock}}
		var n rollout.Node
		if err := r.judge(t.Context(), node, nodestatus.Status{ID: "a1", Policy: cpupolicy.Static, Group: group}, nil, &n); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(problem, job.Name)
		if n.Refused == want != test.refused || n.Waits == want != test.waits {
			t.Errorf("group %q: it is refused by %q, and waits for %q", group, n.Refused, n.Waits)
		}
	}
}

func TestAnEventSaysForWhatARequestWaits(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := nodesReconciler{recorder: recorder}
	node := worker("n1")
	look := func(change func(*rollout.Node)) {
		n := rollout.Node{Name: "n1"}
		n.Operation = rollout.Operation{ID: "a1", Phase: rollout.Requested}
		change(&n)
		r.sayWaits(node, waitsFor(nodestatus.Status{State: nodestatus.Requested, ID: "a1"}, n))
	}
	waits := func(reason string) func(*rollout.Node) {
		return func(n *rollout.Node) { n.Waits = reason }
	}
	look(waits("paused"))
	look(waits("paused"))
	look(waits(beingObserved))
	look(waits("paused"))
	look(func(n *rollout.Node) { n.Claim = nodegroup.Claim{Owner: "tuning", Operation: "b"} })
	look(func(n *rollout.Node) { n.Cordoned = true })
	look(func(n *rollout.Node) { n.Cordoned, n.DespiteCordon = true, true })
	look(func(n *rollout.Node) { n.Waits, n.Refused = "paused", "the group is gone" })
	look(func(n *rollout.Node) { n.Waits, n.Operation.Phase = "paused", rollout.Running })
	look(waits("paused"))
	close(recorder.Events)
	var said []string
	for event := range recorder.Events {
		said = append(said, strings.TrimPrefix(event, "Normal CPUPolicyWaits The request waits: "))
	}
	want := []string{"paused", "node n1 is claimed by tuning for its operation b since 0001-01-01T00:00:00Z", "node n1 is cordoned by somebody who has not claimed it", "paused"}
	if !slices.Equal(said, want) {
		t.Errorf("Events say %q, want %q", said, want)
	}
}

// TestAnObservedNodeHasItsLabel: whichever write meets a conflict, a node that counts as observed has
// its label, since nobody comes back to it.
func TestAnObservedNodeHasItsLabel(t *testing.T) {
	scheme := testenv.Scheme()
	if err := virtv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, conflict := range map[string]int{"no conflict": 0, "a conflict at the first write": 1, "a conflict at the second write": 2} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					if writes++; writes == conflict {
						return apierrors.NewConflict(corev1.Resource("nodes"), object.GetName(), nil)
					}
					return c.Patch(ctx, object, patch, options...)
				},
			}).Build()
			nodes := nodeclient.Client{Reader: c, Writer: c}
			o := observer{looks: map[string]bootLook{}, nodes: nodes, labels: labels{nodes}, now: time.Now}
			for observed := false; !observed; {
				var live corev1.Node
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), &live); err != nil {
					t.Fatal(err)
				}
				if observed = nodestatus.ObservedOf(&live) != nil; observed {
					if got := live.Labels[cpupolicy.Label]; got != "true" || live.Labels[virtv1.CPUManager] != got {
						t.Errorf("the labels are %v", live.Labels)
					}
				} else if err := o.remember(t.Context(), &live, "boot", operation.Observation{Policy: operation.Static}); err != nil && !apierrors.IsConflict(err) {
					t.Fatal(err)
				}
			}
		})
	}
}
