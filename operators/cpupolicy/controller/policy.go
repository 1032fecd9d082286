/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/companion"
)

// policyReconciler reports what becomes of CPUManagerPolicies.
type policyReconciler struct {
	client client.Client
}

// +kubebuilder:rbac:groups=cpupolicy.workload.openshift.io,resources=cpumanagerpolicies,verbs=list;watch
// +kubebuilder:rbac:groups=cpupolicy.workload.openshift.io,resources=cpumanagerpolicies/status,verbs=patch

func addPolicyReconciler(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named("cpumanagerpolicy").
		For(&v1alpha1.CPUManagerPolicy{}).
		Complete(&policyReconciler{client: mgr.GetClient()})
}

// Reconcile implements reconcile.Reconciler.
func (r *policyReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var policy v1alpha1.CPUManagerPolicy
	if err := r.client.Get(ctx, request.NamespacedName, &policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := policy.DeepCopy()
	if !meta.SetStatusCondition(&policy.Status.Conditions, pausedCondition(&policy)) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(r.client.Status().Patch(ctx, &policy, client.MergeFrom(before)))
}

func pausedCondition(policy *v1alpha1.CPUManagerPolicy) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionPaused,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: policy.Generation,
		Reason:             "NotPaused",
	}
	if companion.Paused(policy) {
		condition.Status = metav1.ConditionTrue
		condition.Reason = "Annotated"
		condition.Message = "The annotation " + companion.PausedAnnotation + " is there: nothing new begins."
	}
	return condition
}
