// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// ordinaryUser returns a client of a user who has the role admin in one namespace, and no rights
// elsewhere.
func ordinaryUser(t *testing.T, c *host.Cluster, namespace string) *kubernetes.Clientset {
	t.Helper()
	if _, err := c.Client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mallory"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := clientConfig(t, "")
	config.WarningHandler = rest.NoWarnings{}
	config.Impersonate.UserName = "mallory"
	config.QPS, config.Burst = 200, 400
	client := clientFor(t, config)
	waitFor(t, 10*time.Second, "the role is in force", func() error {
		_, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	})
	return client
}

// A user whose only namespace does not allow the type cannot bring a pod into a pool, hold
// cores, or make metrics grow.
func TestAttacksReachNoPool(t *testing.T) {
	in(t)
	c, open := activeType(t)
	namespace := fixture.Namespace(t, c.Client, "")
	mallory := ordinaryUser(t, c, namespace)
	pods := mallory.CoreV1().Pods(namespace)
	forged := func(more ...string) map[string]string {
		annotations := map[string]string{}
		for i := 0; i < len(more); i += 2 {
			annotations[more[i]] = more[i+1]
		}
		return annotations
	}
	thousand := map[string]string{}
	for i := range 1000 {
		thousand[fmt.Sprintf("%st-%d", partition.TargetPrefix, i)] = ""
	}
	manyResources := map[string]string{}
	for i := range 1000 {
		manyResources[partition.ResourcesAnnotation(fmt.Sprintf("c-%d", i))] = `{"cpushares":2,"cpuset":"0-3"}`
	}
	withCores := func(p *v1.Pod, name v1.ResourceName) *v1.Pod {
		quantity := resource.MustParse("400")
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{name: quantity, v1.ResourceMemory: resource.MustParse("16Mi")}, Limits: v1.ResourceList{name: quantity}}
		return p
	}
	burstable := func(annotations map[string]string) *v1.Pod {
		return fixture.Pod("", annotations, fixture.Container("c", "true", "cpu=100m memory=16Mi", ""))
	}
	no := false
	// holding asks for half of a node's cores, and has a finalizer that is never removed.
	holding := func(p *v1.Pod) *v1.Pod {
		p = withCores(p, cores)
		for _, list := range []v1.ResourceList{p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits} {
			list[cores] = resource.MustParse("2000")
		}
		p.Finalizers, p.Spec.AutomountServiceAccountToken = []string{"example.com/for-good"}, &no
		return p
	}
	onNode := func(p *v1.Pod) *v1.Pod { p.Spec.NodeName = "reporting"; return p }
	gated := func(p *v1.Pod) *v1.Pod {
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/never"}}
		return p
	}
	nominated := func(p *v1.Pod) *v1.Pod { p.Status.NominatedNodeName = "reporting"; return p }
	partitionedBy := func() map[string]string {
		return forged(managementTarget, softNormal, partition.ResourcesAnnotation("c"), `{"cpushares":2000}`)
	}
	mirrorBy := func() map[string]string {
		annotations := partitionedBy()
		annotations[v1.MirrorPodAnnotationKey] = "x"
		return annotations
	}
	const says = "namespace is not annotated with workload.openshift.io/allowed"
	for name, test := range map[string]struct {
		pod *v1.Pod
		// refused recognises the answer to a pod that is refused. It is nil if the pod is
		// created as an ordinary one.
		refused func(error) bool
		// says is part of the answer, or of the warning; empty means that there is no warning.
		says string
	}{
		"the target annotation":                  {burstable(forged(managementTarget, "")), nil, says},
		"the hard effect":                        {burstable(forged(managementTarget, hard)), apierrors.IsForbidden, says},
		"a resources annotation":                 {burstable(forged(partition.ResourcesAnnotation("c"), `{"cpushares":9000,"cpulimit":9000}`)), nil, ""},
		"a cpuset":                               {burstable(forged(partition.ResourcesAnnotation("c"), `{"cpushares":100,"cpuset":"0"}`)), nil, ""},
		"a partitioned pod":                      {withCores(burstable(forged(managementTarget, softNormal, partition.ResourcesAnnotation("c"), `{"cpushares":400}`)), cores), nil, says},
		"a partitioned pod without requests":     {fixture.Pod("", forged(managementTarget, softNormal, partition.ResourcesAnnotation("c"), `{"cpushares":2}`), fixture.Container("c", "true", "", "")), nil, says},
		"cores":                                  {withCores(burstable(nil), cores), nil, "cores of a workload type were turned back into a cpu request"},
		"cores of another type":                  {withCores(burstable(nil), "other.workload.openshift.io/cores"), nil, "cores of a workload type were turned back into a cpu request"},
		"another type":                           {burstable(forged(partition.TargetPrefix+"other", "")), nil, says},
		"a warning":                              {burstable(forged(partition.WarningAnnotation, "all is well")), nil, ""},
		"a source of static pods":                {burstable(forged("kubernetes.io/config.source", "file", managementTarget, "", partition.ResourcesAnnotation("c"), `{"cpushares":2}`)), nil, says},
		"a mirror pod":                           {burstable(forged(v1.MirrorPodAnnotationKey, "x", managementTarget, "", partition.ResourcesAnnotation("c"), `{"cpushares":2}`)), apierrors.IsInvalid, "mirror"},
		"a mirror pod that stays on a node":      {holding(onNode(burstable(mirrorBy()))), nil, says},
		"a mirror pod without a target":          {holding(onNode(burstable(forged(v1.MirrorPodAnnotationKey, "x")))), nil, "cores of a workload type were turned back into a cpu request"},
		"a partitioned pod that stays on a node": {holding(onNode(burstable(partitionedBy()))), nil, says},
		"a pod with a scheduling gate":           {holding(gated(burstable(partitionedBy()))), nil, says},
		"a pod that nominates its node":          {holding(nominated(burstable(partitionedBy()))), nil, says},
		"a thousand targets":                     {burstable(thousand), apierrors.IsInvalid, "and 997 more"},
		"a thousand resources annotations":       {burstable(manyResources), nil, ""},
		"200 KiB of JSON":                        {burstable(forged(managementTarget, `{"effect": "`+strings.Repeat("x", 200<<10)+`"}`)), apierrors.IsInvalid, "is longer than 1024 bytes"},
		"200 KiB of nested JSON":                 {burstable(forged(managementTarget, strings.Repeat(`{"effect":`, 20<<10))), apierrors.IsInvalid, "is longer than 1024 bytes"},
		"256 KiB of JSON":                        {burstable(forged(managementTarget, strings.Repeat("[", 256<<10))), apierrors.IsInvalid, "metadata.annotations"},
		"a target in capitals":                   {burstable(forged("Target.workload.openshift.io/management", "")), nil, ""},
		"a type in capitals":                     {burstable(forged(partition.TargetPrefix+"Management", "")), apierrors.IsInvalid, "workload type"},
		"a type with a Cyrillic letter":          {burstable(forged(partition.TargetPrefix+"mаnagement", "")), apierrors.IsInvalid, "metadata.annotations"},
		"a target without a type":                {burstable(forged(partition.TargetPrefix, "")), apierrors.IsInvalid, "metadata.annotations"},
	} {
		t.Run(name, func(t *testing.T) {
			sent++
			test.pod.Name = fmt.Sprintf("attack-%d", sent)
			p, err := pods.Create(t.Context(), test.pod, metav1.CreateOptions{})
			if err == nil && len(p.Finalizers) > 0 {
				t.Cleanup(func() { removeFinalizers(t, c, p) })
			}
			if test.refused != nil {
				if err == nil || !test.refused(err) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("the answer is %v, want a refusal with %q", err, test.says)
				}
				const most = 4 << 10
				if err != nil && len(err.Error()) > most {
					t.Errorf("the answer has %d bytes, want %d at most", len(err.Error()), most)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			expectOutside(t, p)
			if warning := p.Annotations[partition.WarningAnnotation]; !strings.Contains(warning, test.says) || (test.says == "") != (warning == "") {
				t.Errorf("the warning is %q, want %q", warning, test.says)
			}
		})
	}
	t.Run("only the scheduler nominates a node", func(t *testing.T) {
		p, err := pods.Create(t.Context(), nominated(fixture.Pod("nominated", nil, fixture.Container("c", "true", "", ""))), metav1.CreateOptions{})
		if err != nil || p.Status.NominatedNodeName != "" {
			t.Errorf("a pod that nominates a node was created with %q (%v), want none", p.Status.NominatedNodeName, err)
		}
		patch := []byte(`{"status": {"nominatedNodeName": "reporting"}}`)
		if _, err := pods.Patch(t.Context(), "nominated", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); !apierrors.IsForbidden(err) {
			t.Errorf("a patch of the status returned %v, want 403", err)
		}
	})
	t.Run("annotations of a pod that is there", func(t *testing.T) {
		p, err := pods.Create(t.Context(), fixture.Pod("later", nil, fixture.Container("c", "true", "", "")), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		annotations := forged(managementTarget, "", partition.ResourcesAnnotation("c"), `{"cpushares":2}`, partition.ResourcesAnnotation("debug"), `{"cpushares":2}`)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			t.Fatal(err)
		}
		for _, subresource := range [][]string{nil, {"status"}, {"ephemeralcontainers"}, {"resize"}} {
			for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
				// The role need not allow it.
				if _, err := pods.Patch(t.Context(), "later", kind, patch, metav1.PatchOptions{}, subresource...); err != nil && !apierrors.IsForbidden(err) {
					t.Errorf("a patch of the subresource %s returned %v", subresource, err)
				}
			}
		}
		p.Annotations = annotations
		if _, err := pods.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			t.Error(err)
		}
		if err := pods.Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "later", Annotations: annotations}, Target: v1.ObjectReference{Kind: "Node", Name: "reporting"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsForbidden(err) {
			t.Error(err)
		}
		if p, err = pods.Get(t.Context(), "later", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		expectOutside(t, p)
	})
	t.Run("annotations of namespaces", func(t *testing.T) {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "management"}}}`, partition.AllowedAnnotation)
		if _, err := mallory.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a patch of their own namespace returned %v, want 403", err)
		}
		latch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "invented"}}}`, partition.EnabledAnnotation)
		if _, err := mallory.CoreV1().Namespaces().Patch(t.Context(), metav1.NamespaceSystem, types.MergePatchType, []byte(latch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a patch of kube-system returned %v, want 403", err)
		}
	})
	t.Run("invented types make no metrics", func(t *testing.T) {
		before := podSeries(t, c)
		const invented = 50
		for i := range invented {
			annotations := forged(fmt.Sprintf("%sinvented-%d", partition.TargetPrefix, i), "")
			if _, err := pods.Create(t.Context(), fixture.Pod(fmt.Sprintf("invented-%d", i), annotations, fixture.Container("c", "true", "", "")), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			annotations = forged(fmt.Sprintf("%sdry-%d", partition.TargetPrefix, i), "")
			if _, err := pods.Create(t.Context(), fixture.Pod(fmt.Sprintf("dry-%d", i), annotations, fixture.Container("c", "true", "", "")), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Fatal(err)
			}
		}
		after := podSeries(t, c)
		if added := len(after) - len(before); added > 1 {
			t.Errorf("there were %d series, and are %d, want one more at most", len(before), len(after))
		}
		const series = `apiserver_workload_partitioning_pods_total{outcome="skipped",reason="namespace_not_annotated",workload_type="other"}`
		if counted := after[series] - before[series]; counted != invented {
			t.Errorf("%s has grown by %v, want %d", series, counted, invented)
		}
	})
	t.Run("metrics count each pod once", func(t *testing.T) {
		before := podSeries(t, c)
		create := creating(t, c, open)
		for i := range 7 {
			if _, err := create(fixture.Pod(fmt.Sprintf("counted-%d", i), asks, fixture.Container("c", "true", "cpu=100m memory=16Mi", "")), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := create(fixture.Pod("refused", map[string]string{managementTarget: hard}, fixture.Container("c", "true", "cpu=100m", "")), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the pod with the hard effect got %v, want 403", err)
		}
		after := podSeries(t, c)
		for series, want := range map[string]float64{
			`apiserver_workload_partitioning_pods_total{outcome="partitioned",reason="",workload_type="management"}`:       7,
			`apiserver_workload_partitioning_pods_total{outcome="refused",reason="qos_change",workload_type="management"}`: 1,
		} {
			if counted := after[series] - before[series]; counted != want {
				t.Errorf("%s has grown by %v, want %v", series, counted, want)
			}
		}
	})
}

func removeFinalizers(t *testing.T, c *host.Cluster, p *v1.Pod) {
	t.Helper()
	if _, err := c.Client.CoreV1().Pods(p.Namespace).Patch(cleanup(t), p.Name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// expectOutside checks that a pod is in no partition, and has no target annotation, no resources
// annotation and no cores.
func expectOutside(t *testing.T, p *v1.Pod) {
	t.Helper()
	if workloadType, is := partition.PartitionedType(p); is {
		t.Errorf("the pod is in the partition %s, with the annotations %v", workloadType, p.Annotations)
	}
	for key := range p.Annotations {
		if strings.HasPrefix(key, partition.TargetPrefix) || strings.HasPrefix(key, partition.ResourcesPrefix) {
			t.Errorf("the pod has the annotation %s", key)
		}
	}
	for _, of := range p.Spec.Containers {
		if partition.CarriesCores(of.Resources.Requests) || partition.CarriesCores(of.Resources.Limits) {
			t.Errorf("container %s has %v, want no cores", of.Name, of.Resources)
		}
	}
}

// A kubelet writes its Node's status in any bytes, and the API server takes names of capacity as they are if they come
// as protobuf. A name that is not UTF-8 once ended kube-apiserver at each scrape of its metrics.
func TestWhatNodesCallTheirResourcesEndsNoAPIServer(t *testing.T) {
	in(t, core)
	c, namespace := activeType(t)
	config := clientConfig(t, "")
	config.ContentType = runtime.ContentTypeProtobuf
	nodes := clientFor(t, config).CoreV1().Nodes()
	for _, name := range []string{"liar-1", "liar-2"} {
		reportingNode(t, c, name, "management")
		// Controllers write the Node, too.
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, workloadType := range []string{"\xff", "a,b", "Upper"} {
				node.Status.Capacity[v1.ResourceName(partition.CoresResource(workloadType))] = resource.MustParse("1")
			}
			for i := range 5000 {
				node.Status.Capacity[v1.ResourceName(partition.CoresResource(fmt.Sprintf("invented-%d", i)))] = resource.MustParse("1")
			}
			_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	series := func() (active []string) {
		for line := range strings.Lines(scrape(t, c)) {
			if strings.HasPrefix(line, "apiserver_workload_partitioning_active{") {
				active = append(active, line)
			}
		}
		return active
	}
	waitFor(t, 20*time.Second, "both nodes are counted", func() error {
		if active := series(); !strings.Contains(strings.Join(active, ""), `workload_type="invented-0"`) {
			return fmt.Errorf("the gauge has %d series", len(active))
		}
		return nil
	})
	// It is collected in a separate goroutine: a server that ends does so a moment later.
	for range 3 {
		if active := series(); len(active) > 32 || !strings.Contains(strings.Join(active, ""), `workload_type="management"`) {
			t.Errorf("the gauge has %d series, want management and at most 32: %s", len(active), strings.Join(active, ""))
		}
	}
	awaitActive(t, creating(t, c, namespace), true)
	kubeSystem, err := c.Client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if latched := partition.ParseTypes(kubeSystem.Annotations[partition.EnabledAnnotation]); slices.ContainsFunc(latched, func(name string) bool { return partition.ValidateType(name) != nil }) {
		t.Errorf("the latch has %q", latched)
	}
}

// The annotations of a binding become the pod's, and nothing validates the pod again.
func TestAPolicyOnBindingsBringsNoPodIntoAPartition(t *testing.T) {
	in(t)
	c, _ := activeType(t)
	// Its pods may not be partitioned.
	namespace := fixture.Namespace(t, c.Client, "")
	policies, bindings := c.Client.AdmissionregistrationV1().MutatingAdmissionPolicies(), c.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	meta := metav1.ObjectMeta{Name: "e2e-bindings"}
	policy := &admissionregistration.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistration.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistration.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: namespace}}, ObjectSelector: &metav1.LabelSelector{},
			ResourceRules: []admissionregistration.NamedRuleWithOperations{{RuleWithOperations: admissionregistration.RuleWithOperations{
				Operations: []admissionregistration.OperationType{admissionregistration.Create},
				Rule:       admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding", "bindings"}}}}},
		},
		ReinvocationPolicy: admissionregistration.IfNeededReinvocationPolicy,
		Mutations: []admissionregistration.Mutation{{PatchType: admissionregistration.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistration.ApplyConfiguration{
			Expression: `Object{metadata: Object.metadata{annotations: {"target.workload.openshift.io/management": '{"effect":"PreferredDuringScheduling"}', "resources.workload.openshift.io/c": '{"cpushares":2}'}}}`}}},
	}}
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); apierrors.IsNotFound(err) {
		t.Skip("this release serves no MutatingAdmissionPolicy by default")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{bindings.Delete(cleanup(t), meta.Name, metav1.DeleteOptions{}), policies.Delete(cleanup(t), meta.Name, metav1.DeleteOptions{})} {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	if _, err := bindings.Create(t.Context(), &admissionregistration.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistration.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := creating(t, c, namespace)
	pods := 0
	// kube-apiserver takes a moment to see a policy.
	waitFor(t, 20*time.Second, "the policy is in force", func() error {
		pods++
		p, err := create(fixture.Pod(fmt.Sprintf("bound-%d", pods), nil, fixture.Container("c", "true", "", "")), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		err = c.Client.CoreV1().Pods(namespace).Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: v1.ObjectReference{Kind: "Node", Name: "reporting"}}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), managementTarget) {
			return fmt.Errorf("a binding got %v, want 403 with the annotation's name", err)
		}
		return nil
	})
	list, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		expectOutside(t, &list.Items[i])
	}
}
