// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/nodeclient"
	"workload.openshift.io/operators/workloadclasses"
)

var seeds = flag.Int("seeds", 12, "runs of TestCallsThatFailAtRandom")

var errKilled = errors.New("killed")

// life is a reconciler until it is killed. Its clock runs fast.
type life struct {
	*reconciler
	clock  *time.Duration
	writes int
	dead   bool
	// before is what happens just before a write of this name.
	before map[string]func()
	// fails, if set, says whether a call fails, before it is made or with its answer lost.
	fails func() bool
}

// The writes of an operation.
const (
	claims  = "claims"
	records = "records"
	marks   = "marks"
	scales  = "scales"
)

// nameOf returns the name of a write to an object.
func nameOf(object client.Object) string {
	switch object := object.(type) {
	case *unstructured.Unstructured:
		return marks
	case *corev1.Node:
		switch o, _ := workloadclasses.OperationOf(object); o.Phase {
		case workloadclasses.Draining:
			return claims
		case workloadclasses.Removing:
			return records
		}
	}
	return ""
}

// live returns a reconciler that is killed after a number of writes; with zero, never.
func (w *world) live(clock *time.Duration, killAfter int) *life {
	w.t.Helper()
	l := &life{clock: clock}
	happens := func(name string) {
		if f := l.before[name]; f != nil {
			delete(l.before, name)
			f()
		}
	}
	count := func(err error) error {
		if err != nil {
			return err
		}
		if l.writes++; l.writes == killAfter {
			l.dead = true
		}
		if l.dead || l.fails != nil && l.fails() {
			return errKilled // the answer is lost
		}
		return nil
	}
	cut := func() bool { return l.dead || l.fails != nil && l.fails() }
	direct, err := client.NewWithWatch(w.Config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	c := interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if cut() {
				return errKilled
			}
			return c.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if cut() {
				return errKilled
			}
			return c.List(ctx, list, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if cut() {
				return errKilled
			}
			happens(nameOf(object))
			return count(c.Patch(ctx, object, patch, options...))
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
			if cut() {
				return errKilled
			}
			happens(scales)
			return count(c.SubResource(name).Update(ctx, object, options...))
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, object, sub client.Object, options ...client.SubResourceCreateOption) error {
			if cut() {
				return errKilled
			}
			return count(c.SubResource(name).Create(ctx, object, sub, options...))
		},
	})
	rules, err := newRules(filepath.Join(companiontest.Base(Name), "rules.yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	l.reconciler = &reconciler{
		rules: rules, cache: c, live: c, writer: c, nodes: nodeclient.Client{Reader: c, Writer: c},
		machines: &machines{machineAPI: machineAPIs[w.api], reader: c, writer: c, namespace: machineNamespace},
		policy:   workloadclasses.DefaultPolicy(), timing: workloadclasses.DefaultTiming(),
		now: func() time.Time { return time.Now().Add(*clock) },
	}
	return l
}

// look lets half a minute pass, and reconciles.
func (l *life) look(t testing.TB, pass time.Duration) {
	t.Helper()
	*l.clock += pass
	if _, err := l.Reconcile(t.Context(), reconcile.Request{}); err != nil && !l.dead && l.fails == nil {
		t.Fatal(err)
	}
}

// occupy puts a pod of the class on each node that has none, but for some.
func (w *world) occupy(free ...string) {
	w.t.Helper()
	there := map[string]bool{}
	for _, pod := range w.pods() {
		there[pod.Spec.NodeName] = true
	}
	for name := range w.nodes() {
		if there[name] || slices.Contains(free, name) {
			continue
		}
		pod := w.pod("holds", "100m")
		pod.Labels = map[string]string{workloadclasses.ClassLabel: "tests"}
		pod.Spec.NodeName = name
		if err := w.Client.Create(w.t.Context(), pod); err != nil {
			w.t.Fatal(err)
		}
	}
}

// The controller is killed after each of its writes, and a new one goes on: each time exactly the Machine of the
// empty node goes. OpenShift's own controller chooses it.
func TestKilledAfterEveryWrite(t *testing.T) {
	newWorld(t, 5, 1).killAfterEveryWrite(5)
}

func (w *world) killAfterEveryWrite(size int) {
	t := w.t
	t.Helper()
	clock := time.Hour
	random := rand.New(rand.NewPCG(67, 0))
	var writes []int
	rounds := [][]int{nil}
	for n := 1; n <= 7; n++ {
		rounds = append(rounds, []int{n})
	}
	for range 5 {
		rounds = append(rounds, []int{1 + random.IntN(6), 1 + random.IntN(4), 1 + random.IntN(3)})
	}
	for _, kills := range rounds {
		w.eventually(func() error {
			if n := len(w.running()); n != size {
				return fmt.Errorf("%d Machines run", n)
			}
			return nil
		})
		before := w.running()
		occupied := map[string]bool{}
		for _, pod := range w.pods() {
			occupied[pod.Spec.NodeName] = true
		}
		victim := before[slices.IndexFunc(before, func(name string) bool { return !occupied[name] })]
		w.occupy(victim)
		clock += time.Hour

		total := 0
		for _, after := range append(slices.Clone(kills), 0) {
			l := w.live(&clock, after)
			for range 60 {
				if l.look(t, 30*time.Second); l.dead {
					break
				}
				if !slices.Contains(w.running(), victim) {
					break
				}
				time.Sleep(20 * time.Millisecond) // the set's controller needs real time
			}
			total += l.writes
		}
		w.eventually(func() error {
			if _, ok := w.nodes()[victim]; ok {
				return fmt.Errorf("after kills at %v, node %s is still there, and the set has %d replicas: %v", kills, victim, w.replicas(), w.nodes()[victim].Annotations)
			}
			return nil
		})
		// One more life does nothing.
		last := w.live(&clock, 0)
		for range 4 {
			last.look(t, 30*time.Second)
		}
		want := slices.DeleteFunc(before, func(name string) bool { return name == victim })
		if got := w.running(); !slices.Equal(got, want) || w.replicas() != size-1 {
			t.Fatalf("after kills at %v there run %v of %v, %s was empty, and the set has %d replicas", kills, got, before, victim, w.replicas())
		}
		for _, node := range w.nodes() {
			if node.Spec.Unschedulable || node.Annotations[nodegroup.ClaimAnnotation] != "" || node.Annotations[workloadclasses.OperationAnnotation] != "" {
				t.Errorf("after kills at %v, node %s is left with %v", kills, node.Name, node.Annotations)
			}
		}
		for _, machine := range w.list("Machine") {
			if machine.GetAnnotations()[workloadclasses.OperationAnnotation] != "" {
				t.Errorf("after kills at %v, Machine %s is left marked", kills, machine.GetName())
			}
		}
		writes = append(writes, total)
		w.scale(size)
	}
	t.Logf("(f) killed after writes %v: each time one Machine went, and the one that was empty; writes per round %v", rounds, writes)
}

// Calls of the API fail at random, some with their answer lost: all the same one Machine goes, and the empty one.
func TestCallsThatFailAtRandom(t *testing.T) {
	const size = 4
	w := newWorld(t, size, 1)
	clock := time.Hour
	failed := 0
	for seed := range uint64(*seeds) {
		random := rand.New(rand.NewPCG(67, seed))
		w.eventually(func() error {
			if n := len(w.running()); n != size {
				return fmt.Errorf("%d Machines run", n)
			}
			return nil
		})
		before := w.running()
		victim := before[random.IntN(size)]
		w.end(func(pod *corev1.Pod) bool { return pod.Spec.NodeName != victim })
		w.occupy(victim)
		clock += time.Hour
		l := w.live(&clock, 0)
		l.fails = func() bool {
			if random.IntN(8) > 0 {
				return false
			}
			failed++
			return true
		}
		for range 300 {
			l.look(t, 20*time.Second)
			if !slices.Contains(w.running(), victim) {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		w.eventually(func() error {
			if _, ok := w.nodes()[victim]; ok {
				return fmt.Errorf("seed %d: node %s is still there: %v", seed, victim, w.nodes()[victim].Annotations)
			}
			return nil
		})
		for range 10 {
			l.look(t, 20*time.Second)
		}
		want := slices.DeleteFunc(before, func(name string) bool { return name == victim })
		if got := w.running(); !slices.Equal(got, want) || w.replicas() != size-1 {
			t.Fatalf("seed %d: there run %v of %v, %s was empty, and the set has %d replicas", seed, got, before, victim, w.replicas())
		}
		w.scale(size)
	}
	t.Logf("%d nodes were given back, and %d calls failed", *seeds, failed)
}

// Where the autoscaler may go to zero, so may the class, and it comes back.
func TestAClassMayHaveNoNodes(t *testing.T) {
	w := newWorld(t, 1, 0)
	clock := time.Hour
	l := w.live(&clock, 0)
	for range 40 {
		l.look(t, 30*time.Second)
		if w.replicas() == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.eventually(func() error {
		if n := len(w.nodes()); n != 0 || w.replicas() != 0 {
			return fmt.Errorf("%d nodes, %d replicas", n, w.replicas())
		}
		return nil
	})
	l.look(t, time.Minute)
	w.scale(1) // as the autoscaler does for a pod that waits
	w.eventually(func() error {
		if n := len(w.running()); n != 1 {
			return fmt.Errorf("%d Machines run", n)
		}
		return nil
	})
	l.policy.MinNodeAge = 2 * time.Hour // its clock is ahead
	l.look(t, time.Second)
	for _, node := range w.nodes() {
		if node.Spec.Unschedulable {
			t.Errorf("node %s is new, and is cordoned", node.Name)
		}
	}
}

// scale changes the set as an autoscaler does.
func (w *world) scale(n int) {
	w.t.Helper()
	w.eventually(func() error {
		set := w.list(string(w.api))[0]
		before := set.DeepCopy()
		set.Object["spec"].(map[string]any)["replicas"] = int64(n)
		return w.Client.Patch(w.t.Context(), &set, client.MergeFrom(before))
	})
}

func TestAPersonsCordonAndTheMinimum(t *testing.T) {
	w := newWorld(t, 5, 3)
	clock := time.Hour
	var persons corev1.Node
	for _, node := range w.nodes() {
		persons = node
		break
	}
	before := persons.DeepCopy()
	persons.Spec.Unschedulable = true
	if err := w.Client.Patch(t.Context(), &persons, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	l := w.live(&clock, 0)
	for range 60 {
		l.look(t, 30*time.Second)
		time.Sleep(50 * time.Millisecond)
		if n := w.replicas(); n < 3 {
			t.Fatalf("the set has %d replicas, and its minimum is 3", n)
		}
	}
	node := w.nodes()[persons.Name]
	if !node.Spec.Unschedulable || len(node.Spec.Taints) != len(persons.Spec.Taints) || len(node.Annotations) != len(persons.Annotations) {
		t.Errorf("the node that a person cordoned has taints %v and annotations %v", node.Spec.Taints, node.Annotations)
	}
	if n := w.replicas(); n != 3 {
		t.Errorf("all nodes are empty, and the set has %d replicas", n)
	}
	t.Logf("(g) 5 empty nodes, minimum 3, one cordoned by a person: 3 replicas after 30 minutes, and that node %s is as it was", persons.Name)
}

func TestPodsThatWaitGetTheirNodesBack(t *testing.T) {
	w := newWorld(t, 8, 1)
	w.start(func(s *Settings) {
		s.Period = metav1.Duration{Duration: 20 * time.Second}
		s.MinNodeAge = metav1.Duration{Duration: 100 * time.Millisecond}
	})
	w.eventually(func() error {
		cordoned := 0
		for _, node := range w.nodes() {
			if node.Spec.Unschedulable {
				cordoned++
			}
		}
		if cordoned != 2 {
			return fmt.Errorf("%d of 8 empty nodes are cordoned", cordoned)
		}
		return nil
	})
	began := time.Now()
	pods := w.wave("large", 8, "3200m") // one a node
	on := map[string]bool{}
	for _, pod := range pods {
		on[pod.Spec.NodeName] = true
	}
	took := time.Since(began)
	if len(on) != 8 {
		t.Errorf("8 pods that fill a node are on %d nodes", len(on))
	}
	w.eventually(func() error {
		for _, node := range w.nodes() {
			if node.Spec.Unschedulable || hasTaint(node, workloadclasses.BlockTaint) || hasTaint(node, workloadclasses.EvictTaint) {
				return fmt.Errorf("node %s has taints %v", node.Name, node.Spec.Taints)
			}
		}
		return nil
	})
	if n := w.replicas(); n != 8 {
		t.Errorf("the set has %d replicas", n)
	}
	t.Logf("(h) 2 of 8 nodes were cordoned, and 8 pods that need one each had theirs after %s", took.Round(time.Millisecond))
}
