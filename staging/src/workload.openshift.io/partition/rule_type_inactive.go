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

// ReasonTypeInactive: without a pool of the type there are no cores, and the pod would stay
// Pending. The caller's [Gate] decides: for API pods a type is active in the cluster (design,
// section 4.2), for static pods the node's file names it.
const ReasonTypeInactive Reason = "type_inactive"

var typeInactiveRule = Rule{
	Reason:     ReasonTypeInactive,
	Condition:  "not all nodes report the type's cores",
	StaticPods: "the node's file lacks the type",
	Text:       "no pool of this type is active here",
	Soft:       Warning,
	Hard:       Forbidden,
}
