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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// BenchmarkSync measures what all hooks together add to one start and one sync of a pod with two
// containers, and to one reconciliation of its CPUs.
func BenchmarkSync(b *testing.B) {
	two := func(pod *v1.Pod) *v1.Pod {
		pod.Spec.Containers = append(pod.Spec.Containers, *pod.Spec.Containers[0].DeepCopy())
		pod.Spec.Containers[1].Name = "d"
		if resources, ok := pod.Annotations[partition.ResourcesAnnotation("c")]; ok {
			pod.Annotations[partition.ResourcesAnnotation("d")] = resources
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "example.com/"+name, "1")
		}
		return pod
	}
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		on   bool
	}{{"feature=off/pod=ordinary", two(ordinaryPod()), false}, {"feature=on/pod=ordinary", two(ordinaryPod()), true}, {"feature=on/pod=partitioned", two(partitionedPod()), true}} {
		b.Run(test.name, func(b *testing.B) {
			if test.on {
				shim.current.Store(newNode(management, cpuset.New(0, 1, 2, 3), cpuset.New(), cpuset.New()))
				b.Cleanup(func() { shim.current.Store(nil) })
			}
			chosen := cpuset.New(2, 3)
			status := &v1.PodStatus{ContainerStatuses: make([]v1.ContainerStatus, len(test.pod.Spec.Containers))}
			config := creating("c", "")
			active, statuses := FollowPods(func() []*v1.Pod { return nil }, nil, statuses{}, nil, none{}, nil)
			b.ReportAllocs()
			for b.Loop() {
				WithOriginalCPU(test.pod) // the pod's cgroup
				WithOriginalCPU(test.pod) // its class
				WithOriginalCPU(test.pod) // its sandbox
				active()
				statuses.GetPodStatus(types.UID("uid"))
				for i := range test.pod.Spec.Containers {
					PlaceContainer(test.pod, config)
					ContainerWithOriginalCPU(test.pod, &test.pod.Spec.Containers[i])
					RunningContainerCPUs(test.pod, test.pod.Spec.Containers[i].Name, "id", chosen)
				}
				DropReportedCPU(test.pod, status)
			}
		})
	}
}
