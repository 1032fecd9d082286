// SPDX-License-Identifier: Apache-2.0

// Package example is a companion of the tests. It stands on the ground alone, and shows how much a new companion needs: it
// copies ConfigMaps of its own namespace into a hosted cluster, and runs a daemon there that prints them.
package example

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"workload.openshift.io/operators/alert"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/mirror"
	"workload.openshift.io/operators/operand"
)

const (
	// Name is the companion's.
	Name = "example"
	// Namespace is where the copies and the daemon are, in the hosted cluster.
	Namespace = "default"
	// patience is how long a copy stays whose source is missing.
	patience = 2 * time.Second
)

var (
	// Sources are the labels of ConfigMaps that are copied, and copies those of what is made of them.
	Sources = labels.Set{"example.workload.openshift.io/copied": "true"}
	copies  = labels.Set{companion.OwnerLabel: Name}

	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	daemonSetKind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

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
	// ExporterImage is that of the daemon.
	ExporterImage string `json:"exporterImage"`
}

// Default implements companion.Settings.
func (s *Settings) Default() {}

// Validate implements companion.Settings.
func (s *Settings) Validate(path *field.Path, _ *configv1alpha1.ControllerConfiguration) (errs field.ErrorList) {
	if s.ExporterImage == "" {
		errs = append(errs, field.Required(path.Child("exporterImage"), "the daemon is a program of it"))
	}
	return errs
}

// Companion is example.
type Companion struct{ settings Settings }

// Name implements companion.Companion.
func (*Companion) Name() string { return Name }

// Settings implements companion.Companion.
func (c *Companion) Settings() companion.Settings { return &c.settings }

// Needs implements companion.Companion.
func (*Companion) Needs(config *configv1alpha1.ControllerConfiguration) companion.Needs {
	made := cache.ByObject{Namespaces: map[string]cache.Config{Namespace: {}}, Label: copies.AsSelector()}
	return companion.Needs{
		Home: companion.Access{Cache: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{config.Namespace: {}}, Label: Sources.AsSelector()},
		}},
		Hosted: &companion.Access{
			Cache: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: made, &appsv1.DaemonSet{}: made},
			Owned: []schema.GroupVersionKind{configMapKind, daemonSetKind},
		},
	}
}

// reconciler looks at all sources at once.
type reconciler struct {
	home             client.Reader
	namespace, image string
	mirror           mirror.Mirror
	operand          operand.Operand
}

// +kubebuilder:rbac:namespace=system,groups="",resources=configmaps,verbs=list;watch
// +kubebuilder:rbac:roleName=example-hosted,namespace=default,groups="",resources=configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:roleName=example-hosted,namespace=default,groups=apps,resources=daemonsets,verbs=list;watch;create;patch;delete

// AddToManager implements companion.Companion.
func (c *Companion) AddToManager(_ context.Context, clusters companion.Clusters, config *configv1alpha1.ControllerConfiguration) error {
	reader, writer := clusters.Hosted.GetAPIReader(), clusters.Hosted.GetClient()
	everything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	return builder.ControllerManagedBy(clusters.Home).Named(Name).
		WatchesRawSource(source.Kind[client.Object](clusters.Home.GetCache(), &corev1.ConfigMap{}, everything)).
		WatchesRawSource(source.Kind[client.Object](clusters.Hosted.GetCache(), &corev1.ConfigMap{}, everything)).
		WatchesRawSource(source.Kind[client.Object](clusters.Hosted.GetCache(), &appsv1.DaemonSet{}, everything)).
		Complete(&reconciler{
			home: clusters.Home.GetAPIReader(), namespace: config.Namespace, image: c.settings.ExporterImage,
			mirror:  mirror.Mirror{Reader: reader, Writer: writer, Kind: configMapKind, Namespace: Namespace, Label: companion.OwnerLabel, Value: Name},
			operand: operand.Operand{Reader: reader, Writer: writer, Companion: Name, Name: Name, Namespace: Namespace, Kinds: []schema.GroupVersionKind{daemonSetKind}},
		})
}

// Reconcile implements reconcile.Reconciler. The daemon runs where there is anything to print.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (next reconcile.Result, err error) {
	now := time.Now()
	var sources corev1.ConfigMapList
	if err := r.home.List(ctx, &sources, client.InNamespace(r.namespace), client.MatchingLabels(Sources)); err != nil {
		return next, err
	}
	want := mirror.Want{Patience: patience}
	for i := range sources.Items {
		name := types.NamespacedName{Namespace: Namespace, Name: sources.Items[i].Name}
		if nodegroup.Paused(&sources.Items[i]) {
			want.Keep = append(want.Keep, name)
			continue
		}
		object, err := mirror.CopyOf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Data: sources.Items[i].Data}, configMapKind)
		if err != nil {
			return next, err
		}
		want.Copies = append(want.Copies, object)
	}
	looked, err := r.mirror.Look(ctx, want, now)
	if err != nil {
		return next, err
	}
	copied.WithLabelValues(r.namespace).Set(float64(len(want.Copies)))
	if !looked.Again.IsZero() {
		next.RequeueAfter = max(time.Millisecond, looked.Again.Sub(now))
	}
	if len(sources.Items) == 0 {
		return next, r.operand.Apply(ctx)
	}
	return next, r.operand.Apply(ctx, r.daemonSet())
}

func (r *reconciler) daemonSet() *unstructured.Unstructured {
	app := map[string]any{"app": Name}
	container := map[string]any{"name": Name, "image": r.image, "args": []any{Name}}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": map[string]any{"namespace": Namespace, "name": Name},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": app}, "template": map[string]any{
			"metadata": map[string]any{"labels": app},
			"spec":     map[string]any{"serviceAccountName": Name, "containers": []any{container}},
		}},
	}}
}

// NewNodeCommand is the node's side, a command of partition-node: it prints the copies each second.
func NewNodeCommand() *cobra.Command {
	var kubeconfig string
	command := &cobra.Command{Use: Name, Args: cobra.NoArgs, RunE: func(command *cobra.Command, _ []string) error {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		c, err := client.New(config, client.Options{})
		if err != nil {
			return err
		}
		return wait.PollUntilContextCancel(command.Context(), time.Second, true, func(ctx context.Context) (bool, error) {
			var list corev1.ConfigMapList
			err := c.List(ctx, &list, client.InNamespace(Namespace), client.MatchingLabels(copies))
			for _, object := range list.Items {
				command.Println(object.Name, object.Data)
			}
			return false, err
		})
	}}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "file that says how to reach kube-apiserver; the default is the pod's ServiceAccount")
	return command
}
