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

// ReasonNamespaceNotAnnotated: it was never said whether the namespace's pods may use a pool, so
// they must not (design, section 4.1). [NamespaceReason] decides.
const ReasonNamespaceNotAnnotated Reason = "namespace_not_annotated"

var namespaceNotAnnotatedRule = Rule{
	Reason:     ReasonNamespaceNotAnnotated,
	Condition:  "the namespace has no allowed annotation",
	StaticPods: "never, since they are the node administrator's",
	// OpenShift's conformance suite looks for these words.
	Text: "the namespace is not annotated with " + AllowedAnnotation,
	Soft: Warning,
	Hard: Forbidden,
}
