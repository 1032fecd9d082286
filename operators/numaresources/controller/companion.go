// SPDX-License-Identifier: Apache-2.0

// Package controller is the cluster side of the companion numaresources: a thin reconciler over the rules, which has exporters
// run on nodes and says what they report. It does not know how an exporter works.
package controller

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/definition"
	"workload.openshift.io/operators/foreign"
	"workload.openshift.io/operators/numaresources"
	"workload.openshift.io/operators/operand"
)

// Name is the companion's.
const Name = numaresources.Name

// shipped is the operator that has the same API. Its names are those of its documentation, "Scheduling NUMA-aware workloads".
var shipped = foreign.Manager{
	Name:        "the NUMA Resources Operator",
	Deployments: []types.NamespacedName{{Namespace: "openshift-numaresources", Name: "numaresources-controller-manager"}},
	Writes:      authorizationv1.ResourceAttributes{Verb: "update", Group: nodetopologyv1.GroupVersion.Group, Resource: "numaresourcesoperators", Subresource: "status"},
	HandOver:    "uninstall that operator, or scale the Deployment to zero and delete its DaemonSets",
}

// used are the fields of its kinds that this companion reads or writes. The shipped operator's definitions may be there.
var used = map[string][]string{
	"numaresourcesoperators." + nodetopologyv1.GroupVersion.Group: {
		"spec.nodeGroups[].nodeSelector", "spec.nodeGroups[].machineConfigPoolSelector", "spec.nodeGroups[].poolName", "spec.nodeGroups[].config",
		"status.observedGeneration", "status.nodeGroups[].name", "status.nodeGroups[].nodes", "status.nodeGroups[].reported", "status.conditions",
	},
	"numaresourcesschedulers." + nodetopologyv1.GroupVersion.Group: {
		"spec.schedulerName", "spec.replicas", "spec.unknownNodes", "spec.scoringStrategy", "spec.logLevel",
		"status.observedGeneration", "status.deployment", "status.schedulerName", "status.conditions",
	},
	"noderesourcetopologies." + v1alpha2.SchemeGroupVersion.Group: {
		"zones[].name", "zones[].type", "zones[].costs", "zones[].resources[].available", "attributes[].name", "attributes[].value",
	},
}

// Companion is numaresources.
type Companion struct{ settings Settings }

// Name implements companion.Companion.
func (*Companion) Name() string { return Name }

// Settings implements companion.Companion.
func (c *Companion) Settings() companion.Settings { return &c.settings }

// Needs implements companion.Companion.
func (c *Companion) Needs(config *configv1alpha1.ControllerConfiguration) companion.Needs {
	cached := map[client.Object]cache.ByObject{}
	if config.Runs(configv1alpha1.Controllers) {
		everything := cache.Config{}
		cached[&nodetopologyv1.NUMAResourcesOperator{}] = cache.ByObject{}
		cached[&nodetopologyv1.NUMAResourcesScheduler{}] = cache.ByObject{}
		cached[&corev1.Node{}] = cache.ByObject{Transform: companion.Strip(stripNode)}
		cached[&v1alpha2.NodeResourceTopology{}] = cache.ByObject{Transform: companion.Strip(stripTopology)}
		cached[&corev1.ConfigMap{}] = cache.ByObject{Namespaces: map[string]cache.Config{c.settings.ExporterNamespace: everything, c.settings.SchedulerNamespace: everything}}
		cached[&appsv1.DaemonSet{}] = cache.ByObject{Namespaces: map[string]cache.Config{c.settings.ExporterNamespace: everything}}
		cached[&appsv1.Deployment{}] = cache.ByObject{Namespaces: map[string]cache.Config{c.settings.SchedulerNamespace: everything}}
	}
	return companion.Needs{
		AddToScheme: (&runtime.SchemeBuilder{nodetopologyv1.AddToScheme, v1alpha2.AddToScheme}).AddToScheme,
		Home: companion.Access{
			Cache:   cached,
			Foreign: []foreign.Manager{shipped},
			Owned:   append(slices.Clone(kinds), schedulerKinds[1], v1alpha2.SchemeGroupVersion.WithKind("NodeResourceTopology")),
		},
	}
}

// stripNode keeps of a Node what groups are made of, whether it is a worker, and the claim, which a metric of all companions has.
func stripNode(node *corev1.Node) {
	maps.DeleteFunc(node.Annotations, func(key, _ string) bool { return key != nodegroup.ClaimAnnotation })
	node.Spec = corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}
	conditions := slices.DeleteFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool { return condition.Type != corev1.NodeReady })
	node.Status = corev1.NodeStatus{Conditions: conditions}
}

// stripTopology keeps how the kubelet runs. The zones are the scheduler's to read.
func stripTopology(topology *v1alpha2.NodeResourceTopology) {
	topology.Zones = nil
}

// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=numaresources-controller-manager,verbs=get
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=numaresourcesoperators.nodetopology.openshift.io;numaresourcesschedulers.nodetopology.openshift.io;noderesourcetopologies.topology.node.k8s.io,verbs=get

// AddToManager implements companion.Companion.
func (c *Companion) AddToManager(ctx context.Context, clusters companion.Clusters, config *configv1alpha1.ControllerConfiguration) error {
	if !config.Runs(configv1alpha1.Controllers) {
		return nil
	}
	mgr := clusters.Home
	for name, fields := range used {
		version := nodetopologyv1.GroupVersion.Version
		if strings.HasSuffix(name, v1alpha2.SchemeGroupVersion.Group) {
			version = v1alpha2.SchemeGroupVersion.Version
		}
		if err := definition.Check(ctx, mgr.GetAPIReader(), name, version, fields...); err != nil {
			return err
		}
	}
	r := &reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		operand:  &operand.Operand{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Companion: Name, Name: "exporters", Namespace: c.settings.ExporterNamespace, Kinds: kinds},
		settings: &c.settings,
		now:      time.Now,
	}
	// There is one object of each kind.
	request := reconcile.Request{NamespacedName: client.ObjectKey{Name: nodetopologyv1.NUMAResourcesOperatorName}}
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{request} })
	written := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	ofScheduler := *r
	ofScheduler.operand = &operand.Operand{Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Companion: Name, Name: "scheduler", Namespace: c.settings.SchedulerNamespace, Kinds: schedulerKinds}
	err := builder.ControllerManagedBy(mgr).
		Named("numaresources-scheduler").
		For(&nodetopologyv1.NUMAResourcesScheduler{}, written).
		Watches(&corev1.Node{}, one, builder.WithPredicates(news(workersDiffer))).
		Watches(&corev1.ConfigMap{}, one).
		Watches(&appsv1.Deployment{}, one).
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		Complete(&schedulerReconciler{&ofScheduler})
	if err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&nodetopologyv1.NUMAResourcesOperator{}, written).
		Watches(&corev1.Node{}, one, builder.WithPredicates(news(labelsDiffer))).
		// A node may keep changing its report.
		Watches(&v1alpha2.NodeResourceTopology{}, companion.Later[client.Object](request, c.settings.soon()), builder.WithPredicates(news(reportsDiffer(r.now)))).
		Watches(&corev1.ConfigMap{}, one).
		Watches(&appsv1.DaemonSet{}, one).
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		Complete(r)
}

// news lets creations and deletions through, and updates after which something differs.
func news[T client.Object](differ func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return differ(e.ObjectOld.(T), e.ObjectNew.(T)) }}
}

// labelsDiffer reports whether a Node may be in other groups now.
func labelsDiffer(before, after *corev1.Node) bool { return !maps.Equal(before.Labels, after.Labels) }

// workersDiffer reports whether there is a worker more or less.
func workersDiffer(before, after *corev1.Node) bool {
	return numaresources.IsWorker(before) != numaresources.IsWorker(after)
}

// reportsDiffer reports whether a node says something else that a condition has. A heartbeat is no news, and nor is what is
// free.
func reportsDiffer(now func() time.Time) func(before, after *v1alpha2.NodeResourceTopology) bool {
	return func(before, after *v1alpha2.NodeResourceTopology) bool {
		was, wasKnown := numaresources.KubeletOf(before.Attributes)
		is, isKnown := numaresources.KubeletOf(after.Attributes)
		return was != is || wasKnown != isKnown || numaresources.CPUDriverOf(before.Attributes) != numaresources.CPUDriverOf(after.Attributes) ||
			numaresources.IsStale(before.Annotations, now()) != numaresources.IsStale(after.Annotations, now())
	}
}
