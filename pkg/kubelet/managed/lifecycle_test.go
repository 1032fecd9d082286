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

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition/partitiontest"
)

func TestWithoutAFileNothingHappens(t *testing.T) {
	pod := partitionedPod()
	before := pod.DeepCopy()
	config := creating("c", "")
	PlaceContainer(pod, config)
	for _, c := range partitiontest.Cases() {
		static := internal(t, c.Pod)
		PartitionStaticPod(static)
		if want := internal(t, c.Pod); !equality.Semantic.DeepEqual(static, want) {
			t.Errorf("%s: PartitionStaticPod made of the pod %v", c.Name, static)
		}
	}
	chosen := cpuset.New(2)
	status := statusWithCPU()
	switch {
	case config.Linux.Resources.CpusetCpus != "":
		t.Error("PlaceContainer set", config.Linux.Resources.CpusetCpus)
	case !RunningContainerCPUs(pod, "c", "id", chosen).Equals(chosen):
		t.Error("RunningContainerCPUs chose", RunningContainerCPUs(pod, "c", "id", chosen))
	case WithOriginalCPU(pod) != pod || ContainerWithOriginalCPU(pod, &pod.Spec.Containers[0]) != &pod.Spec.Containers[0]:
		t.Error("the pod was copied")
	case len(afterDrop(pod, status).ContainerStatuses[0].Resources.Requests) != 2:
		t.Error("DropReportedCPU left", status)
	case before.String() != pod.String():
		t.Error("the pod is", pod)
	}
	node := partitiontest.Node("a")
	if err := SetCores(t.Context(), node); err != nil || len(node.Status.Capacity) != 1 {
		t.Errorf("SetCores left %v, %v", node.Status, err)
	}
}
