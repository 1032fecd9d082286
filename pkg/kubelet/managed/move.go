package managed

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"workload.openshift.io/partition"
)

// mostPasses bounds how often MoveContainers tries once all pods are known, since a
// container that never runs is never moved, and needs not be.
const mostPasses = 30

// MoveContainers puts containers that already run when the kubelet starts where they
// belong, and repairs their weights, under the CPU manager's policy none. Containers that
// are created later are placed by Place, so this ends when all are where they belong; then
// nothing more is asked of the runtime. (Under the policy static the CPU manager keeps on
// doing it.)
//
// reconcile is a pass over all active containers, and returns those that could be
// moved and those that could not. Until ready it does not know them all.
func MoveContainers[C any, F reconcileState[C]](period time.Duration, ready func() bool, reconcile F) {
	n := current.Load()
	if n == nil && !host.wasOn {
		return
	}
	if n != nil {
		// From now on there may be confined containers, until a kubelet has freed them all.
		n.writeRecord(host.gave)
	}
	go func() {
		for passes := 0; passes < mostPasses; {
			time.Sleep(period)
			// Without an API server there are pods that nobody knows: for as long as that takes.
			if ready() {
				passes++
			}
			if failed := callReconcile[C](reconcile); passes > 0 && len(failed) == 0 {
				break
			}
		}
		if n == nil {
			removeRecordOnceFreed(period)
		} else {
			n.writeRecord(nil)
		}
	}()
}

// PodStatuses is upstream's PodStatusProvider (pkg/kubelet/status).
type PodStatuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
}

// containers is upstream's map of the containers that the runtime has when the kubelet
// starts (pkg/kubelet/cm/containermap).
type containers interface {
	Visit(func(podUID, containerName, containerID string))
}

// FollowPods takes note of what the CPU manager is started with: the source of active
// pods, and whether it has them all; the runtime, and the containers that it has; and
// where the CPU manager notes the set that it gave to each container. It returns the
// sources of pods and of their statuses as the CPU manager is to see them: with
// ephemeral containers, which upstream's never moves once they run.
func FollowPods(active func() []*v1.Pod, ready func() bool, statuses PodStatuses, runtime any, found containers, lastUpdates state.State) (func() []*v1.Pod, PodStatuses) {
	if current.Load() == nil && !host.wasOn {
		return active, statuses
	}
	ids := map[string]before{}
	found.Visit(func(_, _, containerID string) { ids[containerID] = before{sight: unanswered} })
	withEphemeral := func() []*v1.Pod {
		pods := slices.Clone(active())
		for i, pod := range pods {
			pods[i] = withEphemeralContainers(pod)
		}
		return pods
	}
	observed.Lock()
	observed.activePods, observed.ready, observed.lastUpdates, observed.found = withEphemeral, ready, lastUpdates, ids
	observed.runtime, _ = runtime.(containerRuntime)
	observed.Unlock()
	return withEphemeral, ephemeralStatuses{statuses}
}

// withEphemeralContainers returns a pod whose ephemeral containers are containers
// too. In a partitioned pod they are partitioned like the others.
func withEphemeralContainers(pod *v1.Pod) *v1.Pod {
	if len(pod.Spec.EphemeralContainers) == 0 {
		return pod
	}
	_, partitioned := partition.TypeOf(pod)
	with := *pod
	with.Annotations = maps.Clone(pod.Annotations)
	with.Spec.Containers = slices.Clone(pod.Spec.Containers)
	for i := range pod.Spec.EphemeralContainers {
		container := v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		with.Spec.Containers = append(with.Spec.Containers, container)
		if partitioned {
			with.Annotations[partition.ResourcesAnnotation(container.Name)] = partition.ContainerResources{CPUShares: partition.MinShares}.String()
		}
	}
	return &with
}

type ephemeralStatuses struct{ PodStatuses }

func (s ephemeralStatuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	status, ok := s.PodStatuses.GetPodStatus(uid)
	status.ContainerStatuses = slices.Concat(status.ContainerStatuses, status.EphemeralContainerStatuses)
	return status, ok
}
