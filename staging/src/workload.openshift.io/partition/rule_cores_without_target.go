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

// ReasonCoresWithoutTarget: kubectl debug --copy-to drops annotations and keeps resources.
// Such a copy does not ask, so it has no right to cores and runs as an ordinary pod. Its
// outcome is [Ordinary], not [Skipped] (design, section 3).
const ReasonCoresWithoutTarget Reason = "cores_without_target"

var coresWithoutTargetRule = Rule{
	Reason:    ReasonCoresWithoutTarget,
	Condition: "cores without a target annotation become an ordinary `cpu` request",
	Text:      "cores of a workload type were turned back into a cpu request, because the pod asks for no workload type",
	Whole:     true,
	Soft:      Warning,
	Hard:      Warning,
}
