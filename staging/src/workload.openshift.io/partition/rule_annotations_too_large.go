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
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
)

// ReasonAnnotationsTooLarge: upstream would refuse the pod, since its annotations and ours
// together are larger than upstream accepts.
const ReasonAnnotationsTooLarge Reason = "annotations_too_large"

var annotationsTooLargeRule = Rule{
	Reason:    ReasonAnnotationsTooLarge,
	Condition: "with those of its containers, the pod would have more than 256 KiB of annotations",
	Text:      "with those of its containers, its annotations would be larger than Kubernetes accepts; shorten them to have it partitioned",
	Soft:      Warning,
	SoftNote:  "without the annotation if that does not fit",
	Hard:      Forbidden,
}

// maxAnnotations is the largest size of all annotations that upstream accepts, in bytes, keys
// included.
const maxAnnotations = apivalidation.TotalAnnotationSizeLimitB

func (p Pod[L, N]) annotationsTooLarge(target Target, found findings) bool {
	return p.annotationsSize(target, found.amounts) > maxAnnotations
}

// annotationsSize returns the size that the annotations would have in the partitioned pod.
func (p Pod[L, N]) annotationsSize(target Target, amounts []amount) (size int) {
	for key, value := range *p.Annotations {
		switch {
		case key == WarningAnnotation || strings.HasPrefix(key, ResourcesPrefix):
		case strings.HasPrefix(key, TargetPrefix):
			size += len(key) + len(target.AnnotationValue())
		default:
			size += len(key) + len(value)
		}
	}
	var buffer [64]byte
	for i := range p.Containers {
		size += len(ResourcesPrefix) + len(p.Containers[i].Name) + len(amounts[i].annotation().appendTo(buffer[:0]))
	}
	return size
}
