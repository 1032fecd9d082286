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
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// observation is what the hooks have learned about the kubelet around them.
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
	// statuses is its source of statuses.
	statuses PodStatuses
	// state is the CPU manager's checkpoint, under the policy static only. lastUpdates are its
	// notes of the cpuset that each container has.
	state, lastUpdates state.State
	runtime            containerRuntime
	// found are the previous containers, by ID; see examine. unlisted means that the runtime has not named
	// them yet; see listContainers.
	found    map[string]previousContainer
	unlisted bool
	// placed counts the containers that PlaceContainer has noted.
	placed int
	// pods are notes of single pods; see notePod.
	pods map[types.UID]*podNotes
	// allPodsCPUs are the CPUs of the cgroup of all pods, and comparedWithAllPods the workload
	// types whose pools have been compared with them.
	allPodsCPUs         cpuset.CPUSet
	comparedWithAllPods []string
	// skipped is the last message about each static pod. The kubelet reads a manifest again and
	// again, and only a new message is reported.
	skipped map[string]string
	// unshared is the last message that nothing is left to share; see reportShared.
	unshared string
}

// podNotes is what this kubelet notes of a pod.
type podNotes struct {
	// repaired means that this kubelet has repaired the pod's cgroup; see observation.repaired.
	repaired bool
	// giving are the cpusets that the CPU manager gave to the containers last, or is giving them
	// now, by container name.
	giving map[string]cpuset.CPUSet
	// placed is when PlaceContainer last placed each container, by name.
	placed map[string]time.Time
	// attempts are those to move each container, by name; see prepare.
	attempts map[string]attempts
}

// previousContainer is what is known of a previous container.
type previousContainer struct {
	outcome outcome
	// questions counts how often the runtime was asked about it.
	questions int
}

// maxPods is how many pods are remembered before those that have gone are forgotten.
const maxPods = 1000

// notes returns the CPU manager's notes of the cpuset that each container has; nil before it
// has started.
func (o *observation) notes() state.State {
	o.Lock()
	defer o.Unlock()
	return o.lastUpdates
}

// assignments are those of the CPU manager's checkpoint; none before it has started, and none
// under the policy none.
func (o *observation) assignments() []partition.Assignment {
	o.Lock()
	assigned := o.state
	o.Unlock()
	if assigned == nil {
		return nil
	}
	return assignmentsOf(assigned)
}

// repaired reports whether this kubelet has repaired the pod's cgroup, or found nothing to
// repair.
func (o *observation) repaired(pod *v1.Pod) bool {
	o.Lock()
	defer o.Unlock()
	notes := o.pods[pod.UID]
	return notes != nil && notes.repaired
}

// noteRepaired notes that the pod's cgroup needs no further repair.
func (o *observation) noteRepaired(pod *v1.Pod) {
	o.notePod(pod.UID, func(notes *podNotes) { notes.repaired = true })
}

// notePod notes something of a pod. Before there are notes of too many pods, it forgets those
// that have gone.
func (o *observation) notePod(uid types.UID, note func(*podNotes)) {
	o.Lock()
	var before []types.UID // a pod that comes from here on is not forgotten
	if len(o.pods) >= maxPods {
		before = slices.Collect(maps.Keys(o.pods))
	}
	o.Unlock()
	var active map[types.UID]bool
	if before != nil {
		active = o.active()
	}
	o.Lock()
	defer o.Unlock()
	if active != nil {
		for _, uid := range before {
			if !active[uid] {
				delete(o.pods, uid)
			}
		}
	}
	if o.pods == nil {
		o.pods = map[types.UID]*podNotes{}
	}
	if o.pods[uid] == nil {
		o.pods[uid] = &podNotes{giving: map[string]cpuset.CPUSet{}, placed: map[string]time.Time{}, attempts: map[string]attempts{}}
	}
	note(o.pods[uid])
}

// noneNeedsRepair reports whether this kubelet knows all its pods, and has repaired the
// cgroup of each active one that may be confined.
func (o *observation) noneNeedsRepair() bool {
	pods, known := o.allPods()
	return known && !slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
		return mayBeConfined(pod) && !o.repaired(pod)
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

// listContainers has the runtime name the previous containers, and reports whether it did. Upstream
// found none: either there are none, or the runtime did not answer
// (pkg/kubelet/cm/helpers.go, buildContainerMapAndRunningSetFromRuntime). A container that this kubelet
// has created in between counts as well, and is asked about in vain.
func (o *observation) listContainers(runtime containerRuntime) bool {
	list, err := runtime.ListContainers(context.Background(), nil)
	if err != nil {
		shim.host.log.Error(err, "Cannot list the containers that existed before this kubelet started; trying again")
		return false
	}
	o.Lock()
	defer o.Unlock()
	for _, container := range list {
		if _, known := o.found[container.Id]; !known {
			o.found[container.Id] = previousContainer{outcome: unanswered}
		}
	}
	o.unlisted = false
	return true
}

// noteGiving notes the cpuset that the CPU manager is about to give to a container.
func (o *observation) noteGiving(pod types.UID, container string, cpus cpuset.CPUSet) {
	o.notePod(pod, func(notes *podNotes) { notes.giving[container] = cpus })
}

// givingTo returns the cpuset that the CPU manager gave to a container last, or is giving it;
// empty if there was none.
func (o *observation) givingTo(pod types.UID, container string) cpuset.CPUSet {
	o.Lock()
	defer o.Unlock()
	if notes := o.pods[pod]; notes != nil {
		return notes.giving[container]
	}
	return cpuset.CPUSet{}
}

// notePlaced notes that a container is about to be created.
func (o *observation) notePlaced(pod types.UID, container string) {
	o.notePod(pod, func(notes *podNotes) { notes.placed[container] = time.Now() })
}

// ended returns the containers of a pod that have ended and are not being created again, by name. One that
// waits to be started again, in CrashLoopBackOff say, has ended as well. The caller must not hold the lock.
func (o *observation) ended(pod *v1.Pod) map[string]bool {
	o.Lock()
	statuses := o.statuses
	o.Unlock()
	if statuses == nil {
		return nil
	}
	status, _ := statuses.GetPodStatus(pod.UID)
	ended := map[string]bool{}
	o.Lock()
	defer o.Unlock()
	for _, container := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses) {
		terminated := container.State.Terminated
		if container.State.Waiting != nil {
			terminated = container.LastTerminationState.Terminated
		}
		if terminated == nil {
			continue
		}
		// A status has whole seconds. One that was placed in the last of them counts as ended.
		var placed time.Time
		if notes := o.pods[pod.UID]; notes != nil {
			placed = notes.placed[container.Name].Truncate(time.Second)
		}
		ended[container.Name] = !placed.After(terminated.FinishedAt.Time)
	}
	return ended
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
// The CPU manager does not do that: it forgets only containers that it knows.
func (o *observation) forgetContainers() {
	o.Lock()
	o.placed++
	due, last := o.placed%placedBetween == 0, o.lastUpdates
	o.Unlock()
	if !due || last == nil {
		return
	}
	noted := last.GetCPUAssignments() // first, so that a pod that comes now is not forgotten
	active := o.active()
	for pod, containers := range noted {
		for container := range containers {
			if active != nil && !active[types.UID(pod)] {
				last.Delete(pod, container)
			}
		}
	}
}
