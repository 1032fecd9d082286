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
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// observed is what the hooks have learned about the kubelet around them.
var observed observation

type observation struct {
	sync.Mutex
	recorder record.EventRecorder
	node     types.NodeName
	// pending are Events from before there was a recorder.
	pending []func(record.EventRecorder, *v1.ObjectReference)
	// activePods is the CPU manager's source of pods, and ready reports whether it has them
	// all; see FollowPods.
	activePods func() []*v1.Pod
	ready      func() bool
	// state is the CPU manager's checkpoint, under the policy static only. lastUpdates are its
	// notes of the cpuset that each container has.
	state, lastUpdates state.State
	runtime            containerRuntime
	// found are the previous containers, by ID; see examine.
	found map[string]previousContainer
	// placed counts the containers that PlaceContainer has noted.
	placed int
	// giving are the cpusets that the CPU manager gave to containers last, or is giving them
	// now, by pod UID and container name.
	giving map[string]map[string]cpuset.CPUSet
	// podCgroups are the partitioned pods whose cgroup this kubelet has repaired; see repaired.
	podCgroups map[types.UID]bool
	// allPodsCPUs are the CPUs of the cgroup of all pods, and comparedWithAllPods the workload
	// types whose pools were compared with them.
	allPodsCPUs         cpuset.CPUSet
	comparedWithAllPods []string
	// skipped is the last message about each static pod. The kubelet reads the same manifest
	// again and again, and only a new message is reported.
	skipped map[string]string
	// unshared is the last message that nothing is left to share; see reportShared.
	unshared string
}

// previousContainer is what is known of a previous container.
type previousContainer struct {
	outcome outcome
	// questions counts how often the runtime was asked about it.
	questions int
}

// maxPodCgroups is how many pods are remembered before those that have gone are forgotten.
const maxPodCgroups = 1000

// notes returns the CPU manager's notes of the cpuset that each container has; nil before it
// has started.
func (o *observation) notes() state.State {
	o.Lock()
	defer o.Unlock()
	return o.lastUpdates
}

// repaired reports whether this kubelet has repaired the pod's cgroup, or found nothing to
// repair.
func (o *observation) repaired(pod *v1.Pod) bool {
	o.Lock()
	defer o.Unlock()
	return o.podCgroups[pod.UID]
}

// noteRepaired notes that the pod's cgroup needs no more repair. Before there are too many
// notes, it forgets the pods that have gone.
func (o *observation) noteRepaired(pod *v1.Pod) {
	o.Lock()
	count := len(o.podCgroups)
	o.Unlock()
	var active map[types.UID]bool
	if count >= maxPodCgroups {
		active = o.active()
	}
	o.Lock()
	defer o.Unlock()
	if active != nil {
		maps.DeleteFunc(o.podCgroups, func(uid types.UID, _ bool) bool { return !active[uid] })
	}
	if o.podCgroups == nil {
		o.podCgroups = map[types.UID]bool{}
	}
	o.podCgroups[pod.UID] = true
}

// noneNeedsRepair reports whether this kubelet knows all its pods, and has repaired the
// cgroup of each active one that is partitioned.
func (o *observation) noneNeedsRepair() bool {
	pods, known := o.allPods()
	return known && !slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
		_, partitioned := partition.PartitionedType(pod)
		return partitioned && !o.repaired(pod)
	})
}

// allPods returns the active pods, and false until the kubelet knows them all. The caller
// must not hold the lock.
func (o *observation) allPods() ([]*v1.Pod, bool) {
	o.Lock()
	activePods, ready := o.activePods, o.ready
	o.Unlock()
	if activePods == nil || ready == nil || !ready() {
		return nil, false
	}
	return activePods(), true
}

// noteGiving notes the cpuset that the CPU manager is about to give to a container.
func (o *observation) noteGiving(pod, container string, cpus cpuset.CPUSet) {
	var active map[types.UID]bool
	o.Lock()
	count := len(o.giving)
	o.Unlock()
	if count >= maxPodCgroups {
		active = o.active()
	}
	o.Lock()
	defer o.Unlock()
	if active != nil {
		maps.DeleteFunc(o.giving, func(uid string, _ map[string]cpuset.CPUSet) bool { return !active[types.UID(uid)] })
	}
	if o.giving == nil {
		o.giving = map[string]map[string]cpuset.CPUSet{}
	}
	if o.giving[pod] == nil {
		o.giving[pod] = map[string]cpuset.CPUSet{}
	}
	o.giving[pod][container] = cpus
}

// givingTo returns the cpuset that the CPU manager gave to a container last, or is giving it;
// empty if there was none.
func (o *observation) givingTo(pod, container string) cpuset.CPUSet {
	o.Lock()
	defer o.Unlock()
	return o.giving[pod][container]
}

// noteCPUsOfAllPods notes the CPUs of the cgroup of all pods. It reports whether the workload
// type's pool has yet to be compared with them.
func (o *observation) noteCPUsOfAllPods(workloadType string, cpus cpuset.CPUSet) bool {
	o.Lock()
	defer o.Unlock()
	if !o.allPodsCPUs.Equals(cpus) {
		o.allPodsCPUs, o.comparedWithAllPods = cpus, nil
	}
	if slices.Contains(o.comparedWithAllPods, workloadType) {
		return false
	}
	o.comparedWithAllPods = append(o.comparedWithAllPods, workloadType)
	return true
}

// cpusOfAllPods returns the CPUs of the cgroup of all pods; empty if they are not known.
func (o *observation) cpusOfAllPods() cpuset.CPUSet {
	o.Lock()
	defer o.Unlock()
	return o.allPodsCPUs
}

// active returns the UIDs of the active pods; nil if they are not known yet. The caller must
// not hold the lock.
func (o *observation) active() map[types.UID]bool {
	o.Lock()
	activePods := o.activePods
	o.Unlock()
	if activePods == nil {
		return nil
	}
	uids := map[types.UID]bool{}
	for _, pod := range activePods() {
		uids[pod.UID] = true
	}
	return uids
}

// placedBetween is how many containers are created between two looks of forgetContainers.
const placedBetween = 1000

// forgetContainers removes the notes of containers that never ran, once their pods have gone.
// The CPU manager does not: it forgets only containers that it knows.
func (o *observation) forgetContainers() {
	o.Lock()
	o.placed++
	due, last := o.placed%placedBetween == 0, o.lastUpdates
	o.Unlock()
	if !due || last == nil {
		return
	}
	active := o.active()
	for pod, containers := range last.GetCPUAssignments() {
		for container := range containers {
			if active != nil && !active[types.UID(pod)] {
				last.Delete(pod, container)
			}
		}
	}
}
