// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/internal/testenv"
)

// TestAnOrdinaryClustersPoolsAreMachineConfigPools brings that kind, with the fields that matter.
func TestAnOrdinaryClustersPoolsAreMachineConfigPools(t *testing.T) {
	plane := testenv.Start(t)
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "machineconfigpools.machineconfiguration.openshift.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "machineconfiguration.openshift.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "MachineConfigPool", ListKind: "MachineConfigPoolList", Singular: "machineconfigpool", Plural: "machineconfigpools"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}
	if err := plane.Client.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Client.Delete(context.WithoutCancel(t.Context()), definition) })
	pool := func(name string, labels map[string]any, selector map[string]any) {
		testenv.Eventually(t, patience, func() error {
			return plane.Client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
				"metadata": map[string]any{"name": name, "labels": labels},
				"spec":     map[string]any{"nodeSelector": map[string]any{"matchLabels": selector}},
			}})
		})
	}
	pool("worker", map[string]any{"numa": "yes"}, map[string]any{"node-role.kubernetes.io/worker": ""})
	pool("infra", map[string]any{"numa": "yes"}, map[string]any{"node-role.kubernetes.io/infra": ""})
	pool("master", nil, map[string]any{"node-role.kubernetes.io/master": ""})

	i := start(t)
	node(t, i, "worker1", map[string]string{"node-role.kubernetes.io/worker": ""})
	node(t, i, "infra1", map[string]string{"node-role.kubernetes.io/infra": ""})
	node(t, i, "master1", map[string]string{"node-role.kubernetes.io/master": ""})
	write(t, i,
		nodetopologyv1.NodeGroup{MachineConfigPoolSelector: selecting("numa", "yes")},
		nodetopologyv1.NodeGroup{PoolName: ptr.To("master")},
	)
	groups := func(want ...string) {
		t.Helper()
		testenv.Eventually(t, patience, func() error {
			object := &nodetopologyv1.NUMAResourcesOperator{}
			if err := i.Client.Get(t.Context(), client.ObjectKey{Name: nodetopologyv1.NUMAResourcesOperatorName}, object); err != nil {
				return err
			}
			var is []string
			for _, group := range object.Status.NodeGroups {
				is = append(is, fmt.Sprintf("%s: %d", group.Name, group.Nodes))
			}
			if fmt.Sprint(is) != fmt.Sprint(want) {
				return fmt.Errorf("the groups are %q, want %q", is, want)
			}
			return nil
		})
	}
	groups("7512ed45: 2", "master: 1")
	set := &appsv1.DaemonSet{}
	if err := i.Client.Get(t.Context(), client.ObjectKey{Namespace: exporters, Name: "numaresourcesoperator-7512ed45"}, set); err != nil {
		t.Fatal(err)
	}
	if terms := set.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(terms) != 2 {
		t.Errorf("its pods run where %v", terms)
	}
	// Pools are read each period.
	began := time.Now()
	pool("rt", map[string]any{"numa": "yes"}, map[string]any{"node-role.kubernetes.io/rt": ""})
	node(t, i, "rt1", map[string]string{"node-role.kubernetes.io/rt": ""})
	groups("7512ed45: 3", "master: 1")
	t.Logf("a new pool is served after %s", time.Since(began).Round(time.Millisecond))
	edit(t, i, func(now *nodetopologyv1.NUMAResourcesOperator) { now.Spec.NodeGroups[1].PoolName = ptr.To("no-such") })
	condition(t, i, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "spec.nodeGroups[1]: poolName: there is no MachineConfigPool no-such")
}
