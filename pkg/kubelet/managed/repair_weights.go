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
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file repairs the weights and CPU quotas of partitioned pods that existed before this
// kubelet started, once (design, section 6, weights and quotas are repaired). They are wrong
// if the pods were created while the pinning file was away, or by an unpatched kubelet.

// containerRuntime is the part of the CRI that this package needs (k8s.io/cri-api/pkg/apis,
// RuntimeService).
type containerRuntime interface {
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.ContainerResources) error
}

// repair updates a container of a partitioned pod if the runtime reports a wrong weight or
// quota. The update includes the container's pool, so that one call does for both. repair
// returns the cpuset that the container has afterwards. It leaves the quota of a container
// without a limit alone: some runtimes turn no limit into a small quota. It gives no cpuset
// to a container that is placed by its pod's cgroup.
func (n *node) repair(runtime containerRuntime, pod *v1.Pod, name, containerID string, reported *runtimeapi.LinuxContainerResources, has cpuset.CPUSet) (cpuset.CPUSet, error) {
	workloadType, ok := typeOf(pod)
	if !ok {
		return has, nil
	}
	asked := partition.ContainerAsOrdinary(pod, workloadType, &v1.Container{Name: name}).Resources
	request, limit := asked.Requests.Cpu().MilliValue(), asked.Limits.Cpu().MilliValue()
	wanted := &runtimeapi.LinuxContainerResources{}
	// A runtime that is configured for the annotations writes these shares (design, section 7).
	annotated := max(request, partition.MinShares)
	if shares := partition.SharesOf(request); reported.CpuShares != shares && reported.CpuShares != annotated {
		wanted.CpuShares = shares
	}
	if quota := partition.QuotaOf(limit, shim.host.quotaPeriod); quota != 0 && (reported.CpuQuota != quota || reported.CpuPeriod != shim.host.quotaPeriod.Microseconds()) {
		wanted.CpuQuota, wanted.CpuPeriod = quota, shim.host.quotaPeriod.Microseconds()
	}
	if wanted.CpuShares == 0 && wanted.CpuQuota == 0 {
		return has, nil
	}
	if pool, confined := n.pool(pod); confined && !(has.IsEmpty() && byPodCgroup(pod)) {
		if err := fitContainer(pod, containerID, pool, true); err != nil {
			return has, err
		}
		has = pool
		wanted.CpusetCpus = pool.String()
	}
	shim.host.log.Info("Giving a container the weight and the quota of its partition", "pod", klog.KObj(pod), "container", name, "containerID", containerID,
		"sharesBefore", reported.CpuShares, "quotaBefore", reported.CpuQuota, "now", wanted)
	return has, runtime.UpdateContainerResources(context.Background(), containerID, &runtimeapi.ContainerResources{Linux: wanted})
}
