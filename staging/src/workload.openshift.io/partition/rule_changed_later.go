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

// ReasonChangedLater: the pod is no longer as [Mutate] left it, and Mutate does not run again.
// The kubelet would not take it for a partitioned pod, and the scheduler would count its CPU
// twice. [Unsettled] decides (design, section 4.1).
const ReasonChangedLater Reason = "changed_later"

var changedLaterRule = Rule{
	Reason:     ReasonChangedLater,
	Condition:  "a webhook or a later plugin changed what the plugin had decided, and the plugin does not run again; only metrics have this reason",
	StaticPods: "never",
	Text: "the pod's workload partitioning was changed after it had been decided, probably by a mutating webhook or a plugin that runs later; " +
		"neither may set cpu in containers that have cores, nor annotations of " + Domain + ": ",
	Whole: true,
	Soft:  Forbidden,
	Hard:  Forbidden,
}
