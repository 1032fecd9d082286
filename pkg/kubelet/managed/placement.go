package managed

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
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
	cpus, ok := n.pools[workloadType]
	return cpus, ok && !cpus.IsEmpty()
}

// Place sets the CPUs on which a container is created. What the CPU manager has set for a
// container of no partition stays: it does not know the pools' CPUs, since they are
// reserved.
func Place(pod *v1.Pod, config *runtimeapi.ContainerConfig) {
	n := current.Load()
	if n == nil || n.pooled.IsEmpty() || config.Linux == nil || config.Linux.Resources == nil {
		return
	}
	resources := config.Linux.Resources
	if pool, confined := n.pool(pod); confined {
		resources.CpusetCpus = pool.String()
	} else if resources.CpusetCpus == "" {
		resources.CpusetCpus = n.start().String()
	}
	if given, err := cpuset.Parse(resources.CpusetCpus); err == nil {
		remember(pod, config.GetMetadata().GetName(), given)
	}
}

// start returns the CPUs of a container that starts and for which the CPU manager has
// none.
func (n *node) start() cpuset.CPUSet {
	if host.static {
		return n.fallback
	}
	return n.ordinary
}

// CPUs returns the CPUs on which the CPU manager is to keep a running container, where it
// would choose the given ones. It chooses none under the policy none, and under the policy
// static if nothing is left to share. The empty set means: not now, look again.
func CPUs(pod *v1.Pod, container, containerID string, chosen cpuset.CPUSet) cpuset.CPUSet {
	n := current.Load()
	if n == nil && !host.wasOn {
		return chosen
	}
	has, known, err := n.cpusOf(pod, container, containerID)
	if err != nil {
		host.log.Error(err, "A container that was here before this kubelet can not be looked at", "pod", klog.KObj(pod), "container", container, "containerID", containerID)
		return cpuset.New()
	}
	if pool, confined := n.pool(pod); confined {
		return pool
	}
	if !chosen.IsEmpty() {
		return chosen
	}
	if !host.static {
		return n.offPools(pod, container, has, known)
	}
	if n == nil || n.pooled.IsEmpty() {
		return chosen // upstream's business
	}
	return n.unshared(has)
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
// Only what must move is to be touched: a container that has no set, and needs none, is
// noted as if it had what it may use, so that upstream sends no update.
func (n *node) offPools(pod *v1.Pod, container string, has cpuset.CPUSet, known bool) cpuset.CPUSet {
	free, pooled := host.online.Difference(host.isolated), cpuset.New()
	if free.IsEmpty() {
		free = host.online
	}
	if n != nil && !n.pooled.IsEmpty() {
		free, pooled = n.ordinary, n.pooled
	}
	needsNoSet := pooled.IsEmpty() && (known || !host.wasOn)
	switch {
	case has.IsEmpty() && needsNoSet:
		remember(pod, container, free)
		return free
	case has.IsEmpty() || n.gave(has):
		return free
	}
	if left := has.Difference(pooled); !left.IsEmpty() {
		return left
	}
	return free
}

// gave reports whether the set is one that this project gave to containers, now or with an
// earlier pinning file.
func (n *node) gave(set cpuset.CPUSet) bool {
	ours := host.gave
	if n != nil {
		ours = append(n.sets(), ours...)
	}
	for i := range ours {
		if ours[i].Equals(set) {
			return true
		}
	}
	return false
}

// remember takes note of the set that a container has, where the CPU manager does: it
// sends no update for what is so already.
func remember(pod *v1.Pod, container string, cpus cpuset.CPUSet) {
	observed.Lock()
	last := observed.lastUpdates
	observed.Unlock()
	if last != nil {
		last.SetCPUSet(string(pod.UID), container, cpus)
	}
}

// cpusOf returns the set that a running container has, as far as that is known: the one
// that this kubelet gave it, or, for a container that was here before, what the runtime
// reports. Such a one is asked about once, and gets the weight and the quota that it
// should have. A known empty set is that of a container without one, which may use every
// CPU.
func (n *node) cpusOf(pod *v1.Pod, container, containerID string) (has cpuset.CPUSet, known bool, err error) {
	observed.Lock()
	runtime, last, found := observed.runtime, observed.lastUpdates, observed.found[containerID]
	observed.Unlock()
	if last == nil {
		return has, false, nil
	}
	if !found || runtime == nil {
		has, known = last.GetCPUSet(string(pod.UID), container)
		return has, known, nil
	}
	response, err := runtime.ContainerStatus(context.Background(), containerID, false)
	if err != nil {
		return has, false, err
	}
	// No runtime that reports resources reports a weight of zero, which no kernel accepts.
	if reported := response.GetStatus().GetResources().GetLinux(); reported.GetCpuShares() != 0 {
		if has, err = cpuset.Parse(reported.GetCpusetCpus()); err != nil {
			return has, false, err
		}
		known = true
		if has, err = n.repair(runtime, pod, container, containerID, reported, has); err != nil {
			return has, false, err
		}
		if !has.IsEmpty() {
			remember(pod, container, has)
		}
	}
	observed.Lock()
	delete(observed.found, containerID)
	observed.Unlock()
	return has, known, nil
}
