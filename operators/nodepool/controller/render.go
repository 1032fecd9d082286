// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/nodepool"
)

// secretKind is that of rendered configurations.
var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

// renderPeriod is the time between two looks at rendered configurations: Secrets are not watched.
const renderPeriod = time.Minute

// Reasons of the condition ConfigurationRendered.
const (
	reasonWaiting   = "WaitingForTuning"
	reasonForbidden = "SecretsForbidden"
	reasonFailed    = "RenderingFailed"
)

// renderResult is what became of a pool's configuration.
type renderResult struct {
	conditions []v1beta1.GeneratedCondition
	// keep has the names of the Secrets that nodes of the pool boot with; nil is all.
	keep map[string]bool
	err  error
}

// generatedCondition reports whether a condition of a NodePool is one of render's.
func generatedCondition(kind string) bool {
	switch kind {
	case v1beta1.ConditionRendered, v1beta1.ConditionKernelArgumentsAgree, v1beta1.ConditionKernelArgumentsOutdated:
		return true
	}
	return strings.HasPrefix(kind, v1beta1.PerformanceConditionPrefix)
}

// Secrets of a namespace are this companion's only where somebody has bound the role.
//
// +kubebuilder:rbac:roleName=nodepool-controlplane,groups="",resources=secrets,verbs=get;list;create;update;delete

// render makes the Secret with a pool's configuration, and says in the NodePool's annotations which one its nodes are to have and
// which one they have. While tuning has not settled the pool's input, everything stays as it is.
func (r *Reconciler) render(ctx context.Context, pool *v1beta1.NodePool, configuration nodepool.Configuration) renderResult {
	namespace := v1beta1.ControlPlaneNamespace(pool.Namespace, pool.Spec.ClusterName)
	fail := func(reason string, err error) renderResult {
		return renderResult{conditions: []v1beta1.GeneratedCondition{{Type: v1beta1.ConditionRendered, Status: metav1.ConditionFalse, Reason: reason, Message: err.Error()}}, err: err}
	}
	generated, parts, err := r.generated(ctx, pool.Name, namespace, configuration.Input != "")
	if err != nil {
		return fail(reasonFailed, err)
	}
	result := renderResult{}
	if generated != nil {
		for _, condition := range generated.Conditions {
			if generatedCondition(condition.Type) && condition.Type != v1beta1.ConditionRendered {
				result.conditions = append(result.conditions, condition)
			}
		}
	}
	say := func(status metav1.ConditionStatus, reason, message string) renderResult {
		result.conditions = append(result.conditions, v1beta1.GeneratedCondition{Type: v1beta1.ConditionRendered, Status: status, Reason: reason, Message: message})
		return result
	}
	rendered, waits, err := nodepool.Render(pool.Name, configuration, generated, parts)
	if err != nil {
		return say(metav1.ConditionFalse, reasonFailed, err.Error())
	}
	target, current := pool.Annotations[v1beta1.TargetConfigAnnotation], pool.Annotations[v1beta1.CurrentConfigAnnotation]
	if waits == "" {
		if err := r.keepSecret(ctx, pool, rendered); apierrors.IsForbidden(err) {
			return say(metav1.ConditionFalse, reasonForbidden, fmt.Sprintf("bind the ClusterRole nodepool-controlplane to this companion in namespace %s: %v", namespace, err))
		} else if err != nil {
			return fail(reasonFailed, err)
		}
		target = rendered.Hash
	}
	if target != "" {
		var records corev1.ConfigMapList
		if err := r.Reader.List(ctx, &records, client.InNamespace(namespace), client.HasLabels{v1beta1.NodesLabel}, client.MatchingLabels{v1beta1.PoolLabel: pool.Name}); err != nil {
			return fail(reasonFailed, err)
		}
		current = nodepool.Current(target, current, nodepool.Booted(records.Items))
		if err := r.annotate(ctx, pool, target, current); err != nil {
			return fail(reasonFailed, err)
		}
		result.keep = map[string]bool{v1beta1.ConfigSecretName(pool.Name, target): true, v1beta1.ConfigSecretName(pool.Name, current): true}
	}
	if waits != "" {
		return say(metav1.ConditionFalse, reasonWaiting, waits)
	}
	return say(metav1.ConditionTrue, v1beta1.ReasonAsExpected, "")
}

// generated reads what the companion tuning has made for a pool; nil is nothing.
func (r *Reconciler) generated(ctx context.Context, pool, namespace string, wanted bool) (*v1beta1.Generated, map[string]*corev1.ConfigMap, error) {
	if !wanted {
		return nil, nil, nil
	}
	configMap := &corev1.ConfigMap{}
	switch err := r.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1beta1.GeneratedName(pool)}, configMap); {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	generated, err := v1beta1.ReadGenerated(configMap)
	if err != nil {
		return nil, nil, err
	}
	parts := map[string]*corev1.ConfigMap{}
	for name := range generated.Parts {
		part := &corev1.ConfigMap{}
		if err := r.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, part); err == nil {
			parts[name] = part
		} else if !apierrors.IsNotFound(err) {
			return nil, nil, err
		}
	}
	return &generated, parts, nil
}

// keepSecret makes the Secret of a rendered configuration what it is to be.
func (r *Reconciler) keepSecret(ctx context.Context, pool *v1beta1.NodePool, rendered nodepool.Rendered) error {
	secret := rendered.Secret(pool)
	secret.Labels[companion.OwnerLabel] = Name
	there := &corev1.Secret{}
	switch err := r.Reader.Get(ctx, client.ObjectKeyFromObject(secret), there); {
	case apierrors.IsNotFound(err):
		klog.FromContext(ctx).Info("Rendered the configuration of a NodePool", "nodePool", klog.KObj(pool), "secret", klog.KObj(secret))
		return r.Client.Create(ctx, secret)
	case err != nil:
		return err
	case there.Labels[companion.OwnerLabel] != Name:
		return fmt.Errorf("the Secret %s/%s is somebody else's; remove it", there.Namespace, there.Name)
	case nodepool.Intact(there, pool):
		return nil
	}
	secret.ResourceVersion = there.ResourceVersion
	return r.Client.Update(ctx, secret)
}

// annotate says on a NodePool which configuration its nodes are to have, and which one they have.
func (r *Reconciler) annotate(ctx context.Context, pool *v1beta1.NodePool, target, current string) error {
	values := map[string]string{}
	for name, value := range map[string]string{v1beta1.TargetConfigAnnotation: target, v1beta1.CurrentConfigAnnotation: current} {
		if value != "" && pool.Annotations[name] != value {
			values[name] = value
		}
	}
	if len(values) == 0 {
		return nil
	}
	// If somebody has paused it meanwhile, or another leader has seen more, nodes would boot with what is outdated.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": pool.ResourceVersion, "annotations": values}})
	if err != nil {
		return err
	}
	// What was read of its status is what the conditions are compared with.
	patched := &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name}}
	if err := r.Client.Patch(ctx, patched, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(err)
	}
	pool.ResourceVersion, pool.Annotations = patched.ResourceVersion, patched.Annotations
	return nil
}

// forgetSecrets removes what no node boots with any more: of pools that are gone, and what is neither the target nor the current
// configuration of the others.
func (r *Reconciler) forgetSecrets(ctx context.Context, namespace string, pools []nodepool.Pool, rendered map[types.NamespacedName]renderResult) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(secretKind.GroupVersion().WithKind("SecretList"))
	if err := r.Reader.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{companion.OwnerLabel: Name}); err != nil {
		if apierrors.IsForbidden(err) {
			return nil // so there are none
		}
		return err
	}
	there := map[string]types.NamespacedName{}
	for _, pool := range pools {
		there[pool.Namespace+"/"+pool.Name] = client.ObjectKeyFromObject(pool.NodePool)
	}
	var errs []error
	for i := range list.Items {
		secret := &list.Items[i]
		key, exists := there[secret.Annotations[v1beta1.PoolLabel]]
		if keep := rendered[key].keep; exists && (keep == nil || keep[secret.Name]) {
			continue
		}
		if err := r.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}}, client.Preconditions{UID: &secret.UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
