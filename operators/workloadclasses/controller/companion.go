// SPDX-License-Identifier: Apache-2.0

// Package controller is the cluster side of the companion workloadclasses: the webhook that gives pods
// their class, and the reconciler that keeps pods off some nodes and gives these back. It is thin over
// the rules, and does not know how a machine is removed.
package controller

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/foreign"
	"workload.openshift.io/operators/workloadclasses"
	"workload.openshift.io/operators/workloadclasses/metrics"
)

// Name is the companion's.
const Name = "workloadclasses"

// Others that give nodes back. Two of them would empty different nodes, and undo each other's work.
var (
	shipped = foreign.Manager{
		Name:        "ci-scheduling-webhook",
		Deployments: []types.NamespacedName{{Namespace: "ci-scheduling-webhook", Name: "ci-scheduling-webhook"}},
		Writes:      authorizationv1.ResourceAttributes{Verb: "update", Resource: "nodes"},
		HandOver:    "scale that Deployment to zero, and remove its webhook configuration",
	}
	karpenter = foreign.Manager{
		Name:        "Karpenter",
		Deployments: []types.NamespacedName{{Namespace: "kube-system", Name: "karpenter"}, {Namespace: "karpenter", Name: "karpenter"}},
		Writes:      authorizationv1.ResourceAttributes{Verb: "delete", Resource: "nodes"},
		HandOver:    "scale that Deployment to zero",
	}
)

// Companion is workloadclasses.
type Companion struct{ settings Settings }

// Name implements companion.Companion.
func (*Companion) Name() string { return Name }

// Settings implements companion.Companion.
func (c *Companion) Settings() companion.Settings { return &c.settings }

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=workloadclasses.workload.openshift.io,verbs=list;watch;update
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=ci-scheduling-webhook;karpenter,verbs=get

// Needs implements companion.Companion.
func (c *Companion) Needs(config *configv1alpha1.ControllerConfiguration) companion.Needs {
	cached := map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: companion.Strip(stripNode)}}
	if config.Runs(configv1alpha1.Webhooks) {
		cached[&nodev1.RuntimeClass{}] = cache.ByObject{}
	}
	if config.Runs(configv1alpha1.Controllers) {
		cached[&corev1.Pod{}] = cache.ByObject{Label: podsWhoseClass(selection.Exists), Transform: companion.Strip(stripPod)}
	}
	return companion.Needs{Home: companion.Access{
		Cache:   cached,
		Foreign: []foreign.Manager{shipped, karpenter},
		Marks: companion.Marks{
			Annotations: []string{workloadclasses.StateAnnotation, workloadclasses.OperationAnnotation, workloadclasses.PrecludeAnnotation},
			Taints:      []string{workloadclasses.AvoidTaint, workloadclasses.BlockTaint, workloadclasses.EvictTaint},
		},
	}}
}

// podsWhoseClass selects pods that have a class, or that have none.
func podsWhoseClass(is selection.Operator) labels.Selector {
	requirement, err := labels.NewRequirement(workloadclasses.ClassLabel, is, nil)
	if err != nil {
		panic(err) // it is the same each time
	}
	return labels.NewSelector().Add(*requirement)
}

func init() { ctrlmetrics.Registry.MustRegister(metrics.Set.Metrics...) }

// AddToManager implements companion.Companion.
func (c *Companion) AddToManager(ctx context.Context, clusters companion.Clusters, config *configv1alpha1.ControllerConfiguration) error {
	mgr := clusters.Home
	rules, err := newRules(c.settings.RulesFile)
	if err != nil {
		return err
	}
	if err := mgr.Add(rules); err != nil {
		return err
	}
	if config.Runs(configv1alpha1.Webhooks) {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Node{}, precludedIndex, indexPrecluded); err != nil {
			return err
		}
		mgr.GetWebhookServer().Register(webhookPath, &admission.Webhook{Handler: &classifier{
			decoder: admission.NewDecoder(mgr.GetScheme()), rules: rules, cache: mgr.GetClient(),
		}})
	}
	if !config.Runs(configv1alpha1.Controllers) {
		return nil
	}
	if err := mgr.Add(&missed{rules: rules, live: mgr.GetAPIReader(), period: missedPeriod(c.settings.Period.Duration)}); err != nil {
		return err
	}
	return addReconciler(mgr, rules, c.settings)
}

// stripNode drops what the rules do not look at, such as images.
func stripNode(node *corev1.Node) {
	node.Status = corev1.NodeStatus{Allocatable: node.Status.Allocatable}
}

// stripPod keeps what Holds, Unschedulable and Fits look at.
func stripPod(pod *corev1.Pod) {
	stripped := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, Finalizers: pod.Finalizers,
			Labels:          map[string]string{workloadclasses.ClassLabel: pod.Labels[workloadclasses.ClassLabel]},
			Annotations:     map[string]string{},
			OwnerReferences: pod.OwnerReferences,
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, NodeSelector: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity,
			Tolerations: pod.Spec.Tolerations, Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions},
	}
	for _, key := range []string{corev1.MirrorPodAnnotationKey, workloadclasses.SafeToEvictAnnotation} {
		if value, ok := pod.Annotations[key]; ok {
			stripped.Annotations[key] = value
		}
	}
	for _, in := range pod.Spec.InitContainers {
		stripped.Spec.InitContainers = append(stripped.Spec.InitContainers, corev1.Container{Name: in.Name, Resources: in.Resources, RestartPolicy: in.RestartPolicy})
	}
	for _, in := range pod.Spec.Containers {
		stripped.Spec.Containers = append(stripped.Spec.Containers, corev1.Container{Name: in.Name, Resources: in.Resources})
	}
	for _, in := range pod.Status.ContainerStatuses {
		stripped.Status.ContainerStatuses = append(stripped.Status.ContainerStatuses, corev1.ContainerStatus{Name: in.Name, State: in.State})
	}
	*pod = stripped
}
