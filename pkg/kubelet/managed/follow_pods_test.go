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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

type statuses map[types.UID]v1.PodStatus

func (s statuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	status, ok := s[uid]
	return status, ok
}

func TestEphemeralContainersAreMovedToo(t *testing.T) {
	pod := partitionedPod()
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	found := statuses{"": {ContainerStatuses: []v1.ContainerStatus{{Name: "c"}}, EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "debug"}}}}
	list := func() []*v1.Pod { return []*v1.Pod{pod} }
	active, _ := FollowPods(list, nil, found, nil, none{}, nil)
	if active()[0] != pod {
		t.Error("with the feature off the pod is copied")
	}
	on(t, management)
	t.Cleanup(func() { shim.observed = observation{} })
	active, provider := FollowPods(list, nil, found, nil, none{}, nil)
	seen := active()[0]
	if len(seen.Spec.Containers) != 2 || seen.Spec.Containers[1].Name != "debug" || len(pod.Spec.Containers) != 1 {
		t.Errorf("the CPU manager sees %v", seen.Spec.Containers)
	}
	if cpus := RunningContainerCPUs(seen, "debug", "id", cpuset.New(2, 3)); cpus.String() != "0-1" {
		t.Errorf("the CPU manager keeps the ephemeral container on %s", cpus)
	}
	if _, changed := pod.Annotations[partition.ResourcesAnnotation("debug")]; changed {
		t.Error("the pod itself has changed")
	}
	status, ok := provider.GetPodStatus("")
	if !ok || len(status.ContainerStatuses) != 2 || len(found[""].ContainerStatuses) != 1 {
		t.Errorf("the CPU manager finds the statuses %v", status.ContainerStatuses)
	}
}

// none is upstream's map of containers, without any.
type none struct{}

func (none) Visit(func(_, _, _ string)) {}
