// SPDX-License-Identifier: Apache-2.0

// Package controller is the companion hostedconfig: it brings what stands in a control plane's namespace into the hosted
// cluster, and keeps it as it is there. It decides nothing; package hostedconfig does.
package controller

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/foreign"
)

// Name is the companion's.
const Name = "hostedconfig"

// Settings are what an administrator chooses.
type Settings struct {
	// ControlPlaneNamespace is that of the hosted cluster. It defaults to the process' own.
	ControlPlaneNamespace string `json:"controlPlaneNamespace,omitempty"`
	// Patience is how long a copy stays in the hosted cluster whose source is missing without a successor, and the label of
	// a Node that no record names. It defaults to ten seconds.
	Patience metav1.Duration `json:"patience,omitempty"`
}

// Default implements companion.Settings.
func (s *Settings) Default() {
	configv1alpha1.DefaultDuration(&s.Patience, 10*time.Second)
}

// Validate implements companion.Settings.
func (s *Settings) Validate(path *field.Path, config *configv1alpha1.ControllerConfiguration) field.ErrorList {
	configv1alpha1.DefaultText(&s.ControlPlaneNamespace, config.Namespace)
	return append(configv1alpha1.ValidatePositive(path, map[string]metav1.Duration{"patience": s.Patience}),
		configv1alpha1.ValidateLabel(path.Child("controlPlaneNamespace"), s.ControlPlaneNamespace)...)
}

// hyperShift is the program that does the same for its hosted clusters.
var hyperShift = foreign.Manager{
	Name:     "HyperShift's hosted-cluster-config-operator",
	Writes:   authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps"},
	HandOver: "scale that Deployment to zero; it manages this hosted cluster, and does not need this companion",
}

// Companion is hostedconfig.
type Companion struct{ settings Settings }

// Name implements companion.Companion.
func (*Companion) Name() string { return Name }

// Settings implements companion.Companion.
func (c *Companion) Settings() companion.Settings { return &c.settings }

// +kubebuilder:rbac:roleName=hostedconfig-controlplane,groups=apps,resources=deployments,resourceNames=hosted-cluster-config-operator,verbs=get

// Needs implements companion.Companion.
func (c *Companion) Needs(*configv1alpha1.ControllerConfiguration) companion.Needs {
	namespace := c.settings.ControlPlaneNamespace
	theirs := hyperShift
	theirs.Deployments = []types.NamespacedName{{Namespace: namespace, Name: "hosted-cluster-config-operator"}}
	theirs.Writes.Namespace = namespace
	return companion.Needs{
		Home: companion.Access{
			Cache:   map[client.Object]cache.ByObject{configMapMetadata(): {Namespaces: map[string]cache.Config{namespace: {}}, Transform: companion.Strip(stripConfigMap)}},
			Foreign: []foreign.Manager{theirs},
		},
		Hosted: &companion.Access{
			Cache: map[client.Object]cache.ByObject{
				configMapMetadata(): {Namespaces: map[string]cache.Config{v1beta1.HostedKubeletConfigNamespace: {}}, Transform: companion.Strip(stripConfigMap)},
				&corev1.Node{}:      {Transform: companion.Strip(stripNode)},
			},
			Marks: companion.Marks{Labels: []string{v1beta1.PoolLabel}},
			Owned: []schema.GroupVersionKind{configMapKind},
		},
	}
}

// configMapKind is that of sources, records and copies.
var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func configMapMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(configMapKind)
	return object
}

// stripConfigMap drops what nothing here reads.
func stripConfigMap(object *metav1.PartialObjectMetadata) {
	object.Annotations, object.OwnerReferences, object.Finalizers = nil, nil, nil
}

// stripNode drops what nothing here reads: a Node of a large cluster has 50 KiB.
func stripNode(node *corev1.Node) {
	labels := map[string]string{}
	if pool, has := node.Labels[v1beta1.PoolLabel]; has {
		labels[v1beta1.PoolLabel] = pool
	}
	var annotations map[string]string
	if value, has := node.Annotations[nodegroup.PausedAnnotation]; has {
		annotations = map[string]string{nodegroup.PausedAnnotation: value}
	}
	*node = corev1.Node{
		TypeMeta:   node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: labels, Annotations: annotations, ManagedFields: node.ManagedFields},
		Spec:       corev1.NodeSpec{ProviderID: node.Spec.ProviderID},
	}
}

// AddToManager implements companion.Companion.
func (c *Companion) AddToManager(_ context.Context, clusters companion.Clusters, config *configv1alpha1.ControllerConfiguration) error {
	if !config.Runs(configv1alpha1.Controllers) {
		return nil
	}
	recorder := companion.Recorder(clusters.Home, Name)
	configs := &Configs{Home: clusters.Home.GetAPIReader(), Hosted: clusters.Hosted.GetClient(), HostedReader: clusters.Hosted.GetAPIReader(), Namespace: c.settings.ControlPlaneNamespace, Patience: c.settings.Patience.Duration, Recorder: recorder}
	if err := configs.Add(clusters); err != nil {
		return err
	}
	nodes := &Nodes{Home: clusters.Home.GetAPIReader(), Hosted: clusters.Hosted.GetClient(), Namespace: c.settings.ControlPlaneNamespace, Patience: c.settings.Patience.Duration}
	return nodes.Add(clusters)
}
