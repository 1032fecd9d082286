// SPDX-License-Identifier: Apache-2.0

package nodegroup

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PausedAnnotation keeps every companion from beginning anything for the object that has it. What
// has begun ends.
const PausedAnnotation = "workload.openshift.io/paused"

// Paused reports whether an object has the annotation. Its value says nothing, but that false is as
// if it were not there.
func Paused(object metav1.Object) bool {
	value, ok := object.GetAnnotations()[PausedAnnotation]
	return ok && value != "false"
}
