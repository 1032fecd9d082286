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
