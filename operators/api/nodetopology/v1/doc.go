// SPDX-License-Identifier: Apache-2.0

// Package v1 holds the objects that users of the companion numaresources write.
//
// +kubebuilder:object:generate=true
// +groupName=nodetopology.openshift.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "nodetopology.openshift.io", Version: "v1"}

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NUMAResourcesOperator{}, &NUMAResourcesOperatorList{}, &NUMAResourcesScheduler{}, &NUMAResourcesSchedulerList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
