// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/mirror"
	"workload.openshift.io/operators/tuning"
)

// generatedReconciler keeps what is generated for NodePools at home: from their configuration, and from the kernel arguments that
// their nodes compute.
type generatedReconciler struct {
	home     client.Reader // live
	hosted   client.Client
	settings Settings
	pools    *pools
	mirror   *mirror.Mirror
	now      func() time.Time
}

// operandLabels are those of the operand's pods.
var operandLabels = map[string]string{"openshift-app": "tuned"}

// refusedTold is how many refused arguments a Profile names: a node may report thousands, and what an object's annotations take is limited.
const refusedTold = 5

// gather is how long a change waits for others: nodes report one after the other.
const gather = 300 * time.Millisecond

// +kubebuilder:rbac:groups="",resources=configmaps,roleName=tuning-controlplane,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,namespace=openshift-cluster-node-tuning-operator,roleName=tuning-hosted,verbs=list;watch
// +kubebuilder:rbac:groups=tuned.openshift.io,namespace=openshift-cluster-node-tuning-operator,resources=profiles,roleName=tuning-hosted,verbs=patch

func addGeneratedReconciler(clusters companion.Clusters, settings Settings, pools *pools) error {
	r := &generatedReconciler{
		home: clusters.Home.GetAPIReader(), hosted: clusters.Hosted.GetClient(), settings: settings, pools: pools,
		mirror: &mirror.Mirror{Reader: clusters.Home.GetAPIReader(), Writer: clusters.Home.GetClient(), Kind: configMapKind, Namespace: settings.ControlPlaneNamespace, Label: companion.OwnerLabel, Value: Name},
		now:    time.Now,
	}
	cache := clusters.Hosted.GetCache()
	return ctrl.NewControllerManagedBy(clusters.Home).Named("generated").
		Watches(&corev1.ConfigMap{}, companion.Later[client.Object](everything, gather)).
		WatchesRawSource(source.Kind(cache, &corev1.Node{}, companion.Later[*corev1.Node](everything, gather))).
		WatchesRawSource(source.Kind(cache, &tunedv1.Profile{}, companion.Later[*tunedv1.Profile](everything, gather))).
		WatchesRawSource(source.Kind(cache, &corev1.Pod{}, companion.Later[*corev1.Pod](everything, gather))).
		WatchesRawSource(source.Func(r.follow)).
		WatchesRawSource(once()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: companion.Retries()}).
		Complete(r)
}

// follow asks for a look after each at the ConfigMaps of pools, which may come long after these have changed.
func (r *generatedReconciler) follow(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.pools.looks:
				queue.AddAfter(everything, gather)
			}
		}
	}()
	return nil
}

// Reconcile looks at all pools.
func (r *generatedReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	valid, of, unknown, looked := r.pools.all()
	if !looked {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var list corev1.ConfigMapList
	if err := r.home.List(ctx, &list, client.InNamespace(r.settings.ControlPlaneNamespace), client.MatchingLabels{companion.OwnerLabel: Name}); err != nil {
		return reconcile.Result{}, err
	}
	// Of these pools nothing is known but why their configuration cannot be used, if it is there.
	invalid := map[string]error{}
	for pool := range unknown {
		if _, known := valid[pool]; !known {
			invalid[pool] = r.pools.broken(pool)
		}
	}
	standing := map[string]*corev1.ConfigMap{}
	var want mirror.Want
	for i := range list.Items {
		object := &list.Items[i]
		standing[object.Name] = object
		pool := object.Labels[v1beta1.PoolLabel]
		if err, stays := invalid[pool]; stays && (err == nil || object.Name != v1beta1.GeneratedName(pool)) {
			want.Keep = append(want.Keep, client.ObjectKeyFromObject(object))
		}
	}
	// A pool without a configuration has nothing, and what it had goes: nodepool has taken its ConfigMaps away, or it would be unknown.
	want.Certain = func(copied *unstructured.Unstructured) bool { return true }
	want.Takes = func(wanted, there *unstructured.Unstructured) bool {
		return there.GetLabels()[companion.OwnerLabel] == Name
	}
	var errs []error
	var configMaps []*corev1.ConfigMap
	for _, pool := range slices.Sorted(maps.Keys(valid)) {
		made, refused, err := r.pool(pool, valid[pool], of[pool], r.pools.broken(pool), nodes[pool], standing)
		if err != nil {
			errs = append(errs, fmt.Errorf("NodePool %s: %w", pool, err))
			continue
		}
		configMaps = append(configMaps, made...)
		errs = append(errs, r.tellRefused(ctx, nodes[pool], refused))
	}
	for pool, why := range invalid {
		if why == nil {
			continue
		}
		var stands v1beta1.Generated
		if there := standing[v1beta1.GeneratedName(pool)]; there != nil {
			stands, _ = v1beta1.ReadGenerated(there) // what cannot be read is nothing
		}
		generated, err := generatedConfigMap(pool, tuning.Unusable(stands, why))
		if err != nil {
			return reconcile.Result{}, err
		}
		configMaps = append(configMaps, generated)
	}
	for _, configMap := range configMaps {
		configMap.Namespace = r.settings.ControlPlaneNamespace
		object, err := mirror.CopyOf(configMap, configMapKind)
		if err != nil {
			return reconcile.Result{}, err
		}
		want.Copies = append(want.Copies, object)
	}
	for pool, of := range nodes {
		if _, known := valid[pool]; !known && !unknown[pool] {
			errs = append(errs, r.tellRefused(ctx, of, nil)) // what was refused has gone with the configuration
		}
	}
	result, err := r.mirror.Look(ctx, want, r.now())
	for _, action := range result.Done {
		ctrl.LoggerFrom(ctx).Info("Changed what is generated for a NodePool", "action", action.Kind, "configMap", action.Object.GetName())
	}
	return reconcile.Result{RequeueAfter: r.settings.Resync.Duration}, conflicts(errors.Join(append(errs, err)...))
}

// seenNode is a node with its Profile and its operand.
type seenNode struct {
	name    string
	profile *tunedv1.Profile // nil if there is none
	own     bool             // whether the operand is the one that this version runs
}

// nodes returns the nodes of each pool.
func (r *generatedReconciler) nodes(ctx context.Context) (map[string][]seenNode, error) {
	var nodes corev1.NodeList
	var profiles tunedv1.ProfileList
	var pods corev1.PodList
	if err := errors.Join(r.hosted.List(ctx, &nodes), r.hosted.List(ctx, &profiles, client.InNamespace(tunedv1.Namespace)), r.hosted.List(ctx, &pods, client.InNamespace(tunedv1.Namespace))); err != nil {
		return nil, err
	}
	ofNode := map[string]*tunedv1.Profile{}
	for i := range profiles.Items {
		ofNode[profiles.Items[i].Name] = &profiles.Items[i]
	}
	own := map[string]bool{}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && len(pod.Spec.Containers) > 0 && pod.Spec.Containers[0].Image == r.settings.OperandImage {
			own[pod.Spec.NodeName] = true
		}
	}
	seen := map[string][]seenNode{}
	for _, node := range nodes.Items {
		pool := node.Labels[tunedv1.NodePoolLabel]
		seen[pool] = append(seen[pool], seenNode{node.Name, ofNode[node.Name], own[node.Name]})
	}
	for _, each := range seen {
		slices.SortFunc(each, func(a, b seenNode) int { return cmp.Compare(a.name, b.name) })
	}
	return seen, nil
}

// pool returns the ConfigMaps of one pool, and what is refused, by node.
func (r *generatedReconciler) pool(pool string, tuneds []tunedv1.Tuned, of details, invalid error, nodes []seenNode, standing map[string]*corev1.ConfigMap) (made []*corev1.ConfigMap, refused map[string]string, err error) {
	chosen := tuning.PoolProfile(tuneds)
	requested := tuning.RequestedBy(tuning.PoolSpec(chosen, tuneds))
	refused = map[string]string{}
	var reports []tuning.Report
	for _, node := range nodes {
		report, counts := reportOf(node, of.input, chosen, requested)
		if !counts {
			continue
		}
		var texts []string
		for _, each := range report.Refused {
			texts = append(texts, each.String())
		}
		if len(texts) > 0 {
			refused[node.name] = strings.Join(untrusted.First(texts, refusedTold), "; ")
		}
		reports = append(reports, report)
	}
	var before v1beta1.Generated
	var stands *tuning.Settled
	approved := ""
	if there := standing[v1beta1.GeneratedName(pool)]; there != nil {
		approved = there.Annotations[v1beta1.ApplyArgumentsAnnotation]
		if before, err = v1beta1.ReadGenerated(there); err == nil && before.Input != "" {
			stands = &tuning.Settled{Input: before.Input, Computed: before.Computed, Arguments: before.Arguments}
		}
	}
	s := tuning.Settle(of.input, requested, reports, stands, approved)
	now := v1beta1.Generated{Conditions: s.Conditions(of.input, invalid, of.performance), Outdated: s.Outdated, Parts: map[string]string{}}
	if s.Settled != nil {
		now.Input, now.Computed, now.Arguments = s.Input, s.Computed, s.Arguments
		parts, err := r.parts(pool, *s.Settled, of, before, standing)
		if err != nil {
			return nil, nil, err
		}
		for _, part := range parts {
			now.Parts[part.Name] = v1beta1.PartHash(part)
		}
		made = append(made, parts...)
	}
	if of.performance != nil {
		status, err := tuning.PerformanceStatus(pool, now.Conditions, *of.performance)
		if err != nil {
			return nil, nil, err
		}
		made = append(made, status)
	}
	generated, err := generatedConfigMap(pool, now)
	if err != nil {
		return nil, nil, err
	}
	if s.Approved != approved {
		// A copy keeps what its source lacks.
		generated.Annotations = map[string]string{v1beta1.ApplyArgumentsAnnotation: ""}
	}
	return append(made, generated), refused, nil
}

// generatedConfigMap is the one with a pool's Generated, without its namespace.
func generatedConfigMap(pool string, generated v1beta1.Generated) (*corev1.ConfigMap, error) {
	data, err := json.MarshalIndent(generated, "", "  ")
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: v1beta1.GeneratedName(pool), Labels: map[string]string{v1beta1.GeneratedLabel: "true", v1beta1.PoolLabel: pool}},
		Data:       map[string]string{v1beta1.GeneratedKey: string(data) + "\n"},
	}, err
}

// parts returns the parts of a settlement. Those that stand for it stay to the byte, as long as nobody has changed them: another
// version of this program may write them in another way, and that is no reason to boot a node.
func (r *generatedReconciler) parts(pool string, settled tuning.Settled, of details, before v1beta1.Generated, standing map[string]*corev1.ConfigMap) ([]*corev1.ConfigMap, error) {
	var there []*corev1.ConfigMap
	intact := before.Input == settled.Input && before.Computed == settled.Computed && slices.Equal(before.Arguments, settled.Arguments)
	for name, hash := range before.Parts {
		part := standing[name]
		if part == nil {
			intact = false
			continue
		}
		intact = intact && v1beta1.PartHash(part) == hash && part.Annotations[v1beta1.InputAnnotation] == settled.Input
		there = append(there, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: part.Labels, Annotations: map[string]string{v1beta1.InputAnnotation: settled.Input}}, Data: part.Data})
	}
	// Of an older input than the pool's, nothing is known but what stands.
	if intact || of.input != settled.Input {
		return there, nil
	}
	return tuning.Parts(pool, settled, of.performance)
}

// reportOf is what a node says of its kernel arguments. It does not count if the node has another profile than its pool, by its
// labels or those of its pods.
func reportOf(node seenNode, input, chosen string, requested tuning.Requested) (report tuning.Report, counts bool) {
	report.Node = node.name
	profile := node.profile
	if profile == nil || profile.Annotations[v1beta1.InputAnnotation] != input {
		report.Waits = "it has no Profile for this configuration yet"
		return report, true
	}
	if chosen == "" || profile.Spec.Config.TunedProfile != chosen {
		return report, false
	}
	applied := meta.FindStatusCondition(profile.Status.Conditions, tunedv1.ConditionApplied)
	literal, complete := requested.Literal()
	switch {
	case !node.own:
		report.Waits = "the operand of this version does not run there"
	case profile.Status.ObservedGeneration != profile.Generation || applied == nil:
		report.Waits = "its operand has not seen the Profile yet"
	case applied.Status != metav1.ConditionTrue && applied.Reason == tunedv1.ReasonDeferred && complete:
		report.Arguments = literal // it applies the profile at the boot that these bring
	case applied.Status != metav1.ConditionTrue && applied.Reason == tunedv1.ReasonDeferred:
		report.Waits = fmt.Sprintf("the profile %s waits for its next boot, and TuneD computes kernel arguments only then; boot it, or remove the annotation %s of the Tuned", chosen, tunedv1.DeferredAnnotation)
	case applied.Status != metav1.ConditionTrue:
		report.Waits = fmt.Sprintf("TuneD has not applied the profile %s (%s)", chosen, applied.Reason)
	default:
		arguments, refused := requested.Accept(profile.Status.Bootcmdline)
		report.Arguments, report.Refused = arguments, append(requested.Missing(profile.Status.Bootcmdline), refused...)
	}
	return report, true
}

// tellRefused says on the Profiles of a pool which of the arguments that they report are refused.
func (r *generatedReconciler) tellRefused(ctx context.Context, nodes []seenNode, refused map[string]string) error {
	var errs []error
	for _, node := range nodes {
		if node.profile == nil || node.profile.Annotations[tuning.RefusedAnnotation] == refused[node.name] {
			continue
		}
		var value any
		if text := refused[node.name]; text != "" {
			value = text
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.profile.UID, "annotations": map[string]any{tuning.RefusedAnnotation: value}}})
		if err != nil {
			return err
		}
		object := &tunedv1.Profile{ObjectMeta: metav1.ObjectMeta{Namespace: node.profile.Namespace, Name: node.profile.Name}}
		if err := r.hosted.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
