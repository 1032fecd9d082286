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

// ReasonNodeDoesNotCount: the pod can run only where there is no pool and never will be, as a DaemonSet's pod
// for such a node. With cores it would stay Pending for good. The admission plugin decides, by [NodeCounts].
const ReasonNodeDoesNotCount Reason = "node_does_not_count"

var nodeDoesNotCountRule = Rule{
	Reason:     ReasonNodeDoesNotCount,
	Condition:  "the pod can run only on nodes that do not count: its `nodeSelector` says so, or it is a DaemonSet's pod for such a node",
	StaticPods: "never",
	Text:       "the pod can run only on nodes that do not count, since their labels say that they have no pool and never will",
	Soft:       Warning,
	Hard:       Forbidden,
}
