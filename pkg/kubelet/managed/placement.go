package managed

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file says where containers run (design, section 6, placement). A container of a
// partitioned pod has its pool. Of the others, those with exclusive CPUs have these, and
//
//   - under the policy static they share what the CPU manager says, or, when exclusive
//     containers have taken all of that, what unshared says;
//   - under the policy none a container has every CPU that is in no pool, but one to which
//     somebody else has given a set outside the pools, an NRI plugin or a DRA driver,
//     keeps that.

// pool returns the CPUs that the pod's containers are confined to, and false for
// pods that are not partitioned, or not confined, on this node.
func (n *node) pool(pod *v1.Pod) (cpuset.CPUSet, bool) {
	if n == nil {
		return cpuset.CPUSet{}, false
	}
	workloadType, ok := partition.TypeOf(pod)
	if !ok {
		return cpuset.CPUSet{}, false
	}
	return n.poolOf(workloadType)
}

// poolOf is pool for the pods of a workload type.
func (n *node) poolOf(workloadType string) (cpuset.CPUSet, bool) {
	if n == nil {
		return cpuset.CPUSet{}, false
	}
	cpus, ok := n.pools[workloadType]
	if within := cpus.Intersection(observed.podRoom()); !within.IsEmpty() && hierarchy().v1 {
		cpus = within // the kernel refuses more
	}
	return cpus, ok && !cpus.IsEmpty()
}

// PlaceContainer sets the CPUs on which a container is created. What the CPU manager has set for a
// container of no partition stays: it does not know the pools' CPUs, since they are
// reserved.
func PlaceContainer(pod *v1.Pod, config *runtimeapi.ContainerConfig) {
	n := current.Load()
	if n == nil || n.pooled.IsEmpty() || config.Linux == nil || config.Linux.Resources == nil {
		return
	}
	resources := config.Linux.Resources
	if pool, confined := n.pool(pod); confined {
		resources.CpusetCpus = pool.String()
	} else if resources.CpusetCpus == "" {
		resources.CpusetCpus = n.starting().String()
	}
	if given, err := cpuset.Parse(resources.CpusetCpus); err == nil {
		n.makeRoom(pod, given)
		observed.forgetContainers()
		note(pod, config.GetMetadata().GetName(), given)
	}
}

// starting returns the CPUs of a container that starts and for which the CPU manager has
// none.
func (n *node) starting() cpuset.CPUSet {
	if host.static {
		return n.fallback
	}
	return n.ordinary
}

// CPUs returns the CPUs on which the CPU manager is to keep a running container, where it
// would choose the given ones. It chooses none under the policy none, and under the policy
// static if nothing is left to share. The empty set means: not now, look again.
func RunningContainerCPUs(pod *v1.Pod, container, containerID string, chosen cpuset.CPUSet) cpuset.CPUSet {
	n, on := partitions()
	if !on {
		return chosen
	}
	if host.podCgroups && !classesKnown() {
		return cpuset.New() // upstream tells of them right after its start
	}
	if pool, confined := n.pool(pod); confined {
		if n.makeRoom(pod, pool).IsEmpty() {
			return cpuset.New()
		}
		return n.choose(pod, container, containerID, chosen)
	}
	set := n.choose(pod, container, containerID, chosen)
	updateKept()
	if set = n.makeRoom(pod, set); set.IsEmpty() {
		return set
	}
	observed.giveTo(string(pod.UID), container, set)
	return n.makeRoom(pod, set) // the classes may just have been narrowed
}

func (n *node) choose(pod *v1.Pod, container, containerID string, chosen cpuset.CPUSet) cpuset.CPUSet {
	before := n.examine(pod, container, containerID)
	if pool, confined := n.pool(pod); confined {
		return pool
	}
	if !chosen.IsEmpty() {
		return chosen
	}
	if !host.static {
		return n.offPools(pod, container, before)
	}
	if n == nil || n.pooled.IsEmpty() {
		return chosen // upstream's business
	}
	return n.unshared(noted(pod, container))
}

// unshared returns the CPUs of a running container without exclusive ones, when those that
// have them have taken all that were shared. It stays on the one that it has. One that has
// several, since they were taken while the CPU manager did not look, or none, gets the
// reserved CPUs that are in no pool, or, if there are none, the highest-numbered CPU that
// is in no pool: always the same one, so that few pods are disturbed.
func (n *node) unshared(has cpuset.CPUSet) cpuset.CPUSet {
	if kept := has.Difference(n.pooled); kept.Size() == 1 {
		return kept
	}
	return n.fallback
}

// offPools returns the CPUs of a running container of no partition under the policy none.
// Only what must move is to be touched: a container that needs no set is noted as if it
// had what it may use, so that upstream sends no update.
func (n *node) offPools(pod *v1.Pod, container string, before sight) cpuset.CPUSet {
	free, pooled := without(host.online, host.isolated), cpuset.New()
	if n != nil && !n.pooled.IsEmpty() {
		free, pooled = n.ordinary, n.pooled
	}
	has := noted(pod, container)
	switch {
	case before == unanswered:
		return cpuset.New()
	case has.IsEmpty() && pooled.IsEmpty() && (before != unreported || !host.earlier.confined):
		// It has no set, and was given none: not by this kubelet either.
		note(pod, container, free)
		return free
	case has.IsEmpty() || n.hasGiven(has):
		return free
	}
	if left := has.Difference(pooled); !left.IsEmpty() {
		return left
	}
	return free
}

// hasGiven reports whether the set is one that this project gave to containers, now or
// with an earlier pinning file.
func (n *node) hasGiven(set cpuset.CPUSet) bool {
	return host.earlier.gave(set) || (n != nil && slices.ContainsFunc(n.sets(), set.Equals))
}

// noted returns the set that a container is known to have; empty if none is known. The CPU
// manager keeps these notes: it sends no update for what is so already.
func noted(pod *v1.Pod, container string) cpuset.CPUSet {
	last := observed.notes()
	if last == nil {
		return cpuset.New()
	}
	has, _ := last.GetCPUSet(string(pod.UID), container)
	return has
}

func note(pod *v1.Pod, container string, has cpuset.CPUSet) {
	if last := observed.notes(); last != nil {
		last.SetCPUSet(string(pod.UID), container, has)
	}
}
