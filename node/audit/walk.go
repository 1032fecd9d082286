// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/partition"
)

// node is what one walk saw. Pods start and end meanwhile, so two parts of it may contradict each
// other.
type node struct {
	host    Host
	cgroups hierarchy
	online  cpuset.CPUSet
	pools   partition.Pools
	// written are the pools as the file has them, even if they hold every CPU.
	written    partition.Pools
	notes      []string
	poolsErr   error
	kubelet    *kubelet
	checkpoint *kubeletstate.Checkpoint
	// assigned are the CPUs that running pods hold exclusively.
	assigned cpuset.CPUSet
	record   *partition.Record
	crio     crio
	runtime  *runtimeapi.VersionResponse
	pods     []*pod
	// isolated are the CPUs of the kernel argument isolcpus.
	isolated cpuset.CPUSet
	// rights are the annotations of the namespaces that have partitioned pods; rightsErr says why it does not
	// have them all.
	rights    map[string]map[string]string
	rightsErr error
	// groups are the cgroups of pods, sandboxes and containers, and those in pods that belong to
	// neither.
	groups []*group
	// tasks are the processes of the host, and all tasks of pods, by their numbers.
	tasks map[int]task
	// inPods has every task in a cgroup of pods.
	inPods map[int]bool
}

// kind is what a cgroup belongs to.
type kind int

const (
	wholePod kind = iota
	sandbox
	ofContainer
	// helper is below a pod's cgroup, and nothing that the runtime lists: its monitor, say, or a
	// container that has just been created.
	helper
)

// group is a cgroup of a pod.
type group struct {
	kind      kind
	pod       *pod
	container container
	usage     Usage
	// tasks are those in it, and in cgroups that the container has made below.
	tasks []int
}

// object names what the cgroup belongs to.
func (g *group) object() string {
	switch g.kind {
	case wholePod:
		return fmt.Sprintf("pod %s", g.pod)
	case sandbox:
		return fmt.Sprintf("sandbox of pod %s", g.pod)
	case helper:
		return fmt.Sprintf("cgroup %s of pod %s", filepath.Base(g.usage.Cgroup), g.pod)
	}
	return fmt.Sprintf("container %s of pod %s", g.container.name, g.pod)
}

// task is what the kernel says about a task.
type task struct {
	id, process int
	// comm is its name, which it chooses itself.
	comm string
	// flags are the kernel's (Linux, include/linux/sched.h, PF_KTHREAD and others).
	flags uint
	// allowed are the CPUs that it may use.
	allowed cpuset.CPUSet
	// processor is the CPU on which it ran last, and ran how long it has run, in nanoseconds.
	processor int
	ran       uint64
	// started is when, in clock ticks since the host's. With the number it identifies the task.
	started uint64
}

// walk looks at the node once.
func (h Host) walk(ctx context.Context, runtime Runtime, configz []byte) (*node, error) {
	h = h.withDefaults()
	n := &node{host: h, tasks: map[int]task{}, inPods: map[int]bool{}}
	var err error
	if n.cgroups, err = h.hierarchy(); err != nil {
		return nil, err
	}
	if n.online, err = topology.Online(h.Sys); err != nil {
		return nil, err
	}
	isolated := filepath.Join(h.Sys, "devices/system/cpu/isolated")
	if text, err := readText(isolated); err == nil { // a kernel may lack it
		if n.isolated, err = parseCPUs(isolated, text); err != nil {
			return nil, err
		}
	}
	load := load
	if h.recorded {
		load = loadCopy
	}
	n.written, n.notes, n.poolsErr = load(h.at(partition.PinningFilePath), n.online)
	n.pools = n.written
	// Such pools confine nothing (design, section 2).
	if n.poolsErr == nil && n.pools.HoldEvery(n.online) {
		n.notes = append(n.notes, fmt.Sprintf("the pools hold every CPU of the host (%s), so they confine nothing", n.online))
		n.pools = n.pools.Unconfined()
	}
	if n.runtime, err = runtime.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	if n.pods, err = listPods(ctx, runtime); err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	if err := n.walkCgroups("/", owner{}); err != nil {
		return nil, err
	}
	if err := n.readTasks(); err != nil {
		return nil, err
	}
	// Without this right, moved processes would go unseen.
	for _, g := range n.groups {
		if g.kind != ofContainer || g.container.pid == 0 {
			continue
		}
		if _, err := os.Readlink(h.mountNamespacePath(g.container.pid)); err != nil && !gone(err) {
			return nil, fmt.Errorf("the mount namespace of %s: %w; run as root, with the capability SYS_PTRACE", g.object(), err)
		}
	}
	if n.kubelet, err = h.kubelet(); err != nil {
		return nil, err
	}
	if configz != nil {
		if err := n.kubelet.useConfigz(configz); err != nil {
			return nil, err
		}
	}
	if n.checkpoint, err = h.checkpoint(n.kubelet); err != nil {
		return nil, err
	}
	for _, a := range n.checkpoint.Assignments {
		if slices.ContainsFunc(n.pods, func(p *pod) bool { return p.uid == a.Pod }) {
			n.assigned = n.assigned.Union(a.CPUs)
		}
	}
	if n.record, err = h.record(n.kubelet); err != nil {
		return nil, err
	}
	// render writes the drop-in for any runtime, and only CRI-O reads it.
	if n.runtime.GetRuntimeName() == crioRuntime {
		if n.crio, err = h.crio(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// owner is to whom a cgroup belongs.
type owner struct {
	pod *pod
	// group is that of the container, sandbox or helper; everything below it belongs to it.
	group *group
}

// walkCgroups looks at a cgroup and at those below.
func (n *node) walkCgroups(cgroup string, of owner) error {
	of = n.ownerOf(cgroup, of)
	if of.group != nil && of.group.usage.Cgroup == "" {
		usage, err := n.cgroups.usage(cgroup)
		if gone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", of.group.object(), err)
		}
		of.group.usage = usage
		n.groups = append(n.groups, of.group)
	}
	if of.pod != nil {
		ids, err := n.cgroups.tasks(cgroup)
		if err != nil {
			return err
		}
		for _, id := range ids {
			n.inPods[id] = true
		}
		if of.group != nil {
			of.group.tasks = append(of.group.tasks, ids...)
		}
	}
	if of.group != nil && of.group.kind == wholePod {
		of.group = nil // each child has its own owner
	}
	for _, child := range n.cgroups.children(cgroup) {
		if err := n.walkCgroups(child, of); err != nil {
			return err
		}
	}
	return nil
}

// ownerOf finds out to whom a cgroup belongs, from its name. Below a container or sandbox every
// cgroup belongs to it, whatever its name: a privileged container chooses these.
func (n *node) ownerOf(cgroup string, above owner) owner {
	if above.group != nil {
		return above
	}
	name := strings.TrimSuffix(filepath.Base(cgroup), ".scope")
	id := name[strings.LastIndex(name, "-")+1:]
	for _, p := range n.pods {
		switch {
		case strings.Contains(name, "conmon"):
		case id == p.sandbox:
			return owner{p, &group{kind: sandbox, pod: p}}
		default:
			for _, c := range p.containers {
				if id == c.id {
					return owner{p, &group{kind: ofContainer, pod: p, container: c}}
				}
			}
		}
		if above.pod == nil && isPod(filepath.Base(cgroup), p.uid) {
			return owner{p, &group{kind: wholePod, pod: p}}
		}
	}
	if above.pod != nil {
		return owner{above.pod, &group{kind: helper, pod: above.pod}}
	}
	return owner{}
}

// isPod reports whether a cgroup has the name that the kubelet gives that of a pod, with either
// driver (pkg/kubelet/cm/pod_container_manager_linux.go, and cgroup_manager_linux.go for systemd).
func isPod(name, uid string) bool {
	slice, systemd := strings.CutSuffix(name, ".slice")
	if systemd {
		return strings.HasSuffix(slice, "-pod"+strings.ReplaceAll(uid, "-", "_"))
	}
	return name == "pod"+uid
}

// bySystemd reports whether systemd makes the cgroups of pods.
func (n *node) bySystemd() bool {
	return slices.ContainsFunc(n.groups, func(g *group) bool { return strings.Contains(g.usage.Cgroup, ".slice") })
}

// readTasks reads every process of the host, and every task of pods.
func (n *node) readTasks() error {
	procs, err := n.host.procfs()
	if err != nil {
		return err
	}
	all, err := procs.AllProcs()
	if err != nil {
		return err
	}
	read := func(process procfs.Proc) {
		if _, done := n.tasks[process.PID]; done {
			return
		}
		if t, err := readTask(process); err == nil { // otherwise it has ended
			n.tasks[t.id] = t
		}
	}
	for id := range n.inPods {
		if process, err := procs.Proc(id); err == nil { // a thread has such a directory, too, which is not listed
			read(process)
		}
	}
	for _, process := range all {
		read(process)
		if !n.inPods[process.PID] {
			continue
		}
		threads, _ := procs.AllThreads(process.PID) // none if it has ended
		for _, thread := range threads {
			read(thread)
		}
	}
	for _, g := range n.groups {
		lists := map[string]bool{}
		for _, id := range g.tasks {
			if t, runs := n.tasks[id]; runs && !lists[t.allowed.String()] {
				lists[t.allowed.String()] = true
				g.usage.Tasks = append(g.usage.Tasks, t.allowed.String())
			}
		}
		slices.Sort(g.usage.Tasks)
	}
	return nil
}

func readTask(process procfs.Proc) (t task, err error) {
	status, err := process.NewStatus()
	if err != nil {
		return t, err
	}
	stat, err := process.Stat()
	if err != nil {
		return t, err
	}
	t = task{id: process.PID, process: status.TGID, comm: stat.Comm, flags: stat.Flags, processor: int(stat.Processor), started: stat.Starttime}
	cpus := make([]int, len(status.CpusAllowedList))
	for i, cpu := range status.CpusAllowedList {
		cpus[i] = int(cpu)
	}
	t.allowed = cpuset.New(cpus...)
	if schedstat, err := process.Schedstat(); err == nil { // a kernel may lack it
		t.ran = schedstat.RunningNanoseconds
	}
	if stat.State == "Z" || stat.State == "X" {
		return t, errors.New("it has ended")
	}
	return t, nil
}

// hostNamespace returns the host's mount namespace. Where even root may not look at the first
// process, since the host itself is a container, it is that of this process.
func (h Host) hostNamespace() string {
	if namespace := h.mountNamespace(1); namespace != "" {
		return namespace
	}
	return h.mountNamespace(os.Getpid())
}

// mountNamespace returns that of a process; empty if it has ended.
func (h Host) mountNamespace(pid int) string {
	link, _ := os.Readlink(h.mountNamespacePath(pid))
	return link
}

func (h Host) mountNamespacePath(pid int) string {
	return filepath.Join(h.Proc, strconv.Itoa(pid), "ns", "mnt")
}

// confined returns the pool to which a pod is confined; false if to none.
func (n *node) confined(p *pod) (cpuset.CPUSet, bool) {
	if p.workloadType == "" {
		return cpuset.CPUSet{}, false
	}
	pool := n.pools[p.workloadType]
	return pool, !pool.IsEmpty()
}

// may returns the CPUs on which a container of a pod may run, and why. The container's name is
// empty for the pod as a whole.
func (n *node) may(p *pod, container string) (cpus cpuset.CPUSet, why string) {
	if pool, confined := n.confined(p); confined {
		return pool, "the pool of workload type " + p.workloadType
	}
	if held, _, exclusively := n.checkpoint.Exclusive(p.uid, container); exclusively {
		return held, "its exclusive CPUs"
	}
	unpooled := n.unpooled()
	if shared := unpooled.Difference(n.assigned); !n.checkpoint.Shared.IsEmpty() && !shared.Equals(unpooled) {
		return shared, "the CPUs in no pool that are not held exclusively"
	}
	// Where nothing is left to share, ordinary containers run on what others hold exclusively.
	return unpooled, "the CPUs in no pool"
}

// unpooled returns the CPUs that are in no pool and not the host's alone.
func (n *node) unpooled() cpuset.CPUSet {
	return n.online.Difference(n.pools.Union()).Difference(n.hostAlone())
}

// hostAlone returns the CPUs of reservedSystemCPUs that are in no pool and that the CPU manager gives to no pod: those of ovsDpdk in a
// PerformanceProfile, or of kubectl partition render --system-cpus. Where it shares any of them, there are none.
func (n *node) hostAlone() cpuset.CPUSet {
	reserved, err := partition.ParseCPUs(n.kubelet.reservedCPUs())
	alone := reserved.Intersection(n.online).Difference(n.pools.Union())
	if err != nil || n.checkpoint.Policy != partition.StaticPolicy || n.checkpoint.Shared.IsEmpty() || !alone.Intersection(n.checkpoint.Shared).IsEmpty() {
		return cpuset.New()
	}
	return alone
}

// typeOrDash returns the workload type by which results and metrics count a pod.
func (p *pod) typeOrDash() string { return cmp.Or(p.workloadType, "-") }
