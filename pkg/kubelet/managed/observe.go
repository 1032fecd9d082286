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

// observed is what the hooks have told of the kubelet around them.
var observed observation

type observation struct {
	sync.Mutex
	recorder record.EventRecorder
	node     types.NodeName
	// pending are Events of before there was a recorder.
	pending []func(record.EventRecorder, *v1.ObjectReference)
	// activePods is the CPU manager's source, and ready tells that it has all pods;
	// see FollowPods.
	activePods func() []*v1.Pod
	ready      func() bool
	// state is the CPU manager's under the policy static, and lastUpdates has the set that
	// it knows each container to have.
	state, lastUpdates state.State
	runtime            containerRuntime
	// found are the containers that were here before this kubelet, by ID.
	found map[string]before
	// placed counts the containers whose set PlaceContainer has noted.
	placed int
	// giving are the sets that the CPU manager may be giving to containers just now.
	giving map[string]map[string]cpuset.CPUSet
	// podCgroups are the partitioned pods to whose cgroup this kubelet has seen.
	podCgroups map[types.UID]bool
	// room are the CPUs of the cgroup of all pods, and toldOfRoom the workload types whose
	// pools were compared with them.
	room       cpuset.CPUSet
	toldOfRoom []string
	// skipped has the last message about each static pod: the kubelet reads the same
	// manifest again and again.
	skipped map[string]string
	// unshared is the last message about CPUs that are not left to share.
	unshared string
}

// before is what is known of a container that was here before this kubelet.
type before struct {
	sight sight
	// questions counts how often the runtime was asked about it.
	questions int
}

// maxPodCgroups bounds what is remembered of pods that have gone.
const maxPodCgroups = 1000

// notes returns where the CPU manager notes the set of each container; nil before it has
// started.
func (o *observation) notes() state.State {
	o.Lock()
	defer o.Unlock()
	return o.lastUpdates
}

// seen reports whether this kubelet has seen to a pod's cgroup.
func (o *observation) seen(pod *v1.Pod) bool {
	o.Lock()
	defer o.Unlock()
	return o.podCgroups[pod.UID]
}

// sawTo takes note that this kubelet has seen to a pod's cgroup.
func (o *observation) sawTo(pod *v1.Pod) {
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

// sawToAll reports whether this kubelet knows all pods, and has seen to the cgroup of each
// active one that is partitioned.
func (o *observation) sawToAll() bool {
	pods, known := o.allPods()
	return known && !slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
		_, partitioned := partition.TypeOf(pod)
		return partitioned && !o.seen(pod)
	})
}

// allPods returns the active pods, and false as long as the kubelet does not know them all.
// The caller does not hold the lock.
func (o *observation) allPods() ([]*v1.Pod, bool) {
	o.Lock()
	activePods, ready := o.activePods, o.ready
	o.Unlock()
	if activePods == nil || ready == nil || !ready() {
		return nil, false
	}
	return activePods(), true
}

// giveTo takes note of the set that the CPU manager is about to give to a container.
func (o *observation) giveTo(pod, container string, cpus cpuset.CPUSet) {
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

// givingTo returns the set that the CPU manager gave to a container last, or is giving it.
func (o *observation) givingTo(pod, container string) cpuset.CPUSet {
	o.Lock()
	defer o.Unlock()
	return o.giving[pod][container]
}

// newRoom takes note of the CPUs of the cgroup of all pods, and reports whether a workload
// type was last told of others.
func (o *observation) newRoom(workloadType string, cpus cpuset.CPUSet) bool {
	o.Lock()
	defer o.Unlock()
	if !o.room.Equals(cpus) {
		o.room, o.toldOfRoom = cpus, nil
	}
	if slices.Contains(o.toldOfRoom, workloadType) {
		return false
	}
	o.toldOfRoom = append(o.toldOfRoom, workloadType)
	return true
}

// podRoom returns the CPUs of the cgroup of all pods; empty if they are not known.
func (o *observation) podRoom() cpuset.CPUSet {
	o.Lock()
	defer o.Unlock()
	return o.room
}

// active returns the UIDs of the active pods; nil if these are not known yet. The caller
// does not hold the lock.
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

// placedBetween is how many containers are created between two looks for notes of those
// that never came to be: the CPU manager only forgets containers that it knows.
const placedBetween = 1000

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
