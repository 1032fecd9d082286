/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package managed

import (
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file decides where containers run (design, section 6, placement). A container of a
// partitioned pod runs on its pool, and one with exclusive CPUs on those. All others are
// shared containers:
//
//   - Under the policy static they run on the shared CPUs, which the CPU manager chooses, or,
//     when exclusive containers have taken all of those, on what unshared returns.
//   - Under the policy none they run on every CPU that is in no pool. If another program, such as
//     an NRI plugin or a DRA driver, gave one a cpuset outside the pools, it keeps that.

// pool returns the CPUs to which the pod's containers are confined on this node; false if the
// pod is not partitioned, or not confined.
func (n *node) pool(pod *v1.Pod) (cpuset.CPUSet, bool) {
	if n == nil {
		return cpuset.CPUSet{}, false
	}
	workloadType, ok := partition.PartitionedType(pod)
	if !ok {
		return cpuset.CPUSet{}, false
	}
	return n.poolOf(workloadType)
}

// poolOf returns what pool returns for a pod of the workload type. On cgroup v1 the kernel
// refuses CPUs that the cgroup of all pods lacks, so poolOf leaves them out, unless none
// would be left.
func (n *node) poolOf(workloadType string) (cpuset.CPUSet, bool) {
	if n == nil {
		return cpuset.CPUSet{}, false
	}
	cpus, ok := n.pools[workloadType]
	if within := cpus.Intersection(shim.observed.cpusOfAllPods()); !within.IsEmpty() && hierarchy().v1 {
		cpus = within
	}
	return cpus, ok && !cpus.IsEmpty()
}

// PlaceContainer sets the CPUs on which the runtime creates a container. A container of a
// partitioned pod gets its pool. Any other keeps the CPUs that the CPU manager chose, which
// never include a pool's, since those are reserved. If the CPU manager chose none, starting
// says where the container runs. One that is placed by its pod's cgroup gets no cpuset.
//
// An error keeps the container from being created. Upstream sends it as an Event on the pod, and
// tries again (pkg/kubelet/kuberuntime/kuberuntime_container.go, startContainer).
func PlaceContainer(pod *v1.Pod, config *runtimeapi.ContainerConfig) error {
	n := shim.current.Load()
	if n == nil || n.Pooled.IsEmpty() || config.Linux == nil || config.Linux.Resources == nil {
		return nil
	}
	if err := n.refuse(pod); err != nil {
		return err
	}
	cpus := config.Linux.Resources.CpusetCpus
	if pool, confined := n.pool(pod); confined {
		cpus = pool.String()
	} else if cpus == "" {
		cpus = n.starting().String()
	} else if chosen, err := cpuset.Parse(cpus); err == nil {
		cpus = n.unreserved(pod, config.GetMetadata().GetName(), chosen).String()
	}
	if !byPodCgroup(pod) {
		config.Linux.Resources.CpusetCpus = cpus
	}
	if given, err := cpuset.Parse(cpus); err == nil {
		shim.observed.forgetContainers()
		// Before it makes room, so that an update of the classes in between allows for the set.
		note(pod, config.GetMetadata().GetName(), given)
		if shim.host.static {
			shim.observed.notePlaced(pod.UID, config.GetMetadata().GetName())
		}
		n.makeRoom(pod, given)
	}
	return nil
}

// refuse returns an error if the CPU manager gave the pod, or a container of it, a CPU of a pool
// exclusively. No container of such a pod may start: then the next kubelet finds that none may be
// running, and gives the pod other CPUs if it can (partition.Checkpoint.Derive).
//
// This is for upstream's choices alone; see partition.Pools.GivenAway. When the kubelet starts, no
// assignment has a CPU of a pool.
func (n *node) refuse(pod *v1.Pod) error {
	for _, a := range shim.observed.assignments() {
		if held := a.CPUs.Intersection(n.Pooled); a.Pod == string(pod.UID) && !held.IsEmpty() {
			return fmt.Errorf("%s was given CPU %s exclusively, which %s gives to a pool, so the pod cannot start here. Before v1.38, upstream's static policy does so where a pool has a part of a physical core or socket, and those of the host have different numbers of CPUs: give the pools whole cores, and restart the kubelet",
				a.Holder(pod.Namespace+"/"+pod.Name), held, partition.PinningFilePath)
		}
	}
	return nil
}

// starting returns the CPUs for a container that starts and for which the CPU manager chose
// none. Under the policy static that means that nothing is left to share. Under the policy none,
// on cgroup v1, the kernel refuses CPUs that the cgroup of all pods lacks: one that was offline
// does not come back to it. So those are left out, unless none would be left.
func (n *node) starting() cpuset.CPUSet {
	if shim.host.static {
		return n.unshared(cpuset.New())
	}
	if within := n.Ordinary.Intersection(cpusOfAllPodsOnV1()); !within.IsEmpty() {
		return within
	}
	return n.Ordinary
}

// cpusOfAllPodsOnV1 reads the cpuset of the cgroup of all pods on cgroup v1; empty on v2, or if it
// cannot be read.
func cpusOfAllPodsOnV1() cpuset.CPUSet {
	sets := hierarchy()
	shim.classes.Lock()
	names := shim.classes.names
	shim.classes.Unlock()
	if !sets.v1 || !shim.host.podCgroups || len(names) == 0 {
		return cpuset.New()
	}
	cpus, err := sets.cpus(filepath.Dir(names[0]))
	if err != nil {
		shim.host.log.Error(err, "Cannot read the cpuset of the cgroup of all pods", "cgroup", filepath.Dir(names[0]))
	}
	return cpus
}

// RunningContainerCPUs returns the CPUs on which the CPU manager must keep a running
// container. chosen are the CPUs that it would choose itself: none under the policy none, and
// none under the policy static if nothing is left to share. The empty set means: not now,
// look again.
func RunningContainerCPUs(pod *v1.Pod, container, containerID string, chosen cpuset.CPUSet) cpuset.CPUSet {
	n, on := partitions()
	if !on {
		return chosen
	}
	if shim.host.podCgroups && !classesKnown() {
		return cpuset.New() // upstream names them right after its start
	}
	if pool, confined := n.pool(pod); confined {
		// First the room: choose may update the container to its pool.
		if n.makeRoom(pod, pool).IsEmpty() {
			return cpuset.New()
		}
		return prepare(pod, container, containerID, n.choose(pod, container, containerID, chosen))
	}
	set := n.choose(pod, container, containerID, chosen)
	updateKept()
	// The classes may lack CPUs of the set, or lose them at any time. So make room first, then
	// note the set, so that later updates of the classes allow for it. An update between these
	// two steps does not know the set yet, so make room again.
	if set = n.makeRoom(pod, set); set.IsEmpty() {
		return set
	}
	shim.observed.noteGiving(pod.UID, container, set)
	return prepare(pod, container, containerID, n.makeRoom(pod, set))
}

// choose returns the CPUs for a running container, whatever the cgroups above it have. If the
// container is placed by its pod's cgroup and has no cpuset, choose notes that it has these
// CPUs, so that upstream sends no update.
func (n *node) choose(pod *v1.Pod, container, containerID string, chosen cpuset.CPUSet) cpuset.CPUSet {
	examined := n.examine(pod, container, containerID)
	set := n.chooseFor(pod, container, examined, chosen)
	if byPodCgroup(pod) && noted(pod, container).IsEmpty() {
		if examined == unanswered {
			return cpuset.New()
		}
		note(pod, container, set)
	}
	return set
}

// chooseFor is choose for a container about which the runtime has been asked.
func (n *node) chooseFor(pod *v1.Pod, container string, examined outcome, chosen cpuset.CPUSet) cpuset.CPUSet {
	if pool, confined := n.pool(pod); confined {
		return pool
	}
	if !chosen.IsEmpty() {
		return n.unreserved(pod, container, chosen)
	}
	if !shim.host.static {
		return n.offPools(pod, container, examined)
	}
	if n == nil || n.Pooled.IsEmpty() {
		return chosen // as upstream does
	}
	return n.unshared(noted(pod, container))
}

// unshared returns the CPUs for a shared container when exclusive containers have taken every
// CPU that was shared. has are the CPUs that it has now; none if it starts.
func (n *node) unshared(has cpuset.CPUSet) cpuset.CPUSet {
	exclusive := cpuset.New()
	for _, a := range shim.observed.assignments() {
		exclusive = exclusive.Union(a.CPUs)
	}
	return n.Unshared(has, exclusive)
}

// unreserved returns the CPUs that the CPU manager chose for a container, less the reserved ones
// if it shares them. An exclusive container may hold a CPU that has been reserved since, or is
// offline. When it ends, the CPU manager shares that CPU
// (pkg/kubelet/cm/cpumanager/policy_static.go, RemoveContainer). On cgroup v1, the kernel refuses
// a cpuset with an offline CPU.
func (n *node) unreserved(pod *v1.Pod, container string, chosen cpuset.CPUSet) cpuset.CPUSet {
	if n == nil || !shim.host.static {
		return chosen
	}
	left := chosen
	if shim.host.strict {
		left = left.Difference(n.Reserved)
	}
	// Those of the kubelet's start, as the CPU manager's CPUs are.
	if !left.IsSubsetOf(shim.host.online) && hierarchy().v1 {
		left = left.Intersection(shim.host.online)
	}
	if left.Equals(chosen) {
		return chosen
	}
	for _, a := range shim.observed.assignments() {
		if a.Pod == string(pod.UID) && (a.Container == "" || a.Container == container) {
			return chosen
		}
	}
	if !left.IsEmpty() {
		return left
	}
	return n.unshared(noted(pod, container))
}

// offPools returns the CPUs for a running shared container under the policy none. It moves a
// container only if it must: one that needs no cpuset is noted to have the CPUs that it may
// use, so that upstream sends no update.
func (n *node) offPools(pod *v1.Pod, container string, examined outcome) cpuset.CPUSet {
	free, pooled := partition.WithoutIsolated(shim.host.online, shim.host.isolated), cpuset.New()
	if n != nil && !n.Pooled.IsEmpty() {
		free, pooled = n.Ordinary, n.Pooled
	}
	has := noted(pod, container)
	switch {
	case examined == unanswered:
		return cpuset.New()
	case has.IsEmpty() && pooled.IsEmpty() && (examined != unreported || !shim.host.previous.mayHaveNarrowed()):
		// It has no cpuset and may use every CPU, so it needs none.
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

// hasGiven reports whether this project gives that cpuset to containers, or gave it under a
// previous pinning file.
func (n *node) hasGiven(set cpuset.CPUSet) bool {
	return shim.host.previous.gave(set) || (n != nil && slices.ContainsFunc(n.sets(), set.Equals))
}

// noted returns the cpuset that a container is known to have; empty if none is known. These
// are the CPU manager's own notes: it sends no update for a cpuset that it has noted.
func noted(pod *v1.Pod, container string) cpuset.CPUSet {
	last := shim.observed.notes()
	if last == nil {
		return cpuset.New()
	}
	has, _ := last.GetCPUSet(string(pod.UID), container)
	return has
}

// note notes the cpuset that a container has.
func note(pod *v1.Pod, container string, has cpuset.CPUSet) {
	if last := shim.observed.notes(); last != nil {
		last.SetCPUSet(string(pod.UID), container, has)
	}
}
