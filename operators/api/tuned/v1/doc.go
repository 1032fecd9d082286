// SPDX-License-Identifier: Apache-2.0

// Package v1 holds Tuned and Profile, with the fields that the companion tuning uses. Names and types of the fields are those
// of the Node Tuning Operator (pkg/apis/tuned/v1/tuned_types.go), so that manifests and tools that were written for it work.
//
// +kubebuilder:object:generate=true
// +groupName=tuned.openshift.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "tuned.openshift.io", Version: "v1"}

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Tuned{}, &TunedList{}, &Profile{}, &ProfileList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
