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

// ReasonNamespaceOtherTypes: the annotation of the namespace is a decision against this type. So
// a soft pod is refused as well (design, section 4.1). [NamespaceReason] decides.
const ReasonNamespaceOtherTypes Reason = "namespace_other_types"

var namespaceOtherTypesRule = Rule{
	Reason:     ReasonNamespaceOtherTypes,
	Condition:  "the namespace allows other types only",
	StaticPods: "never",
	Text:       "the namespace's annotation " + AllowedAnnotation + " does not list it",
	Soft:       Forbidden,
	Hard:       Forbidden,
}
