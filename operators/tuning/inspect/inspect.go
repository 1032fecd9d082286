// SPDX-License-Identifier: Apache-2.0

// Package inspect reads what the plugin's tuning commands ask a management cluster, as any user does.
package inspect

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/tuning"
)

// Home is a management cluster, and in it a hosted cluster's control plane.
type Home struct {
	Kube    kubernetes.Interface
	Objects dynamic.Interface
	// Namespace is the control plane's.
	Namespace string
}

// Pool reads what stands for a NodePool of so many nodes before a change. What is not there is empty. The NodePool is that of which the control
// plane's namespace has copies; without one, nodes boot one after the other.
func (h Home) Pool(ctx context.Context, pool string, nodes int) (standing tuning.Standing, err error) {
	standing = tuning.Standing{AtOnce: 1, Parts: map[string]string{}}
	configMap, err := h.configMap(ctx, v1beta1.GeneratedName(pool))
	if err != nil {
		return standing, err
	}
	if configMap != nil {
		if standing.Generated, err = v1beta1.ReadGenerated(configMap); err != nil {
			return standing, err
		}
	}
	for name := range standing.Generated.Parts {
		part, err := h.configMap(ctx, name)
		if err != nil {
			return standing, err
		}
		if part != nil {
			standing.Parts[name] = part.Data[v1beta1.ConfigKey]
		}
	}
	for _, name := range []string{v1beta1.TunedConfigMapName(pool), v1beta1.PerformanceProfileConfigMapName(pool)} {
		copied, err := h.configMap(ctx, name)
		if err != nil {
			return standing, err
		}
		if copied == nil {
			continue
		}
		namespace, _, found := strings.Cut(copied.Annotations[v1beta1.PoolLabel], "/")
		if !found {
			continue
		}
		object, err := h.Objects.Resource(v1beta1.GroupVersion.WithResource("nodepools")).Namespace(namespace).Get(ctx, pool, metav1.GetOptions{})
		if err != nil {
			return standing, err
		}
		nodePool := &v1beta1.NodePool{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, nodePool); err != nil {
			return standing, fmt.Errorf("NodePool %s/%s: %w", namespace, pool, err)
		}
		standing.AtOnce = nodePool.Spec.Management.AtOnce(nodes)
		standing.Replace = nodePool.Spec.Management.UpgradeType == v1beta1.UpgradeTypeReplace
		break
	}
	return standing, nil
}

// Apply has outdated kernel arguments of a pool take effect, and returns them. It is an error if there are none.
func (h Home) Apply(ctx context.Context, pool string) (arguments []string, err error) {
	name := v1beta1.GeneratedName(pool)
	configMap, err := h.configMap(ctx, name)
	if err != nil {
		return nil, err
	}
	if configMap == nil {
		return nil, fmt.Errorf("namespace %s has no ConfigMap %s: is it the control plane's, of the management cluster?", h.Namespace, name)
	}
	generated, err := v1beta1.ReadGenerated(configMap)
	if err != nil {
		return nil, err
	}
	if len(generated.Outdated) == 0 {
		return nil, fmt.Errorf("no kernel arguments of NodePool %s are outdated: its nodes boot with what they compute", pool)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}}}`, configMap.ResourceVersion, v1beta1.ApplyArgumentsAnnotation, tuning.ArgumentsHash(generated.Outdated))
	_, err = h.Kube.CoreV1().ConfigMaps(h.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return generated.Outdated, err
}

// configMap returns nil if there is none of that name.
func (h Home) configMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	configMap, err := h.Kube.CoreV1().ConfigMaps(h.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return configMap, err
}
