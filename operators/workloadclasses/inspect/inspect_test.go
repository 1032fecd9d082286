// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/workloadclasses"
)

func TestMain(m *testing.M) { testenv.Main(m, nil) }

// The files are applied to a kube-apiserver in their order, and verify answers before the last.
func TestTheFilesInTheirOrder(t *testing.T) {
	plane := testenv.Start(t)
	kubectl := testenv.Kubectl(t)
	kube, err := kubernetes.NewForConfig(plane.Config)
	if err != nil {
		t.Fatal(err)
	}
	client := Client{Kube: kube, Namespace: Namespace}
	apply := func(file string) {
		t.Helper()
		out, err := exec.Command(kubectl, "--kubeconfig", plane.Kubeconfig, "apply", "--server-side", "-f", filepath.Join(testenv.Module(), "deploy", "workloadclasses", file)).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl apply -f %s: %v\n%s", file, err, out)
		}
	}
	verify := func(want ...string) {
		t.Helper()
		checks, err := client.Verify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var bad []string
		for _, check := range checks {
			if !check.OK {
				bad = append(bad, check.Name+" "+check.Object)
			}
		}
		slices.Sort(bad)
		slices.Sort(want)
		if !slices.Equal(bad, want) {
			t.Errorf("verify finds %q, want %q: %+v", bad, want, checks)
		}
	}
	// The kind that OpenShift's DNS operator brings.
	dns := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "dnses.operator.openshift.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "operator.openshift.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "dnses", Singular: "dns", Kind: "DNS", ListKind: "DNSList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
			}}},
		},
	}
	if err := plane.Client.Create(t.Context(), dns); err != nil {
		t.Fatal(err)
	}
	const deployments = "DeploymentAvailable Deployment partition-workloadclasses/"
	service, rules := "EndpointsReady Service partition-workloadclasses/partition-webhooks", "RulesValid ConfigMap partition-workloadclasses/rules"
	verify(deployments+"partition-controller", deployments+"partition-webhooks", service, rules)
	apply("admin.yaml")
	apply("rbac.yaml")
	apply("deployment.yaml")
	testenv.Eventually(t, time.Minute, func() error { // the kind is served a moment after its definition
		_, err := exec.Command(kubectl, "--kubeconfig", plane.Kubeconfig, "get", "dnses.operator.openshift.io").CombinedOutput()
		return err
	})
	apply("dns.yaml")
	nodes := []string{"NodesReady class builds", "NodesReady class longtests", "NodesReady class prowjobs", "NodesReady class tests"}
	verify(append(nodes, deployments+"partition-controller", deployments+"partition-webhooks", service)...)

	// What the cluster's components would do.
	for _, name := range []string{"partition-controller", "partition-webhooks"} {
		deployment, err := kube.AppsV1().Deployments(Namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}}
		if _, err := kube.AppsV1().Deployments(Namespace).UpdateStatus(t.Context(), deployment, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "partition-webhooks-a", Labels: map[string]string{discoveryv1.LabelServiceName: "partition-webhooks"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	if _, err := kube.DiscoveryV1().EndpointSlices(Namespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, class := range []string{"builds", "tests", "longtests", "prowjobs"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: class, Labels: map[string]string{"ci-workload": class}}}
		if node, err = kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		node.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/ci-" + class + "-worker", Value: "ci-" + class + "-worker", Effect: corev1.TaintEffectNoSchedule}}
		if class == "prowjobs" {
			node.Spec.Taints[0].Key = "node-role.kubernetes.io/other"
		}
		if node, err = kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if _, err = kube.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	verify("NodesReady class prowjobs")
	node, err := kube.CoreV1().Nodes().Get(t.Context(), "prowjobs", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Spec.Taints = nil
	if _, err := kube.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	verify()
	apply("webhook.yaml")
	verify()

	// A RuntimeClass of other nodes would have kube-apiserver refuse the pods.
	class, err := kube.NodeV1().RuntimeClasses().Get(t.Context(), "ci-scheduler-runtime-tests", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	class.Scheduling.NodeSelector = map[string]string{"ci-workload": "other"}
	if _, err := kube.NodeV1().RuntimeClasses().Update(t.Context(), class, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	verify("RuntimeClassFits RuntimeClass ci-scheduler-runtime-tests")

	// What the list tells of a node.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "holds", Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "tests", Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	if _, err := kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Nobody answers the webhook here.
	for _, namespace := range []string{"ci-op-x", "ci-op-y"} {
		if _, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "came", Namespace: namespace}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
		if _, err := kube.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	config, err := client.Rules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	classes, err := client.Classes(t.Context(), config, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(classes, func(c Class) bool { return c.Name == "tests" })
	if n := classes[i].Nodes; len(n) != 1 || n[0].Name != "tests" || n[0].State != string(workloadclasses.None) || n[0].Pods != 1 || n[0].HeldBy != "default/holds" || !strings.Contains(n[0].Why, "pod default/holds runs on it") {
		t.Errorf("%+v", n)
	}
	if missed := classes[i].Missed; missed != 2 {
		t.Errorf("%d pods of class tests came without it, want 2", missed)
	}
}
