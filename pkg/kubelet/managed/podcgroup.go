package managed

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file confines the cgroups of partitioned pods (design, section 6, the pod's cgroup),
// so that the kernel holds whatever runs in such a pod, from its first instruction: its
// sandbox, the runtime's init, exec, and what is left of a container that ends. Ordinary
// pods' cgroups stay upstream's.

// WithOriginalCPUAndType returns the pod as WithOriginalCPU does, and its workload type, by which it cannot be
// known any more; empty if it is in no partition.
func WithOriginalCPUAndType(pod *v1.Pod) (_ *v1.Pod, workloadType string) {
	workloadType, ok := typeOf(pod)
	if !ok {
		return pod, ""
	}
	return partition.AsOrdinary(pod, workloadType), workloadType
}

// PodCgroupCPUs returns the set of CPUs for the cgroup of a pod of a workload type, which upstream
// writes when it creates that. It is the zero value for a pod that is not confined: upstream
// writes none then.
func PodCgroupCPUs(workloadType string) cpuset.CPUSet { return current.Load().podCPUs(workloadType) }

// podCPUs is the pool on cgroup v2. On v1, where the sets of sandboxes must lie within, it is
// the union of the pools, since CRI-O has one set for all sandboxes.
func (n *node) podCPUs(workloadType string) cpuset.CPUSet {
	pool, confined := n.poolOf(workloadType)
	if !confined || !host.podCgroups {
		return cpuset.CPUSet{}
	}
	if !hierarchy().v1 {
		return pool
	}
	room := observed.podRoom()
	switch {
	case room.IsEmpty():
		return n.pooled
	case pool.Intersection(room).IsEmpty():
		return cpuset.CPUSet{} // its containers cannot start
	}
	return n.pooled.Intersection(room)
}

// podCgroups is the part of upstream's PodContainerManager (pkg/kubelet/cm/types.go) that all
// releases have. N is its CgroupName.
type podCgroups[N any] interface {
	Exists(pod *v1.Pod) bool
	// GetPodContainerName returns the cgroup also as a path below the root of a hierarchy.
	GetPodContainerName(pod *v1.Pod) (N, string)
}

// RepairPodCgroup writes the CPUs, the weight and the quota of a partitioned pod's cgroup that was
// here before this kubelet, once. Upstream writes them only when it creates the cgroup
// (pkg/kubelet/kubelet.go, SyncPod). A pod that is no longer confined gets all CPUs back.
// configFor is upstream's ResourceConfigForPod, which knows what they should be, and R the type
// of what that returns.
func RepairPodCgroup[R, N any](pod *v1.Pod, manager podCgroups[N], configFor any) {
	n, on := partitions()
	if !on || !host.podCgroups {
		return
	}
	workloadType, partitioned := partition.TypeOf(pod)
	if !partitioned {
		return
	}
	_, path := manager.GetPodContainerName(pod)
	n.checkRoom(workloadType, filepath.Dir(filepath.Dir(path)))
	if observed.seen(pod) {
		return
	}
	if manager.Exists(pod) {
		if err := n.repairPodCgroup(pod, workloadType, path, func(cpus cpuset.CPUSet) error {
			config := callResourceConfigForPod[R](configFor, pod, host.quotaPeriod)
			fields := []string{hugePages}
			if n != nil {
				fields = append(fields, weightAndQuota...)
			}
			return callSetPodCgroup(manager, pod, onlyCPU(config, cpus, fields...))
		}); err != nil {
			host.log.Error(err, "A pod's cgroup cannot be written; trying again when the pod is synchronised", "pod", klog.KObj(pod), "cgroup", path)
			return
		}
	}
	observed.sawTo(pod)
}

// repairPodCgroup gives a pod's cgroup its CPUs, and, through write, all that upstream's
// manager of cgroups is to write. On cgroup v1 the set is widened first, then the sets
// below it are fitted to it, and then it is narrowed: the kernel refuses nothing.
func (n *node) repairPodCgroup(pod *v1.Pod, workloadType, path string, write func(cpus cpuset.CPUSet) error) error {
	sets := hierarchy()
	cpus := n.podCPUs(workloadType)
	confined := !cpus.IsEmpty()
	var isSandbox func(child string, has, before cpuset.CPUSet) bool
	if sets.v1 && !confined && host.earlier.confined {
		isSandbox = sandboxesOf(pod) // asks the runtime, so not under the lock
	}
	classes.Lock()
	defer classes.Unlock()
	has, err := sets.cpus(path)
	if err != nil {
		return err
	}
	host.log.Info("Giving a pod's cgroup the CPUs, the weight and the quota of its partition", "pod", klog.KObj(pod), "cgroup", path, "cpusBefore", has.String(), "cpus", cpus.String())
	switch {
	case sets.v1 && confined:
		if err := sets.widen(filepath.Dir(path), cpus); err != nil {
			return err
		}
		pool, _ := n.poolOf(workloadType)
		if err := sets.fit(path, cpus, pool.Intersection(cpus)); err != nil {
			return err
		}
	case sets.v1 && host.earlier.confined:
		if err := sets.restore(path, isSandbox); err != nil {
			return err
		}
	case !sets.v1 && !confined && !has.IsEmpty():
		// systemd takes no set back (systemd/systemd issue 43846).
		cpus = sets.all()
	}
	return write(cpus)
}

// sandboxesOf returns what tells the cgroups of a pod's sandboxes.
func sandboxesOf(pod *v1.Pod) func(child string, _, _ cpuset.CPUSet) bool {
	var ids []string
	isSandbox := func(child string, _, _ cpuset.CPUSet) bool {
		return slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(filepath.Base(child), id) })
	}
	observed.Lock()
	runtime, ok := observed.runtime.(interface {
		ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	})
	observed.Unlock()
	if !ok {
		return isSandbox
	}
	list, err := runtime.ListPodSandbox(context.Background(), &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{podUIDLabel: string(pod.UID)}})
	if err != nil {
		host.log.Error(err, "The runtime does not say which sandboxes a pod has; they keep their CPUs", "pod", klog.KObj(pod))
	}
	for _, sandbox := range list {
		ids = append(ids, sandbox.Id)
	}
	return isSandbox
}

// checkRoom tells if the cgroup of all pods has not all CPUs of the workload type's pool.
func (n *node) checkRoom(workloadType, cgroup string) {
	if n == nil {
		return
	}
	room, err := hierarchy().effective(cgroup)
	if err != nil || !observed.newRoom(workloadType, room) {
		return // there is no pod yet
	}
	// One that is offline is told of otherwise.
	if lacks := n.pools[workloadType].Intersection(onlineCPUs()).Difference(room); !lacks.IsEmpty() {
		host.log.Error(nil, "The cgroup of all pods lacks CPUs of a pool", "cgroup", cgroup, "cpus", room.String(), "workloadType", workloadType, "pool", n.pools[workloadType].String())
		nodeEvent(v1.EventTypeWarning, eventCgroupLacksCPUs, "The cgroup %s has the CPUs %q and the pool of workload type %s %q: its pods cannot run on CPU %s; widen the cpuset of that cgroup, or of the one above it that is as narrow",
			cgroup, room.String(), workloadType, n.pools[workloadType].String(), lacks)
	}
}

// podCgroup returns the cgroup of a pod if there is one. The caller holds the lock of the
// classes, in one of which it is, or right below the cgroup of all pods
// (pkg/kubelet/cm/pod_container_manager_linux.go, GetPodContainerName).
func (c cpusets) podCgroup(pod *v1.Pod) (path string, found bool) {
	if len(classes.names) == 0 {
		return "", false
	}
	for _, above := range append(slices.Clone(classes.names), filepath.Dir(classes.names[0])) {
		name := "pod" + string(pod.UID)
		if slice, systemd := strings.CutSuffix(filepath.Base(above), ".slice"); systemd {
			name = slice + "-" + strings.ReplaceAll(name, "-", "_") + ".slice"
		}
		path = filepath.Join(above, name)
		if _, err := os.Stat(filepath.Join(c.root, path)); err == nil {
			return path, true
		}
	}
	return "", false
}
