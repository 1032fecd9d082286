// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/workloadclasses"
)

var waveFile = flag.String("wave", "", "compressed.json of make bench-classes, for TestTheWaveOnAControlPlane")

// played is a wave of test/classes, and what its virtual clock says of it.
type played struct {
	Pods []struct {
		Created, Length time.Duration
		CPU, Memory     int64
	}
	Until, Boot time.Duration
	Hours       float64
	P50, P99    time.Duration
	Most, Made  int
	Policy      workloadclasses.Policy
	Timing      workloadclasses.Timing
}

// A wave of two hours in twelve minutes, with kube-apiserver and its RuntimeClass admission, kube-scheduler and the eviction by
// taint of kube-controller-manager. The test plays the kubelets and a DaemonSet.
func TestTheWaveOnAControlPlane(t *testing.T) {
	if *waveFile == "" {
		t.Skip("-wave names no file; make bench-classes-wave does it")
	}
	data, err := os.ReadFile(*waveFile)
	if err != nil {
		t.Fatal(err)
	}
	var wave played
	if err := json.Unmarshal(data, &wave); err != nil {
		t.Fatal(err)
	}
	t.Run("workload-classes", func(t *testing.T) { classesInAWave(t, &wave) })
	t.Run("karpenter", func(t *testing.T) { karpenterInAWave(t, &wave, nil) })
	t.Run("karpenter-do-not-disrupt", func(t *testing.T) { karpenterInAWave(t, &wave, map[string]string{doNotDisrupt: "true"}) })
}

// The companion is a process, with OpenShift's controllers of Machines, and the test plays the autoscaler that scales up. No pod
// of the class is disturbed, and it needs about the node-hours that the virtual clock has calculated.
func classesInAWave(t *testing.T, wave *played) {
	w := newWorld(t, 1, 1)
	w.evictByTaint()
	program := w.start(func(s *Settings) {
		s.Period.Duration, s.MaxCordon.Duration, s.MinNodeAge.Duration = wave.Policy.Period, wave.Policy.MaxCordon, wave.Policy.MinNodeAge
		s.DrainGrace.Duration, s.DrainPatience.Duration = wave.Timing.Grace, wave.Timing.Patience
	})
	k := &kubelets{world: w, wave: wave, program: program, by: map[types.UID]*run{}, seen: map[string]bool{}}
	k.play()
	t.Logf("on the virtual clock %.2f node-hours, pods wait %s and %s, at most %d nodes, %d in all; the deviation of node-hours is %+.0f %%", wave.Hours, wave.P50, wave.P99, wave.Most, wave.Made, (k.hours/wave.Hours-1)*100)
	if k.disturbed > 0 {
		t.Errorf("%d pods were disturbed", k.disturbed)
	}
	if ratio := k.hours / wave.Hours; ratio < 0.6 || ratio > 1.6 {
		t.Errorf("%.2f node-hours, and the virtual clock says %.2f", k.hours, wave.Hours)
	}
	if k.gone() == 0 || k.left == 0 {
		t.Errorf("%d nodes were given back, and %d pods of DaemonSets left", k.gone(), k.left)
	}
}

// play plays the wave to its end, and until all pods have ended.
func (k *kubelets) play() {
	t := k.t
	t.Helper()
	began := time.Now()
	for last := time.Duration(0); last < k.wave.Until || k.going(); {
		at := time.Since(began)
		switch {
		case !k.program.Running():
			t.Fatal("the program that gives nodes back has ended; it does if kube-apiserver does not answer for seconds")
		case at > 2*k.wave.Until:
			t.Fatal("some pods have not ended in twice the time of the wave")
		}
		k.tick(at, at-last)
		last = at
		time.Sleep(500 * time.Millisecond)
	}
	waits := k.waits()
	t.Logf("on the control plane %.2f node-hours, %.2f of them without a pod; %d pods wait %s and %s (half, one in 100); at most %d nodes, %d in all; %d pods were disturbed, after %s of work; %d nodes were given back, %d pods of DaemonSets left, %d of them by taint",
		k.hours, k.idle, len(k.wave.Pods), waits[len(waits)/2], waits[len(waits)*99/100], k.most, len(k.seen), k.disturbed, k.lost.Round(time.Second), k.gone(), k.left, k.byTaint())
}

// evictByTaint runs that part of kube-controller-manager. The eviction relies on an index that only the controller of
// nodes' lives adds; that one would wait for heartbeats.
func (w *world) evictByTaint() {
	w.t.Helper()
	manager := asset(w.t, "TEST_ASSET_KUBE_CONTROLLER_MANAGER", "kube-controller-manager")
	ports, err := testenv.FreePorts(1)
	if err != nil {
		w.t.Fatal(err)
	}
	testenv.RunFile(w.t, manager, "--kubeconfig="+w.Kubeconfig, "--controllers=taint-eviction-controller,node-lifecycle-controller", "--node-monitor-grace-period=2h", "--node-startup-grace-period=2h", "--leader-elect=false", fmt.Sprintf("--secure-port=%d", ports[0]), "--bind-address=127.0.0.1", "--cert-dir="+w.t.TempDir())
}

// A disruption budget keeps a DaemonSet's pod from eviction, and the taint takes it all the same. One that tolerates
// everything stays, and the node goes.
func TestTheTaintTakesWhatABudgetKeeps(t *testing.T) {
	const size = 2
	w := newWorld(t, size, 1)
	w.evictByTaint()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci-op-x", Name: "logs"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "logs"}}, MaxUnavailable: ptr.To(intstr.FromInt32(0))},
	}
	if err := w.Client.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Client.Delete(context.Background(), budget) })
	clock := time.Hour
	victim := w.running()[0]
	w.occupy(victim)
	daemon := func(name string, tolerations ...corev1.Toleration) *corev1.Pod {
		pod := w.pod(name, "10m")
		pod.Labels = map[string]string{"app": "logs"}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs", UID: "a", Controller: new(true)}}
		pod.Spec.NodeName, pod.Spec.Tolerations = victim, tolerations
		if err := w.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		// A budget is not asked about one that does not run.
		pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if err := w.Client.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	leaves, stays := daemon("leaves"), daemon("stays", corev1.Toleration{Operator: corev1.TolerationOpExists})
	refused := w.Client.SubResource("eviction").Create(t.Context(), leaves.DeepCopy(), &policyv1.Eviction{})
	if !apierrors.IsTooManyRequests(refused) {
		t.Fatalf("the budget lets it be evicted: %v", refused)
	}
	l := w.live(&clock, 0)
	for range 100 {
		l.look(t, time.Second) // the grace is longer than all of this takes
		if hasTaint(w.nodes()[victim], workloadclasses.EvictTaint) {
			break
		}
		clock += 30 * time.Second
	}
	w.eventually(func() error {
		pod := &corev1.Pod{}
		if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(leaves), pod); err != nil {
			return err
		}
		if pod.DeletionTimestamp == nil {
			return errors.New("nobody has ended the pod that does not tolerate the taint")
		}
		return w.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)) // as the kubelet does
	})
	for range 60 {
		if l.look(t, 20*time.Second); w.replicas() < size {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if w.replicas() != size-1 {
		t.Errorf("the set has %d replicas", w.replicas())
	}
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(stays), &corev1.Pod{}); err != nil {
		t.Errorf("the pod that tolerates everything: %v", err)
	}
}

// run is a pod of the wave.
type run struct {
	of        int // its place in the wave
	length    time.Duration
	cpu       int64
	created   time.Duration
	started   time.Duration // zero while it has no node
	ended     bool
	scheduled time.Duration // how long it waited
}

// kubelets are what this test plays.
type kubelets struct {
	*world
	wave *played
	// program is what gives nodes back.
	program *testenv.Process
	// karpenter is nil if the nodes are those of Machines.
	karpenter *karpenters
	next      int
	by        map[types.UID]*run
	// orders are when machines come that the autoscaler has ordered.
	orders []time.Duration
	scaled time.Duration
	// seen are the nodes there ever were.
	seen map[string]bool
	// hours are those of nodes, and idle those of them without a pod of the wave.
	hours, idle     float64
	most, disturbed int
	// lost is how long pods had run that were disturbed.
	lost time.Duration
	left int
}

// create creates a pod of the wave.
func (k *kubelets) create(i int, at time.Duration) {
	k.t.Helper()
	of, pod := k.wave.Pods[i], k.pod("wave", "0")
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(of.CPU, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(of.Memory<<20, resource.BinarySI)}
	if k.karpenter != nil {
		pod.Annotations = maps.Clone(k.karpenter.annotations) // the response is decoded into it
	}
	if err := k.Client.Create(k.t.Context(), pod); err != nil {
		k.t.Fatal(err)
	}
	if pod.Labels[workloadclasses.ClassLabel] == "" {
		k.t.Fatalf("pod %s has no class", pod.Name)
	}
	k.by[pod.UID] = &run{of: i, length: of.Length, cpu: pod.Spec.Overhead.Cpu().MilliValue() + of.CPU, created: at}
}

// disturb counts a pod that was deleted before its end. Another one begins its work again where that is to be expected.
func (k *kubelets) disturb(r *run, at time.Duration) {
	k.disturbed, k.lost, r.ended = k.disturbed+1, k.lost+at-r.started, true
	if k.karpenter != nil {
		k.create(r.of, at)
	}
}

// going reports whether there are pods of the wave that have not ended.
func (k *kubelets) going() bool {
	for _, r := range k.by {
		if !r.ended {
			return true
		}
	}
	return k.next < len(k.wave.Pods)
}

func (k *kubelets) tick(at, since time.Duration) {
	t := k.t
	t.Helper()
	for ; k.next < len(k.wave.Pods) && k.wave.Pods[k.next].Created <= at; k.next++ {
		k.create(k.next, at)
	}
	nodes, pods := k.nodes(), k.pods()
	paid := len(nodes) + len(k.orders)
	if k.karpenter != nil {
		paid = k.karpenter.look(nodes)
	}
	k.hours += since.Hours() * float64(paid)
	k.most = max(k.most, paid)
	free, daemons, busy, there := map[string]int64{}, map[string]bool{}, map[string]bool{}, map[types.UID]bool{}
	for name, node := range nodes {
		k.seen[name] = true
		free[name] = node.Status.Allocatable.Cpu().MilliValue()
		if node.Spec.Unschedulable || hasTaint(node, workloadclasses.BlockTaint) || hasTaint(node, workloadclasses.EvictTaint) {
			free[name] = 0
		}
	}
	var waiting []int64
	for i := range pods {
		pod := &pods[i]
		there[pod.UID] = true
		r := k.by[pod.UID]
		if r != nil && pod.Spec.NodeName != "" {
			busy[pod.Spec.NodeName] = true
		}
		switch {
		case r == nil && pod.DeletionTimestamp != nil: // of the DaemonSet: as a kubelet ends it
			k.left++
			k.remove(pod)
		case r == nil:
			daemons[pod.Spec.NodeName] = true
			if _, ok := nodes[pod.Spec.NodeName]; !ok {
				k.remove(pod)
			}
		case pod.Spec.NodeName == "":
			if workloadclasses.Unschedulable(pod, time.Now()) {
				waiting = append(waiting, r.cpu)
			}
		case r.started == 0:
			r.started, r.scheduled = at, at-r.created
			free[pod.Spec.NodeName] -= r.cpu
		case at-r.started >= r.length:
			r.ended = true
			k.remove(pod)
		default:
			free[pod.Spec.NodeName] -= r.cpu
			if _, ok := nodes[pod.Spec.NodeName]; !ok || pod.DeletionTimestamp != nil {
				t.Logf("after %s, pod %s runs on node %s, which is gone or ends it", at.Round(time.Second), pod.Name, pod.Spec.NodeName)
				k.remove(pod)
				k.disturb(r, at)
			}
		}
	}
	for uid, r := range k.by {
		if r.started > 0 && !r.ended && !there[uid] {
			t.Logf("after %s, a pod that has run for %s of %s is gone", at.Round(time.Second), at-r.started, r.length)
			k.disturb(r, at)
		}
	}
	k.idle += since.Hours() * float64(max(0, paid-len(busy)))
	for name, node := range nodes {
		if !daemons[name] && !hasTaint(node, workloadclasses.EvictTaint) && !hasTaint(node, unregisteredTaint) && !hasTaint(node, disruptedTaint) {
			k.daemon(name)
		}
	}
	if k.karpenter == nil {
		k.autoscale(at, free, waiting)
	}
}

// autoscale orders machines for pods that fit nowhere, each ten seconds, and delivers what it has ordered.
func (k *kubelets) autoscale(at time.Duration, free map[string]int64, waiting []int64) {
	come := 0
	k.orders = slices.DeleteFunc(k.orders, func(due time.Duration) bool {
		if due <= at {
			come++
		}
		return due <= at
	})
	if come > 0 {
		k.scale(k.replicas() + come)
	}
	if at-k.scaled < 10*time.Second {
		return
	}
	k.scaled = at
	rooms := make([]int64, 0, len(free)+len(k.orders))
	for _, room := range free {
		rooms = append(rooms, room)
	}
	for range len(k.orders) + max(0, k.replicas()-len(free)) {
		rooms = append(rooms, 4000)
	}
	for _, cpu := range waiting {
		i := slices.IndexFunc(rooms, func(room int64) bool { return room >= cpu })
		if i < 0 {
			k.orders, rooms = append(k.orders, at+k.wave.Boot), append(rooms, 4000)
			i = len(rooms) - 1
		}
		rooms[i] -= cpu
	}
}

func (k *kubelets) remove(pod *corev1.Pod) {
	k.t.Helper()
	if err := k.Client.Delete(k.t.Context(), pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		k.t.Fatal(err)
	}
}

// daemon creates the pod of a DaemonSet, which does not tolerate the eviction.
func (k *kubelets) daemon(node string) {
	k.t.Helper()
	pod := k.pod("logs", "0")
	pod.Spec.NodeName = node
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs", UID: "a", Controller: new(true)}}
	if err := k.Client.Create(k.t.Context(), pod); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kubelets) waits() (waits []time.Duration) {
	for _, r := range k.by {
		if r.started > 0 {
			waits = append(waits, r.scheduled.Round(100*time.Millisecond))
		}
	}
	slices.Sort(waits)
	return waits
}

// gone is how many nodes are not there any more.
func (k *kubelets) gone() int { return len(k.seen) - len(k.nodes()) }

// byTaint is how many pods kube-controller-manager has evicted.
func (k *kubelets) byTaint() (n int) {
	k.t.Helper()
	var events corev1.EventList
	if err := k.Client.List(k.t.Context(), &events, client.InNamespace("ci-op-x")); err != nil {
		k.t.Fatal(err)
	}
	for _, event := range events.Items {
		if event.Reason == "TaintManagerEviction" {
			n++
		}
	}
	return n
}
