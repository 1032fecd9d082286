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
	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/partition"
)

// ForDownwardAPI returns the pod as the downward API must show it: with its original CPU
// requests and limits. A container without a limit sees what it could use: the size of its
// pool. defaulted is the pod, or a copy in which upstream has set missing limits to the
// node's CPUs.
func ForDownwardAPI(pod, defaulted *v1.Pod) *v1.Pod {
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

// ContainerForDownwardAPI is ForDownwardAPI for one container of the pod.
func ContainerForDownwardAPI(pod *v1.Pod, defaulted *v1.Container) *v1.Container {
	if workloadType, ok := typeOf(pod); ok {
		return downward(pod, workloadType, defaulted)
	}
	return defaulted
}

// downward gives a container its original requests and limits, and the size of its pool if it
// had no limit. A pod that is not confined keeps upstream's default.
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
	if pool, confined := shim.current.Load().pool(pod); confined {
		(*limits)[v1.ResourceCPU] = *resource.NewQuantity(int64(pool.Size()), resource.DecimalSI)
	} else if limit, ok := defaulted.Resources.Limits[v1.ResourceCPU]; ok {
		(*limits)[v1.ResourceCPU] = limit
	}
	return ordinary
}
