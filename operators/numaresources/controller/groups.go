// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/manifest"
	"workload.openshift.io/operators/numaresources"
)

// group is a group of the spec, resolved.
type group struct {
	name        string
	selectors   []*metav1.LabelSelector
	config      numaresources.ExporterConfiguration
	tolerations []corev1.Toleration
	// nodes are those of this group alone, and without those that another group has, too, by their names.
	nodes   []*corev1.Node
	without []string
}

// poolKind is that of OpenShift's MachineConfigPools.
var poolKind = schema.GroupVersionKind{Group: "machineconfiguration.openshift.io", Version: "v1", Kind: "MachineConfigPool"}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,verbs=list

// pools lists the cluster's MachineConfigPools. there is false if it has no such kind.
func (r *reconciler) pools(ctx context.Context) (pools []unstructured.Unstructured, there bool, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(poolKind.GroupVersion().WithKind(poolKind.Kind + "List"))
	switch err := r.live.List(ctx, list); {
	case meta.IsNoMatchError(err):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	return list.Items, true, nil
}

// resolve returns the groups of a spec with their nodes. Problems are what is wrong with the spec; the groups are then
// those that nothing is wrong with.
func (r *reconciler) resolve(ctx context.Context, spec nodetopologyv1.NUMAResourcesOperatorSpec, nodes []corev1.Node) (groups []*group, problems []problem, err error) {
	var pools []unstructured.Unstructured
	poolsThere := false
	if slices.ContainsFunc(spec.NodeGroups, func(g nodetopologyv1.NodeGroup) bool { return g.NodeSelector == nil }) {
		if pools, poolsThere, err = r.pools(ctx); err != nil {
			return nil, nil, err
		}
	}
	names := map[string]int{}
	for i := range spec.NodeGroups {
		in := &spec.NodeGroups[i]
		g, err := newGroup(in, pools, poolsThere)
		if err != nil {
			problems = append(problems, problem{reasonInvalidGroup, fmt.Sprintf("spec.nodeGroups[%d]: %v", i, err)})
			continue
		}
		if other, twice := names[g.name]; twice {
			problems = append(problems, problem{reasonInvalidGroup, fmt.Sprintf("spec.nodeGroups[%d] selects the same as spec.nodeGroups[%d]", i, other)})
			continue
		}
		names[g.name] = i
		groups = append(groups, g)
	}
	for i := range nodes {
		node := &nodes[i]
		var has []*group
		for _, g := range groups {
			if numaresources.Has(g.selectors, node) {
				has = append(has, g)
			}
		}
		if len(has) == 1 {
			has[0].nodes = append(has[0].nodes, node)
			continue
		}
		for _, g := range has {
			g.without = append(g.without, node.Name)
		}
		if len(has) > 1 {
			problems = append(problems, problem{reasonGroupsOverlap, fmt.Sprintf("node %s is in the groups %s, and may be in one: until that is changed it is in none", node.Name, strings.Join(groupNames(has), " and "))})
		}
	}
	return groups, problems, nil
}

func groupNames(groups []*group) (names []string) {
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// newGroup resolves what chooses the nodes of a group. On a cluster without MachineConfigPools, a pool is a NodePool.
func newGroup(in *nodetopologyv1.NodeGroup, pools []unstructured.Unstructured, poolsThere bool) (*group, error) {
	g := &group{config: exporterConfiguration(in.Config)}
	if in.Config != nil {
		g.tolerations = in.Config.Tolerations
	}
	var err error
	switch {
	case in.NodeSelector != nil:
		g.selectors = []*metav1.LabelSelector{in.NodeSelector}
		g.name, err = numaresources.SelectorName("nodes", in.NodeSelector)
		return g, err
	case in.PoolName != nil && !poolsThere:
		g.name = *in.PoolName
		g.selectors = []*metav1.LabelSelector{{MatchLabels: map[string]string{numaresources.NodePoolLabel: *in.PoolName}}}
		return g, nil
	case in.PoolName != nil:
		g.name = *in.PoolName
		for i := range pools {
			if pools[i].GetName() != *in.PoolName {
				continue
			}
			selector, err := poolSelector(&pools[i])
			g.selectors = []*metav1.LabelSelector{selector}
			return g, err
		}
		return nil, fmt.Errorf("poolName: there is no MachineConfigPool %s", *in.PoolName)
	case in.MachineConfigPoolSelector != nil && !poolsThere:
		return nil, errors.New("machineConfigPoolSelector: the cluster has no MachineConfigPools; use nodeSelector or poolName")
	case in.MachineConfigPoolSelector != nil:
		if g.name, err = numaresources.SelectorName("pools", in.MachineConfigPoolSelector); err != nil {
			return nil, err
		}
		selector, err := metav1.LabelSelectorAsSelector(in.MachineConfigPoolSelector)
		if err != nil {
			return nil, err
		}
		for i := range pools {
			if !selector.Matches(labels.Set(pools[i].GetLabels())) {
				continue
			}
			of, err := poolSelector(&pools[i])
			if err != nil {
				return nil, err
			}
			g.selectors = append(g.selectors, of)
		}
		return g, nil
	}
	return nil, errors.New("exactly one of nodeSelector, machineConfigPoolSelector and poolName must be set")
}

// poolSelector is the nodeSelector of a MachineConfigPool.
func poolSelector(pool *unstructured.Unstructured) (*metav1.LabelSelector, error) {
	content, found, err := unstructured.NestedMap(pool.Object, "spec", "nodeSelector")
	if err != nil || !found {
		return nil, fmt.Errorf("MachineConfigPool %s has no spec.nodeSelector", pool.GetName())
	}
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, selector); err != nil {
		return nil, fmt.Errorf("MachineConfigPool %s: spec.nodeSelector: %w", pool.GetName(), err)
	}
	return selector, nil
}

// Only clusters that have this namespace can have this Role.
//
// +kubebuilder:rbac:groups="",resources=configmaps,namespace=openshift-config-managed,roleName=numaresources-hosted,verbs=list

// wanted reads the KubeletConfigs of the cluster's NodePools, by pool. Problems name what cannot be read. readable is false if
// the companion may not read them: it asks first, since every cluster may tell who was refused.
func (r *reconciler) wanted(ctx context.Context) (wanted map[string]numaresources.Kubelet, readable bool, problems []problem, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: numaresources.KubeletConfigNamespace, Verb: "list", Resource: "configmaps"},
	}}
	if err := r.client.Create(ctx, review); err != nil || !review.Status.Allowed {
		return nil, false, nil, err
	}
	var list corev1.ConfigMapList
	err = r.live.List(ctx, &list, client.InNamespace(numaresources.KubeletConfigNamespace), client.HasLabels{numaresources.KubeletConfigLabel, numaresources.NodePoolLabel})
	if err != nil {
		return nil, true, nil, err
	}
	wanted = map[string]numaresources.Kubelet{}
	sources := map[string]string{}
	for i := range list.Items {
		object := &list.Items[i]
		pool := object.Labels[numaresources.NodePoolLabel]
		if other, twice := sources[pool]; twice {
			problems = append(problems, problem{reasonKubeletConfigInvalid, fmt.Sprintf("ConfigMaps %s and %s are both for the pool %s", other, client.ObjectKeyFromObject(object), pool)})
			delete(wanted, pool)
			continue
		}
		sources[pool] = client.ObjectKeyFromObject(object).String()
		var kubelet numaresources.Kubelet
		data, err := manifest.JSON(object.Data[numaresources.KubeletConfigKey])
		if err == nil {
			kubelet, err = numaresources.ParseKubeletConfig(data)
		}
		if err != nil {
			problems = append(problems, problem{reasonKubeletConfigInvalid, fmt.Sprintf("ConfigMap %s, key %s: %v", sources[pool], numaresources.KubeletConfigKey, err)})
			continue
		}
		wanted[pool] = kubelet
	}
	return wanted, true, problems, nil
}
