// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the part of NodePool (hypershift.openshift.io/v1beta1) that the companions nodepool, hostedconfig
// and tuning use, and the labels of the ConfigMaps by which they pass a pool's configuration on. Names and meanings are
// HyperShift's (its api/hypershift/v1beta1); where a cluster has HyperShift's CustomResourceDefinition, these types read
// and write it. All other fields of such an object stay as they are: only its status is ever written, by a patch.
//
// +kubebuilder:object:generate=true
// +groupName=hypershift.openshift.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "hypershift.openshift.io", Version: "v1beta1"}

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NodePool{}, &NodePoolList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
