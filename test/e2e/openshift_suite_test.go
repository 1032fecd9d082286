// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// The assertions of OpenShift's conformance suite (openshift/origin,
// test/extended/cpu_partitioning) hold, whatever decides on the type. TestRuntimeAndKubeletAgree
// has those about a file that has gone or has an empty cpuset.
func TestAssertionsOfOpenShiftsSuiteHold(t *testing.T) {
	in(t)
	with := config
	with.Pinning, with.CPUManagerPolicy = pinning, "none"
	with.AdmissionConfiguration = partitioningConfig(`"activation": {"source": "Infrastructure"}`)
	c := alone(t, with)
	object := infrastructureOf(t)
	object.serve()
	object.create()
	t.Run("None", func(t *testing.T) {
		object.set("None")
		restart(t, c, "")
		expectClusterWithout(t, c)
	})
	t.Run("AllNodes", func(t *testing.T) {
		object.set("AllNodes")
		restart(t, c, pinning)
		expectClusterWith(t, c)
	})
	t.Run("the nodes decide", func(t *testing.T) {
		restartAPIServer(t, c, "")
		expectClusterWith(t, c)
	})
}

// expectClusterWith checks the node and pods of a cluster that partitions.
func expectClusterWith(t *testing.T, c *host.Cluster) {
	t.Helper()
	node := getNode(t, c)
	for what, list := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		if has := list[cores]; has.Value() != int64(runtime.NumCPU())*1000 {
			t.Errorf("the node's %s has %s cores, want %d", what, has.String(), runtime.NumCPU()*1000)
		}
	}
	open, plain := fixture.Namespace(t, c.Client, "management"), fixture.Namespace(t, c.Client, "")
	ordinary := suiteDeployment(t, c, plain)
	expectOriginalCPU(t, ordinary)
	if warning := ordinary.Annotations[partition.WarningAnnotation]; !strings.Contains(warning, "namespace is not annotated with workload.openshift.io/allowed") {
		t.Errorf("the pod of a namespace without the annotation has the warning %q", warning)
	}
	deployed := suiteDeployment(t, c, open)
	static := staticPod("suite", asks, fixture.Awake, "cpu=20m memory=50Mi", "cpu=30m")
	writeStaticPods(t, c, static)
	pods := []*v1.Pod{deployed, awaitRunning(t, c, metav1.NamespaceDefault, static.Name+"-"+host.NodeName)}
	if _, asked := deployed.Annotations[managementTarget]; !asked {
		t.Errorf("the Deployment's pod has lost its target: %v", deployed.Annotations)
	}
	for _, p := range pods {
		for _, of := range p.Spec.Containers {
			millicores, annotation := int64(20), `{"cpushares":20,"cpulimit":30}`
			if of.Name == "unlimited" {
				millicores, annotation = 10, `{"cpushares":10}`
			}
			request, limit := of.Resources.Requests[cores], of.Resources.Limits[cores]
			if request.Value() != millicores || limit.Value() != millicores || !of.Resources.Requests.Cpu().IsZero() || !of.Resources.Limits.Cpu().IsZero() {
				t.Errorf("container %s of pod %s has %v, want %d cores and no cpu", of.Name, p.Name, of.Resources, millicores)
			}
			if got := p.Annotations[partition.ResourcesAnnotation(of.Name)]; got != annotation {
				t.Errorf("container %s of pod %s has the annotation %s, want %s", of.Name, p.Name, got, annotation)
			}
		}
	}
	expectSuitePlacement(t, pods)
	t.Run("after a restart of the kubelet", func(t *testing.T) {
		restart(t, c, pinning)
		expectSuitePlacement(t, pods)
	})
}

// expectClusterWithout checks the node and pods of a cluster that does not partition: nothing
// says that they asked.
func expectClusterWithout(t *testing.T, c *host.Cluster) {
	t.Helper()
	node := getNode(t, c)
	for what, list := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		if has, is := list[cores]; is {
			t.Errorf("the node's %s has %s cores, want none", what, has.String())
		}
	}
	for _, allowed := range []string{"management", ""} {
		p := suiteDeployment(t, c, fixture.Namespace(t, c.Client, allowed))
		expectOriginalCPU(t, p)
		for annotation := range p.Annotations {
			if strings.Contains(annotation, partition.Domain) {
				t.Errorf("namespace %q: the pod has the annotation %s", allowed, annotation)
			}
		}
	}
}

// suiteDeployment creates the suite's Deployment, with a target, and returns its pod once it runs.
func suiteDeployment(t *testing.T, c *host.Cluster, namespace string) *v1.Pod {
	t.Helper()
	labels := map[string]string{"app": "suite"}
	spec := fixture.Pod("", nil, fixture.Container("unlimited", fixture.Awake, "cpu=10m memory=50Mi", ""), fixture.Container("limited", fixture.Awake, "cpu=20m memory=50Mi", "cpu=30m")).Spec
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "suite"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: asks}, Spec: spec},
	}}
	if _, err := c.Client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return awaitRunning(t, c, namespace, podOf(t, c, namespace, "suite", "").Name)
}

func expectOriginalCPU(t *testing.T, p *v1.Pod) {
	t.Helper()
	for i, millicores := range []int64{10, 20} {
		of := p.Spec.Containers[i]
		if of.Resources.Requests.Cpu().MilliValue() != millicores || partition.CarriesCores(of.Resources.Requests) {
			t.Errorf("container %s of pod %s has %v, want a cpu request of %dm and no cores", of.Name, p.Name, of.Resources, millicores)
		}
	}
}

// expectSuitePlacement checks each container's cpuset, the affinity of its tasks, its shares and
// its quota.
func expectSuitePlacement(t *testing.T, pods []*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		for i, status := range p.Status.ContainerStatuses {
			usage := containerUsage(t, p, i)
			shares, quota := int64(20), 0.03
			if status.Name == "unlimited" {
				shares, quota = 10, 0
			}
			if usage.CPUs != "0" || !slices.Equal(usage.Tasks, []string{"0"}) {
				t.Errorf("container %s of pod %s has the cpuset %s, and its tasks %q, want the pool, 0", status.Name, p.Name, usage.CPUs, usage.Tasks)
			}
			// On cgroup v2 the runtime converts shares in its own way.
			if host.CgroupV1() && usage.Weight != shares {
				t.Errorf("container %s of pod %s has %d shares, want %d", status.Name, p.Name, usage.Weight, shares)
			}
			if usage.Quota != quota {
				t.Errorf("container %s of pod %s has the quota %v, want %v", status.Name, p.Name, usage.Quota, quota)
			}
		}
	}
}
