// SPDX-License-Identifier: Apache-2.0

// Package controller is the cluster side of the companion tuning. It runs in the control-plane namespace of a hosted cluster,
// reads the Tuneds of each NodePool there, and keeps Tuneds, Profiles and the operand in the hosted cluster as these say. In an
// ordinary cluster it has that cluster alone, and reads the Tuneds that users write there.
//
// From a hosted cluster it takes only which nodes are there, their labels and those of their pods, and what their operands report. A
// Tuned there, and all of a Profile but its status, is output.
package controller

import (
	"context"
	"errors"

	openshiftconfigv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/foreign"
	"workload.openshift.io/operators/tuning/metrics"
)

// nodesOf is the cluster that has the nodes.
func nodesOf(clusters companion.Clusters) cluster.Cluster {
	if clusters.Hosted != nil {
		return clusters.Hosted
	}
	return clusters.Home
}

// Name is the companion's.
const Name = "tuning"

// shipped is the program of which this companion has the kinds.
var shipped = foreign.Manager{
	Name:     "the Cluster Node Tuning Operator",
	Writes:   authorizationv1.ResourceAttributes{Verb: "update", Group: tunedv1.GroupVersion.Group, Resource: "profiles"},
	HandOver: "scale that Deployment to zero, and what manages it, so that it stays there",
}

func addToScheme(scheme *runtime.Scheme) error {
	return errors.Join(tunedv1.AddToScheme(scheme), openshiftconfigv1.Install(scheme))
}

func init() { ctrlmetrics.Registry.MustRegister(metrics.Set.Metrics...) }

// Companion is tuning.
type Companion struct{ settings Settings }

// Name implements companion.Companion.
func (*Companion) Name() string { return Name }

// Settings implements companion.Companion.
func (c *Companion) Settings() companion.Settings { return &c.settings }

// +kubebuilder:rbac:groups=apps,resources=deployments,roleName=tuning-controlplane,resourceNames=cluster-node-tuning-operator,verbs=get
// +kubebuilder:rbac:groups=apps,resources=deployments,namespace=openshift-cluster-node-tuning-operator,resourceNames=cluster-node-tuning-operator,roleName=tuning-hosted,verbs=get
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,roleName=tuning-hosted,verbs=create

// Needs implements companion.Companion.
func (c *Companion) Needs(config *configv1alpha1.ControllerConfiguration) companion.Needs {
	ordinary := config.HostedConnection.Kubeconfig == ""
	home, hosted := map[client.Object]cache.ByObject{}, map[client.Object]cache.ByObject{}
	if config.Runs(configv1alpha1.Controllers) {
		home[&corev1.ConfigMap{}] = cache.ByObject{
			Namespaces: map[string]cache.Config{c.settings.ControlPlaneNamespace: {}},
			Label:      labels.NewSelector().Add(ofPools()),
			Transform:  companion.Strip(stripConfigMap),
		}
		here := map[string]cache.Config{tunedv1.Namespace: {}}
		hosted[&corev1.Node{}] = cache.ByObject{Transform: companion.Strip(stripNode)}
		hosted[&tunedv1.Tuned{}] = cache.ByObject{Namespaces: here, Transform: companion.Strip(stripTuned)}
		hosted[&tunedv1.Profile{}] = cache.ByObject{Namespaces: here, Transform: companion.Strip(stripProfile)}
		if !ordinary {
			hosted[&corev1.Pod{}] = cache.ByObject{Namespaces: here, Label: labels.SelectorFromSet(operandLabels), Transform: companion.Strip(stripPod)}
		}
		hosted[&appsv1.DaemonSet{}] = cache.ByObject{Namespaces: here, Transform: companion.Strip(stripDaemonSet)}
	}
	here, there := shipped, shipped
	here.Deployments = []types.NamespacedName{{Namespace: c.settings.ControlPlaneNamespace, Name: "cluster-node-tuning-operator"}}
	there.Deployments = []types.NamespacedName{{Namespace: tunedv1.Namespace, Name: "cluster-node-tuning-operator"}}
	// At home, Tuneds are not what it writes: its ServiceAccount there reads the ConfigMaps.
	here.Writes = authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps", Namespace: c.settings.ControlPlaneNamespace}
	nodes := companion.Access{
		Cache:   hosted,
		Foreign: []foreign.Manager{there},
		// The operand goes first: it undoes what it did while its Profile and its rights are there.
		Owned: []schema.GroupVersionKind{clusterOperatorKind, tunedKind, profileKind, daemonSetKind},
	}
	if ordinary {
		return companion.Needs{AddToScheme: addToScheme, Home: nodes}
	}
	return companion.Needs{
		AddToScheme: addToScheme,
		Home:        companion.Access{Cache: home, Foreign: []foreign.Manager{here}, Owned: []schema.GroupVersionKind{configMapKind}},
		Hosted:      &nodes,
	}
}

// AddToManager implements companion.Companion.
func (c *Companion) AddToManager(_ context.Context, clusters companion.Clusters, config *configv1alpha1.ControllerConfiguration) error {
	if !config.Runs(configv1alpha1.Controllers) {
		return nil
	}
	pools := newPools()
	if clusters.Hosted == nil {
		if err := addOrdinaryReconciler(clusters.Home, c.settings, pools); err != nil {
			return err
		}
	} else if err := errors.Join(addTunedsReconciler(clusters, c.settings, pools), addGeneratedReconciler(clusters, c.settings, pools)); err != nil {
		return err
	}
	if err := addProfilesReconciler(clusters, c.settings, pools); err != nil {
		return err
	}
	if err := addOperandReconciler(clusters, c.settings); err != nil {
		return err
	}
	return addOverviewReconciler(clusters, c.settings)
}

// ofPools selects the ConfigMaps of NodePools at home: what they have, and what is generated for them.
func ofPools() labels.Requirement {
	requirement, err := labels.NewRequirement(tunedv1.NodePoolLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // it has no value
	}
	return *requirement
}
