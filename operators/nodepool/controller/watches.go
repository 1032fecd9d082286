// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/nodepool"
)

// Indexes of NodePools in the cache.
const (
	byReference = "references" // NAMESPACE/NAME of a ConfigMap
	byNamespace = "namespace"  // the control plane's
)

// Add adds the reconciler to a manager. Of ConfigMaps it caches what is in their metadata alone.
func (r *Reconciler) Add(ctx context.Context, mgr manager.Manager) error {
	for index, values := range map[string]func(*v1beta1.NodePool) []string{
		byNamespace: func(pool *v1beta1.NodePool) []string { return []string{namespaceOf(pool)} },
		byReference: func(pool *v1beta1.NodePool) (names []string) {
			for _, name := range nodepool.References(pool) {
				names = append(names, pool.Namespace+"/"+name)
			}
			return names
		},
	} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &v1beta1.NodePool{}, index, func(object client.Object) []string { return values(object.(*v1beta1.NodePool)) }); err != nil {
			return err
		}
	}
	pools := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{requestFor(namespaceOf(object.(*v1beta1.NodePool)))}
	})
	return builder.ControllerManagedBy(mgr).
		Named("nodepool").
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: companion.Retries()}).
		Watches(&v1beta1.NodePool{}, pools).
		WatchesMetadata(&corev1.ConfigMap{}, configMapHandler{mgr.GetClient()}).
		Complete(r)
}

func namespaceOf(pool *v1beta1.NodePool) string {
	return v1beta1.ControlPlaneNamespace(pool.Namespace, pool.Spec.ClusterName)
}

func requestFor(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// configMapHandler asks for a look when a source or a copy changes, and when something comes or goes where a copy may have
// to be.
type configMapHandler struct{ reader client.Reader }

// Create implements handler.EventHandler. At the start it is told all ConfigMaps, and so of copies whose pool has gone in
// the meantime.
func (h configMapHandler) Create(ctx context.Context, e event.CreateEvent, q queue) {
	h.changed(ctx, e.Object, q)
	h.ask(ctx, q, byNamespace, e.Object.GetNamespace())
}

// Update implements handler.EventHandler.
func (h configMapHandler) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	h.changed(ctx, e.ObjectNew, q)
	h.changed(ctx, e.ObjectOld, q) // somebody may have taken the label off
}

// Delete implements handler.EventHandler.
func (h configMapHandler) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	h.changed(ctx, e.Object, q)
	h.ask(ctx, q, byNamespace, e.Object.GetNamespace())
}

// Generic implements handler.EventHandler.
func (configMapHandler) Generic(context.Context, event.GenericEvent, queue) {}

func (h configMapHandler) changed(ctx context.Context, object client.Object, q queue) {
	if isOfPool(object) {
		q.Add(requestFor(object.GetNamespace()))
	}
	h.ask(ctx, q, byReference, object.GetNamespace()+"/"+object.GetName())
}

// ask asks for looks at the control planes of the NodePools with a value of an index.
func (h configMapHandler) ask(ctx context.Context, q queue, index, value string) {
	var pools v1beta1.NodePoolList
	if err := h.reader.List(ctx, &pools, client.MatchingFields{index: value}); err != nil {
		klog.FromContext(ctx).Error(err, "Reading NodePools from the cache failed")
		return
	}
	for i := range pools.Items {
		q.Add(requestFor(namespaceOf(&pools.Items[i])))
	}
}
