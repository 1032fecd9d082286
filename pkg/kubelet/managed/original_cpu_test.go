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
)

func TestUpstreamSeesTheOriginalCPU(t *testing.T) {
	on(t, management)
	pod := partitionedPod()
	seen := WithOriginalCPU(pod).Spec.Containers[0].Resources
	if seen.Requests.Cpu().MilliValue() != 400 || seen.Limits.Cpu().MilliValue() != 500 {
		t.Errorf("upstream sees %v", seen)
	}
	if c := ContainerWithOriginalCPU(pod, &pod.Spec.Containers[0]); c.Resources.Limits.Cpu().MilliValue() != 500 {
		t.Errorf("upstream sees %v", c.Resources)
	}
	if _, has := pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU]; has {
		t.Error("the pod itself has cpu now")
	}
}
