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

import v1 "k8s.io/api/core/v1"

// DropReportedCPU removes cpu from the resources in the status of a partitioned pod. Upstream
// derives it there from the weight and the quota that the runtime reports, and the scheduler
// would count it a second time.
func DropReportedCPU(pod *v1.Pod, status *v1.PodStatus) {
	if _, ok := typeOf(pod); !ok {
		return
	}
	for _, statuses := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range statuses {
			dropCPU(statuses[i].Resources)
		}
	}
	dropCPU(podLevelResources(status))
}

func dropCPU(reported *v1.ResourceRequirements) {
	if reported != nil {
		delete(reported.Requests, v1.ResourceCPU)
		delete(reported.Limits, v1.ResourceCPU)
	}
}
