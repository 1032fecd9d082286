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
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestDownwardAPIShowsWhatAContainerMayUse(t *testing.T) {
	on(t, management)
	pod := partitionedPod()
	// Upstream's default for a missing limit is the node's CPUs.
	defaulted := pod.DeepCopy()
	defaulted.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("1Gi")}
	if seen := ContainerForDownwardAPI(pod, &defaulted.Spec.Containers[0]).Resources; seen.Requests.Cpu().MilliValue() != 400 || seen.Limits.Cpu().MilliValue() != 500 {
		t.Errorf("a container with a limit sees %v", seen)
	}
	pod.Annotations[partition.ResourcesAnnotation("c")] = `{"cpushares":400}`
	if seen := ContainerForDownwardAPI(pod, &defaulted.Spec.Containers[0]).Resources; seen.Limits.Cpu().Value() != 2 || seen.Limits.Memory().IsZero() {
		t.Errorf("a container without a limit sees %v, want the two CPUs of its pool", seen)
	}
	if seen := ForDownwardAPI(pod, defaulted).Spec.Containers[0].Resources; seen.Limits.Cpu().Value() != 2 || seen.Requests.Cpu().MilliValue() != 400 {
		t.Errorf("a container of the pod sees %v, want the two CPUs of its pool", seen)
	}
	// For volumes upstream sets no defaults. A sidecar is an init container.
	sidecar := pod.DeepCopy()
	sidecar.Spec.InitContainers, sidecar.Spec.Containers = sidecar.Spec.Containers, nil
	if seen := ForDownwardAPI(sidecar, sidecar).Spec.InitContainers[0].Resources; seen.Limits.Cpu().Value() != 2 || seen.Requests.Cpu().MilliValue() != 400 {
		t.Errorf("a sidecar has %v", seen)
	}
	if ordinary := ordinaryPod(); ForDownwardAPI(ordinary, ordinary) != ordinary || ContainerForDownwardAPI(ordinary, &ordinary.Spec.Containers[0]) != &ordinary.Spec.Containers[0] {
		t.Error("an ordinary pod was copied")
	}
	if limits := defaulted.Spec.Containers[0].Resources.Limits; limits.Cpu().Value() != 4 {
		t.Error("upstream's copy has changed:", limits)
	}
	on(t, partition.Pools{"management": cpuset.New()})
	if seen := ContainerForDownwardAPI(pod, &defaulted.Spec.Containers[0]).Resources; seen.Limits.Cpu().Value() != 4 {
		t.Errorf("a container that is not confined sees %v, want the node's CPUs", seen)
	}
}
