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

// Package podtest builds pods for tests from texts that read like a manifest. It imports
// nothing of this project, so that tests within the core's package can use it as well.
package podtest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const cores = "management.workload.openshift.io/cores"

// List reads "cpu=400m memory=1Mi" as a resource list; "cores" stands for those of the
// workload type management. The empty text is nil. List panics if a quantity is malformed.
func List(text string) v1.ResourceList {
	var list v1.ResourceList
	for _, field := range strings.Fields(text) {
		name, quantity, _ := strings.Cut(field, "=")
		if name == "cores" {
			name = cores
		}
		if list == nil {
			list = v1.ResourceList{}
		}
		list[v1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

// Container returns a container whose requests and limits [List] reads.
func Container(name, requests, limits string) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: List(requests), Limits: List(limits)}}
}

// Pod returns a pod without a name. It shares nothing with its arguments.
func Pod(annotations map[string]string, containers ...v1.Container) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: v1.PodSpec{Containers: containers}}
	return pod.DeepCopy()
}
