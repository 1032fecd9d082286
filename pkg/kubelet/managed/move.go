package managed

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/partition"
)

// mostPasses bounds how often MoveContainers tries once all pods are known, since a
// container that never runs is never moved, and needs not be.
const mostPasses = 30

// MoveContainers puts containers that already run when the kubelet starts where they
// belong, under the CPU manager's policy none. Containers that are created later are
// placed by Place, so this ends when all are where they belong; then nothing more is
// asked of the runtime. (Under the policy static the CPU manager keeps on doing it.)
//
// reconcile is a pass over all active containers, and returns those that could be
// moved and those that could not. Until ready it does not know them all.
func MoveContainers[C any, F reconcileState[C]](period time.Duration, ready func() bool, reconcile F) {
	n := current.Load()
	confines := n != nil && !n.pooled.IsEmpty()
	if !confines && !host.wasOn {
		return
	}
	if confines {
		// From now on there are confined containers, until a kubelet has freed them all.
		if err := writeRecord(n.pooled); err != nil {
			host.log.Error(err, "A kubelet without the pinning file will not free the containers of this one")
		}
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
		if !confines {
			if err := removeRecord(); err != nil {
				host.log.Error(err, "The next start will free all containers again")
			}
		}
	}()
}

// PodStatuses is upstream's PodStatusProvider (pkg/kubelet/status).
type PodStatuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
}

// Pods takes note of the source of active pods, and of when it has all, and returns it and the source of their statuses as the CPU manager is to see them: with
// ephemeral containers, which upstream's never moves once they run.
func Pods(active func() []*v1.Pod, ready func() bool, statuses PodStatuses) (func() []*v1.Pod, PodStatuses) {
	if current.Load() == nil && !host.wasOn {
		return active, statuses
	}
	observed.Lock()
	observed.activePods, observed.ready = active, ready
	observed.Unlock()
	withEphemeral := func() []*v1.Pod {
		pods := slices.Clone(active())
		for i, pod := range pods {
			pods[i] = withEphemeralContainers(pod)
		}
		return pods
	}
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
