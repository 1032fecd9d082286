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
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"workload.openshift.io/partition"
)

// PodStatuses is upstream's PodStatusProvider (pkg/kubelet/status).
type PodStatuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
}

// containers is upstream's map of the containers that the runtime had when the kubelet
// started (pkg/kubelet/cm/containermap).
type containers interface {
	Visit(func(podUID, containerName, containerID string))
}

// FollowPods remembers what the CPU manager is started with. active is its source of pods,
// and ready reports whether that source has them all. found are the containers that the
// runtime has. In lastUpdates the CPU manager notes the cpuset that it gave to each container.
//
// FollowPods returns the sources of pods and of statuses that the CPU manager must use
// instead. They include ephemeral containers, which upstream's would never move once they
// run.
func FollowPods(active func() []*v1.Pod, ready func() bool, statuses PodStatuses, runtime any, found containers, lastUpdates state.State) (func() []*v1.Pod, PodStatuses) {
	if _, on := partitions(); !on {
		return active, statuses
	}
	ids := map[string]previousContainer{}
	found.Visit(func(_, _, containerID string) { ids[containerID] = previousContainer{outcome: unanswered} })
	asked, can := runtime.(containerRuntime)
	unlisted := can && len(ids) == 0
	withEphemeral := func() []*v1.Pod {
		pods := slices.Clone(active())
		for i, pod := range pods {
			pods[i] = withEphemeralContainers(pod)
		}
		return pods
	}
	shim.observed.Lock()
	shim.observed.activePods, shim.observed.ready, shim.observed.lastUpdates, shim.observed.found = withEphemeral, ready, lastUpdates, ids
	shim.observed.runtime, shim.observed.unlisted, shim.observed.statuses = asked, unlisted, statuses
	shim.observed.Unlock()
	if unlisted {
		shim.observed.listContainers(asked)
	}
	if n := shim.current.Load(); n != nil && !n.Pooled.IsEmpty() && len(n.known) > 0 {
		go n.reportRejected(ready, statuses, 100, 100*time.Millisecond)
	}
	return withEphemeral, ephemeralStatuses{statuses}
}

// withEphemeralContainers returns the pod with its ephemeral containers among its containers.
// If the pod is partitioned, so are they.
func withEphemeralContainers(pod *v1.Pod) *v1.Pod {
	if len(pod.Spec.EphemeralContainers) == 0 {
		return pod
	}
	_, partitioned := partition.PartitionedType(pod)
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

// ephemeralStatuses adds the statuses of ephemeral containers to those of containers.
type ephemeralStatuses struct{ PodStatuses }

func (s ephemeralStatuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	status, ok := s.PodStatuses.GetPodStatus(uid)
	status.ContainerStatuses = slices.Concat(status.ContainerStatuses, status.EphemeralContainerStatuses)
	return status, ok
}
