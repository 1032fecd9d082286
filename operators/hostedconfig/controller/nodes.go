// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/hostedconfig"
)

// Nodes labels hosted Nodes with their NodePools. There is one request, for all of them.
type Nodes struct {
	// Home reads live: without a record, a Node loses its label.
	Home client.Reader
	// Hosted reads Nodes, from a cache or live, and writes them.
	Hosted client.Client
	// Namespace is the control plane's.
	Namespace string
	// Patience is how long a Node keeps its label that no record names.
	Patience time.Duration
	// Now is the time; nil is that of the host.
	Now func() time.Time

	unrecorded hostedconfig.Unrecorded
	told       sets.Set[string]
}

// +kubebuilder:rbac:roleName=hostedconfig-hosted,groups="",resources=nodes,verbs=list;watch;patch

// Add adds the reconciler to the manager at home.
func (n *Nodes) Add(clusters companion.Clusters) error {
	return builder.ControllerManagedBy(clusters.Home).
		Named("hostedconfig-nodes").
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		WatchesRawSource(source.TypedKind(clusters.Home.GetCache(), configMapMetadata(), enqueue[*metav1.PartialObjectMetadata](), companion.Labelled[*metav1.PartialObjectMetadata](v1beta1.NodesLabel))).
		WatchesRawSource(source.TypedKind(clusters.Hosted.GetCache(), &corev1.Node{}, enqueue[*corev1.Node](), relabelled{})).
		Complete(n)
}

// Reconcile implements reconcile.Reconciler.
func (n *Nodes) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := time.Now()
	if n.Now != nil {
		now = n.Now()
	}
	var records corev1.ConfigMapList
	if err := n.Home.List(ctx, &records, client.InNamespace(n.Namespace), client.HasLabels{v1beta1.NodesLabel}); err != nil {
		return reconcile.Result{}, err
	}
	var list corev1.NodeList
	if err := n.Hosted.List(ctx, &list); err != nil {
		return reconcile.Result{}, err
	}
	nodes := map[string]*corev1.Node{}
	var seen []hostedconfig.Node
	for i := range list.Items {
		node := &list.Items[i]
		nodes[node.Name] = node
		pool, labelled := node.Labels[v1beta1.PoolLabel]
		seen = append(seen, hostedconfig.Node{UID: node.UID, Name: node.Name, ProviderID: node.Spec.ProviderID, Pool: pool, Labelled: labelled})
	}
	labelling := hostedconfig.Label(records.Items, seen, n.unrecorded, now, n.Patience)
	n.unrecorded = labelling.Unrecorded
	problems, again := labelling.Problems, labelling.Again
	var conflicts []error
	for _, name := range slices.Sorted(maps.Keys(labelling.Set)) {
		node, pool := nodes[name], labelling.Set[name]
		if nodegroup.Paused(node) {
			continue
		}
		before := node.DeepCopy()
		if pool == "" {
			delete(node.Labels, v1beta1.PoolLabel)
		} else {
			metav1.SetMetaDataLabel(&node.ObjectMeta, v1beta1.PoolLabel, pool)
		}
		// A Node of that name may be another one by now, which waits for its own look.
		err := client.IgnoreNotFound(n.Hosted.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
		if apierrors.IsConflict(err) {
			conflicts = append(conflicts, fmt.Errorf("node %s: %w", name, err))
			continue
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("node %s: %w", name, err))
			if due := now.Add(n.Patience); again.IsZero() || due.Before(again) {
				again = due
			}
			continue
		}
		klog.FromContext(ctx).Info("Labelled a Node of the hosted cluster", "node", name, "pool", pool, "before", before.Labels[v1beta1.PoolLabel])
	}
	n.tell(ctx, problems)
	if err := errors.Join(conflicts...); err != nil || again.IsZero() {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: max(time.Millisecond, again.Sub(now))}, nil
}

// tell logs each problem once. They are no errors: what is due would wait as long as what does not heal by itself.
func (n *Nodes) tell(ctx context.Context, problems []error) {
	told := sets.New[string]()
	for _, problem := range problems {
		if !n.told.Has(problem.Error()) {
			klog.FromContext(ctx).Error(problem, "A Node does not get its pool")
		}
		told.Insert(problem.Error())
	}
	n.told = told
}
