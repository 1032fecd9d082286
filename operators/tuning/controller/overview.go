// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	openshiftconfigv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/version"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/tuning"
	"workload.openshift.io/operators/tuning/metrics"
)

// ClusterOperator is the name of the one that says how tuning is, where a cluster has that kind.
const ClusterOperator = "node-tuning"

var clusterOperatorKind = openshiftconfigv1.GroupVersion.WithKind("ClusterOperator")

// Reasons of the ClusterOperator's conditions, besides those of Tuneds.
const (
	ReasonRollingOut      = "RollingOut"
	ReasonNoOperand       = "NoOperand"
	ReasonProfileDegraded = "ProfileDegraded"
	ReasonRemoved         = "Removed"
)

// overview is how tuning is in a whole cluster.
type overview struct {
	// profiles is how many there are, and waiting how many of them wait for their node's next boot.
	profiles, applied, waiting int
	// degraded are the nodes whose Profile is.
	degraded []string
	// invalid is what the Tuned default says of the Tuneds, with the reason; empty if all are valid.
	invalid, reason string
	// operand is nil if there is none.
	operand *appsv1.DaemonSet
	removed bool
}

// overviewOf reads Profiles and Tuneds as they are in the cache.
func overviewOf(profiles []tunedv1.Profile, standing *tunedv1.Tuned, operand *appsv1.DaemonSet) overview {
	o := overview{profiles: len(profiles), operand: operand, removed: tuning.StateOf(standing) == tunedv1.Removed}
	for i := range profiles {
		profile := &profiles[i]
		if profile.Status.ObservedGeneration != profile.Generation {
			continue
		}
		conditions := profile.Status.Conditions
		if meta.IsStatusConditionTrue(conditions, tunedv1.ConditionDegraded) {
			o.degraded = append(o.degraded, profile.Name)
		}
		switch applied := meta.FindStatusCondition(conditions, tunedv1.ConditionApplied); {
		case applied == nil:
		case applied.Status == metav1.ConditionTrue:
			o.applied++
		case applied.Reason == tunedv1.ReasonDeferred:
			o.waiting++
		}
	}
	slices.Sort(o.degraded)
	if standing != nil {
		if degraded := meta.FindStatusCondition(standing.Status.Conditions, tunedv1.ConditionDegraded); degraded != nil && degraded.Status == metav1.ConditionTrue {
			o.invalid, o.reason = degraded.Message, degraded.Reason
		}
	}
	return o
}

// namesTold is how many nodes a condition names.
const namesTold = 5

// conditions are those of the ClusterOperator. A node that joins or boots is no progress of the operator's: only pods of an older
// template are.
func (o overview) conditions() (conditions []openshiftconfigv1.ClusterOperatorStatusCondition) {
	set := func(kind openshiftconfigv1.ClusterStatusConditionType, is bool, reason, message string) {
		status := openshiftconfigv1.ConditionFalse
		if is {
			status = openshiftconfigv1.ConditionTrue
		}
		conditions = append(conditions, openshiftconfigv1.ClusterOperatorStatusCondition{Type: kind, Status: status, Reason: reason, Message: bound(message)})
	}
	counts := fmt.Sprintf("TuneD has applied %d of %d Profiles.", o.applied, o.profiles)
	if o.waiting > 0 {
		counts += fmt.Sprintf(" %d wait for their nodes' next boot.", o.waiting)
	}
	available, progressing := openshiftconfigv1.OperatorAvailable, openshiftconfigv1.OperatorProgressing
	switch {
	case o.removed:
		set(available, true, ReasonRemoved, "The Tuned default has the management state Removed, so no node is tuned.")
		set(progressing, false, ReasonRemoved, "")
	case o.operand == nil:
		set(available, false, ReasonNoOperand, fmt.Sprintf("There is no DaemonSet %s.", operandName))
		set(progressing, true, ReasonNoOperand, "The DaemonSet is about to be made.")
	default:
		status := o.operand.Status
		set(available, status.NumberAvailable > 0 || status.DesiredNumberScheduled == 0, ReasonValid,
			fmt.Sprintf("%d of %d pods of the operand are available. %s", status.NumberAvailable, status.DesiredNumberScheduled, counts))
		if old := status.CurrentNumberScheduled - status.UpdatedNumberScheduled; status.ObservedGeneration < o.operand.Generation || old > 0 {
			set(progressing, true, ReasonRollingOut, fmt.Sprintf("%d of %d pods of the operand have the newest template.", status.UpdatedNumberScheduled, status.CurrentNumberScheduled))
		} else {
			set(progressing, false, ReasonValid, "All pods of the operand have the newest template.")
		}
	}
	var texts []string
	if o.invalid != "" {
		texts = append(texts, o.invalid)
	}
	if n := len(o.degraded); n > 0 {
		text := fmt.Sprintf("%d of %d Profiles are degraded: %s", n, o.profiles, strings.Join(o.degraded[:min(n, namesTold)], ", "))
		if n > namesTold {
			text += fmt.Sprintf(" and %d more", n-namesTold)
		}
		texts = append(texts, text+".")
	}
	if len(texts) > 0 {
		set(openshiftconfigv1.OperatorDegraded, true, cmp.Or(o.reason, ReasonProfileDegraded), strings.Join(texts, "\n"))
	} else {
		set(openshiftconfigv1.OperatorDegraded, false, ReasonValid, "All Tuneds are valid, and no Profile is degraded.")
	}
	set(openshiftconfigv1.OperatorUpgradeable, true, ReasonValid, "An upgrade of the operator changes no node's values.")
	return conditions
}

// withTransitions gives conditions the times of those that had the same status.
func withTransitions(before, now []openshiftconfigv1.ClusterOperatorStatusCondition, at time.Time) []openshiftconfigv1.ClusterOperatorStatusCondition {
	for i := range now {
		now[i].LastTransitionTime = metav1.NewTime(at)
		for _, old := range before {
			if old.Type == now[i].Type && old.Status == now[i].Status {
				now[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return now
}

// overviewReconciler says how tuning is: in metrics, and in the ClusterOperator where the cluster has that kind.
type overviewReconciler struct {
	cluster client.Client
	live    client.Reader
	resync  time.Duration
	now     func() time.Time
}

// +kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators,roleName=tuning-hosted,verbs=create
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators,resourceNames=node-tuning,roleName=tuning-hosted,verbs=get
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators/status,resourceNames=node-tuning,roleName=tuning-hosted,verbs=update
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators,roleName=tuning-ordinary,verbs=create
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators,resourceNames=node-tuning,roleName=tuning-ordinary,verbs=get
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusteroperators/status,resourceNames=node-tuning,roleName=tuning-ordinary,verbs=update

func addOverviewReconciler(clusters companion.Clusters, settings Settings) error {
	nodes := nodesOf(clusters)
	r := &overviewReconciler{nodes.GetClient(), nodes.GetAPIReader(), settings.Resync.Duration, time.Now}
	defaultOnly := predicate.NewTypedPredicateFuncs(func(tuned *tunedv1.Tuned) bool { return tuned.Name == tunedv1.DefaultName })
	return ctrl.NewControllerManagedBy(clusters.Home).Named("overview").
		WatchesRawSource(source.Kind(nodes.GetCache(), &tunedv1.Tuned{}, handler.TypedEnqueueRequestsFromMapFunc(one[*tunedv1.Tuned]), defaultOnly)).
		WatchesRawSource(source.Kind(nodes.GetCache(), &tunedv1.Profile{}, handler.TypedEnqueueRequestsFromMapFunc(one[*tunedv1.Profile]))).
		WatchesRawSource(source.Kind(nodes.GetCache(), &appsv1.DaemonSet{}, handler.TypedEnqueueRequestsFromMapFunc(one[*appsv1.DaemonSet]))).
		WatchesRawSource(once()).
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		Complete(r)
}

// quietTime is how long the overview waits for more to change: a pool's nodes change together.
const quietTime = time.Second

// Reconcile looks at the whole cluster.
func (r *overviewReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	select {
	case <-time.After(quietTime):
	case <-ctx.Done():
		return reconcile.Result{}, ctx.Err()
	}
	again := reconcile.Result{RequeueAfter: r.resync}
	var profiles tunedv1.ProfileList
	if err := r.cluster.List(ctx, &profiles, client.InNamespace(tunedv1.Namespace)); err != nil {
		return again, err
	}
	standing, err := cachedDefault(ctx, r.cluster)
	if err != nil {
		return again, err
	}
	operand := &appsv1.DaemonSet{}
	if has, err := found(r.cluster.Get(ctx, client.ObjectKey{Namespace: tunedv1.Namespace, Name: operandName}, operand)); err != nil {
		return again, err
	} else if !has {
		operand = nil
	}
	o := overviewOf(profiles.Items, standing, operand)
	metrics.Profiles.WithLabelValues("all").Set(float64(o.profiles))
	metrics.Profiles.WithLabelValues("applied").Set(float64(o.applied))
	metrics.Profiles.WithLabelValues("deferred").Set(float64(o.waiting))
	metrics.Profiles.WithLabelValues("degraded").Set(float64(len(o.degraded)))
	metrics.Invalid.Set(map[bool]float64{true: 1}[o.invalid != ""])
	return again, conflicts(r.write(ctx, o))
}

func (r *overviewReconciler) write(ctx context.Context, o overview) error {
	object := &openshiftconfigv1.ClusterOperator{}
	has, err := found(r.live.Get(ctx, client.ObjectKey{Name: ClusterOperator}, object))
	if meta.IsNoMatchError(err) {
		return nil // most clusters are none of OpenShift's
	}
	if err != nil {
		return err
	}
	if !has {
		object.Name, object.Labels = ClusterOperator, map[string]string{companion.OwnerLabel: Name}
		if err := r.cluster.Create(ctx, object); err != nil {
			return err
		}
	}
	next := object.DeepCopy()
	next.Status.Conditions = withTransitions(object.Status.Conditions, o.conditions(), r.now())
	next.Status.Versions = []openshiftconfigv1.OperandVersion{{Name: "operator", Version: version.Get().GitVersion}}
	next.Status.RelatedObjects = []openshiftconfigv1.ObjectReference{
		{Resource: "namespaces", Name: tunedv1.Namespace},
		{Group: tunedv1.GroupVersion.Group, Resource: "profiles", Namespace: tunedv1.Namespace},
		{Group: tunedv1.GroupVersion.Group, Resource: "tuneds", Namespace: tunedv1.Namespace},
		{Group: appsv1.GroupName, Resource: "daemonsets", Namespace: tunedv1.Namespace, Name: operandName},
	}
	if equality.Semantic.DeepEqual(object.Status, next.Status) {
		return nil
	}
	return r.cluster.Status().Update(ctx, next)
}
