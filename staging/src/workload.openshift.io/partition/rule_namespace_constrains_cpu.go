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

// ReasonNamespaceConstrainsCPU: a LimitRange or ResourceQuota would refuse the pod without its
// cpu, so a soft pod would not run at all. [Policy.Constraint] decides, and [Decision.Detail]
// names the object (design, section 4.1).
const ReasonNamespaceConstrainsCPU Reason = "namespace_constrains_cpu"

var namespaceConstrainsCPURule = Rule{
	Reason:     ReasonNamespaceConstrainsCPU,
	Condition:  "a LimitRange or ResourceQuota, which is named, would refuse the pod without `cpu`",
	StaticPods: "never",
	Text:       "the namespace constrains the cpu of its pods: ",
	Soft:       Warning,
	Hard:       Forbidden,
}

func (p Policy) constraint() string {
	if p.Constraint == nil {
		return ""
	}
	// LimitRanger's refusal has a line for each container.
	return shorten(p.Constraint(), 1024)
}
