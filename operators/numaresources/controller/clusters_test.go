// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/numaresources"
)

// kind is a kind of cluster, and how the same nodes are chosen on it.
type kind struct {
	// key and value are a label of the nodes that the tests choose; group is the name that a nodeSelector of it has.
	key, value, group string
	// pool is the name of a pool that has these nodes.
	pool string
	// pools reports whether it has MachineConfigPools, and configs whether it has the KubeletConfigs of its NodePools.
	pools, configs bool
}

// clusters are the two kinds, with the two examples of a selector of OpenShift's enhancement topology-aware-scheduling.
var clusters = map[string]kind{
	"a hosted cluster":    {key: "hypershift.openshift.io/nodePool", value: "hostedcluster02", group: "e50fbc3b", pool: "hostedcluster02", configs: true},
	"an ordinary cluster": {key: "node-role.kubernetes.io/worker", group: "729bcb5f", pool: "worker", pools: true},
}

// A cluster is what the rows have.
type cluster struct {
	*companiontest.Installed
	kind
}

// chosen has the labels of a node that the tests choose, and others.
func (c *cluster) chosen(others ...string) map[string]string {
	labels := map[string]string{c.key: c.value}
	for n := 0; n < len(others); n += 2 {
		labels[others[n]] = others[n+1]
	}
	return labels
}

// bySelector is the group of these nodes.
func (c *cluster) bySelector(config *nodetopologyv1.NodeGroupConfig) nodetopologyv1.NodeGroup {
	return nodetopologyv1.NodeGroup{NodeSelector: selecting(c.key, c.value), Config: config}
}

// key names the ConfigMap and the DaemonSet of a group.
func objectKey(group string) client.ObjectKey {
	return client.ObjectKey{Namespace: exporters, Name: "numaresourcesoperator-" + group}
}

// set waits for a group's DaemonSet of which something is true.
func (c *cluster) set(t *testing.T, group string, check func(*appsv1.DaemonSet) error) *appsv1.DaemonSet {
	t.Helper()
	set := &appsv1.DaemonSet{}
	testenv.Eventually(t, patience, func() error {
		if err := c.Client.Get(t.Context(), objectKey(group), set); err != nil {
			return err
		}
		if check == nil {
			return nil
		}
		return check(set)
	})
	return set
}

// groups waits until the status has these groups, as "name: nodes".
func (c *cluster) groups(t *testing.T, want ...string) {
	t.Helper()
	testenv.Eventually(t, patience, func() error {
		object := &nodetopologyv1.NUMAResourcesOperator{}
		if err := c.Client.Get(t.Context(), client.ObjectKey{Name: nodetopologyv1.NUMAResourcesOperatorName}, object); err != nil {
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

// mustBeGone waits until objects are gone.
func (c *cluster) mustBeGone(t *testing.T, objects ...client.Object) {
	t.Helper()
	testenv.Eventually(t, patience, func() error {
		for _, object := range objects {
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s is still there: %w", object, object.GetName(), err)
			}
		}
		return nil
	})
}

func ofGroup(group string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: exporters, Name: objectKey(group).Name}
	return []client.Object{&appsv1.DaemonSet{ObjectMeta: meta}, &corev1.ConfigMap{ObjectMeta: meta}}
}

// rows are what is the same on both kinds of cluster. Each begins without nodes and without a NUMAResourcesOperator. One that a kind has not
// returns why.
var rows = map[string]func(*testing.T, *cluster) (skip string){
	"a group has an exporter on each of its nodes, with only its privileges": hasExporters,
	"a pool is a group": hasPools,
	"MachineConfigPools that a selector chooses are one group":             selectsPools,
	"a node that two groups have is in none until that changes":            keepsGroupsApart,
	"an exporter's configuration is put back":                              putsConfigurationBack,
	"a group that is removed has no exporter, nor a report":                removesGroups,
	"a group that cannot be resolved ends nothing that runs":               keepsWhatRuns,
	"a node that runs otherwise than its group is named":                   namesUnlikeNodes,
	"a node that runs otherwise than its KubeletConfig is named":           namesDrift,
	"a node whose kubelet is not known, or whose report is old, is named":  namesUnknownNodes,
	"a node whose exporter runs and does not report is a fault":            namesSilentNodes,
	"a node whose CPUs a DRA driver gives is named":                        namesDriven,
	"a node that keeps changing its report costs little":                   bearsRestlessNodes,
	"while it is paused nothing changes":                                   pauses,
	"nothing is left once the NUMAResourcesOperator is gone":               leavesNothing,
	"a node that another exporter reports is not deleted, but named":       leavesReportsOfOthers,
	"a group's exporters say what they are told in the group's own config": tellsExporters,
}

// TestTheSameOnBothKindsOfCluster runs the companion with the rights of its manifests alone.
func TestTheSameOnBothKindsOfCluster(t *testing.T) {
	for _, name := range []string{"a hosted cluster", "an ordinary cluster"} { // the kind of MachineConfigPools stays
		t.Run(name, func(t *testing.T) {
			c := &cluster{kind: clusters[name]}
			if c.pools {
				bringPools(t, testenv.Start(t))
			}
			c.Installed = start(t)
			if c.configs {
				create(t, c.Installed, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "openshift-config-managed"}})
				c.Kubectl(t, "apply", "--server-side", "-k", companiontest.Base(Name)+"/hosted")
				t.Cleanup(func() { c.Kubectl(t, "delete", "-k", companiontest.Base(Name)+"/hosted") })
			}
			for row, run := range rows {
				t.Run(row, func(t *testing.T) {
					if why := run(t, c); why != "" {
						t.Skip(why)
					}
				})
				c.empty(t)
			}
		})
	}
}

// empty waits until nothing is left of a row.
func (c *cluster) empty(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, patience, func() error {
		var sets appsv1.DaemonSetList
		var reports v1alpha2.NodeResourceTopologyList
		if err := c.Client.List(t.Context(), &sets, client.InNamespace(exporters)); err != nil {
			return err
		}
		if err := c.Client.List(t.Context(), &reports); err != nil {
			return err
		}
		if len(sets.Items)+len(reports.Items) > 0 {
			return fmt.Errorf("%d DaemonSets and %d reports are left", len(sets.Items), len(reports.Items))
		}
		return nil
	})
}

// bringPools brings the kind of MachineConfigPools, with the fields that matter, and three of them.
func bringPools(t *testing.T, plane *testenv.ControlPlane) {
	t.Helper()
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
	aPool(t, plane, "worker", "yes")
	aPool(t, plane, "infra", "yes")
	aPool(t, plane, "master", "no")
}

// aPool creates a MachineConfigPool of the nodes that have its role.
func aPool(t *testing.T, plane *testenv.ControlPlane, name, numa string) {
	t.Helper()
	testenv.Eventually(t, patience, func() error { // the kind is there a moment later
		return plane.Client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
			"metadata": map[string]any{"name": name, "labels": map[string]any{"numa": numa}},
			"spec":     map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"node-role.kubernetes.io/" + name: ""}}},
		}})
	})
}

func hasExporters(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	node(t, c.Installed, "b", c.chosen())
	node(t, c.Installed, "elsewhere", nil)
	tolerations := []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	object := write(t, c.Installed, c.bySelector(&nodetopologyv1.NodeGroupConfig{Tolerations: tolerations}))
	set := c.set(t, c.group, func(set *appsv1.DaemonSet) error {
		if !metav1.IsControlledBy(set, object) {
			return fmt.Errorf("the owners are %v", set.OwnerReferences)
		}
		return nil
	})
	c.groups(t, c.group+": 2")
	pod, container := set.Spec.Template.Spec, set.Spec.Template.Spec.Containers[0]
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.InitContainers) > 0 || len(pod.Containers) != 1 {
		t.Errorf("the pod is %+v", pod)
	}
	security := container.SecurityContext
	if len(security.Capabilities.Add) > 0 || len(security.Capabilities.Drop) != 1 || security.Capabilities.Drop[0] != "ALL" || !*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation || security.Privileged != nil {
		t.Errorf("the container has %+v", security)
	}
	for _, mount := range container.VolumeMounts {
		if !mount.ReadOnly {
			t.Errorf("%s can be written", mount.Name)
		}
	}
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil && volume.HostPath.Path != "/var/lib/kubelet/pod-resources" {
			t.Errorf("it sees %s of the host", volume.HostPath.Path)
		}
	}
	if got := pod.Tolerations; len(got) != 1 || got[0] != tolerations[0] {
		t.Errorf("the tolerations are %v", got)
	}
	return ""
}

func hasPools(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	node(t, c.Installed, "elsewhere", nil)
	write(t, c.Installed, nodetopologyv1.NodeGroup{PoolName: ptr.To(c.pool)})
	c.groups(t, c.pool+": 1")
	c.set(t, c.pool, nil)
	return ""
}

func selectsPools(t *testing.T, c *cluster) string {
	if !c.pools {
		return "a hosted cluster has no MachineConfigPool"
	}
	const numa = "7512ed45"
	for _, role := range []string{"worker", "infra", "master"} {
		node(t, c.Installed, role+"1", map[string]string{"node-role.kubernetes.io/" + role: ""})
	}
	write(t, c.Installed, nodetopologyv1.NodeGroup{MachineConfigPoolSelector: selecting("numa", "yes")}, nodetopologyv1.NodeGroup{PoolName: ptr.To("master")})
	c.groups(t, numa+": 2", "master: 1")
	if terms := c.set(t, numa, nil).Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(terms) != 2 {
		t.Errorf("its pods run where %v", terms)
	}
	// Pools are read each period.
	began := time.Now()
	aPool(t, c.ControlPlane, "rt", "yes")
	node(t, c.Installed, "rt1", map[string]string{"node-role.kubernetes.io/rt": ""})
	c.groups(t, numa+": 3", "master: 1")
	t.Logf("a new pool is served after %s", time.Since(began).Round(time.Millisecond))
	return ""
}

func keepsGroupsApart(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	node(t, c.Installed, "second", map[string]string{"disk": "fast"})
	node(t, c.Installed, "both", c.chosen("disk", "fast"))
	const fast = "1eb22218"
	write(t, c.Installed, c.bySelector(nil), nodetopologyv1.NodeGroup{NodeSelector: selecting("disk", "fast")})
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "node both is in the groups "+c.group+" and "+fast)
	c.groups(t, c.group+": 1", fast+": 1")
	without := func(want string) {
		t.Helper()
		for _, group := range []string{c.group, fast} {
			c.set(t, group, func(set *appsv1.DaemonSet) error {
				for _, term := range set.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
					if fields := fmt.Sprint(term.MatchFields); fields != want {
						return fmt.Errorf("%s: the fields are %s", group, fields)
					}
				}
				return nil
			})
		}
	}
	without("[{metadata.name NotIn [both]}]")
	testenv.Eventually(t, patience, func() error {
		var both corev1.Node
		if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "both"}, &both); err != nil {
			return err
		}
		delete(both.Labels, "disk")
		return c.Client.Update(t.Context(), &both)
	})
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionFalse)
	c.groups(t, c.group+": 2", fast+": 1")
	without("[]")
	return ""
}

func tellsExporters(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	write(t, c.Installed, c.bySelector(&nodetopologyv1.NodeGroupConfig{
		InfoRefreshMode: ptr.To(nodetopologyv1.InfoRefreshPeriodic), InfoRefreshPeriod: &metav1.Duration{Duration: 30 * time.Second},
		PodsFingerprinting: ptr.To(nodetopologyv1.PodsFingerprintingEnabled), InfoRefreshPause: ptr.To(nodetopologyv1.InfoRefreshPauseEnabled),
	}))
	config := &corev1.ConfigMap{}
	testenv.Eventually(t, patience, func() error {
		if err := c.Client.Get(t.Context(), objectKey(c.group), config); err != nil {
			return err
		}
		told, err := numaresources.ParseExporterConfiguration([]byte(config.Data["config.yaml"]))
		if err != nil || told.LookPeriod() != 30*time.Second || told.Fingerprint != numaresources.FingerprintAll || !told.Paused {
			return fmt.Errorf("it is %q: %w", config.Data, err)
		}
		return nil
	})
	// Exporters that write nothing are no fault.
	condition(t, c.Installed, nodetopologyv1.ConditionStale, metav1.ConditionFalse)
	return ""
}

func putsConfigurationBack(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	write(t, c.Installed, c.bySelector(nil))
	c.set(t, c.group, nil)
	read := func() *corev1.ConfigMap {
		config := &corev1.ConfigMap{}
		if err := c.Client.Get(t.Context(), objectKey(c.group), config); err != nil {
			t.Fatal(err)
		}
		return config
	}
	want := read()
	for name, do := range map[string]func(*corev1.ConfigMap) error{
		"edited": func(config *corev1.ConfigMap) error {
			config.Data["config.yaml"] = "infoRefreshMode: Events\n"
			return c.Client.Update(t.Context(), config)
		},
		"deleted": func(config *corev1.ConfigMap) error { return c.Client.Delete(t.Context(), config) },
		"without its labels": func(config *corev1.ConfigMap) error {
			config.Labels = nil
			return c.Client.Update(t.Context(), config)
		},
	} {
		began := time.Now()
		if err := do(read()); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, patience, func() error {
			now := &corev1.ConfigMap{}
			if err := c.Client.Get(t.Context(), objectKey(c.group), now); err != nil {
				return err
			}
			if !maps.Equal(now.Data, want.Data) || !maps.Equal(now.Labels, want.Labels) {
				return fmt.Errorf("it is %v %q", now.Labels, now.Data)
			}
			return nil
		})
		t.Logf("%s: put back after %s", name, time.Since(began).Round(time.Millisecond))
	}
	return ""
}

func removesGroups(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	node(t, c.Installed, "second", map[string]string{"disk": "fast"})
	write(t, c.Installed, c.bySelector(nil), nodetopologyv1.NodeGroup{NodeSelector: selecting("disk", "fast")})
	c.set(t, c.group, nil)
	report(t, c.Installed, "a", time.Now(), running("single-numa-node", "pod")...)
	report(t, c.Installed, "second", time.Now(), running("single-numa-node", "pod")...)
	edit(t, c.Installed, func(now *nodetopologyv1.NUMAResourcesOperator) { now.Spec.NodeGroups = now.Spec.NodeGroups[1:] })
	c.mustBeGone(t, append(ofGroup(c.group), &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "a"}})...)
	if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "second"}, &v1alpha2.NodeResourceTopology{}); err != nil {
		t.Error(err)
	}
	return ""
}

func keepsWhatRuns(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	write(t, c.Installed, c.bySelector(nil))
	c.set(t, c.group, nil)
	report(t, c.Installed, "a", time.Now(), running("single-numa-node", "pod")...)
	wrong, why := nodetopologyv1.NodeGroup{MachineConfigPoolSelector: selecting("a", "b")}, "spec.nodeGroups[0]: machineConfigPoolSelector: the cluster has no MachineConfigPools"
	if c.pools {
		wrong, why = nodetopologyv1.NodeGroup{PoolName: ptr.To("no-such")}, "spec.nodeGroups[0]: poolName: there is no MachineConfigPool no-such"
	}
	edit(t, c.Installed, func(now *nodetopologyv1.NUMAResourcesOperator) {
		now.Spec.NodeGroups = []nodetopologyv1.NodeGroup{wrong}
	})
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, why)
	if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, &v1alpha2.NodeResourceTopology{}); err != nil {
		t.Errorf("the report is gone: %v", err)
	}
	c.set(t, c.group, nil)
	edit(t, c.Installed, func(now *nodetopologyv1.NUMAResourcesOperator) {
		now.Spec.NodeGroups = []nodetopologyv1.NodeGroup{c.bySelector(nil), c.bySelector(nil)}
	})
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "spec.nodeGroups[1] selects the same as spec.nodeGroups[0]")
	return ""
}

// threeNodes makes a group of three nodes that all report the same.
func threeNodes(t *testing.T, c *cluster) {
	t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		node(t, c.Installed, name, c.chosen())
	}
	write(t, c.Installed, c.bySelector(nil))
	condition(t, c.Installed, nodetopologyv1.ConditionStale, metav1.ConditionTrue, "node a has no report", "node c has no report")
	condition(t, c.Installed, nodetopologyv1.ConditionAvailable, metav1.ConditionFalse, "node a")
	for _, name := range []string{"a", "b", "c"} {
		report(t, c.Installed, name, time.Now(), running("single-numa-node", "pod")...)
	}
	condition(t, c.Installed, nodetopologyv1.ConditionStale, metav1.ConditionFalse)
}

func namesUnlikeNodes(t *testing.T, c *cluster) string {
	threeNodes(t, c)
	condition(t, c.Installed, nodetopologyv1.ConditionNodesDiffer, metav1.ConditionFalse)
	report(t, c.Installed, "b", time.Now(), running("single-numa-node", "container")...)
	condition(t, c.Installed, nodetopologyv1.ConditionNodesDiffer, metav1.ConditionTrue, "node b has topologyManagerScope container, most of the group have pod")
	report(t, c.Installed, "b", time.Now(), running("single-numa-node", "pod")...)
	condition(t, c.Installed, nodetopologyv1.ConditionNodesDiffer, metav1.ConditionFalse)
	return ""
}

func namesUnknownNodes(t *testing.T, c *cluster) string {
	threeNodes(t, c)
	report(t, c.Installed, "c", time.Now(), v1alpha2.AttributeInfo{Name: "policyUnknown", Value: "CertificateNotVerified"})
	condition(t, c.Installed, nodetopologyv1.ConditionPolicyUnknown, metav1.ConditionTrue, "node c: CertificateNotVerified", "kubeletCertificate")
	report(t, c.Installed, "c", time.Now().Add(-16*time.Minute), running("single-numa-node", "pod")...)
	condition(t, c.Installed, nodetopologyv1.ConditionStale, metav1.ConditionTrue, "node c has no report that is new enough")
	report(t, c.Installed, "c", time.Now(), running("single-numa-node", "pod")...)
	condition(t, c.Installed, nodetopologyv1.ConditionStale, metav1.ConditionFalse)
	condition(t, c.Installed, nodetopologyv1.ConditionPolicyUnknown, metav1.ConditionFalse)
	return ""
}

func namesSilentNodes(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	write(t, c.Installed, c.bySelector(nil))
	condition(t, c.Installed, nodetopologyv1.ConditionStale, metav1.ConditionTrue, "node a has no report")
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionFalse)
	// The DaemonSet controller says that the exporter runs.
	testenv.Eventually(t, patience, func() error {
		set := &appsv1.DaemonSet{}
		if err := c.Client.Get(t.Context(), objectKey(c.group), set); err != nil {
			return err
		}
		set.Status = appsv1.DaemonSetStatus{ObservedGeneration: set.Generation, DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1, NumberAvailable: 1}
		return c.Client.Status().Update(t.Context(), set)
	})
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "exporters run and do not report", "node a has no report")
	report(t, c.Installed, "a", time.Now(), running("single-numa-node", "pod")...)
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionFalse)
	return ""
}

func namesDriven(t *testing.T, c *cluster) string {
	threeNodes(t, c)
	report(t, c.Installed, "b", time.Now(), append(running("single-numa-node", "pod"), v1alpha2.AttributeInfo{Name: "cpuDriver", Value: "dra.cpu"})...)
	condition(t, c.Installed, nodetopologyv1.ConditionCPUDriver, metav1.ConditionTrue, "node b: the DRA driver dra.cpu gives its CPUs", "its zones offer none")
	report(t, c.Installed, "b", time.Now(), running("single-numa-node", "pod")...)
	condition(t, c.Installed, nodetopologyv1.ConditionCPUDriver, metav1.ConditionFalse)
	return ""
}

// A node that keeps changing its report causes no more writes than any other node, and its last report still counts.
func bearsRestlessNodes(t *testing.T, c *cluster) string {
	threeNodes(t, c)
	began, before := time.Now(), written(t, c.Installed)
	driver := ""
	for n := range 40 {
		driver = fmt.Sprintf("dra.cpu-%d", n)
		report(t, c.Installed, "b", time.Now(), append(running("single-numa-node", "pod"), v1alpha2.AttributeInfo{Name: "cpuDriver", Value: driver})...)
		time.Sleep(100 * time.Millisecond)
	}
	condition(t, c.Installed, nodetopologyv1.ConditionCPUDriver, metav1.ConditionTrue, "the DRA driver "+driver+" gives")
	const status = "update numaresourcesoperators/status"
	writes, after := written(t, c.Installed)[status]-before[status], time.Since(began)
	if most := 2 + 2*int(after/period); writes > most {
		t.Errorf("the status was written %d times in %s, want %d times at most", writes, after, most)
	}
	return ""
}

func namesDrift(t *testing.T, c *cluster) string {
	threeNodes(t, c)
	if !c.configs {
		condition(t, c.Installed, nodetopologyv1.ConditionKubeletConfigDrift, metav1.ConditionUnknown, "deploy/numaresources/hosted")
		return "an ordinary cluster has the KubeletConfig of no NodePool"
	}
	// As hostedconfig writes it.
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-config-managed", Name: "tuned-pool", Labels: map[string]string{"hypershift.openshift.io/kubeletconfig-config": "", c.key: c.value}},
		Data:       map[string]string{"config": kubeletConfig("single-numa-node")},
	}
	create(t, c.Installed, config)
	condition(t, c.Installed, nodetopologyv1.ConditionKubeletConfigDrift, metav1.ConditionFalse)
	say := func(text string) {
		t.Helper()
		config.Data["config"] = text
		if err := c.Client.Update(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	say(kubeletConfig("restricted"))
	condition(t, c.Installed, nodetopologyv1.ConditionKubeletConfigDrift, metav1.ConditionTrue, "node a has topologyManagerPolicy single-numa-node, want restricted")
	// One of another pool is nobody's here.
	report(t, c.Installed, "a", time.Now(), running("restricted", "pod")...)
	condition(t, c.Installed, nodetopologyv1.ConditionKubeletConfigDrift, metav1.ConditionTrue, "node b has topologyManagerPolicy single-numa-node, want restricted; node c")
	say("kind: KubeletConfig\n")
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "ConfigMap openshift-config-managed/tuned-pool, key config: spec.kubeletConfig is empty")
	say(kubeletConfig("restricted") + "x: &a " + strings.Repeat("x", 4<<10) + "\ny: [" + strings.Repeat("*a, ", 300) + "]\n")
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionTrue, "ConfigMap openshift-config-managed/tuned-pool, key config: it has more than")
	say(kubeletConfig("single-numa-node"))
	condition(t, c.Installed, nodetopologyv1.ConditionDegraded, metav1.ConditionFalse)
	condition(t, c.Installed, nodetopologyv1.ConditionKubeletConfigDrift, metav1.ConditionTrue, "node a has topologyManagerPolicy restricted, want single-numa-node")
	return ""
}

func pauses(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	write(t, c.Installed, c.bySelector(nil))
	before := c.set(t, c.group, nil).DeepCopy()
	edit(t, c.Installed, func(now *nodetopologyv1.NUMAResourcesOperator) {
		now.Annotations = map[string]string{"workload.openshift.io/paused": ""}
		now.Spec.NodeGroups[0].Config = &nodetopologyv1.NodeGroupConfig{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	})
	condition(t, c.Installed, nodetopologyv1.ConditionPaused, metav1.ConditionTrue, "workload.openshift.io/paused")
	testenv.Always(t, 3*time.Second, func() error {
		now := &appsv1.DaemonSet{}
		if err := c.Client.Get(t.Context(), objectKey(c.group), now); err != nil || now.Generation != before.Generation {
			return fmt.Errorf("it has the generation %d, and had %d: %w", now.Generation, before.Generation, err)
		}
		return nil
	})
	edit(t, c.Installed, func(now *nodetopologyv1.NUMAResourcesOperator) { now.Annotations = nil })
	c.set(t, c.group, func(now *appsv1.DaemonSet) error {
		if len(now.Spec.Template.Spec.Tolerations) != 1 {
			return fmt.Errorf("it tolerates %v", now.Spec.Template.Spec.Tolerations)
		}
		return nil
	})
	condition(t, c.Installed, nodetopologyv1.ConditionPaused, metav1.ConditionFalse)
	return ""
}

func leavesReportsOfOthers(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	theirs := &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Zones: v1alpha2.ZoneList{{Name: "node-0", Type: "Node"}}}
	create(t, c.Installed, theirs)
	object := write(t, c.Installed, c.bySelector(nil))
	condition(t, c.Installed, nodetopologyv1.ConditionStale, metav1.ConditionTrue, "node a has no report that is new enough")
	gone(t, c.Installed, object)
	c.mustBeGone(t, ofGroup(c.group)...)
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Error(err)
	}
	return ""
}

func leavesNothing(t *testing.T, c *cluster) string {
	node(t, c.Installed, "a", c.chosen())
	object := write(t, c.Installed, c.bySelector(nil))
	c.set(t, c.group, nil)
	report(t, c.Installed, "a", time.Now(), running("single-numa-node", "pod")...)
	gone(t, c.Installed, object)
	c.mustBeGone(t, append(ofGroup(c.group), &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "a"}})...)
	return ""
}
