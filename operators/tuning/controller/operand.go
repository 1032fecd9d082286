// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	_ "embed"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/operand"
)

//go:embed daemonset.yaml
var daemonSet []byte

// operandReconciler keeps the DaemonSet of the operand.
type operandReconciler struct {
	operand  *operand.Operand
	settings Settings
	// tuneds has the Tuned default of an ordinary cluster; nil elsewhere.
	tuneds client.Reader
}

// +kubebuilder:rbac:groups=apps,resources=daemonsets,namespace=openshift-cluster-node-tuning-operator,roleName=tuning-hosted,verbs=list;watch;create;patch;delete

func addOperandReconciler(clusters companion.Clusters, settings Settings) error {
	hosted := nodesOf(clusters)
	r := &operandReconciler{operand: &operand.Operand{
		Reader: hosted.GetAPIReader(), Writer: hosted.GetClient(),
		Companion: Name, Name: operandName, Namespace: tunedv1.Namespace, Kinds: []schema.GroupVersionKind{daemonSetKind},
	}, settings: settings}
	builder := ctrl.NewControllerManagedBy(clusters.Home).Named("operand")
	if clusters.Hosted == nil {
		r.tuneds = hosted.GetClient()
		builder.Watches(&tunedv1.Tuned{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, tuned client.Object) []reconcile.Request {
			if tuned.GetName() != tunedv1.DefaultName {
				return nil
			}
			return []reconcile.Request{everything}
		}))
	}
	return builder.
		WatchesRawSource(source.Kind(hosted.GetCache(), &appsv1.DaemonSet{}, handler.TypedEnqueueRequestsFromMapFunc(
			one[*appsv1.DaemonSet]),
			// What it has become is in its status.
			predicate.Or(predicate.TypedGenerationChangedPredicate[*appsv1.DaemonSet]{}, predicate.TypedLabelChangedPredicate[*appsv1.DaemonSet]{}))).
		WatchesRawSource(once()).
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		Complete(r)
}

// Reconcile applies the DaemonSet.
func (r *operandReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: r.settings.Resync.Duration}
	if r.tuneds != nil {
		state, err := cachedState(ctx, r.tuneds)
		switch {
		case err != nil || state == tunedv1.Unmanaged:
			return again, err
		case state == tunedv1.Removed:
			return again, r.operand.Apply(ctx)
		}
	}
	object, err := daemonSetOf(r.settings.OperandImage)
	if err != nil {
		return reconcile.Result{}, err
	}
	return again, r.operand.Apply(ctx, object)
}

// daemonSetOf is the DaemonSet with an image.
func daemonSetOf(image string) (*unstructured.Unstructured, error) {
	object, err := operand.Manifest(daemonSet, func(container map[string]any) {
		container["image"] = image
		container["env"] = append(container["env"].([]any), map[string]any{"name": "OPERAND_IMAGE", "value": image})
	})
	if err != nil {
		return nil, err
	}
	object.SetNamespace(tunedv1.Namespace)
	return object, nil
}
