// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/mirror"
	"workload.openshift.io/operators/nodepool"
)

// configMapKind is that of sources and copies.
var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// namespacePeriod is the time between two looks at a control plane's namespace that is not there, or not known to be one.
const namespacePeriod = 5 * time.Second

// Reconciler reconciles all NodePools of a control plane's namespace. The namespace is the request's name.
type Reconciler struct {
	// Client writes. Reader reads live: what the NodePools do not ask for is deleted.
	Client client.Client
	Reader client.Reader
	// Recorder writes Events; nil writes none.
	Recorder events.EventRecorder
	// Now is the time; nil is that of the host.
	Now func() time.Time
}

// +kubebuilder:rbac:groups=hypershift.openshift.io,resources=nodepools,verbs=list;watch;patch
// +kubebuilder:rbac:groups=hypershift.openshift.io,resources=nodepools/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := request.Name
	now := time.Now()
	if r.Now != nil {
		now = r.Now()
	}
	pools, next, err := r.pools(ctx, namespace, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	controlPlane, err := r.controlPlane(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	standing, err := r.standing(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	decision := nodepool.Decide(controlPlane, pools, standing)
	if !controlPlane.Missing {
		err = r.copy(ctx, namespace, decision)
	}
	rendered := map[types.NamespacedName]renderResult{}
	if !controlPlane.Missing && err == nil {
		for _, pool := range pools {
			key := client.ObjectKeyFromObject(pool.NodePool)
			if configuration, usable := decision.Configurations[key]; usable {
				rendered[key] = r.render(ctx, pool.NodePool, configuration)
				err = errors.Join(err, rendered[key].err)
			}
		}
		err = errors.Join(err, r.forgetSecrets(ctx, namespace, pools, rendered))
		next = sooner(next, now.Add(renderPeriod), len(rendered) > 0)
	}
	for _, pool := range pools {
		verdict, judged := decision.Verdicts[client.ObjectKeyFromObject(pool.NodePool)]
		if !judged {
			continue
		}
		// Namespaces are not watched: what is amiss with this one is for a while only.
		waits := verdict.Tuning.Reason == v1beta1.ReasonControlPlaneNamespaceMissing || verdict.Tuning.Reason == v1beta1.ReasonNotControlPlane
		next = sooner(next, now.Add(namespacePeriod), waits)
		if reported := r.report(ctx, pool.NodePool, verdict, rendered[client.ObjectKeyFromObject(pool.NodePool)].conditions, now); reported != nil {
			err = errors.Join(err, fmt.Errorf("status of NodePool %s/%s: %w", pool.Namespace, pool.Name, reported))
		}
	}
	if err != nil || next.IsZero() {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: max(time.Millisecond, next.Sub(now))}, nil
}

// sooner returns the earlier of two times. The zero time is never.
func sooner(a, b time.Time, counts bool) time.Time {
	if counts && (a.IsZero() || b.Before(a)) {
		return b
	}
	return a
}

// pools returns the NodePools of a control plane's namespace, with the ConfigMaps that they name, and when the first pause
// of them ends.
func (r *Reconciler) pools(ctx context.Context, namespace string, now time.Time) (pools []nodepool.Pool, next time.Time, err error) {
	var list v1beta1.NodePoolList
	if err := r.Reader.List(ctx, &list); err != nil {
		return nil, next, err
	}
	// Pools may share sources.
	sources := map[types.NamespacedName]*corev1.ConfigMap{}
	for i := range list.Items {
		pool := &list.Items[i]
		if v1beta1.ControlPlaneNamespace(pool.Namespace, pool.Spec.ClusterName) != namespace {
			continue
		}
		paused, until := nodepool.PausedUntil(pool.Spec.PausedUntil, now)
		next = sooner(next, until, paused && !until.IsZero())
		p := nodepool.Pool{NodePool: pool, Paused: paused || nodegroup.Paused(pool), Sources: map[string]*corev1.ConfigMap{}}
		pools = append(pools, p)
		if p.Paused {
			continue
		}
		for _, name := range nodepool.References(pool) {
			key := types.NamespacedName{Namespace: pool.Namespace, Name: name}
			source, seen := sources[key]
			if !seen {
				source = &corev1.ConfigMap{}
				if err := r.Reader.Get(ctx, key, source); apierrors.IsNotFound(err) {
					source = nil
				} else if err != nil {
					return nil, next, fmt.Errorf("ConfigMap %s of NodePool %s: %w", key, pool.Name, err)
				}
				sources[key] = source
			}
			if source != nil {
				p.Sources[name] = source
			}
		}
	}
	return pools, next, nil
}

// controlPlane reads a control plane's namespace.
func (r *Reconciler) controlPlane(ctx context.Context, name string) (nodepool.Namespace, error) {
	var namespace corev1.Namespace
	switch err := r.Reader.Get(ctx, types.NamespacedName{Name: name}, &namespace); {
	case apierrors.IsNotFound(err):
		return nodepool.Namespace{Name: name, Missing: true}, nil
	case err != nil:
		return nodepool.Namespace{}, err
	}
	return nodepool.Namespace{Name: name, HostedCluster: namespace.Annotations[v1beta1.HostedClusterAnnotation], Missing: namespace.DeletionTimestamp != nil}, nil
}

// standing returns the ConfigMaps of a namespace, without their content.
func (r *Reconciler) standing(ctx context.Context, namespace string) (standing []nodepool.Standing, err error) {
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(configMapKind.GroupVersion().WithKind("ConfigMapList"))
	if err := r.Reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		standing = append(standing, standingOf(&list.Items[i]))
	}
	return standing, nil
}

func standingOf(object metav1.Object) nodepool.Standing {
	return nodepool.Standing{Name: object.GetName(), Labels: object.GetLabels(), Annotations: object.GetAnnotations(), Ours: isOurs(object)}
}

func isOurs(object metav1.Object) bool { return object.GetLabels()[companion.OwnerLabel] == Name }

// isOfPool reports whether a ConfigMap is a copy, what the companion tuning generates, or what the provider of machines records.
func isOfPool(object metav1.Object) bool {
	_, ofPool := object.GetLabels()[v1beta1.PoolLabel]
	return ofPool || isOurs(object)
}

// copy makes the copies what the decision says.
func (r *Reconciler) copy(ctx context.Context, namespace string, decision nodepool.Decision) error {
	wanted := map[string]*corev1.ConfigMap{}
	want := mirror.Want{
		Certain: func(copied *unstructured.Unstructured) bool { return decision.Gone(standingOf(copied)) },
		// It may have come since.
		Takes: func(copied, there *unstructured.Unstructured) bool {
			return decision.Takes(wanted[copied.GetName()], standingOf(there))
		},
	}
	for _, copied := range decision.Copies {
		wanted[copied.Name] = copied
		object, err := mirror.CopyOf(copied, configMapKind)
		if err != nil {
			return err
		}
		want.Copies = append(want.Copies, object)
	}
	target := mirror.Mirror{Reader: r.Reader, Writer: r.Client, Kind: configMapKind, Namespace: namespace, Label: companion.OwnerLabel, Value: Name}
	result, err := target.Look(ctx, want, time.Time{})
	for _, action := range result.Done {
		klog.FromContext(ctx).Info("Changed a copy", "action", action.Kind, "configMap", klog.KObj(action.Object))
	}
	return err
}

// report writes the conditions of a pool, if they differ.
func (r *Reconciler) report(ctx context.Context, pool *v1beta1.NodePool, verdict nodepool.Verdict, generated []v1beta1.GeneratedCondition, now time.Time) error {
	before := pool.DeepCopy()
	if verdict.Usable() && generated != nil {
		// Those of a PerformanceProfile that has gone go with it.
		pool.Status.Conditions = slices.DeleteFunc(pool.Status.Conditions, func(c v1beta1.NodePoolCondition) bool {
			return generatedCondition(c.Type) && !slices.ContainsFunc(generated, func(g v1beta1.GeneratedCondition) bool { return g.Type == c.Type })
		})
	}
	for _, c := range generated {
		set(pool, v1beta1.NodePoolCondition{Type: c.Type, Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, ObservedGeneration: pool.Generation, LastTransitionTime: metav1.NewTime(now)})
	}
	for _, half := range []struct {
		condition string
		nodepool.Finding
	}{{v1beta1.ConditionValidTuningConfig, verdict.Tuning}, {v1beta1.ConditionValidMachineConfig, verdict.Config}} {
		status := corev1.ConditionTrue
		if !half.Valid {
			status = corev1.ConditionFalse
		}
		set(pool, v1beta1.NodePoolCondition{Type: half.condition, Status: status, Reason: half.Reason, Message: half.Message, ObservedGeneration: pool.Generation, LastTransitionTime: metav1.NewTime(now)})
	}
	if equality.Semantic.DeepEqual(before.Status, pool.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.tell(before, pool)
	return nil
}

// set replaces a condition. The time of its last transition stays if its status does.
func set(pool *v1beta1.NodePool, condition v1beta1.NodePoolCondition) {
	for i := range pool.Status.Conditions {
		if current := &pool.Status.Conditions[i]; current.Type == condition.Type {
			if current.Status == condition.Status {
				condition.LastTransitionTime = current.LastTransitionTime
			}
			*current = condition
			return
		}
	}
	pool.Status.Conditions = append(pool.Status.Conditions, condition)
}

// tell writes an Event for each condition that has become False, or has another message.
func (r *Reconciler) tell(before, pool *v1beta1.NodePool) {
	if r.Recorder == nil {
		return
	}
	for _, condition := range pool.Status.Conditions {
		if condition.Status != corev1.ConditionFalse || condition.Type != v1beta1.ConditionValidTuningConfig && condition.Type != v1beta1.ConditionValidMachineConfig {
			continue
		}
		said := false
		for _, other := range before.Status.Conditions {
			said = said || other.Type == condition.Type && other.Status == condition.Status && other.Message == condition.Message
		}
		if !said {
			r.Recorder.Eventf(pool, nil, corev1.EventTypeWarning, condition.Reason, "Validate", "%s is False: %s", condition.Type, condition.Message)
		}
	}
}
