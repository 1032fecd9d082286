package managed

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// StaticPod partitions a static pod, or makes it an ordinary one (design, sections
// 3 and 5). There is nobody to refuse it to: it always runs.
func StaticPod(pod *core.Pod) {
	n := current.Load()
	if n == nil {
		return
	}
	delete(pod.Annotations, partition.WarningAnnotation)
	decision := partition.Mutate(internalpod.View(pod), partition.Policy{Gate: n.gate, NeverRefuse: true})
	message := decision.Message()
	if firstTime(pod, message) {
		host.log.Error(nil, "Static pod runs unpartitioned", "pod", klog.KObj(pod), "reason", decision.Reason, "message", message)
		staticPodsSkipped.WithLabelValues(string(decision.Reason)).Inc()
		// The kubelet has not set the default namespace yet.
		nodeEvent(v1.EventTypeWarning, eventStaticPodUnpartitioned, "Static pod %s/%s: %s", cmp.Or(pod.Namespace, v1.NamespaceDefault), pod.Name, message)
	}
}

// gate lets static pods into the pools of this node. A static pod is the node
// administrator's, so no namespace needs to allow it.
func (n *node) gate(workloadType string) partition.Reason {
	if _, ok := n.pools[workloadType]; !ok {
		return partition.ReasonTypeInactive
	}
	return ""
}

// typeOf returns the workload type of a pod that is in one of this node's
// partitions.
func typeOf(pod *v1.Pod) (workloadType string, ok bool) {
	n := current.Load()
	if n == nil {
		return "", false
	}
	if workloadType, ok = partition.TypeOf(pod); ok {
		_, ok = n.pools[workloadType]
	}
	return workloadType, ok
}

// WithCPU returns the pod with the CPU requests and limits that it had before it
// was partitioned, from which upstream derives weights and quotas.
func WithCPU(pod *v1.Pod) *v1.Pod {
	pod, _ = WithCPUAndType(pod)
	return pod
}

// ContainerWithCPU is WithCPU for one container of the pod.
func ContainerWithCPU(pod *v1.Pod, container *v1.Container) *v1.Container {
	if workloadType, ok := typeOf(pod); ok {
		return partition.ContainerAsOrdinary(pod, workloadType, container)
	}
	return container
}

// DownwardPod is WithCPU for the downward API, which tells a container without a
// limit what it could use: the CPUs of its pool. In defaulted, which may be the pod or a
// copy, upstream may have set that to the node's.
func DownwardPod(pod, defaulted *v1.Pod) *v1.Pod {
	workloadType, ok := typeOf(pod)
	if !ok {
		return defaulted
	}
	ordinary := *defaulted
	ordinary.Spec.InitContainers = downwardAll(pod, workloadType, defaulted.Spec.InitContainers)
	ordinary.Spec.Containers = downwardAll(pod, workloadType, defaulted.Spec.Containers)
	return &ordinary
}

func downwardAll(pod *v1.Pod, workloadType string, defaulted []v1.Container) []v1.Container {
	containers := make([]v1.Container, len(defaulted))
	for i := range defaulted {
		containers[i] = *downward(pod, workloadType, &defaulted[i])
	}
	return containers
}

// DownwardContainer is DownwardPod for one container of the pod.
func DownwardContainer(pod *v1.Pod, defaulted *v1.Container) *v1.Container {
	if workloadType, ok := typeOf(pod); ok {
		return downward(pod, workloadType, defaulted)
	}
	return defaulted
}

// downward gives a container the requests and limits of before it was partitioned.
func downward(pod *v1.Pod, workloadType string, defaulted *v1.Container) *v1.Container {
	ordinary := partition.ContainerAsOrdinary(pod, workloadType, defaulted)
	if ordinary == defaulted {
		return defaulted
	}
	limits := &ordinary.Resources.Limits
	if _, limited := (*limits)[v1.ResourceCPU]; limited {
		return ordinary
	}
	if *limits == nil {
		*limits = v1.ResourceList{}
	}
	if pool, confined := current.Load().pool(pod); confined {
		(*limits)[v1.ResourceCPU] = *resource.NewQuantity(int64(pool.Size()), resource.DecimalSI)
	} else if limit, ok := defaulted.Resources.Limits[v1.ResourceCPU]; ok {
		(*limits)[v1.ResourceCPU] = limit
	}
	return ordinary
}

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
