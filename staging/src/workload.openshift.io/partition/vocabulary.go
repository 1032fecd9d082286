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

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Names that users, nodes and runtimes see (design, section 2).
const (
	// Domain is the suffix of every name of this package.
	Domain = "workload.openshift.io"

	// TargetPrefix and a workload type are the annotation by which a pod asks for a
	// partition; see [Target].
	TargetPrefix = "target." + Domain + "/"

	// ResourcesPrefix and a container's name are the annotation from which a runtime learns
	// what the container asked for; see [ContainerResources].
	ResourcesPrefix = "resources." + Domain + "/"

	// AllowedAnnotation, on a namespace, lists the workload types that its pods may ask for;
	// see [ParseTypes].
	AllowedAnnotation = Domain + "/allowed"

	// WarningAnnotation, on a pod, says why it was not partitioned.
	WarningAnnotation = Domain + "/warning"

	// EnabledAnnotation, on the namespace kube-system, lists the workload types that have
	// become active. It has the form of [AllowedAnnotation].
	EnabledAnnotation = Domain + "/enabled"

	// PinningFilePath is where the kubelet looks for the node's pools; see [Load].
	PinningFilePath = "/etc/kubernetes/openshift-workload-pinning"

	coresSuffix = "." + Domain + "/cores"
)

// CoresResource returns the extended resource that replaces cpu in pods of the workload
// type. Its unit is a millicore.
func CoresResource(workloadType string) string { return workloadType + coresSuffix }

// TypeOfCores is the inverse of [CoresResource]. It returns false for every other resource.
func TypeOfCores(resourceName string) (workloadType string, ok bool) {
	workloadType, ok = strings.CutSuffix(resourceName, coresSuffix)
	return workloadType, ok && workloadType != ""
}

// TargetAnnotation returns the annotation by which a pod asks for a workload type.
func TargetAnnotation(workloadType string) string { return TargetPrefix + workloadType }

// ResourcesAnnotation returns the annotation that carries a container's
// [ContainerResources].
func ResourcesAnnotation(container string) string { return ResourcesPrefix + container }

// OwnsAnnotation reports whether an annotation of a pod belongs to workload partitioning.
func OwnsAnnotation(key string) bool {
	if key == "" {
		return false
	}
	// Nearly every annotation differs in its first letter, which is quick to compare.
	switch key[0] {
	case TargetPrefix[0]:
		return strings.HasPrefix(key, TargetPrefix)
	case ResourcesPrefix[0]:
		return strings.HasPrefix(key, ResourcesPrefix)
	case WarningAnnotation[0]:
		return key == WarningAnnotation
	}
	return false
}

// ValidateType returns an error that quotes the name if it is not a valid workload type. A
// workload type is a DNS-1123 label: lower-case letters, digits and '-', at most 63
// characters. A few of these are invalid, since they mean something else to Kubernetes.
func ValidateType(workloadType string) error {
	if !isWord(workloadType) {
		if problems := validation.IsDNS1123Label(workloadType); len(problems) > 0 {
			return fmt.Errorf("workload type %q: %s", abbreviate(workloadType), strings.Join(problems, "; "))
		}
	}
	if workloadType == reservedType {
		return fmt.Errorf("workload type %q: Kubernetes reserves resource names that begin with it for quotas; choose another name", workloadType)
	}
	for _, prefix := range reservedPrefixes {
		if strings.HasPrefix(workloadType, prefix) {
			return fmt.Errorf("workload type %q: resource names that begin with %s mean something else to Kubernetes; choose another name", abbreviate(workloadType), prefix)
		}
	}
	return nil
}

// isWord reports whether a name is a label of lower-case letters only, as nearly all workload
// types are. Upstream's check is a regular expression, which would take a tenth of the time
// of a pod's admission.
func isWord(name string) bool {
	return name != "" && len(name) <= validation.DNS1123LabelMaxLength && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") == ""
}

// reservedType can be in no extended resource's name: those of quotas begin with it
// (pkg/apis/core/helper, IsExtendedResourceName).
const reservedType = "requests"

// reservedPrefixes begin the names of resources that upstream does not take for extended
// ones, whatever follows (pkg/apis/core/helper, IsHugePageResourceName and
// IsAttachableVolumeResourceName).
var reservedPrefixes = [...]string{hugePagesPrefix, "attachable-volumes-"}

// abbreviate shortens a value for an error that quotes it: API clients may send 256 KiB of
// annotations.
func abbreviate(value string) string { return shorten(value, 80) }

// shorten cuts a text that has more than most bytes, and ends it in an ellipsis.
func shorten(value string, most int) string {
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "…"
}
