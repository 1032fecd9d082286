// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/mirror"
	"workload.openshift.io/operators/tuning"
)

// everything is the one request of reconcilers that look at all.
var everything = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

func all(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{everything} }

func one[T client.Object](context.Context, T) []reconcile.Request {
	return []reconcile.Request{everything}
}

// tunedsReconciler brings the Tuneds of the ConfigMaps at home into the hosted cluster.
type tunedsReconciler struct {
	home client.Reader // live
	// hosted writes; its reads come from the cache. live does not.
	hosted   client.Client
	live     client.Reader
	settings Settings
	mirror   *mirror.Mirror
	pools    *pools
	recorder events.EventRecorder
	now      func() time.Time
	// told are the errors of ConfigMaps that Events were written about.
	told map[types.UID]string
}

// +kubebuilder:rbac:groups="",resources=configmaps,roleName=tuning-controlplane,verbs=list;watch
// +kubebuilder:rbac:groups=tuned.openshift.io,namespace=openshift-cluster-node-tuning-operator,resources=tuneds,roleName=tuning-hosted,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=tuned.openshift.io,namespace=openshift-cluster-node-tuning-operator,resources=tuneds/status,roleName=tuning-hosted,verbs=patch

func addTunedsReconciler(clusters companion.Clusters, settings Settings, pools *pools) error {
	hosted := clusters.Hosted
	r := &tunedsReconciler{
		home: clusters.Home.GetAPIReader(), hosted: hosted.GetClient(), live: hosted.GetAPIReader(),
		settings: settings, pools: pools,
		mirror:   &mirror.Mirror{Reader: hosted.GetAPIReader(), Writer: hosted.GetClient(), Kind: tunedKind, Namespace: tunedv1.Namespace, Label: companion.OwnerLabel, Value: Name},
		recorder: companion.Recorder(clusters.Home, Name),
		now:      time.Now,
		told:     map[types.UID]string{},
	}
	return ctrl.NewControllerManagedBy(clusters.Home).Named("tuneds").
		// Not what is generated, which changes with each report of a node.
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(all), builder.WithPredicates(companion.Labelled[client.Object](v1beta1.TunedConfigLabel, v1beta1.PerformanceProfileLabel))).
		WatchesRawSource(source.Kind(hosted.GetCache(), &tunedv1.Tuned{}, handler.TypedEnqueueRequestsFromMapFunc(one[*tunedv1.Tuned]))).
		WatchesRawSource(once()).
		WithOptions(controller.Options{RateLimiter: companion.Retries()}).
		Complete(r)
}

// look is what the ConfigMaps at home have.
type look struct {
	valid map[string][]tunedv1.Tuned
	// details are the rest of what the pools in valid have.
	details map[string]details
	// broken has the pools whose ConfigMaps are not valid.
	broken map[string]error
	// faulty has the ConfigMaps that these errors are about.
	faulty map[types.UID]fault
}

type fault struct {
	configMap *corev1.ConfigMap
	err       error
}

// read reads the ConfigMaps.
func read(configMaps []corev1.ConfigMap) look {
	l := look{valid: map[string][]tunedv1.Tuned{}, details: map[string]details{}, broken: map[string]error{}, faulty: map[types.UID]fault{}}
	byPool := map[string][]*corev1.ConfigMap{}
	for i := range configMaps {
		pool := configMaps[i].Labels[tunedv1.NodePoolLabel]
		byPool[pool] = append(byPool[pool], &configMaps[i])
	}
	for pool, found := range byPool {
		tuneds, more, err := ofPool(pool, found)
		if err == nil {
			l.valid[pool], l.details[pool] = tuneds, more
			continue
		}
		if pool != "" {
			l.broken[pool] = err
		}
		for _, configMap := range found {
			l.faulty[configMap.UID] = fault{configMap, err}
		}
	}
	return l
}

// ofPool returns what a NodePool's ConfigMaps have, with its Tuneds as the hosted cluster has them: one ConfigMap with Tuneds, one with
// a PerformanceProfile, or both.
func ofPool(pool string, found []*corev1.ConfigMap) (tuneds []tunedv1.Tuned, more details, err error) {
	if pool == "" {
		return nil, details{}, fmt.Errorf("ConfigMaps %s: label %s: the name of the NodePool is missing", strings.Join(namesOf(found), ", "), tunedv1.NodePoolLabel)
	}
	texts := map[string]string{}
	for _, kind := range []string{v1beta1.TunedConfigLabel, v1beta1.PerformanceProfileLabel} {
		var of []*corev1.ConfigMap
		for _, configMap := range found {
			if configMap.Labels[kind] == "true" {
				of = append(of, configMap)
			}
		}
		if len(of) == 0 {
			continue
		}
		names := namesOf(of)
		if len(of) > 1 {
			return nil, details{}, fmt.Errorf("NodePool %s has the ConfigMaps %s, and can have one; delete the others", pool, strings.Join(names, " and "))
		}
		text, ok := of[0].Data[tunedv1.TuningKey]
		if !ok {
			return nil, details{}, fmt.Errorf("ConfigMap %s: data: the key %s is missing", names[0], tunedv1.TuningKey)
		}
		texts[kind] = text
		if kind == v1beta1.TunedConfigLabel {
			if tuneds, err = tuning.Parse(names[0], text); err != nil {
				return nil, details{}, err
			}
			for source := range strings.SplitSeq(of[0].Annotations[v1beta1.SourcesAnnotation], ",") {
				name, configMap, _ := strings.Cut(source, "=")
				comesFrom(tuneds, name, configMap)
			}
			continue
		}
		rendered, err := tuning.ParsePerformanceProfile(names[0], text)
		if err != nil {
			return nil, details{}, err
		}
		if tuneds, err = tuning.WithPerformance(tuneds, rendered); err != nil {
			return nil, details{}, fmt.Errorf("ConfigMap %s: %w", names[0], err)
		}
		comesFrom(tuneds, rendered.Tuned, of[0].Annotations[v1beta1.SourcesAnnotation])
		more.performance = &rendered
	}
	more.input = v1beta1.InputHash(texts[v1beta1.TunedConfigLabel], texts[v1beta1.PerformanceProfileLabel])
	for i := range tuneds {
		tuneds[i] = *tuning.Hosted(&tuneds[i], pool)
	}
	return tuneds, more, nil
}

// comesFrom says on a Tuned which ConfigMap of its user it comes from, if that is known.
func comesFrom(tuneds []tunedv1.Tuned, name, configMap string) {
	if at := slices.IndexFunc(tuneds, func(tuned tunedv1.Tuned) bool { return tuned.Name == name }); at >= 0 && configMap != "" {
		metav1.SetMetaDataAnnotation(&tuneds[at].ObjectMeta, v1beta1.SourcesAnnotation, configMap)
	}
}

// namesOf returns the names of ConfigMaps, in their order.
func namesOf(configMaps []*corev1.ConfigMap) (names []string) {
	for _, configMap := range configMaps {
		names = append(names, client.ObjectKeyFromObject(configMap).String())
	}
	slices.Sort(names)
	return names
}

// Reconcile looks at everything.
func (r *tunedsReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var configMaps corev1.ConfigMapList
	if err := r.home.List(ctx, &configMaps, client.InNamespace(r.settings.ControlPlaneNamespace), client.MatchingLabels{tunedv1.TunedConfigLabel: "true"}); err != nil {
		return reconcile.Result{}, err
	}
	var performance corev1.ConfigMapList
	if err := r.home.List(ctx, &performance, client.InNamespace(r.settings.ControlPlaneNamespace), client.MatchingLabels{v1beta1.PerformanceProfileLabel: "true"}); err != nil {
		return reconcile.Result{}, err
	}
	seen := read(slices.Concat(configMaps.Items, performance.Items))
	r.tell(seen.faulty)
	there := &metav1.PartialObjectMetadataList{}
	there.SetGroupVersionKind(tunedKind)
	if err := r.live.List(ctx, there, client.InNamespace(tunedv1.Namespace)); err != nil {
		return reconcile.Result{}, err
	}
	left := map[string]bool{}
	for i := range there.Items {
		if pool := there.Items[i].Labels[tunedv1.NodePoolNameLabel]; pool != "" && there.Items[i].Labels[companion.OwnerLabel] == Name {
			left[pool] = true
		}
	}
	counts := r.pools.set(seen.valid, seen.details, seen.broken, left)

	want := mirror.Want{
		Patience: r.settings.Patience.Duration,
		// Where the pool's ConfigMap is there and does not have it, it has gone or has another name.
		Certain: func(copied *unstructured.Unstructured) bool {
			pool, ok := copied.GetLabels()[tunedv1.NodePoolNameLabel]
			_, valid := seen.valid[pool]
			return !ok || valid
		},
	}
	wanted := []tunedv1.Tuned{*tuning.Default()}
	for _, tuneds := range counts {
		wanted = append(wanted, tuneds...)
	}
	names := map[string]bool{}
	for i := range wanted {
		object, err := mirror.CopyOf(&wanted[i], tunedKind)
		if err != nil {
			return reconcile.Result{}, err
		}
		names[object.GetName()] = true
		want.Copies = append(want.Copies, object)
	}
	var errs []error
	for i := range there.Items {
		object := &there.Items[i]
		pool := object.Labels[tunedv1.NodePoolNameLabel]
		_, broken := seen.broken[pool]
		_, counted := counts[pool]
		switch {
		case names[object.Name]:
		case broken && !counted:
			want.Keep = append(want.Keep, client.ObjectKeyFromObject(object))
		case object.Labels[companion.OwnerLabel] != Name:
			// Nobody else makes Tuneds here. They would mean nothing, and look as if they did.
			object.SetGroupVersionKind(tunedKind)
			if err := r.hosted.Delete(ctx, object, client.Preconditions{UID: &object.UID}); client.IgnoreNotFound(err) != nil {
				errs = append(errs, err)
			}
		}
	}
	now := r.now()
	result, err := r.mirror.Look(ctx, want, now)
	for _, action := range result.Done {
		ctrl.LoggerFrom(ctx).Info("Changed a Tuned of the hosted cluster", "action", action.Kind, "tuned", action.Object.GetName())
	}
	errs = append(errs, err, r.report(ctx, seen, counts))
	again := r.settings.Resync.Duration
	if !result.Again.IsZero() {
		again = min(again, max(result.Again.Sub(now), time.Millisecond))
	}
	return reconcile.Result{RequeueAfter: again}, conflicts(errors.Join(errs...))
}

// conflicts leaves out that somebody was faster: the remedy is another look, at once.
func conflicts(err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("somebody else wrote first: %w", err)
	}
	return err
}

// tell writes an Event for each new error of a ConfigMap.
func (r *tunedsReconciler) tell(faulty map[types.UID]fault) {
	for uid, fault := range faulty {
		if text := fault.err.Error(); r.told[uid] != text {
			r.recorder.Eventf(fault.configMap, nil, corev1.EventTypeWarning, ReasonInvalid, "Read", "What was valid last still counts. %s", text)
			r.told[uid] = text
		}
	}
	for uid := range r.told {
		if _, ok := faulty[uid]; !ok {
			delete(r.told, uid)
		}
	}
}

// Reasons of the conditions of Tuneds.
const (
	ReasonValid   = "AsExpected"
	ReasonInvalid = "InvalidConfiguration"
	// ReasonIgnoredLabels is that of a valid Tuned with machineConfigLabels.
	ReasonIgnoredLabels = "IgnoredMachineConfigLabels"
)

// report writes the conditions of all Tuneds.
func (r *tunedsReconciler) report(ctx context.Context, seen look, counts map[string][]tunedv1.Tuned) error {
	return reportConditions(ctx, r.hosted, func(tuned *tunedv1.Tuned) []metav1.Condition { return conditionsOf(tuned, seen, counts) })
}

// reportConditions writes the conditions of all Tuneds of a cluster. One without a status is taken away.
func reportConditions(ctx context.Context, c client.Client, of func(*tunedv1.Tuned) []metav1.Condition) error {
	var there tunedv1.TunedList
	if err := c.List(ctx, &there, client.InNamespace(tunedv1.Namespace)); err != nil {
		return err
	}
	var errs []error
	for i := range there.Items {
		tuned := &there.Items[i]
		conditions := slices.Clone(tuned.Status.Conditions)
		for _, condition := range of(tuned) {
			if condition.Status == "" {
				meta.RemoveStatusCondition(&conditions, condition.Type)
			} else {
				meta.SetStatusCondition(&conditions, condition)
			}
		}
		if equality.Semantic.DeepEqual(conditions, tuned.Status.Conditions) {
			continue
		}
		next := tuned.DeepCopy()
		next.Status.Conditions = conditions
		if err := c.Status().Patch(ctx, next, client.MergeFrom(tuned)); client.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func conditionsOf(tuned *tunedv1.Tuned, seen look, counts map[string][]tunedv1.Tuned) []metav1.Condition {
	condition := metav1.Condition{Type: tunedv1.ConditionValid, Status: metav1.ConditionTrue, Reason: ReasonValid, Message: "The hosted cluster has what the management cluster says."}
	pool := tuned.Labels[tunedv1.NodePoolNameLabel]
	if pool == "" {
		if tuned.Name != tunedv1.DefaultName {
			return nil
		}
		degraded := metav1.Condition{Type: tunedv1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: ReasonValid, Message: "The Tuneds of all NodePools are valid."}
		var texts []string
		for _, fault := range seen.faulty {
			texts = append(texts, fault.err.Error())
		}
		slices.Sort(texts)
		if texts = slices.Compact(texts); len(texts) > 0 {
			degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, ReasonInvalid, bound(strings.Join(texts, "\n"))
		}
		return []metav1.Condition{condition, degraded}
	}
	err, broken := seen.broken[pool]
	ignored := slices.Contains(tuning.IgnoredLabels(counts[pool]), tuned.Name)
	switch {
	case broken:
		condition.Status, condition.Reason = metav1.ConditionFalse, ReasonInvalid
		condition.Message = bound("This is what was valid last. " + err.Error())
	case ignored:
		condition.Reason = ReasonIgnoredLabels
		condition.Message = "machineConfigLabels of spec.recommend mean nothing on a hosted cluster: an entry without match is for all nodes of the NodePool."
	}
	return []metav1.Condition{condition}
}

// maxMessage is how long the message of a condition may be (k8s.io/apimachinery/pkg/apis/meta/v1, Condition).
const maxMessage = 32768

func bound(text string) string {
	return untrusted.Abbreviate(text, maxMessage)
}
