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

package partition

import v1 "k8s.io/api/core/v1"

// Labels of nodes that have no pool and never will, so that no type waits for them. A
// kubelet may label its own node: one that does so only loses the pods that it could have
// had.
const (
	// ignoreLabel and ignoreValue are what an administrator writes.
	ignoreLabel = Domain + "/partitioning"
	ignoreValue = "ignore"
	// virtualLabel and virtualValue are those of virtual-kubelet, which calls its nodes Linux.
	virtualLabel = "type"
	virtualValue = "virtual-kubelet"
)

// NodeCounts reports whether a type can be active only if the node with these labels reports
// the type's cores (design, section 4.2).
func NodeCounts(labels map[string]string) bool {
	system, labelled := labels[v1.LabelOSStable]
	return (!labelled || system == string(v1.Linux)) && labels[ignoreLabel] != ignoreValue && labels[virtualLabel] != virtualValue
}
