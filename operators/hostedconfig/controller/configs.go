// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/hostedconfig"
	"workload.openshift.io/operators/mirror"
)

// retryPeriod is the time between two looks at a source that cannot be copied.
const retryPeriod = time.Minute

// Configs copies KubeletConfigs. There is one request, for all of them.
type Configs struct {
	// Home reads live: what is gone there is deleted.
	Home client.Reader
	// Hosted writes, and HostedReader reads live.
	Hosted       client.Client
	HostedReader client.Reader
	// Namespace is the control plane's.
	Namespace string
	// Patience is how long a copy stays whose source is missing, without a successor.
	Patience time.Duration
	// Recorder writes Events at home; nil writes none.
	Recorder events.EventRecorder
	// Now is the time; nil is that of the host.
	Now func() time.Time

	mirror *mirror.Mirror
	told   map[types.UID]string
}

// one is the only request of a reconciler that looks at everything.
var one = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// enqueue asks for the one request.
func enqueue[T client.Object]() handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, T) []reconcile.Request { return []reconcile.Request{one} })
}

// +kubebuilder:rbac:roleName=hostedconfig-controlplane,groups="",resources=configmaps,verbs=list;watch
// In the hosted cluster the right is for all namespaces: one in the namespace of the copies would end with it, and nothing
// there would be repaired.
//
// +kubebuilder:rbac:roleName=hostedconfig-hosted,groups="",resources=configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:roleName=hostedconfig-hosted,groups="",resources=namespaces,verbs=create
// +kubebuilder:rbac:roleName=hostedconfig-hosted,groups="",resources=namespaces,resourceNames=openshift-config-managed,verbs=get

// Add adds the reconciler to the manager at home.
func (c *Configs) Add(clusters companion.Clusters) error {
	return builder.ControllerManagedBy(clusters.Home).
		Named("hostedconfig").
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		WatchesRawSource(source.TypedKind(clusters.Home.GetCache(), configMapMetadata(), enqueue[*metav1.PartialObjectMetadata](), companion.Labelled[*metav1.PartialObjectMetadata](v1beta1.KubeletConfigLabel))).
		WatchesRawSource(source.TypedKind(clusters.Hosted.GetCache(), configMapMetadata(), enqueue[*metav1.PartialObjectMetadata]())).
		Complete(c)
}

// Reconcile implements reconcile.Reconciler.
func (c *Configs) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := time.Now()
	if c.Now != nil {
		now = c.Now()
	}
	var list corev1.ConfigMapList
	if err := c.Home.List(ctx, &list, client.InNamespace(c.Namespace), client.HasLabels{v1beta1.KubeletConfigLabel}); err != nil {
		return reconcile.Result{}, err
	}
	copies, keep, problems := hostedconfig.Copies(list.Items)
	c.tell(ctx, list.Items, keep, problems)
	if len(copies) > 0 {
		if err := c.makeNamespace(ctx); err != nil {
			c.mirror = nil // it did not learn what this look has seen
			return reconcile.Result{}, err
		}
	}
	want := mirror.Want{
		Patience: c.Patience,
		Certain:  func(copied *unstructured.Unstructured) bool { return hostedconfig.Succeeded(copied, list.Items) },
	}
	for _, name := range keep {
		want.Keep = append(want.Keep, types.NamespacedName{Namespace: v1beta1.HostedKubeletConfigNamespace, Name: name})
	}
	for _, copied := range copies {
		object, err := mirror.CopyOf(copied, configMapKind)
		if err != nil {
			return reconcile.Result{}, err
		}
		want.Copies = append(want.Copies, object)
	}
	if c.mirror == nil {
		c.mirror = &mirror.Mirror{
			Reader: c.HostedReader, Writer: c.Hosted, Kind: configMapKind, Namespace: v1beta1.HostedKubeletConfigNamespace, Label: companion.OwnerLabel, Value: Name,
			// Who reads them there goes by this label.
			Claims: client.HasLabels{v1beta1.KubeletConfigLabel},
		}
	}
	result, err := c.mirror.Look(ctx, want, now)
	for _, action := range result.Done {
		klog.FromContext(ctx).Info("Changed a copy in the hosted cluster", "action", action.Kind, "configMap", klog.KObj(action.Object))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	next := reconcile.Result{}
	if len(problems) > 0 {
		next.RequeueAfter = retryPeriod
	}
	if !result.Again.IsZero() {
		next.RequeueAfter = max(time.Millisecond, result.Again.Sub(now))
	}
	return next, nil
}

// makeNamespace makes the namespace of the copies where it is missing. It stays for good: others may use it.
func (c *Configs) makeNamespace(ctx context.Context) error {
	namespace := &corev1.Namespace{}
	err := c.HostedReader.Get(ctx, types.NamespacedName{Name: v1beta1.HostedKubeletConfigNamespace}, namespace)
	switch {
	case err == nil && namespace.DeletionTimestamp != nil:
		return fmt.Errorf("the hosted cluster's namespace %s is being deleted", namespace.Name)
	case !apierrors.IsNotFound(err):
		return err
	}
	namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.HostedKubeletConfigNamespace}}
	if err := c.Hosted.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// tell writes an Event about each source that is not copied, once.
func (c *Configs) tell(ctx context.Context, sources []corev1.ConfigMap, keep []string, problems []error) {
	told := map[types.UID]string{}
	for i, name := range keep[:len(problems)] {
		for _, s := range sources {
			if s.Name != name {
				continue
			}
			text := problems[i].Error()
			if told[s.UID] = text; c.told[s.UID] == text {
				continue
			}
			klog.FromContext(ctx).Error(errors.New(text), "A KubeletConfig is not copied into the hosted cluster")
			if c.Recorder != nil {
				c.Recorder.Eventf(&s, nil, corev1.EventTypeWarning, "NotCopied", "Copy", "%s", text)
			}
		}
	}
	c.told = told
}
