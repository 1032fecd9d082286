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

import "slices"

// ReasonPodLevelCPU: CPU of the pod as a whole bounds all its containers, and upstream has no
// pod-level request for an extended resource, which would have to replace it (design,
// section 5).
const ReasonPodLevelCPU Reason = "pod_level_cpu"

var podLevelCPURule = Rule{
	Reason:    ReasonPodLevelCPU,
	Condition: "`spec.resources` has CPU, or gets it by default because a container asks for CPU",
	Text:      "spec.resources has CPU for the pod as a whole, or gets it from the containers by default; remove spec.resources to have it partitioned",
	Soft:      Warning,
	Hard:      Forbidden,
}

// hasPodLevelCPU counts the CPU of containers, too, if there are pod-level resources: upstream
// adds it to these, before admission or after it, depending on the release (pkg/api/pod,
// DefaultPodLevelResources).
func (p Pod[L, N]) hasPodLevelCPU(found findings) bool {
	return p.Resources.hasCPU() || (p.Resources.isSet() && slices.ContainsFunc(found.amounts, amount.isSet))
}

// hasCPU does not count a zero: by default pod-level resources get one if a container has one, which
// [Policy.KeepZero] may have put there.
func (r *Requirements[L, N]) hasCPU() bool {
	if r == nil {
		return false
	}
	request, limit := (*r.Requests)[cpu], (*r.Limits)[cpu]
	return !request.IsZero() || !limit.IsZero()
}
