package managed

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/cpuset"
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

// pool returns the CPUs that the pod's containers are confined to, and false for
// pods that are not partitioned, or not confined, on this node.
func (n *node) pool(pod *v1.Pod) (cpuset.CPUSet, bool) {
	workloadType, ok := partition.TypeOf(pod)
	if !ok {
		return cpuset.CPUSet{}, false
	}
	cpus, ok := n.pools[workloadType]
	return cpus, ok && !cpus.IsEmpty()
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

// Place sets the CPUs on which a container is created: its pool for a partitioned
// pod, and never a CPU of a pool for any other. What the CPU manager has set for
// those stays: it does not know the pools' CPUs, since they are reserved.
func Place(pod *v1.Pod, config *runtimeapi.ContainerConfig) {
	n := current.Load()
	if n == nil || n.pooled.IsEmpty() || config.Linux == nil || config.Linux.Resources == nil {
		return
	}
	if pool, confined := n.pool(pod); confined {
		config.Linux.Resources.CpusetCpus = pool.String()
	} else if config.Linux.Resources.CpusetCpus == "" {
		config.Linux.Resources.CpusetCpus = n.others.String()
	}
}

// CPUs returns the CPUs on which the CPU manager is to keep a running container,
// where it would choose the given ones. It chooses none under the policy none, and
// for containers that share what exclusive ones have left if that is nothing.
func CPUs(pod *v1.Pod, chosen cpuset.CPUSet) cpuset.CPUSet {
	n := current.Load()
	if n != nil {
		if pool, confined := n.pool(pod); confined {
			return pool
		}
	}
	switch {
	case !chosen.IsEmpty():
		return chosen
	case n != nil:
		return n.others
	case host.wasOn:
		return host.online
	default:
		return chosen
	}
}

// WithCPU returns the pod with the CPU requests and limits that it had before it
// was partitioned, from which upstream derives weights and quotas.
func WithCPU(pod *v1.Pod) *v1.Pod {
	if workloadType, ok := typeOf(pod); ok {
		return partition.AsOrdinary(pod, workloadType)
	}
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
// limit what it could use: the CPUs of its pool. In defaulted, a copy of the pod, upstream
// has set that to the node's.
func DownwardPod(pod, defaulted *v1.Pod) *v1.Pod {
	workloadType, ok := typeOf(pod)
	if !ok {
		return defaulted
	}
	ordinary := *defaulted
	ordinary.Spec.Containers = make([]v1.Container, len(defaulted.Spec.Containers))
	for i := range defaulted.Spec.Containers {
		ordinary.Spec.Containers[i] = *downward(pod, workloadType, &defaulted.Spec.Containers[i])
	}
	return &ordinary
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
