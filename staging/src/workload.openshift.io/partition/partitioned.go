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

package partition

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// PartitionedType returns the workload type of a pod that [Mutate] partitioned, and false
// for every other pod. It does not allocate.
//
// The target annotation is not enough. In a partitioned pod no container has cpu, or cores
// of another type. Either each has its resources annotation, or at least one has cores of
// the type: OpenShift's kubelet annotates no container without a request. A pod whose author
// forged all of that looks the same, but the admission plugin in every kube-apiserver
// refuses it.
func PartitionedType(pod *v1.Pod) (workloadType string, ok bool) {
	for key := range pod.Annotations {
		if name, found := strings.CutPrefix(key, TargetPrefix); found {
			if workloadType != "" {
				return "", false
			}
			workloadType = name
		}
	}
	if workloadType == "" {
		return "", false
	}
	annotated, carries := true, false
	for _, containers := range [2][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			request, limit := containers[i].Resources.Requests[cpu], containers[i].Resources.Limits[cpu]
			if !request.IsZero() || !limit.IsZero() {
				return "", false
			}
			if _, has := resourcesOf(pod.Annotations, containers[i].Name); !has {
				annotated = false
			}
			for _, list := range [2]v1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				own, foreign := carriesCoresOf(list, workloadType)
				if foreign {
					return "", false
				}
				carries = carries || own
			}
		}
	}
	if !annotated && !carries {
		return "", false
	}
	return workloadType, true
}

// carriesCoresOf reports whether a list has cores of the workload type, and whether it has
// cores of another one.
func carriesCoresOf(list v1.ResourceList, workloadType string) (own, foreign bool) {
	if hasOnly(list, cpu, memory) {
		return false, false
	}
	for name := range list {
		if of, isCores := TypeOfCores(string(name)); isCores {
			own = own || of == workloadType
			foreign = foreign || of != workloadType
		}
	}
	return own, foreign
}

// AsOrdinary returns a copy of a partitioned pod in which each container asks for CPU as it
// did before [Mutate]. Upstream code that turns requests into weights and quotas must see
// this copy. [PartitionedType] returns the workload type. The copy shares all but requests and
// limits with the pod, so only these may be changed. Its resources of the pod as a whole have no
// cpu: that of a partitioned pod can only be zero, and would count in place of the containers'.
func AsOrdinary(pod *v1.Pod, workloadType string) *v1.Pod {
	ordinary := *pod
	if resources := pod.Spec.Resources; resources != nil {
		ordinary.Spec.Resources = resources.DeepCopy()
		delete(ordinary.Spec.Resources.Requests, v1.ResourceCPU)
		delete(ordinary.Spec.Resources.Limits, v1.ResourceCPU)
	}
	ordinary.Spec.InitContainers = asOrdinary(pod, pod.Spec.InitContainers, workloadType)
	ordinary.Spec.Containers = asOrdinary(pod, pod.Spec.Containers, workloadType)
	return &ordinary
}

// ContainerAsOrdinary is [AsOrdinary] for one container. That may be a copy whose resources
// are not those of the pod's spec: an in-place resize of memory passes one without cores
// (pkg/kubelet/kuberuntime, updatePodContainerResources). So CPU is taken from the pod's
// container of that name, and everything else from the given one. A container that the pod
// does not have is ephemeral, and never asks for CPU.
func ContainerAsOrdinary(pod *v1.Pod, workloadType string, container *v1.Container) *v1.Container {
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Name != container.Name {
				continue
			}
			was := asOrdinary(pod, containers[i:i+1], workloadType)[0].Resources
			ordinary := *container
			ordinary.Resources.Requests = withCPUOf(container.Resources.Requests, was.Requests)
			ordinary.Resources.Limits = withCPUOf(container.Resources.Limits, was.Limits)
			return &ordinary
		}
	}
	return container
}

// withCPUOf returns a copy of a list with the cpu of another list, and without cores.
func withCPUOf(list, other v1.ResourceList) v1.ResourceList {
	list = maps.Clone(list)
	removeCores(&list, "")
	remove(&list, cpu)
	if quantity, ok := other[cpu]; ok {
		set(&list, cpu, quantity)
	}
	return list
}

func asOrdinary(pod *v1.Pod, containers []v1.Container, workloadType string) []v1.Container {
	containers, cores := slices.Clone(containers), v1.ResourceName(CoresResource(workloadType))
	for i := range containers {
		resources := &containers[i].Resources
		resources.Requests = maps.Clone(resources.Requests)
		resources.Limits = maps.Clone(resources.Limits)
		view := Container[v1.ResourceList, v1.ResourceName]{
			Name:         containers[i].Name,
			Requirements: Requirements[v1.ResourceList, v1.ResourceName]{Requests: &resources.Requests, Limits: &resources.Limits},
		}
		view.restore(pod.Annotations, cores)
	}
	return containers
}
