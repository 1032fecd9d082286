// SPDX-License-Identifier: Apache-2.0

// Package controller is the cluster side of the companion cpupolicy: thin reconcilers over the rules
// and the engines. It does not know how a node is changed.
package controller

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/foreign"
)

// Name is the companion's.
const Name = "cpupolicy"

// harvester is the program of which this companion has the annotation.
var harvester = foreign.Manager{
	Name:        "Harvester",
	Deployments: []types.NamespacedName{{Namespace: "harvester-system", Name: "harvester"}},
	Writes:      authorizationv1.ResourceAttributes{Verb: "update", Resource: "nodes"},
	Fields: []foreign.Fields{{
		Kind:  nodeKind,
		Owner: "harvester",
		Paths: []fieldpath.Path{fieldpath.MakePathOrDie("metadata", "annotations", nodestatus.StatusAnnotation)},
	}},
	HandOver: "scale that Deployment to zero, and remove the annotation that it wrote from the nodes",
}

var nodeKind = corev1.SchemeGroupVersion.WithKind("Node")

// leftAlone says why nothing begins on a node; empty if it may. What has begun ends.
func leftAlone(node *corev1.Node) string {
	if nodegroup.Paused(node) {
		return paused
	}
	if found := harvester.Wrote(node, nodeKind); found != nil {
		return found.Error()
	}
	return ""
}

// Companion is cpupolicy.
type Companion struct{ settings Settings }

// Name implements companion.Companion.
func (*Companion) Name() string { return Name }

// Settings implements companion.Companion.
func (c *Companion) Settings() companion.Settings { return &c.settings }

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=cpupolicy.workload.openshift.io,verbs=list;watch;update
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=harvester,verbs=get

// Needs implements companion.Companion.
func (c *Companion) Needs(config *configv1alpha1.ControllerConfiguration) companion.Needs {
	cached := map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: companion.Strip(stripNode)}}
	if config.Runs(configv1alpha1.Controllers) {
		cached[&v1alpha1.CPUManagerPolicy{}] = cache.ByObject{}
		cached[&batchv1.Job{}] = cache.ByObject{Namespaces: map[string]cache.Config{c.settings.AgentNamespace: {}}}
	}
	return companion.Needs{
		AddToScheme: (&runtime.SchemeBuilder{v1alpha1.AddToScheme, virtv1.AddToScheme}).AddToScheme,
		Home: companion.Access{
			Cache:   cached,
			Foreign: []foreign.Manager{harvester},
			Marks:   companion.Marks{Annotations: []string{nodestatus.StatusAnnotation, nodestatus.ObservedAnnotation, CordonedAnnotation}},
		},
	}
}

// AddToManager implements companion.Companion.
func (c *Companion) AddToManager(ctx context.Context, clusters companion.Clusters, config *configv1alpha1.ControllerConfiguration) error {
	mgr := clusters.Home
	if err := indexRoles(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if config.Runs(configv1alpha1.Webhooks) {
		addWebhooks(mgr, config)
		if err := addActions(mgr, config.Namespace, c.settings); err != nil {
			return err
		}
	}
	if !config.Runs(configv1alpha1.Controllers) {
		return nil
	}
	if err := addNodesReconciler(mgr, config.Namespace, c.settings); err != nil {
		return err
	}
	return addGroupsReconciler(mgr, longestDrain(c.settings))
}
