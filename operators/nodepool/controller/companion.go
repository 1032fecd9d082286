// SPDX-License-Identifier: Apache-2.0

// Package controller is the companion nodepool: it copies the configuration of NodePools into their control planes'
// namespaces, and says in conditions what is wrong with it. It decides nothing; package nodepool does.
package controller

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/definition"
	"workload.openshift.io/operators/foreign"
)

// Name is the companion's.
const Name = "nodepool"

// hyperShift is the program that does the same for its hosted clusters.
var hyperShift = foreign.Manager{
	Name:        "HyperShift",
	Deployments: []types.NamespacedName{{Namespace: "hypershift", Name: "operator"}},
	Writes:      authorizationv1.ResourceAttributes{Verb: "update", Group: v1beta1.GroupVersion.Group, Resource: "nodepools"},
	HandOver:    "scale that Deployment to zero; it manages these NodePools, and does not need this companion",
}

// Companion is nodepool.
type Companion struct{}

// Name implements companion.Companion.
func (*Companion) Name() string { return Name }

// Settings implements companion.Companion.
func (*Companion) Settings() companion.Settings { return nil }

// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=operator,verbs=get

// Needs implements companion.Companion.
func (*Companion) Needs(*configv1alpha1.ControllerConfiguration) companion.Needs {
	configMaps := &metav1.PartialObjectMetadata{}
	configMaps.SetGroupVersionKind(configMapKind)
	return companion.Needs{
		AddToScheme: v1beta1.AddToScheme,
		Home: companion.Access{
			Cache: map[client.Object]cache.ByObject{
				&v1beta1.NodePool{}: {},
				configMaps:          {Transform: companion.Strip(stripConfigMap)},
			},
			Foreign: []foreign.Manager{hyperShift},
			Owned:   []schema.GroupVersionKind{configMapKind, secretKind},
		},
	}
}

// stripConfigMap drops what nothing here reads: there are ConfigMaps in every namespace.
func stripConfigMap(object *metav1.PartialObjectMetadata) {
	object.Annotations, object.OwnerReferences, object.Finalizers = nil, nil, nil
	if !isOfPool(object) {
		object.Labels = nil
	}
}

// used are the fields of NodePool that this companion reads or writes.
var used = []string{
	"spec.clusterName", "spec.config[].name", "spec.tuningConfig[].name", "spec.pausedUntil",
	"status.conditions[].type", "status.conditions[].status", "status.conditions[].reason", "status.conditions[].message", "status.conditions[].lastTransitionTime", "status.conditions[].observedGeneration",
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=nodepools.hypershift.openshift.io,verbs=get

// AddToManager implements companion.Companion.
func (*Companion) AddToManager(ctx context.Context, clusters companion.Clusters, config *configv1alpha1.ControllerConfiguration) error {
	if !config.Runs(configv1alpha1.Controllers) {
		return nil
	}
	if err := definition.Check(ctx, clusters.Home.GetAPIReader(), "nodepools."+v1beta1.GroupVersion.Group, v1beta1.GroupVersion.Version, used...); err != nil {
		return err
	}
	r := &Reconciler{Client: clusters.Home.GetClient(), Reader: clusters.Home.GetAPIReader(), Recorder: companion.Recorder(clusters.Home, Name)}
	return r.Add(ctx, clusters.Home)
}
