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

// Package internalpod shows the internal API representation of a pod to the core.
// Both hosts of the mutation hold pods in it: admission plugins, and the kubelet
// when it reads a static pod. It knows no rule of workload partitioning.
package internalpod

import (
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/partition"
)

type (
	// Pod is the core's view of a core.Pod.
	Pod = partition.Pod[core.ResourceList, core.ResourceName]
	// Container is the core's view of one of its containers.
	Container    = partition.Container[core.ResourceList, core.ResourceName]
	requirements = partition.Requirements[core.ResourceList, core.ResourceName]
)

// View returns the core's view of the pod, which shares its lists and maps.
func View(pod *core.Pod) Pod {
	view := Pod{
		Annotations: &pod.Annotations,
		Containers:  make([]Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers)),
	}
	if resources := pod.Spec.Resources; resources != nil {
		view.Resources = &requirements{Requests: &resources.Requests, Limits: &resources.Limits}
	}
	for _, containers := range [][]core.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			resources := &containers[i].Resources
			view.Containers = append(view.Containers, Container{
				Name:         containers[i].Name,
				Requirements: requirements{Requests: &resources.Requests, Limits: &resources.Limits},
			})
		}
	}
	return view
}

// CarriesCores reports whether a container of the pod asks for the cores of any
// workload type. It does not allocate.
func CarriesCores(pod *core.Pod) bool {
	for _, containers := range [2][]core.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if partition.CarriesCores(containers[i].Resources.Requests) || partition.CarriesCores(containers[i].Resources.Limits) {
				return true
			}
		}
	}
	return false
}
