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
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func afterDrop(pod *v1.Pod, status *v1.PodStatus) *v1.PodStatus {
	DropReportedCPU(pod, status)
	return status
}

func TestPartitionedPodsReportNoCPU(t *testing.T) {
	on(t, management)
	pod := partitionedPod()
	reported := afterDrop(pod, statusWithCPU())
	for _, statuses := range [][]v1.ContainerStatus{reported.InitContainerStatuses, reported.ContainerStatuses, reported.EphemeralContainerStatuses} {
		resources := statuses[0].Resources
		if _, has := resources.Requests[v1.ResourceCPU]; has || resources.Limits.Cpu().Sign() != 0 || resources.Requests.Memory().IsZero() {
			t.Errorf("the resources in the status are %v", resources)
		}
	}
	if podLevel := podLevelResources(reported); podLevel != nil && podLevel.Requests.Cpu().Sign() != 0 {
		t.Errorf("the pod reports %v for itself", podLevel)
	}
	DropReportedCPU(pod, &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c"}}})
	if got := afterDrop(ordinaryPod(), statusWithCPU()).ContainerStatuses[0].Resources; got.Requests.Cpu().MilliValue() != 400 {
		t.Errorf("an ordinary pod reports %v", got)
	}
}

// Upstream hands out the status of a container that has gone without a copy of its maps.
func TestMapsOfAStatusAreNotChanged(t *testing.T) {
	on(t, management)
	pod, status := partitionedPod(), statusWithCPU()
	status.ContainerStatuses[0].Resources = status.ContainerStatuses[0].Resources.DeepCopy()
	cached := *status.ContainerStatuses[0].Resources
	DropReportedCPU(pod, status)
	if hasCPU(status.ContainerStatuses[0].Resources) || !hasCPU(&cached) {
		t.Errorf("the pod reports %v, and the cache has %v", status.ContainerStatuses[0].Resources, cached)
	}
	without := status.ContainerStatuses[0].Resources
	DropReportedCPU(pod, status)
	if status.ContainerStatuses[0].Resources != without {
		t.Error("resources without cpu were copied")
	}
}

func TestCPUThatWasReportedIsNotCounted(t *testing.T) {
	on(t, management)
	stored := partitionedPod()
	stored.Status = *statusWithCPU()
	pod := WithoutReportedCPU(stored)
	if reportsCPU(&pod.Status) {
		t.Errorf("the pod's status is %v", pod.Status)
	}
	if !reportsCPU(&stored.Status) {
		t.Error("the pod in the store has changed")
	}
	if !reflect.DeepEqual(pod.Spec, stored.Spec) || pod.Status.ContainerStatuses[0].Resources.Requests.Memory().IsZero() {
		t.Errorf("the pod is %v, and was %v", pod, stored)
	}
	if WithoutReportedCPU(pod) != pod {
		t.Error("a pod that reports no cpu was copied")
	}
	ordinary := ordinaryPod()
	ordinary.Status = *statusWithCPU()
	if WithoutReportedCPU(ordinary) != ordinary {
		t.Error("an ordinary pod was changed")
	}
}

// statusWithCPU returns the status of a pod with a container of each kind, as upstream derives
// it from what the runtime reports.
func statusWithCPU() *v1.PodStatus {
	statuses := func() []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "c", Resources: &ordinaryPod().Spec.Containers[0].Resources}}
	}
	status := &v1.PodStatus{InitContainerStatuses: statuses(), ContainerStatuses: statuses(), EphemeralContainerStatuses: statuses()}
	if field := reflect.ValueOf(status).Elem().FieldByName("Resources"); field.IsValid() {
		field.Set(reflect.ValueOf(statuses()[0].Resources))
	}
	return status
}
