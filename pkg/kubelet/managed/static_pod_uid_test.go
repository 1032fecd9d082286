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

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// Under the same UID upstream would go on with the resources of the pod's other form.
func TestPartitionedStaticPodHasAnotherUID(t *testing.T) {
	static := func(uid types.UID, workloadType string) *core.Pod {
		return &core.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid, Annotations: map[string]string{partition.TargetAnnotation(workloadType): ""}},
			Spec: core.PodSpec{Containers: []core.Container{{Name: "c", Resources: core.ResourceRequirements{Requests: core.ResourceList{
				core.ResourceCPU: resource.MustParse("400m"), core.ResourceMemory: resource.MustParse("1Mi")}}}}},
		}
	}
	for name, test := range map[string]struct {
		off          bool
		uid          types.UID
		workloadType string
		want         types.UID
	}{
		"with its own UID":        {uid: "a", workloadType: "management", want: "a-management"},
		"of another type":         {uid: "a", workloadType: "other", want: "a-other"},
		"that runs unpartitioned": {uid: "a", workloadType: "unknown", want: "a"},
		"without a file":          {off: true, uid: "a", workloadType: "management", want: "a"},
		"whose UID upstream makes from its new content": {workloadType: "management"},
	} {
		t.Run(name, func(t *testing.T) {
			if !test.off {
				on(t, partition.Pools{"management": cpuset.New(0), "other": cpuset.New(1)})
			}
			pod := static(test.uid, test.workloadType)
			if PartitionStaticPod(pod); pod.UID != test.want {
				t.Errorf("a static pod %s has the UID %q, want %q", name, pod.UID, test.want)
			}
		})
	}
}
