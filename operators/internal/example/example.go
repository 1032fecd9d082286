// SPDX-License-Identifier: Apache-2.0

// Package example is a companion of the tests, and the smallest one. It stands on the ground alone: it copies ConfigMaps of its
// own namespace into one between, and from there into a hosted cluster, and runs a daemon there that tells each Node what they
// say.
package example

import (
	"context"
	_ "embed"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"workload.openshift.io/operators/alert"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/example/daemon"
	"workload.openshift.io/operators/mirror"
	"workload.openshift.io/operators/operand"
)

const (
	// Name is the companion's.
	Name = "example"
	// Middle is the namespace between.
	Middle = "partition-example-middle"
	// patience is how long a copy stays whose source is missing.
	patience = 2 * time.Second
)

var (
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	daemonSetKind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

	//go:embed daemonset.yaml
	daemonSet []byte

	copied = alert.NewGauge("example_configmaps", "ConfigMaps that the hosted cluster has a copy of.", "namespace")
)

// Set has what the companion reports, and what watches it.
var Set = alert.Set{
	Metrics: []prometheus.Collector{copied},
	Alerts:  []alert.Alert{{Name: "ExampleCopiesNothing", Severity: alert.Info, Expr: `max by (namespace) (example_configmaps{}) == 0`, Summary: "Nothing is copied."}},
}

func init() { ctrlmetrics.Registry.MustRegister(Set.Metrics...) }

// Settings are what an administrator chooses.
type Settings struct {
	// DaemonImage is the image of partition-node, with its registry or its digest.
	DaemonImage string `json:"daemonImage"`
}

// Default implements companion.Settings.
func (s *Settings) Default() {}

// Validate implements companion.Settings.
func (s *Settings) Validate(path *field.Path, _ *configv1alpha1.ControllerConfiguration) field.ErrorList {
	return configv1alpha1.ValidateImage(path.Child("daemonImage"), s.DaemonImage)
}

// Companion is example.
type Companion struct{ settings Settings }

// Name implements companion.Companion.
func (*Companion) Name() string { return Name }

// Settings implements companion.Companion.
func (c *Companion) Settings() companion.Settings { return &c.settings }

// Needs implements companion.Companion.
func (*Companion) Needs(config *configv1alpha1.ControllerConfiguration) companion.Needs {
	in := func(namespaces ...string) cache.ByObject {
		by := cache.ByObject{Namespaces: map[string]cache.Config{}, Label: daemon.Copied.AsSelector()}
		for _, namespace := range namespaces {
			by.Namespaces[namespace] = cache.Config{}
		}
		return by
	}
	return companion.Needs{
		Home: companion.Access{
			Cache: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: in(config.Namespace, Middle)},
			Owned: []schema.GroupVersionKind{configMapKind},
		},
		Hosted: &companion.Access{
			Cache: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: in(daemon.Namespace),
				&appsv1.DaemonSet{}: {Namespaces: map[string]cache.Config{daemon.Namespace: {}}},
			},
			Owned: []schema.GroupVersionKind{configMapKind, daemonSetKind},
			Marks: companion.Marks{Annotations: []string{daemon.Annotation}},
		},
	}
}

// reconciler looks at all sources at once.
type reconciler struct {
	home client.Reader
	// namespace has the sources, and hops are where their copies go, one after the other.
	namespace, image string
	hops             []*mirror.Mirror
	operand          operand.Operand
}

// +kubebuilder:rbac:namespace=system,groups="",resources=configmaps,verbs=list;watch
// +kubebuilder:rbac:namespace=partition-example-middle,groups="",resources=configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:roleName=example-hosted,namespace=partition-example-node,groups="",resources=configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:roleName=example-hosted,namespace=partition-example-node,groups=apps,resources=daemonsets,verbs=list;watch;create;patch

// AddToManager implements companion.Companion.
func (c *Companion) AddToManager(_ context.Context, clusters companion.Clusters, config *configv1alpha1.ControllerConfiguration) error {
	reader, writer := clusters.Hosted.GetAPIReader(), clusters.Hosted.GetClient()
	everything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	return builder.ControllerManagedBy(clusters.Home).Named(Name).
		WatchesRawSource(source.Kind[client.Object](clusters.Home.GetCache(), &corev1.ConfigMap{}, everything)).
		WatchesRawSource(source.Kind[client.Object](clusters.Hosted.GetCache(), &corev1.ConfigMap{}, everything)).
		WatchesRawSource(source.Kind[client.Object](clusters.Hosted.GetCache(), &appsv1.DaemonSet{}, everything)).
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		Complete(&reconciler{
			home: clusters.Home.GetAPIReader(), namespace: config.Namespace, image: c.settings.DaemonImage,
			hops: []*mirror.Mirror{
				{Reader: clusters.Home.GetAPIReader(), Writer: clusters.Home.GetClient(), Kind: configMapKind, Namespace: Middle, Label: companion.OwnerLabel, Value: Name},
				{Reader: reader, Writer: writer, Kind: configMapKind, Namespace: daemon.Namespace, Label: companion.OwnerLabel, Value: Name},
			},
			operand: operand.Operand{Reader: reader, Writer: writer, Companion: Name, Name: Name, Namespace: daemon.Namespace, Kinds: []schema.GroupVersionKind{daemonSetKind}},
		})
}

// Reconcile implements reconcile.Reconciler. The daemon comes with the first source, and stays to take back what it wrote.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (next reconcile.Result, err error) {
	now, from := time.Now(), r.namespace
	for _, hop := range r.hops {
		want, err := r.wanted(ctx, from, hop.Namespace)
		if err != nil {
			return next, err
		}
		looked, err := hop.Look(ctx, want, now)
		if err != nil {
			return next, err
		}
		if !looked.Again.IsZero() {
			next.RequeueAfter = patience // at the latest
		}
		copied.WithLabelValues(r.namespace).Set(float64(len(want.Copies)))
		from = hop.Namespace
	}
	object, err := operand.Manifest(daemonSet, func(container map[string]any) { container["image"] = r.image })
	if err != nil {
		return next, err
	}
	return next, r.operand.Apply(ctx, object)
}

// wanted returns what a namespace is to have of the sources in another one.
func (r *reconciler) wanted(ctx context.Context, from, to string) (want mirror.Want, err error) {
	var sources corev1.ConfigMapList
	if err := r.home.List(ctx, &sources, client.InNamespace(from), client.MatchingLabels(daemon.Copied)); err != nil {
		return want, err
	}
	want.Patience = patience
	for i := range sources.Items {
		name := types.NamespacedName{Namespace: to, Name: sources.Items[i].Name}
		if nodegroup.Paused(&sources.Items[i]) {
			want.Keep = append(want.Keep, name)
			continue
		}
		object, err := mirror.CopyOf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: to, Name: name.Name, Labels: daemon.Copied}, Data: sources.Items[i].Data}, configMapKind)
		if err != nil {
			return want, err
		}
		want.Copies = append(want.Copies, object)
	}
	return want, nil
}
