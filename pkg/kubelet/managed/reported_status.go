package managed

import v1 "k8s.io/api/core/v1"

// HideCPU takes cpu out of the resources that the status of a partitioned pod reports,
// in which upstream finds the weight and the quota that the runtime reports. The
// scheduler would count it a second time.
func HideCPU(pod *v1.Pod, status *v1.PodStatus) *v1.PodStatus {
	if _, ok := typeOf(pod); !ok {
		return status
	}
	for _, statuses := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range statuses {
			dropCPU(statuses[i].Resources)
		}
	}
	dropCPU(podLevelResources(status))
	return status
}

func dropCPU(reported *v1.ResourceRequirements) {
	if reported != nil {
		delete(reported.Requests, v1.ResourceCPU)
		delete(reported.Limits, v1.ResourceCPU)
	}
}
