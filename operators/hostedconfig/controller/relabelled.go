// SPDX-License-Identifier: Apache-2.0

package controller

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
)

// relabelled lets through what decides about a Node's label: kubelets report every few seconds, and change none of it.
type relabelled struct{}

func (relabelled) Create(event.TypedCreateEvent[*corev1.Node]) bool   { return true }
func (relabelled) Delete(event.TypedDeleteEvent[*corev1.Node]) bool   { return false }
func (relabelled) Generic(event.TypedGenericEvent[*corev1.Node]) bool { return false }

func (relabelled) Update(e event.TypedUpdateEvent[*corev1.Node]) bool {
	before, had := e.ObjectOld.Labels[v1beta1.PoolLabel]
	after, has := e.ObjectNew.Labels[v1beta1.PoolLabel]
	return before != after || had != has || e.ObjectOld.UID != e.ObjectNew.UID || e.ObjectOld.Spec.ProviderID != e.ObjectNew.Spec.ProviderID ||
		nodegroup.Paused(e.ObjectOld) && !nodegroup.Paused(e.ObjectNew)
}
