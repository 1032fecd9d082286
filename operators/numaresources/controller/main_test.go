// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	appsv1 "k8s.io/api/apps/v1"
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
)

// start starts the companion with the rights of its manifests alone.
func start(t *testing.T) *companiontest.Installed {
	t.Helper()
	i := companiontest.Install(t, Name)
	i.Start(t, func(config *configv1alpha1.ControllerConfiguration) {
		settings := map[string]any{}
		if err := json.Unmarshal(config.Settings.Raw, &settings); err != nil {
			t.Fatal(err)
		}
		settings["period"] = "2s"
		raw, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		config.Settings.Raw = raw
	})
	return i
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
		"the seed's two examples": {groups: []nodetopologyv1.NodeGroup{
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

func TestEachGroupHasItsExporters(t *testing.T) {
	i := start(t)
	const pool = "hypershift.openshift.io/nodePool"
	node(t, i, "worker", map[string]string{"node-role.kubernetes.io/worker": ""})
	node(t, i, "pooled", map[string]string{pool: "hostedcluster02"})
	node(t, i, "both", map[string]string{"node-role.kubernetes.io/worker": "", pool: "hostedcluster02"})
	node(t, i, "neither", nil)
	tolerations := []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	object := write(t, i,
		nodetopologyv1.NodeGroup{NodeSelector: selecting("node-role.kubernetes.io/worker", "")},
		nodetopologyv1.NodeGroup{PoolName: ptr.To("hostedcluster02"), Config: &nodetopologyv1.NodeGroupConfig{
			InfoRefreshMode: ptr.To(nodetopologyv1.InfoRefreshPeriodic), InfoRefreshPeriod: &metav1.Duration{Duration: 30 * time.Second}, Tolerations: tolerations,
		}},
	)
	key := func(group string) client.ObjectKey {
		return client.ObjectKey{Namespace: exporters, Name: "numaresourcesoperator-" + group}
	}
	const selector = "729bcb5f"
	sets := map[string]*appsv1.DaemonSet{selector: {}, "hostedcluster02": {}}
	testenv.Eventually(t, patience, func() error {
		for group, set := range sets {
			if err := i.Client.Get(t.Context(), key(group), set); err != nil {
				return err
			}
		}
		return nil
	})
	t.Run("with only their privileges", func(t *testing.T) {
		for group, set := range sets {
			pod, container := set.Spec.Template.Spec, set.Spec.Template.Spec.Containers[0]
			if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.InitContainers) > 0 || len(pod.Containers) != 1 {
				t.Errorf("%s: the pod is %+v", group, pod)
			}
			c := container.SecurityContext
			if len(c.Capabilities.Add) > 0 || len(c.Capabilities.Drop) != 1 || c.Capabilities.Drop[0] != "ALL" || !*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation || c.Privileged != nil {
				t.Errorf("%s: the container has %+v", group, c)
			}
			for _, mount := range container.VolumeMounts {
				if !mount.ReadOnly {
					t.Errorf("%s: %s can be written", group, mount.Name)
				}
			}
			for _, volume := range pod.Volumes {
				if volume.HostPath != nil && volume.HostPath.Path != "/var/lib/kubelet/pod-resources" {
					t.Errorf("%s: it sees %s of the host", group, volume.HostPath.Path)
				}
			}
			if most := set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue(); most != 1 {
				t.Errorf("%s: %d nodes are updated at once", group, most)
			}
			if !metav1.IsControlledBy(set, object) {
				t.Errorf("%s: the owners are %v", group, set.OwnerReferences)
			}
		}
		if got := sets["hostedcluster02"].Spec.Template.Spec.Tolerations; len(got) != 1 || got[0] != tolerations[0] {
			t.Errorf("the tolerations are %v", got)
		}
	})
	t.Run("and a node that two groups have is in none", func(t *testing.T) {
		condition(t, i, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "node both is in the groups "+selector+" and hostedcluster02")
		for group := range sets {
			testenv.Eventually(t, patience, func() error {
				if err := i.Client.Get(t.Context(), key(group), sets[group]); err != nil {
					return err
				}
				for _, term := range sets[group].Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
					if fields := fmt.Sprint(term.MatchFields); fields != "[{metadata.name NotIn [both]}]" {
						return fmt.Errorf("%s: the fields are %s", group, fields)
					}
				}
				return nil
			})
		}
	})
	t.Run("and its configuration, which is put back", func(t *testing.T) {
		edit := map[string]func(*corev1.ConfigMap) error{
			"edited": func(config *corev1.ConfigMap) error {
				config.Data["config.yaml"] = "infoRefreshMode: Events\n"
				return i.Client.Update(t.Context(), config)
			},
			"deleted": func(config *corev1.ConfigMap) error { return i.Client.Delete(t.Context(), config) },
			"without its labels": func(config *corev1.ConfigMap) error {
				config.Labels = nil
				return i.Client.Update(t.Context(), config)
			},
		}
		for name, do := range edit {
			config := &corev1.ConfigMap{}
			if err := i.Client.Get(t.Context(), key("hostedcluster02"), config); err != nil {
				t.Fatal(err)
			}
			want := config.Data["config.yaml"]
			if parsed, err := numaresources.ParseExporterConfiguration([]byte(want)); err != nil || parsed.LookPeriod() != 30*time.Second {
				t.Fatalf("it is %q: %v", want, err)
			}
			began := time.Now()
			if err := do(config); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, patience, func() error {
				now := &corev1.ConfigMap{}
				if err := i.Client.Get(t.Context(), key("hostedcluster02"), now); err != nil {
					return err
				}
				if now.Data["config.yaml"] != want || now.Labels["nodetopology.openshift.io/group"] != "hostedcluster02" {
					return fmt.Errorf("it is %v %q", now.Labels, now.Data)
				}
				return nil
			})
			t.Logf("%s: put back after %s", name, time.Since(began).Round(time.Millisecond))
		}
	})
	t.Run("and a group that is removed has none, nor a report", func(t *testing.T) {
		report(t, i, "worker", time.Now(), running("single-numa-node", "pod")...)
		report(t, i, "pooled", time.Now(), running("single-numa-node", "pod")...)
		edit(t, i, func(now *nodetopologyv1.NUMAResourcesOperator) { now.Spec.NodeGroups = now.Spec.NodeGroups[1:] })
		testenv.Eventually(t, patience, func() error {
			for _, object := range []client.Object{
				&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: exporters, Name: "numaresourcesoperator-" + selector}},
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: exporters, Name: "numaresourcesoperator-" + selector}},
				&v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
			} {
				if err := i.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
					return fmt.Errorf("%T is still there: %v", object, err)
				}
			}
			return nil
		})
		// Both is in one group now.
		condition(t, i, nodetopologyv1.ConditionDegraded, metav1.ConditionFalse)
		if err := i.Client.Get(t.Context(), client.ObjectKey{Name: "pooled"}, &v1alpha2.NodeResourceTopology{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("and nothing is left once the object is gone", func(t *testing.T) {
		gone(t, i, object)
		testenv.Eventually(t, patience, func() error {
			var left appsv1.DaemonSetList
			var reports v1alpha2.NodeResourceTopologyList
			if err := i.Client.List(t.Context(), &left, client.InNamespace(exporters)); err != nil {
				return err
			}
			if err := i.Client.List(t.Context(), &reports); err != nil {
				return err
			}
			if len(left.Items)+len(reports.Items) > 0 {
				return fmt.Errorf("%d DaemonSets and %d reports are left", len(left.Items), len(reports.Items))
			}
			return nil
		})
	})
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

func TestWhatNodesReportIsCompared(t *testing.T) {
	i := start(t)
	const pool = "hypershift.openshift.io/nodePool"
	for _, name := range []string{"a", "b", "c"} {
		node(t, i, name, map[string]string{pool: "blue"})
	}
	write(t, i, nodetopologyv1.NodeGroup{NodeSelector: selecting(pool, "blue")})
	condition(t, i, nodetopologyv1.ConditionStale, metav1.ConditionTrue, "node a has no report", "node c has no report")
	condition(t, i, nodetopologyv1.ConditionAvailable, metav1.ConditionFalse, "node a")
	for _, name := range []string{"a", "b", "c"} {
		report(t, i, name, time.Now(), running("single-numa-node", "pod")...)
	}
	condition(t, i, nodetopologyv1.ConditionStale, metav1.ConditionFalse)
	condition(t, i, nodetopologyv1.ConditionNodesDiffer, metav1.ConditionFalse)
	condition(t, i, nodetopologyv1.ConditionKubeletConfigDrift, metav1.ConditionUnknown, "deploy/numaresources/hosted")

	report(t, i, "b", time.Now(), running("single-numa-node", "container")...)
	condition(t, i, nodetopologyv1.ConditionNodesDiffer, metav1.ConditionTrue, "node b has topologyManagerScope container, most of the group have pod")
	report(t, i, "b", time.Now(), running("single-numa-node", "pod")...)
	condition(t, i, nodetopologyv1.ConditionNodesDiffer, metav1.ConditionFalse)

	report(t, i, "c", time.Now(), v1alpha2.AttributeInfo{Name: "policyUnknown", Value: "CertificateNotVerified"})
	condition(t, i, nodetopologyv1.ConditionPolicyUnknown, metav1.ConditionTrue, "node c: CertificateNotVerified", "kubeletCertificate")
	report(t, i, "c", time.Now().Add(-16*time.Minute), running("single-numa-node", "pod")...)
	condition(t, i, nodetopologyv1.ConditionStale, metav1.ConditionTrue, "node c has no report that is new enough")
	report(t, i, "c", time.Now(), running("single-numa-node", "pod")...)
	condition(t, i, nodetopologyv1.ConditionStale, metav1.ConditionFalse)

	report(t, i, "b", time.Now(), append(running("single-numa-node", "pod"), v1alpha2.AttributeInfo{Name: "cpuDriver", Value: "dra.cpu"})...)
	condition(t, i, nodetopologyv1.ConditionCPUDriver, metav1.ConditionTrue, "node b: the DRA driver dra.cpu gives its CPUs", "its zones offer none")
	report(t, i, "b", time.Now(), running("single-numa-node", "pod")...)
	condition(t, i, nodetopologyv1.ConditionCPUDriver, metav1.ConditionFalse)

	// As hostedconfig writes it.
	create(t, i, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "openshift-config-managed"}})
	i.Kubectl(t, "apply", "--server-side", "-k", companiontest.Base(Name)+"/hosted")
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config-managed", Name: "tuned-blue", Labels: map[string]string{"hypershift.openshift.io/kubeletconfig-config": "", pool: "blue"}},
		Data:       map[string]string{"config": kubeletConfig("single-numa-node")},
	}
	create(t, i, config)
	condition(t, i, nodetopologyv1.ConditionKubeletConfigDrift, metav1.ConditionFalse)
	config.Data["config"] = kubeletConfig("restricted")
	if err := i.Client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	condition(t, i, nodetopologyv1.ConditionKubeletConfigDrift, metav1.ConditionTrue, "node a has topologyManagerPolicy single-numa-node, want restricted")
	config.Data["config"] = "kind: KubeletConfig\n"
	if err := i.Client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	condition(t, i, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "ConfigMap openshift-config-managed/tuned-blue, key config: spec.kubeletConfig is empty")

	edit(t, i, func(now *nodetopologyv1.NUMAResourcesOperator) {
		now.Spec.NodeGroups = []nodetopologyv1.NodeGroup{{MachineConfigPoolSelector: selecting("a", "b")}}
	})
	condition(t, i, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "spec.nodeGroups[0]: machineConfigPoolSelector: the cluster has no MachineConfigPools")
	if err := i.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, &v1alpha2.NodeResourceTopology{}); err != nil {
		t.Errorf("a group that cannot be resolved ends what runs: %v", err)
	}
}

func kubeletConfig(policy string) string {
	return "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: a}\nspec: {kubeletConfig: {topologyManagerPolicy: " + policy + "}}\n"
}
