package managed

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file gives partitioned pods that were here before the kubelet the weights and
// quotas that they should have, once (design, section 6). They have others if they were
// created while the pinning file was away, or by an unpatched kubelet.

// containerRuntime is the part of the CRI that is needed
// (k8s.io/cri-api/pkg/apis, RuntimeService).
type containerRuntime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.ContainerResources) error
}

// repair updates a container of a partitioned pod whose reported weight or quota is wrong,
// together with its set of CPUs, and returns the set that it has then. A container without
// a limit is left as it is: some runtimes make a small quota of none.
func (n *node) repair(runtime containerRuntime, pod *v1.Pod, name, containerID string, reported *runtimeapi.LinuxContainerResources, has cpuset.CPUSet) (cpuset.CPUSet, error) {
	workloadType, ok := typeOf(pod)
	if !ok {
		return has, nil
	}
	asked := partition.ContainerAsOrdinary(pod, workloadType, &v1.Container{Name: name}).Resources
	request, limit := asked.Requests.Cpu().MilliValue(), asked.Limits.Cpu().MilliValue()
	wanted := &runtimeapi.LinuxContainerResources{}
	// A runtime that reads the annotations writes these shares (design, section 7).
	annotated := max(request, partition.MinShares)
	if shares := sharesOf(request); reported.CpuShares != shares && reported.CpuShares != annotated {
		wanted.CpuShares = shares
	}
	if quota := quotaOf(limit, host.quotaPeriod); quota != 0 && (reported.CpuQuota != quota || reported.CpuPeriod != host.quotaPeriod.Microseconds()) {
		wanted.CpuQuota, wanted.CpuPeriod = quota, host.quotaPeriod.Microseconds()
	}
	if wanted.CpuShares == 0 && wanted.CpuQuota == 0 {
		return has, nil
	}
	if pool, confined := n.pool(pod); confined {
		has = pool
		wanted.CpusetCpus = pool.String()
	}
	host.log.Info("Giving a container the weight and the quota of its partition", "pod", klog.KObj(pod), "container", name, "containerID", containerID,
		"sharesBefore", reported.CpuShares, "quotaBefore", reported.CpuQuota, "now", wanted)
	return has, runtime.UpdateContainerResources(context.Background(), containerID, &runtimeapi.ContainerResources{Linux: wanted})
}

// sharesOf and quotaOf convert as upstream does where it creates a container
// (pkg/kubelet/cm/helpers_linux.go, MilliCPUToShares and MilliCPUToQuota): that package
// calls this one.
func sharesOf(millicores int64) int64 {
	const perCPU, least, most = 1024, 2, 1 << 18
	return min(max(millicores*perCPU/1000, least), most)
}

// quotaOf returns the CPU time in microseconds for each period; zero means no limit.
func quotaOf(millicores int64, period time.Duration) int64 {
	if millicores == 0 || period == 0 {
		return 0
	}
	const least = time.Millisecond
	return max(millicores*period.Microseconds()/1000, least.Microseconds())
}
