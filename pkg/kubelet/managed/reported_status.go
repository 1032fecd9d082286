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
	"slices"

	v1 "k8s.io/api/core/v1"
)

// DropReportedCPU removes cpu from the resources in the status of a partitioned pod. Upstream
// derives it there from the weight and the quota that the runtime reports, and the scheduler
// would count it a second time.
func DropReportedCPU(pod *v1.Pod, status *v1.PodStatus) {
	if _, ok := typeOf(pod); !ok {
		return
	}
	for _, statuses := range containerStatuses(status) {
		for i := range statuses {
			statuses[i].Resources = withoutCPU(statuses[i].Resources)
		}
	}
	if resources := podLevelResources(status); hasCPU(resources) {
		setPodLevelResources(status, withoutCPU(resources))
	}
}

// WithoutReportedCPU returns a pod from kube-apiserver without the cpu in its status if it is
// partitioned. A kubelet without the pinning file, or an unpatched one, has reported that. Until the
// status is written again, admission would count it, and could reject a pod that runs.
//
// The goroutine that annotates pods with their source must call it: upstream writes to the
// annotations of the stored pods there, in podStorage.merge of pkg/kubelet/config/config.go.
func WithoutReportedCPU(pod *v1.Pod) *v1.Pod {
	if _, ok := typeOf(pod); !ok || !reportsCPU(&pod.Status) {
		return pod
	}
	pod = pod.DeepCopy() // the store keeps its own
	DropReportedCPU(pod, &pod.Status)
	return pod
}

// reportsCPU reports whether a status has cpu that DropReportedCPU removes.
func reportsCPU(status *v1.PodStatus) bool {
	if hasCPU(podLevelResources(status)) {
		return true
	}
	for _, statuses := range containerStatuses(status) {
		if slices.ContainsFunc(statuses, func(s v1.ContainerStatus) bool { return hasCPU(s.Resources) }) {
			return true
		}
	}
	return false
}

func containerStatuses(status *v1.PodStatus) [][]v1.ContainerStatus {
	return [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses}
}

func hasCPU(reported *v1.ResourceRequirements) bool {
	if reported == nil {
		return false
	}
	_, requested := reported.Requests[v1.ResourceCPU]
	_, limited := reported.Limits[v1.ResourceCPU]
	return requested || limited
}

// withoutCPU returns resources without cpu, and those that have none as they are. It changes no
// map: the status of a container that the runtime no longer has shares its maps with the status
// manager's cache, or with the pod manager's pod, and other goroutines read those
// (pkg/kubelet/kubelet_pods.go, convertToAPIContainerStatuses).
func withoutCPU(reported *v1.ResourceRequirements) *v1.ResourceRequirements {
	if !hasCPU(reported) {
		return reported
	}
	reported = reported.DeepCopy()
	delete(reported.Requests, v1.ResourceCPU)
	delete(reported.Limits, v1.ResourceCPU)
	return reported
}
