// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/numaresources"
)

func TestMain(m *testing.M) { companiontest.Main(m, &Companion{}) }

const (
	exporters = "partition-numaresources-exporter"
	patience  = time.Minute
	period    = 2 * time.Second
)

// start starts the companion with the rights of its manifests alone.
func start(t *testing.T) *companiontest.Installed {
	t.Helper()
	i := companiontest.Install(t, Name)
	startWith(t, i, nil)
	return i
}

// startWith starts a replica of it with other settings.
func startWith(t *testing.T, i *companiontest.Installed, other map[string]any) *testenv.Process {
	t.Helper()
	return i.Start(t, func(config *configv1alpha1.ControllerConfiguration) {
		settings := map[string]any{}
		if err := json.Unmarshal(config.Settings.Raw, &settings); err != nil {
			t.Fatal(err)
		}
		settings["period"] = period.String()
		maps.Copy(settings, other)
		raw, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		config.Settings.Raw = raw
	})
}

// write creates the NUMAResourcesOperator with some groups.
func write(t *testing.T, i *companiontest.Installed, groups ...nodetopologyv1.NodeGroup) *nodetopologyv1.NUMAResourcesOperator {
	t.Helper()
	object := &nodetopologyv1.NUMAResourcesOperator{
		ObjectMeta: metav1.ObjectMeta{Name: nodetopologyv1.NUMAResourcesOperatorName},
		Spec:       nodetopologyv1.NUMAResourcesOperatorSpec{NodeGroups: groups},
	}
	create(t, i, object)
	return object
}

// create creates an object that the test's end deletes.
func create(t *testing.T, i *companiontest.Installed, object client.Object) {
	t.Helper()
	if err := i.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gone(t, i, object) })
}

func gone(t *testing.T, i *companiontest.Installed, object client.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if err := client.IgnoreNotFound(i.Client.Delete(ctx, object)); err != nil {
		t.Error(err)
	}
}

func selecting(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func node(t *testing.T, i *companiontest.Installed, name string, labels map[string]string) {
	t.Helper()
	all := map[string]string{corev1.LabelOSStable: "linux"}
	for key, value := range labels {
		all[key] = value
	}
	create(t, i, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}})
}

// report writes what an exporter would.
func report(t *testing.T, i *companiontest.Installed, name string, at time.Time, attributes ...v1alpha2.AttributeInfo) {
	t.Helper()
	object := &v1alpha2.NodeResourceTopology{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{numaresources.OwnerLabel: numaresources.Name},
			Annotations: map[string]string{numaresources.HeartbeatAnnotation: at.UTC().Format(time.RFC3339)},
		},
		Zones:      v1alpha2.ZoneList{{Name: "node-0", Type: "Node"}},
		Attributes: attributes,
	}
	there := &v1alpha2.NodeResourceTopology{}
	if err := i.Client.Get(t.Context(), client.ObjectKey{Name: name}, there); err == nil {
		object.ResourceVersion = there.ResourceVersion
		if err := i.Client.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		return
	}
	create(t, i, object)
}

func running(policy, scope string) []v1alpha2.AttributeInfo {
	return []v1alpha2.AttributeInfo{
		{Name: "topologyManagerPolicy", Value: policy}, {Name: "topologyManagerScope", Value: scope},
		{Name: "cpuManagerPolicy", Value: "static"}, {Name: "memoryManagerPolicy", Value: "None"},
	}
}

// condition waits until a condition has a status, and its message some parts.
func condition(t *testing.T, i *companiontest.Installed, kind string, status metav1.ConditionStatus, parts ...string) {
	t.Helper()
	testenv.Eventually(t, patience, func() error {
		object := &nodetopologyv1.NUMAResourcesOperator{}
		if err := i.Client.Get(t.Context(), client.ObjectKey{Name: nodetopologyv1.NUMAResourcesOperatorName}, object); err != nil {
			return err
		}
		now := meta.FindStatusCondition(object.Status.Conditions, kind)
		if now == nil || now.Status != status {
			return fmt.Errorf("%s is %+v, want %s", kind, now, status)
		}
		for _, part := range parts {
			if !strings.Contains(now.Message, part) {
				return fmt.Errorf("%s says %q, want %q", kind, now.Message, part)
			}
		}
		return nil
	})
}

func TestExactlyOneFieldChoosesTheNodesOfAGroup(t *testing.T) {
	plane := testenv.Start(t)
	worker, pool := selecting("node-role.kubernetes.io/worker", ""), ptr.To("hostedcluster02")
	for name, test := range map[string]struct {
		name   string
		groups []nodetopologyv1.NodeGroup
		err    string
	}{
		"nodeSelector":              {groups: []nodetopologyv1.NodeGroup{{NodeSelector: worker}}},
		"machineConfigPoolSelector": {groups: []nodetopologyv1.NodeGroup{{MachineConfigPoolSelector: worker}}},
		"poolName":                  {groups: []nodetopologyv1.NodeGroup{{PoolName: pool}}},
		"the enhancement's two examples": {groups: []nodetopologyv1.NodeGroup{
			{NodeSelector: worker}, {NodeSelector: selecting("hypershift.openshift.io/nodePool", "hostedcluster02")},
		}},
		"no group":            {},
		"two selectors":       {groups: []nodetopologyv1.NodeGroup{{NodeSelector: worker, MachineConfigPoolSelector: worker}}, err: "exactly one of nodeSelector, machineConfigPoolSelector and poolName must be set"},
		"selector and pool":   {groups: []nodetopologyv1.NodeGroup{{NodeSelector: worker}, {NodeSelector: worker, PoolName: pool}}, err: "spec.nodeGroups[1]: Invalid value: exactly one of"},
		"all three":           {groups: []nodetopologyv1.NodeGroup{{NodeSelector: worker, MachineConfigPoolSelector: worker, PoolName: pool}}, err: "exactly one of"},
		"none of them":        {groups: []nodetopologyv1.NodeGroup{{}}, err: "exactly one of"},
		"a pool without name": {groups: []nodetopologyv1.NodeGroup{{PoolName: ptr.To("")}}, err: "poolName"},
		"a period below one second": {groups: []nodetopologyv1.NodeGroup{{NodeSelector: worker, Config: &nodetopologyv1.NodeGroupConfig{
			InfoRefreshPeriod: &metav1.Duration{Duration: time.Millisecond},
		}}}, err: "must be at least one second"},
		"a mode that does not exist": {groups: []nodetopologyv1.NodeGroup{{NodeSelector: worker, Config: &nodetopologyv1.NodeGroupConfig{
			InfoRefreshMode: ptr.To[nodetopologyv1.InfoRefreshMode]("Never"),
		}}}, err: `Unsupported value: "Never"`},
		"another name": {name: "second", err: "metadata.name must be numaresourcesoperator"},
	} {
		t.Run(name, func(t *testing.T) {
			object := &nodetopologyv1.NUMAResourcesOperator{ObjectMeta: metav1.ObjectMeta{Name: nodetopologyv1.NUMAResourcesOperatorName}, Spec: nodetopologyv1.NUMAResourcesOperatorSpec{NodeGroups: test.groups}}
			if test.name != "" {
				object.Name = test.name
			}
			err := plane.Client.Create(t.Context(), object, client.DryRunAll)
			switch {
			case test.err == "" && err != nil:
				t.Error(err)
			case test.err != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.err)):
				t.Errorf("the error is %v, want %q", err, test.err)
			}
		})
	}
}

func edit(t *testing.T, i *companiontest.Installed, change func(*nodetopologyv1.NUMAResourcesOperator)) {
	t.Helper()
	testenv.Eventually(t, patience, func() error {
		now := &nodetopologyv1.NUMAResourcesOperator{}
		if err := i.Client.Get(t.Context(), client.ObjectKey{Name: nodetopologyv1.NUMAResourcesOperatorName}, now); err != nil {
			return err
		}
		change(now)
		return i.Client.Update(t.Context(), now)
	})
}

func kubeletConfig(policy string) string {
	return "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: a}\nspec: {kubeletConfig: {topologyManagerPolicy: " + policy + "}}\n"
}
