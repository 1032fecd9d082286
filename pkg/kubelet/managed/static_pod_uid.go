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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/partition"
)

// distinguish gives a partitioned static pod whose manifest has a UID another one, so that it is
// another pod than the ordinary one of that manifest, which runs while there is no pinning file.
//
// Upstream makes the UID of any other static pod from its content
// (pkg/kubelet/config/common.go, applyDefaults), so partitioning it changes that. Under a UID
// that stays, the kubelet goes on with the resources that it once allocated to that pod
// (pkg/kubelet/allocation, AddPod), and up to v1.35 for good, since it does not resize static
// pods; and the mirror pod stays as it was. A pod that was created without the pinning file
// would stay off its pool, and one that was created with it would keep the smallest weight.
func distinguish(pod *core.Pod, decision partition.Decision) {
	if decision.Outcome == partition.Partitioned && pod.UID != "" {
		pod.UID += types.UID("-" + decision.Target.Type)
	}
}
