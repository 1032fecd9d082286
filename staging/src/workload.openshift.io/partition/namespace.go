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

import "strings"

// NamespaceReason tells what of a namespace's annotations keeps its pods from being
// partitioned as the workload type: [ReasonNamespaceNotAnnotated],
// [ReasonNamespaceOtherTypes], or [NoReason].
func NamespaceReason(annotations map[string]string, workloadType string) Reason {
	allowed, annotated := annotations[AllowedAnnotation]
	switch {
	case !annotated:
		return ReasonNamespaceNotAnnotated
	case !ListsType(allowed, workloadType):
		return ReasonNamespaceOtherTypes
	}
	return NoReason
}

// ParseTypes splits the value of an allowed or enabled annotation at its
// commas. Blanks around names and empty names are ignored; names that could not
// be a workload type are kept, since no pod can ask for them.
func ParseTypes(value string) []string {
	var types []string
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name != "" {
			types = append(types, name)
		}
	}
	return types
}

// ListsType reports whether an allowed or enabled annotation lists the workload type.
// It does what [ParseTypes] does, without an allocation.
func ListsType(value, workloadType string) bool {
	for value != "" {
		var name string
		name, value, _ = strings.Cut(value, ",")
		if strings.TrimSpace(name) == workloadType {
			return workloadType != ""
		}
	}
	return false
}
