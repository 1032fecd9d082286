// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"workload.openshift.io/operators/workloadclasses"
)

// contestant is who gives nodes back, and how pods are placed.
type contestant struct {
	name string
	// packs is a scheduler with NodeResourcesFit's MostAllocated; the default one spreads pods.
	packs bool
	// removes is the autoscaler's own scale-down.
	removes bool
	// policy is that of workload classes; nil without them.
	policy *workloadclasses.Policy
}

// host is a machine, and its node as soon as that is Ready.
type host struct {
	name           string
	created, ready time.Duration
	node           *corev1.Node
	machine        *workloadclasses.Machine
	tasks          []*task
	// cpu and memory are what its pods ask for, in millicores and MiB.
	cpu, memory int64
}

func (h *host) pods() (pods []*corev1.Pod) {
	for _, t := range h.tasks {
		pods = append(pods, t.pod)
	}
	return pods
}

// task is a job and its pod.
type task struct {
	job
	pod         *corev1.Pod
	cpu, memory int64
	// tries is how often the scheduler found no node. It looks again at next, if seen is older
	// than the newest change of the cluster.
	tries int
	next  time.Duration
	seen  int
	ended time.Duration
	host  *host
}

// notOn is the node that the pod precludes.
func (t *task) notOn() string { return t.pod.Annotations[workloadclasses.PrecludedAnnotation] }

// world is a class of nodes, and time.
type world struct {
	contestant
	trace     trace
	now       time.Duration
	scheduler *scheduler
	config    *workloadclasses.Config
	hosts     []*host
	pending   []*task
	running   []*task
	// kept are ended pods that are still there.
	kept []*task
	// changes counts what may make a pod fit.
	changes int
	set     workloadclasses.Set
	scaled  time.Duration
	made    int
	// due is when the companion looks next.
	due    time.Duration
	result result
}

// sample is a moment of a run.
type sample struct {
	at                     time.Duration
	nodes, running, pended int
}

// result is what a contestant needed.
type result struct {
	hours         float64
	p50, p95, p99 time.Duration
	disturbed     int
	// most is how many nodes there were at once, and made how many in all.
	most, made int
	samples    []sample
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) clock() time.Time { return epoch.Add(w.now) }

// readRules reads the rules that the companion ships.
func readRules() (*workloadclasses.Config, error) {
	data, err := os.ReadFile("../../operators/deploy/workloadclasses/rules.yaml")
	if err != nil {
		return nil, err
	}
	return workloadclasses.ReadConfig(data)
}

// overheads are those of the RuntimeClasses that the companion ships.
var overheads = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(overheadCPU, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(overheadMemory<<20, resource.BinarySI)}

const class = "tests"

// simulate runs a trace with a contestant.
func simulate(ctx context.Context, c contestant, t trace) (result, error) {
	config, err := readRules()
	if err != nil {
		return result{}, err
	}
	s, err := newScheduler(ctx, c.packs, 1)
	if err != nil {
		return result{}, err
	}
	w := &world{contestant: c, trace: t, scheduler: s, config: config}
	w.set = workloadclasses.Set{Name: class, Minimum: ptr.To[int32](1)}
	w.now = -time.Hour
	w.add(w.now)
	w.joined()
	scaler := &autoscaler{removes: c.removes, raised: -time.Hour, unneeded: map[string]time.Duration{}}
	var waits []time.Duration
	next := 0
	for w.now = 0; w.now <= t.until; w.now += time.Second {
		w.end()
		w.joined()
		for ; next < len(t.jobs) && t.jobs[next].created <= w.now; next++ {
			w.pending = append(w.pending, w.create(next, t.jobs[next]))
		}
		if err := w.schedule(ctx, &waits); err != nil {
			return w.result, err
		}
		if c.policy != nil && w.now >= w.due {
			w.evaluate()
		}
		if w.now%scanInterval == 0 {
			scaler.look(w)
		}
		if w.now%time.Minute == 0 {
			w.result.samples = append(w.result.samples, sample{w.now, len(w.hosts), len(w.running), len(w.pending)})
		}
		w.result.most = max(w.result.most, len(w.hosts))
	}
	if len(w.pending)+len(w.running) > 0 {
		return w.result, fmt.Errorf("%d pods wait and %d run at the end", len(w.pending), len(w.running))
	}
	for _, h := range slices.Clone(w.hosts) {
		w.now = t.until
		w.remove(h)
	}
	slices.Sort(waits)
	at := func(percent int) time.Duration { return waits[len(waits)*percent/100] }
	w.result.p50, w.result.p95, w.result.p99 = at(50), at(95), at(99)
	w.result.made = w.made
	return w.result, nil
}

// add orders a machine, whose node is ready at a time.
func (w *world) add(ready time.Duration) *host {
	w.made++
	h := &host{name: fmt.Sprintf("node-%04d", w.made), created: w.now, ready: ready}
	w.hosts = append(w.hosts, h)
	w.set.Replicas++
	w.set.Generation++
	w.scaled = w.now
	return h
}

// joined makes nodes of machines that are ready.
func (w *world) joined() {
	for _, h := range w.hosts {
		if h.node != nil || h.ready > w.now {
			continue
		}
		of := w.config.Class(class)
		capacity := corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(w.trace.cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(w.trace.memory<<20, resource.BinarySI),
			corev1.ResourcePods: *resource.NewQuantity(250, resource.DecimalSI),
		}
		h.node = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: h.name, UID: types.UID(h.name), CreationTimestamp: metav1.NewTime(w.clock()), Labels: map[string]string{corev1.LabelHostname: h.name}},
			Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
		}
		for key, value := range of.NodeSelector {
			h.node.Labels[key] = value
		}
		for _, t := range of.Tolerations {
			h.node.Spec.Taints = append(h.node.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
		h.machine = &workloadclasses.Machine{Name: types.NamespacedName{Namespace: "machines", Name: h.name}, UID: types.UID(h.name), Node: h.name, Set: class, Running: true}
		w.scheduler.nodes.add(h.node)
		w.changes++
	}
}

// remove takes a machine away, with the pods that are on it.
func (w *world) remove(h *host) {
	w.result.hours += (w.now - max(h.created, 0)).Hours()
	for _, t := range h.tasks {
		w.result.disturbed++
		w.running = slices.DeleteFunc(w.running, func(has *task) bool { return has == t })
	}
	w.kept = slices.DeleteFunc(w.kept, func(t *task) bool { return t.host == h })
	w.hosts = slices.DeleteFunc(w.hosts, func(has *host) bool { return has == h })
	w.scheduler.nodes.remove(h.name)
}

// create is what becomes of a pod until the scheduler sees it: the webhook, and upstream's RuntimeClass
// plugin. Without the companion pods of the class get the same, but for the precluded node.
func (w *world) create(number int, j job) *task {
	list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(j.cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(j.memory<<20, resource.BinarySI)}
	name := fmt.Sprintf("job-%06d", number)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci-op-x", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(w.clock())},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list}}}},
	}
	w.config.Mutate(pod, pod.Namespace, workloadclasses.Cluster{
		RuntimeClass: func(string) (corev1.ResourceList, bool) { return overheads, true },
		Precluded: func(string) string {
			for _, h := range w.hosts {
				if h.node != nil && h.node.Annotations[workloadclasses.PrecludeAnnotation] != "" {
					return h.name
				}
			}
			return ""
		},
	})
	pod.Spec.Overhead = overheads
	t := &task{job: j, pod: pod, next: w.now, seen: -1}
	t.cpu, t.memory = asks(pod)
	return t
}

// asks returns what a pod asks for, in millicores and MiB.
func asks(pod *corev1.Pod) (cpu, memory int64) {
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return list.Cpu().MilliValue(), list.Memory().Value() >> 20
}

// schedule places the pods whose turn it is. As kube-scheduler it looks again at one that fitted nowhere after a
// change, and not before its back-off of one to ten seconds.
func (w *world) schedule(ctx context.Context, waits *[]time.Duration) error {
	type like struct {
		cpu, memory int64
		notOn       string
	}
	nowhere := map[like]bool{} // pods that are alike fit nowhere alike
	var err error
	w.pending = slices.DeleteFunc(w.pending, func(t *task) bool {
		if err != nil || t.next > w.now || t.seen == w.changes {
			return false
		}
		is, name := like{t.cpu, t.memory, t.notOn()}, ""
		if !nowhere[is] {
			if name, err = w.scheduler.place(ctx, t.pod); err != nil {
				return false
			}
		}
		if name == "" {
			nowhere[is] = true
			t.seen = w.changes
			t.next = w.now + min(time.Second<<min(t.tries, 4), 10*time.Second)
			if t.tries++; t.tries == 1 {
				t.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(w.clock())}}
				w.due = min(w.due, w.now+time.Second) // the companion watches this
			}
			return false
		}
		h := w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { return h.name == name })]
		t.pod.Spec.NodeName, t.pod.Status.Conditions, t.pod.Status.Phase = name, nil, corev1.PodRunning
		t.ended, t.host = w.now+t.length, h
		h.tasks = append(h.tasks, t)
		h.cpu, h.memory = h.cpu+t.cpu, h.memory+t.memory
		w.scheduler.nodes.bind(t.pod)
		w.running = append(w.running, t)
		*waits = append(*waits, w.now-t.created)
		return true
	})
	return err
}

// end ends the pods whose time has come. They stay for a while, as finished pods do.
func (w *world) end() {
	w.running = slices.DeleteFunc(w.running, func(t *task) bool {
		if t.ended > w.now {
			return false
		}
		w.scheduler.nodes.unbind(t.pod)
		h := t.host
		h.cpu, h.memory = h.cpu-t.cpu, h.memory-t.memory
		h.tasks = slices.DeleteFunc(h.tasks, func(has *task) bool { return has == t })
		t.pod.Status.Phase = corev1.PodSucceeded
		t.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(w.clock())}}}}
		if !w.trace.deleted {
			w.kept = append(w.kept, t)
		}
		w.changes++
		return true
	})
	w.kept = slices.DeleteFunc(w.kept, func(t *task) bool { return !workloadclasses.Holds(t.pod, w.clock()) })
}

// elsewhere reports whether the pods of a node have room on others.
func (w *world) elsewhere(of *host) bool {
	cpu := map[*host]int64{}
	for _, t := range of.tasks {
		i := slices.IndexFunc(w.hosts, func(h *host) bool {
			return h != of && h.node != nil && !blocked(h.node) && h.cpu+cpu[h]+t.cpu <= w.trace.cpu
		})
		if i < 0 {
			return false
		}
		cpu[w.hosts[i]] += t.cpu
	}
	return true
}

// evaluate is one look of the companion: what controller/reconciler.go does, on objects in memory.
func (w *world) evaluate() {
	w.due = w.now + w.policy.Period
	var waiting []*corev1.Pod
	seen := map[string]bool{}
	waits := false
	for _, t := range w.pending {
		if !workloadclasses.Unschedulable(t.pod, w.clock()) {
			continue
		}
		waits = true
		if alike := workloadclasses.Alike(t.pod); !seen[alike] {
			seen[alike] = true
			waiting = append(waiting, t.pod)
		}
	}
	ended := map[*host]int{}
	for _, t := range w.kept {
		ended[t.host]++
	}
	policy := *w.policy
	policy.Minimum = int(*w.set.Minimum)
	views := make([]workloadclasses.NodeView, 0, len(w.hosts))
	for _, h := range w.hosts {
		if h.node == nil {
			continue
		}
		record, _ := workloadclasses.RecordOf(h.node)
		o, _ := workloadclasses.OperationOf(h.node)
		view := workloadclasses.NodeView{
			Name: h.name, Created: h.node.CreationTimestamp.Time, Record: record, Held: workloadclasses.Held(h.node), Leaving: o.ID != "",
			Pods: len(h.tasks) + ended[h], Used: h.cpu, Free: w.trace.cpu - h.cpu,
		}
		var there []corev1.Pod
		if len(waiting) > 0 {
			for _, pod := range h.pods() {
				there = append(there, *pod)
			}
		}
		view.Demanded = slices.ContainsFunc(waiting, func(pod *corev1.Pod) bool { return workloadclasses.Fits(pod, h.node, there) })
		views = append(views, view)
	}
	evaluation := workloadclasses.Evaluate(views, waits, w.clock(), policy)
	for i, d := range evaluation.Decisions {
		h := w.hosts[slices.IndexFunc(w.hosts, func(h *host) bool { return h.name == d.Name })]
		view := views[slices.IndexFunc(views, func(v workloadclasses.NodeView) bool { return v.Name == d.Name })]
		switch {
		case view.Leaving:
			w.step(h, view.Demanded)
		case d.GiveBack:
			s := w.situation(h, workloadclasses.Operation{}, view.Demanded)
			if s.Obstacle(workloadclasses.Operation{}).Code == "" {
				workloadclasses.Begin(h.node, workloadclasses.Operation{ID: fmt.Sprintf("give-back-%d-%d", w.now/time.Second, i), Phase: workloadclasses.Draining, Since: w.clock()})
				w.due = w.now + time.Second
			}
		default:
			before := h.node.Spec.DeepCopy()
			workloadclasses.Write(h.node, d, evaluation.Precluded == d.Name, class, w.clock(), policy)
			if before.Unschedulable && !h.node.Spec.Unschedulable {
				w.changes++
			}
			w.scheduler.nodes.info(h.name).SetNode(h.node)
		}
	}
}

func (w *world) situation(h *host, o workloadclasses.Operation, demanded bool) workloadclasses.Situation {
	record, _ := workloadclasses.RecordOf(h.node)
	set := w.set
	set.Settled = w.now-w.scaled >= 2*time.Second && !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.node == nil })
	s := workloadclasses.Situation{Held: workloadclasses.Held(h.node), Cordoned: record.State == workloadclasses.NoSchedule, Demanded: demanded, Machine: h.machine, Set: &set, Turn: true}
	for _, other := range w.hosts {
		if other.node == nil {
			set.Obstacle = workloadclasses.Obstacle{Code: workloadclasses.ScaleUp, Why: "a Machine does not run yet"} // as controller/machines.go has it
			continue
		}
		if has, _ := workloadclasses.OperationOf(other.node); has.Phase == workloadclasses.Removing && has.ID != o.ID {
			s.Turn = false
		}
	}
	if len(h.tasks) > 0 {
		s.Pod = h.tasks[0].pod.Name
	}
	return s
}

// step does the steps of an operation until one waits.
func (w *world) step(h *host, demanded bool) {
	for {
		o, _ := workloadclasses.OperationOf(h.node)
		action := workloadclasses.Step(o, w.situation(h, o, demanded), w.clock(), w.trace.timing)
		switch action.Kind {
		case workloadclasses.Persist:
			workloadclasses.Begin(h.node, action.Operation)
		case workloadclasses.Mark:
			h.machine.Operation, h.machine.Marked = o.ID, true
		case workloadclasses.Unmark:
			h.machine.Operation, h.machine.Marked = "", false
		case workloadclasses.Scale:
			w.set.Replicas--
			w.set.Generation++
			w.scaled = w.now
			w.remove(h)
			return
		case workloadclasses.Release:
			workloadclasses.Free(h.node, w.clock())
			w.changes++
			w.scheduler.nodes.info(h.name).SetNode(h.node)
			return
		default:
			w.due = min(w.due, w.now+min(5*time.Second, w.policy.Period))
			w.scheduler.nodes.info(h.name).SetNode(h.node)
			return
		}
	}
}
