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
	v1 "k8s.io/api/core/v1"
	"workload.openshift.io/partition"
)

// typeOf returns the workload type of a pod that is in one of this node's partitions; false
// if it is in none.
func typeOf(pod *v1.Pod) (workloadType string, ok bool) {
	n := shim.current.Load()
	if n == nil {
		return "", false
	}
	if workloadType, ok = partition.PartitionedType(pod); ok {
		_, ok = n.pools[workloadType]
	}
	return workloadType, ok
}

// WithOriginalCPU returns the pod with its original CPU requests and limits: those that it
// had before it was partitioned. Upstream derives weights and quotas from them. It returns an
// ordinary pod as it is.
func WithOriginalCPU(pod *v1.Pod) *v1.Pod {
	pod, _ = WithOriginalCPUAndType(pod)
	return pod
}

// ContainerWithOriginalCPU is WithOriginalCPU for one container of the pod.
func ContainerWithOriginalCPU(pod *v1.Pod, container *v1.Container) *v1.Container {
	if workloadType, ok := typeOf(pod); ok {
		return partition.ContainerAsOrdinary(pod, workloadType, container)
	}
	return container
}
