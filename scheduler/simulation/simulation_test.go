// SPDX-License-Identifier: Apache-2.0

// Package simulation_test has the scheduler's account of zones place pods at random on nodes whose kubelets are upstream's topology
// manager, CPU manager and memory manager, in this process. Nothing happens at one moment: a kubelet looks at bound pods late and in
// any order, pods end at any time, and what kubelets and exporters say arrives late. The clock is virtual, and so is the cluster.
//
// Devices are not simulated: upstream's device manager needs sockets in the kubelet's directory.
package simulation_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/operators/numaresources/alignment"
	"workload.openshift.io/scheduler/ledger"
)

var (
	admissions = flag.Int("admissions", 100_000, "how many pods are to be admitted in the simulation")
	seed       = flag.Uint64("seed", 1, "the first seed of random numbers")
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(klog.Logger{}) // upstream's managers say much
	os.Exit(m.Run())
}

// perRun is how many pods are admitted with one seed.
const perRun = 1_000

// machines are the kinds of nodes.
var machines = func() (list []machine) {
	for _, policy := range []string{"best-effort", "restricted", "single-numa-node"} {
		for _, scope := range []string{"container", "pod"} {
			list = append(list,
				machine{zones: 2, cpus: 8, reserved: 1, memory: 17, policy: policy, scope: scope, threads: true},
				machine{zones: 4, cpus: 6, reserved: 2, memory: 17, policy: policy, scope: scope, static: true},
			)
		}
	}
	return append(list, machine{zones: 2, cpus: 8, reserved: 1, memory: 17, policy: "none", scope: "container", static: true})
}()

type count struct{ admitted, refused int }

func TestNoBoundPodIsRefused(t *testing.T) {
	counts := map[string]count{}
	total := count{}
	reasons := map[string]int{}
	for s := *seed; total.admitted+total.refused < *admissions; s++ {
		run := newCluster(t, s, machines)
		for run.decided < perRun {
			run.step()
		}
		for name, c := range run.counts {
			all := counts[name]
			counts[name] = count{all.admitted + c.admitted, all.refused + c.refused}
			total.admitted += c.admitted
			total.refused += c.refused
			if c.refused > 0 {
				t.Errorf("seed %d: %d pods of %s were refused, such as: %s", s, c.refused, name, run.example[name])
			}
		}
		for reason, n := range run.waits {
			reasons[string(reason)] += n
		}
		if t.Failed() && s > *seed+20 {
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%-55s %6d admitted, %d refused", name, counts[name].admitted, counts[name].refused)
	}
	t.Logf("%-55s %6d admitted, %d refused; nodes that were not taken: %v", "all", total.admitted, total.refused, reasons)
}

// A kubelet that restarts gives memory to init containers that have ended (kubernetes/kubernetes issue 123971).
func TestNoBoundPodIsRefusedAfterAKubeletHasRestarted(t *testing.T) {
	static := slices.DeleteFunc(slices.Clone(machines), func(m machine) bool { return !m.static })
	restarts, ended := 0, 0
	for s := *seed; s < *seed+5; s++ {
		run := newCluster(t, s, static)
		for run.decided < perRun {
			run.step()
			if n := run.nodes[run.random.IntN(len(run.nodes))]; len(n.bound) == 0 && run.random.IntN(50) == 0 {
				restarts++
				ended += run.restart(n)
			}
		}
		for name, c := range run.counts {
			if c.refused > 0 {
				t.Errorf("seed %d: %d pods of %s were refused, such as: %s", s, c.refused, name, run.example[name])
			}
		}
	}
	t.Logf("kubelets have restarted %d times, and refused %d running pods then", restarts, ended)
}

// Without the account, the same kubelets refuse pods: else the simulation would show nothing.
func TestTrustingReportsAloneIsRefused(t *testing.T) {
	run := newCluster(t, *seed, machines)
	run.forgets = true
	for run.decided < perRun {
		run.step()
	}
	refused := 0
	for _, c := range run.counts {
		refused += c.refused
	}
	t.Logf("%d of %d pods are refused if only reports count", refused, run.decided)
	if refused == 0 {
		t.Error("no pod is refused if only reports count: the simulation is too kind")
	}
}

// cluster is a run.
type cluster struct {
	t       *testing.T
	random  *rand.Rand
	now     time.Time
	ledger  *ledger.Ledger
	forgets bool
	nodes   []*node
	// generation is the last of the pods of any node.
	generation int64
	// coming are events that are on their way to the scheduler, each no earlier than its time. Those of one source stay in order.
	coming  []event
	created int
	decided int
	counts  map[string]count
	example map[string]string
	waits   map[alignment.Reason]int
}

type event struct {
	at     time.Time
	source string
	happen func()
}

type node struct {
	*kubelet
	name string
	// bound are pods at which the kubelet has not looked; running those that it has admitted.
	bound, running []*corev1.Pod
	starting       map[types.UID]bool
	// cpu and mem are what pods on the node ask for, as the scheduler's own filter counts it, in thousandths of CPUs and bytes.
	cpu, mem map[types.UID]int64
	// supposed are the same pods, for the ledger.
	supposed ledger.Pods
	version  int
	written  *v1alpha2.NodeResourceTopology
	dirty    bool
	// away is until the scheduler knows that the kubelet has restarted.
	away bool
	last time.Time
}

func newCluster(t *testing.T, seed uint64, kinds []machine) *cluster {
	c := &cluster{
		t: t, random: rand.New(rand.NewPCG(seed, 69)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), ledger: ledger.New(false),
		counts: map[string]count{}, example: map[string]string{}, waits: map[alignment.Reason]int{},
	}
	c.ledger.Now = func() time.Time { return c.now }
	for i, kind := range kinds {
		n := &node{kubelet: newKubelet(t, kind), name: fmt.Sprintf("node-%d", i), starting: map[types.UID]bool{}, cpu: map[types.UID]int64{}, mem: map[types.UID]int64{}}
		c.suppose(n)
		c.nodes = append(c.nodes, n)
		c.ledger.SetReport(c.report(n))
	}
	return c
}

// report is what the node's exporter writes now.
func (c *cluster) report(n *node) *v1alpha2.NodeResourceTopology {
	observed := n.observe()
	zones, err := observed.Zones()
	if err != nil {
		c.t.Fatal(err)
	}
	n.version++
	n.last = c.now
	n.written = &v1alpha2.NodeResourceTopology{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, ResourceVersion: fmt.Sprint(n.version), Annotations: map[string]string{numaresources.HeartbeatAnnotation: c.now.UTC().Format(time.RFC3339)}},
		Zones:      zones, Attributes: observed.Attributes(),
	}
	n.dirty = false
	return n.written
}

// later has something happen at the scheduler after up to so long.
func (c *cluster) later(source string, most time.Duration, happen func()) {
	at := c.now.Add(time.Duration(c.random.Int64N(int64(most))))
	for _, e := range c.coming {
		if e.source == source && e.at.After(at) {
			at = e.at
		}
	}
	c.coming = append(c.coming, event{at, source, happen})
}

// step lets some time pass, and one thing happen.
func (c *cluster) step() {
	c.now = c.now.Add(time.Duration(c.random.IntN(100)) * time.Millisecond)
	c.deliver()
	n := c.nodes[c.random.IntN(len(c.nodes))]
	switch k := c.random.IntN(10); {
	case k < 5:
		c.schedule(c.pod())
	case k < 7:
		c.admit(n)
	case k < 8:
		c.initialize(n)
	case k < 9:
		c.end(n)
	default:
		c.look(n)
	}
	for _, n := range c.nodes {
		if n.dirty && c.now.Sub(n.last) > 2*time.Second || c.now.Sub(n.last) > numaresources.Heartbeat {
			c.look(n)
		}
	}
}

// deliver has the scheduler hear what has arrived by now.
func (c *cluster) deliver() {
	var due []event
	c.coming = slices.DeleteFunc(c.coming, func(e event) bool {
		if e.at.After(c.now) {
			return false
		}
		due = append(due, e)
		return true
	})
	slices.SortStableFunc(due, func(a, b event) int { return a.at.Compare(b.at) })
	for _, e := range due {
		e.happen()
	}
}

// look is one of the exporter: it reads now, and what it writes arrives later.
func (c *cluster) look(n *node) {
	report := c.report(n)
	c.later("report "+n.name, time.Second, func() { c.ledger.SetReport(report) })
}

// changed is that of a pod's status by its kubelet.
func (c *cluster) changed(n *node, pod *corev1.Pod) {
	pod = pod.DeepCopy()
	c.later("pod "+pod.Name, time.Second, func() {
		if !c.forgets && n.cpu[pod.UID] != 0 {
			c.ledger.SetPod(pod, n.name)
		}
	})
}

// admit has the kubelet look at some of the bound pods, in any order.
func (c *cluster) admit(n *node) {
	c.random.Shuffle(len(n.bound), func(i, j int) { n.bound[i], n.bound[j] = n.bound[j], n.bound[i] })
	some := c.random.IntN(len(n.bound) + 1)
	for _, pod := range n.bound[:some] {
		name := n.machine.String()
		of := c.counts[name]
		c.decided++
		why := n.kubelet.admit(c.t.Context(), pod)
		if why != "" {
			of.refused++
			c.example[name] = fmt.Sprintf("%s on %s: %s\n%v", describe(pod), n.name, why, n.written.Zones)
			pod.Status.Phase = corev1.PodFailed
		} else {
			of.admitted++
			pod.Status.Phase = corev1.PodRunning
			pod.Status.StartTime = &metav1.Time{Time: c.now.Truncate(time.Second)}
			n.running = append(n.running, pod)
			n.starting[pod.UID] = len(pod.Spec.InitContainers) > 0
		}
		n.dirty = true
		c.counts[name] = of
		if why != "" {
			c.gone(n, pod)
		} else {
			c.changed(n, pod)
		}
		c.now = c.now.Add(time.Duration(c.random.IntN(300)) * time.Millisecond)
	}
	n.bound = slices.Delete(n.bound, 0, some)
}

// initialize has the init containers of pods end, and the others start. The kubelet then takes back what the former have of memory,
// and of nothing else (pkg/kubelet/cm/memorymanager/memory_manager.go, AddContainer).
func (c *cluster) initialize(n *node) {
	for _, pod := range n.running {
		if !n.starting[pod.UID] || c.random.IntN(2) == 0 {
			continue
		}
		n.starting[pod.UID] = false
		for i := range pod.Spec.InitContainers {
			if n.static && pod.Spec.InitContainers[i].RestartPolicy == nil {
				n.kubelet.mem.RemoveContainer(klog.Background(), n.memory, string(pod.UID), pod.Spec.InitContainers[i].Name)
			}
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: c.now.Truncate(time.Second)}}}}}
		n.dirty = true
		c.changed(n, pod)
	}
}

// restart restarts the kubelet, and returns how many running pods it refuses. No pod comes until the exporter has reported it.
func (c *cluster) restart(n *node) int {
	next, refused := n.kubelet.restart(c.t, c.now, n.running)
	n.kubelet, n.away = next, true
	for _, pod := range refused {
		n.running = slices.DeleteFunc(n.running, func(p *corev1.Pod) bool { return p == pod })
		c.gone(n, pod)
	}
	c.look(n)
	c.later("report "+n.name, time.Millisecond, func() { n.away = false })
	return len(refused)
}

// end has a pod end.
func (c *cluster) end(n *node) {
	if len(n.running) == 0 {
		return
	}
	i := c.random.IntN(len(n.running))
	pod := n.running[i]
	n.running = slices.Delete(n.running, i, i+1)
	n.kubelet.end(pod)
	n.dirty = true
	c.gone(n, pod)
}

// gone tells the scheduler that a pod has ended.
func (c *cluster) gone(n *node, pod *corev1.Pod) {
	c.later("pod "+pod.Name, time.Second, func() {
		delete(n.cpu, pod.UID)
		delete(n.mem, pod.UID)
		c.suppose(n)
		c.ledger.RemovePod(pod.UID, n.name, true)
	})
}

// pod is one at random.
func (c *cluster) pod() *corev1.Pod {
	c.created++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%d", c.created), UID: types.UID(fmt.Sprintf("uid-%d", c.created))},
		Status:     corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed},
	}
	container := func(name string, most int) corev1.Container {
		list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(1+c.random.IntN(most))*1000, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(int64(1+c.random.IntN(4))*gi, resource.BinarySI)}
		if c.random.IntN(10) == 0 {
			list[corev1.ResourceCPU] = resource.MustParse("500m")
		}
		if c.random.IntN(40) == 0 {
			list[corev1.ResourceMemory] = *resource.NewQuantity(int64(10+c.random.IntN(12))*gi, resource.BinarySI)
		}
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}
	}
	most := []int{2, 4, 8, 12}[c.random.IntN(4)]
	for i := range 1 + c.random.IntN(6)/4 {
		pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprintf("c%d", i), most))
	}
	if c.random.IntN(6) == 0 {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container("init", most))
	}
	if c.random.IntN(12) == 0 {
		sidecar := container("sidecar", 2)
		always := corev1.ContainerRestartPolicyAlways
		sidecar.RestartPolicy = &always
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, sidecar)
	}
	if c.random.IntN(12) == 0 {
		pod.Status.QOSClass = corev1.PodQOSBurstable
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Resources.Limits = nil
		}
	}
	return pod
}

func describe(pod *corev1.Pod) string {
	text := string(pod.Status.QOSClass)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		text += fmt.Sprintf(" %s(%s, %s)", c.Name, c.Resources.Requests.Cpu(), c.Resources.Requests.Memory())
	}
	return text
}

// schedule binds a pod to a node that lets it pass, and reports whether there is one.
func (c *cluster) schedule(pod *corev1.Pod) bool {
	cpu, mem := requested(pod)
	ask := c.ledger.Ask(pod)
	for _, i := range c.random.Perm(len(c.nodes)) {
		n := c.nodes[i]
		if n.away {
			continue
		}
		if sum(n.cpu)+cpu > int64(n.zones*n.machine.cpus-n.reserved)*1000 || sum(n.mem)+mem > int64(n.zones)*(n.machine.memory-1)*gi {
			continue // the scheduler's own filter NodeResourcesFit
		}
		if refusal := c.ledger.Check(ask, n.name, n.supposed); refusal != nil {
			if refusal.Lack != nil {
				c.waits[refusal.Lack.Reason]++
			}
			continue
		}
		bound := pod.DeepCopy()
		n.cpu[pod.UID], n.mem[pod.UID] = cpu, mem
		c.suppose(n)
		if !c.forgets {
			c.ledger.SetPod(bound, n.name)
		}
		n.bound = append(n.bound, pod)
		return true
	}
	return false
}

// suppose is called when the pods on a node are others than before.
func (c *cluster) suppose(n *node) {
	c.generation++
	n.supposed.Generation = c.generation
	n.supposed.All = func(yield func(*corev1.Pod) bool) {
		for uid := range n.cpu {
			if !yield(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}) {
				return
			}
		}
	}
}

func sum(amounts map[types.UID]int64) (total int64) {
	for _, amount := range amounts {
		total += amount
	}
	return total
}

// requested is what the scheduler counts for a pod.
func requested(pod *corev1.Pod) (cpu, mem int64) {
	starting, startingMemory := int64(0), int64(0)
	for _, c := range pod.Spec.InitContainers {
		a, b := c.Resources.Requests.Cpu().MilliValue(), c.Resources.Requests.Memory().Value()
		if c.RestartPolicy != nil {
			cpu, mem = cpu+a, mem+b
		} else {
			starting, startingMemory = max(starting, cpu+a), max(startingMemory, mem+b)
		}
	}
	for _, c := range pod.Spec.Containers {
		cpu, mem = cpu+c.Resources.Requests.Cpu().MilliValue(), mem+c.Resources.Requests.Memory().Value()
	}
	return max(cpu, starting), max(mem, startingMemory)
}
