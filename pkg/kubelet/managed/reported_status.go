package managed

import v1 "k8s.io/api/core/v1"

// DropReportedCPU takes cpu out of the resources that the status of a partitioned pod reports.
// Upstream finds the weight and the quota there that the runtime reports, and the scheduler
// would count them a second time.
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
