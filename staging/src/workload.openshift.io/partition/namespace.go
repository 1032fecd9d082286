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

// NamespaceReason returns why the annotations of a namespace keep its pods from being
// partitioned as the workload type: [ReasonNamespaceNotAnnotated] or
// [ReasonNamespaceOtherTypes]. It returns [NoReason] if they allow the type.
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

// ParseTypes splits the value of an allowed or enabled annotation at its commas. It drops
// blanks around names, and empty names. It keeps names that cannot be a workload type,
// since no pod can ask for those.
func ParseTypes(value string) []string {
	var types []string
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name != "" {
			types = append(types, name)
		}
	}
	return types
}

// ListsType reports whether an allowed or enabled annotation lists the workload type. It
// reads the value as [ParseTypes] does, without an allocation.
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
