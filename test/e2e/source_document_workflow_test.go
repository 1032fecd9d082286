// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// The kubelet finds the pinning file, and reserves the pool. (Step 5 of the source document's
// workflow, which the tests in this file follow to step 12.)
func TestPinningFileSwitchesPartitioningOn(t *testing.T) {
	in(t, core, vm)
	c := partitioned(t)
	log, err := os.ReadFile(c.Kubelet.Log())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), `"Workload partitioning is on" workloadType="management" pool="0" reservedSystemCPUs="0"`) {
		t.Errorf("the log %s does not say that partitioning is on", c.Kubelet.Log())
	}
	node := getNode(t, c)
	if capacity, allocatable := node.Status.Capacity.Cpu(), node.Status.Allocatable.Cpu(); allocatable.Value() != capacity.Value()-1 {
		t.Errorf("allocatable cpu is %s of %s, want all but the one CPU of the pool", allocatable, capacity)
	}
}

// The node reports cores, as many as the whole host has CPU. (Step 6.)
func TestNodeAdvertisesCores(t *testing.T) {
	in(t, core, vm)
	node := getNode(t, partitioned(t))
	for name, list := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		if got, want := list[cores], node.Status.Capacity.Cpu().Value()*1000; got.Value() != want {
			t.Errorf("the node's %s has %s %s, want %d", name, got.String(), cores, want)
		}
	}
}

// The kubelet partitions static pods. (Step 7.)
func TestStaticPodsArePartitioned(t *testing.T) {
	in(t, core, vm)
	c := partitioned(t)
	writeStaticPods(t, c, staticPod("static", map[string]string{managementTarget: soft}, fixture.Busy, "cpu=400m memory=16Mi", ""))
	p := awaitRunning(t, c, "default", "static-"+host.NodeName)
	if got := p.Annotations[partition.ResourcesAnnotation("c")]; got != `{"cpushares":400}` {
		t.Errorf("the container's resources annotation is %q, want 400 shares", got)
	}
	requests := p.Spec.Containers[0].Resources.Requests
	if got := requests[cores]; got.Value() != 400 || !requests.Cpu().IsZero() {
		t.Errorf("the container requests %v, want 400 cores and no cpu", requests)
	}
	awaitWork(t, p, 0, time.Second/2)
	expectCPUs(t, p, 0, "0", 1)
	if usage := containerUsage(t, p, 0); usage.Used[0] == 0 {
		t.Error("the container has not run on the pool")
	}
}

// kube-apiserver partitions pods at their creation, and the scheduler places them by their
// cores. (Steps 8 to 10.)
func TestPodsArePartitionedAtAdmission(t *testing.T) {
	in(t, core)
	c := partitioned(t)
	t.Run("a pod of a Deployment is partitioned, placed and run", func(t *testing.T) {
		namespace := fixture.Namespace(t, c.Client, "management")
		labels := map[string]string{"app": "operator"}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: asks}, Spec: fixture.Pod("", nil, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "cpu=500m")).Spec},
		}}
		if _, err := c.Client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p := awaitRunning(t, c, namespace, podOf(t, c, namespace, deployment.Name, "").Name)
		if p.Spec.NodeName != host.NodeName {
			t.Errorf("the pod is on node %q, want %s", p.Spec.NodeName, host.NodeName)
		}
		if got := p.Annotations[managementTarget]; got != softNormal {
			t.Errorf("the target annotation is %q, want %s", got, softNormal)
		}
		if got := p.Annotations[partition.ResourcesAnnotation("c")]; got != `{"cpushares":400,"cpulimit":500}` {
			t.Errorf("the container's resources annotation is %q, want 400 shares and a limit of 500", got)
		}
		resources := p.Spec.Containers[0].Resources
		request, limit := resources.Requests[cores], resources.Limits[cores]
		if request.Value() != 400 || limit.Value() != 400 || !resources.Requests.Cpu().IsZero() || !resources.Limits.Cpu().IsZero() {
			t.Errorf("the container has %v, want 400 cores and no cpu", resources)
		}
	})
	t.Run("the namespace decides", func(t *testing.T) {
		client, recorded := recording(t)
		plain := fixture.Namespace(t, c.Client, "")
		p, err := client.CoreV1().Pods(plain).Create(t.Context(), fixture.Pod("soft", asks, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const want = `workload type "management" ignored: the namespace is not annotated with workload.openshift.io/allowed`
		if got := p.Annotations[partition.WarningAnnotation]; got != want || p.Annotations[managementTarget] != "" || p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 100 {
			t.Errorf("the pod has the annotations %v and %v, want the warning %q and its cpu", p.Annotations, p.Spec.Containers[0].Resources, want)
		}
		if !slices.Equal(recorded.texts, []string{want}) {
			t.Errorf("the client was warned with %q, want %q", recorded.texts, want)
		}
		if got := auditedAnnotations(t, c, plain, p.Name)[partition.WarningAnnotation]; got != want {
			t.Errorf("the audit log has the warning %q, want %q", got, want)
		}
		if _, err := client.CoreV1().Pods(plain).Create(t.Context(), fixture.Pod("hard", map[string]string{managementTarget: hard}, fixture.Container("c", fixture.Busy, "", "")), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a pod with the hard effect got %v, want 403", err)
		}
		others := fixture.Namespace(t, c.Client, "other")
		if _, err := client.CoreV1().Pods(others).Create(t.Context(), fixture.Pod("soft", asks, fixture.Container("c", fixture.Busy, "", "")), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a pod in a namespace with other types only got %v, want 403", err)
		}
	})
	t.Run("no pod enters a partition later", func(t *testing.T) {
		client, recorded := recording(t)
		namespace := fixture.Namespace(t, c.Client, "management")
		start(t, c, namespace, fixture.Pod("besteffort", nil, fixture.Container("c", fixture.Busy, "", "")))
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "", %q: "{\"cpushares\":2}", "mine": "x"}}}`, managementTarget, partition.ResourcesAnnotation("c"))
		p, err := client.CoreV1().Pods(namespace).Patch(t.Context(), "besteffort", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Annotations) != 1 || p.Annotations["mine"] != "x" || len(recorded.texts) != 1 {
			t.Errorf("the pod has the annotations %v, want only its own; the client was warned with %q, want one warning", p.Annotations, recorded.texts)
		}
	})
	t.Run("cpu is not resized", func(t *testing.T) {
		namespace := fixture.Namespace(t, c.Client, "management")
		start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "cpu=500m")))
		resize := `{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "300m"}}}]}}`
		_, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "partitioned", types.StrategicMergePatchType, []byte(resize), metav1.PatchOptions{}, "resize")
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "it is counted as management.workload.openshift.io/cores") {
			t.Errorf("the resize got %v, want 422", err)
		}
	})
	t.Run("the author of a workload is warned at once", func(t *testing.T) {
		client, recorded := recording(t)
		plain := fixture.Namespace(t, c.Client, "")
		labels := map[string]string{"app": "operator"}
		zero := int32(0)
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Spec: appsv1.DeploymentSpec{
			Replicas: &zero, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: asks}, Spec: fixture.Pod("", nil, fixture.Container("c", fixture.Busy, "", "")).Spec},
		}}
		if _, err := client.AppsV1().Deployments(plain).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if len(recorded.texts) != 1 || !strings.HasPrefix(recorded.texts[0], "pods of this template: ") {
			t.Errorf("the client was warned with %q, want one warning about the template", recorded.texts)
		}
	})
	t.Run("a node without the type has an Event, and is counted", func(t *testing.T) {
		fixture.ForgetEvents(t, c.Client, "NodeMissingPartition")
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "without-pool"}}
		if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Client.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}()
		fixture.AwaitEvent(t, c.Client, eventLimit, "NodeMissingPartition", "management.workload.openshift.io/cores")
		for _, want := range []string{
			`apiserver_workload_partitioning_active{workload_type="management"} 1`, `apiserver_workload_partitioning_nodes_missing{workload_type="management"} 1`,
			`apiserver_workload_partitioning_pods_total{outcome="partitioned",reason="",workload_type="management"}`,
			`apiserver_workload_partitioning_pods_total{outcome="refused",reason="namespace_other_types",workload_type="management"} 1`,
		} {
			waitFor(t, 5*time.Second, "kube-apiserver's metrics have "+want, func() error {
				if !strings.Contains(scrape(t, c), want) {
					return errors.New("they do not")
				}
				return nil
			})
		}
	})
	t.Run("the type is latched", func(t *testing.T) {
		if latch := fixture.Latched(t, c.Client); !partition.ListsType(latch, "management") {
			t.Errorf("the latch is %q, want the type in it", latch)
		}
	})
}

// Containers run on their CPUs from the start, init containers and sidecars included, and stay
// there. (Steps 11 and 12.)
func TestPlacement(t *testing.T) {
	in(t, core, vm)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	inited := fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "cpu=500m"))
	inited.Spec.InitContainers = []v1.Container{fixture.Container("init", "grep Cpus_allowed_list /proc/self/status", "cpu=100m memory=16Mi", ""),
		fixture.Sidecar("sidecar", fixture.Busy, "cpu=100m memory=16Mi", "")}
	pods := start(t, c, namespace, inited,
		fixture.Pod("partitioned-besteffort", asks, fixture.Container("c", fixture.Busy, "", "")),
		fixture.Pod("burstable", nil, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")),
		fixture.Pod("besteffort", nil, fixture.Container("c", fixture.Busy, "", "")),
	)
	check := func(t *testing.T) {
		t.Helper()
		for _, p := range pods[:2] {
			expectCPUs(t, p, 0, "0", 1)
		}
		for _, p := range pods[2:] {
			expectCPUs(t, p, 0, otherCPUs(t), 0)
		}
		usage, err := host.ContainerUsage(pods[0], pods[0].Status.InitContainerStatuses[1].ContainerID)
		if err != nil || usage.CPUs != "0" || (len(usage.Used) > 1 && usage.Used[1] != 0) {
			t.Errorf("the sidecar has %+v (%v), want the pool only", usage, err)
		}
	}
	// Those without requests get little CPU time compared with the others.
	for i, amount := range []time.Duration{time.Second, time.Millisecond, time.Second, time.Millisecond} {
		awaitWork(t, pods[i], 0, amount)
	}
	check(t)
	t.Run("an init container has run on the pool", func(t *testing.T) {
		log := logs(t, c, pods[0], "init")
		if got := strings.Fields(log); len(got) != 2 || got[1] != "0" {
			t.Errorf("it printed %q, want CPU 0", log)
		}
	})
	t.Run("after the kubelet was killed and has reconciled", func(t *testing.T) {
		if err := c.Kubelet.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.StartKubelet(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reconciliations(2)) // the period in which the CPU manager must move nothing
		check(t)
	})
}

// Containers and pods have the weights and quotas of their original requests and limits, also
// after a resize of memory.
func TestWeightsFollowTheOriginalRequests(t *testing.T) {
	in(t, core, vm)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	both := start(t, c, namespace, fixture.Pod("weighted", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "cpu=500m")), fixture.Pod("resized", asks, fixture.Container("c", fixture.Idle, "cpu=200m memory=16Mi", "cpu=300m memory=32Mi")))
	p, resized := both[0], both[1]
	before := containerUsage(t, resized, 0)
	of := containerUsage(t, p, 0)
	// On cgroup v2, a runtime converts shares to weights in its own way.
	if want := weight(409); host.CgroupV1() && of.Weight != want {
		t.Errorf("the container has weight %d, want that of 400m, %d", of.Weight, want)
	}
	if of.Quota != 0.5 {
		t.Errorf("the container has a quota of %g CPUs, want 0.5", of.Quota)
	}
	ofPod, err := host.PodUsage(p)
	if err != nil || ofPod.Weight != weight(409) || ofPod.Quota != 0.5 {
		t.Errorf("the pod has %+v (%v), want weight %d and a quota of 0.5 CPUs", ofPod, err, weight(409))
	}
	t.Run("after a resize of memory", func(t *testing.T) {
		if err := resizeMemory(t, c, namespace, "resized", "24Mi", "64Mi"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // the period in which later syncs must not change it either
		after := containerUsage(t, resized, 0)
		if after.Weight != before.Weight || after.Quota != before.Quota || after.CPUs != before.CPUs {
			t.Errorf("the container had %+v before the resize, and has %+v", before, after)
		}
	})
}

// A partitioned pod counts with its cores, and not with cpu: in its status, in kubectl
// describe, and for the scheduler.
func TestCoresAreCountedInsteadOfCPU(t *testing.T) {
	in(t, core)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "cpu=500m")))
	get := func() (*v1.Pod, error) {
		return c.Client.CoreV1().Pods(namespace).Get(t.Context(), "partitioned", metav1.GetOptions{})
	}
	waitFor(t, time.Minute, "the container has resources in its status", func() error {
		p, err := get()
		if err == nil && p.Status.ContainerStatuses[0].Resources == nil {
			err = fmt.Errorf("its status is %v", p.Status)
		}
		return err
	})
	time.Sleep(3 * time.Second) // the period in which later syncs must not report the CPU that the runtime reports
	p, err := get()
	if err != nil {
		t.Fatal(err)
	}
	for what, list := range map[string]v1.ResourceList{
		"requests of the container": p.Status.ContainerStatuses[0].Resources.Requests, "limits of the container": p.Status.ContainerStatuses[0].Resources.Limits,
		"allocated resources": p.Status.ContainerStatuses[0].AllocatedResources,
	} {
		if cpu, has := list[v1.ResourceCPU]; has {
			t.Errorf("in the status, the %s have a cpu of %s, want none", what, cpu.String())
		}
	}
	if p.Status.Resources != nil && (!p.Status.Resources.Requests.Cpu().IsZero() || !p.Status.Resources.Limits.Cpu().IsZero()) {
		t.Errorf("in the status, the resources of the pod are %v, want no cpu", p.Status.Resources)
	}
	t.Run("kubectl describe counts its cores", func(t *testing.T) {
		_, allocated, _ := strings.Cut(mustKubectl(t, namespace, "", "describe", "node", host.NodeName), "Allocated resources:")
		found := map[string]string{}
		for line := range strings.Lines(allocated) {
			if fields := strings.Fields(line); len(fields) > 1 {
				found[fields[0]] = fields[1]
			}
		}
		if found["cpu"] != "0" || found[string(cores)] != "400" {
			t.Errorf("it counts a cpu of %s and %s cores, want 0 and 400:\n%s", found["cpu"], found[string(cores)], allocated)
		}
	})
	t.Run("an ordinary pod has room for all of the allocatable cpu", func(t *testing.T) {
		all := getNode(t, c).Status.Allocatable[v1.ResourceCPU]
		full := fixture.Pod("full", nil, fixture.Container("c", fixture.Idle, "memory=16Mi", ""))
		full.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = all
		start(t, c, namespace, full)
		more := fixture.Pod("more", nil, fixture.Container("c", fixture.Idle, "cpu=1m memory=16Mi", ""))
		if _, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), more, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitUnschedulable(t, c, namespace, "more", "Insufficient cpu")
	})
}

// Environment variables and volume files give the original requests and limits of containers,
// and the size of the pool where there is no limit.
func TestDownwardAPIGivesTheOriginalCPU(t *testing.T) {
	in(t, core)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	of := func(name, field string) v1.EnvVar {
		return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: field, Divisor: resource.MustParse("1m")}}}
	}
	reads := fixture.Pod("reads", asks, fixture.Container("c", "env; "+fixture.Awake, "cpu=300m memory=16Mi", "cpu=700m"), fixture.Container("d", "", "cpu=100m memory=16Mi", ""))
	reads.Spec.InitContainers = []v1.Container{fixture.Container("init", "env", "cpu=200m memory=16Mi", "cpu=250m"),
		fixture.Sidecar("sidecar", "env; "+fixture.Awake, "cpu=50m memory=16Mi", "")}
	for _, containers := range [][]v1.Container{reads.Spec.InitContainers, reads.Spec.Containers} {
		for i := range containers {
			named := of("NAMED", "requests.cpu")
			named.ValueFrom.ResourceFieldRef.ContainerName = containers[i].Name
			containers[i].Env = []v1.EnvVar{of("REQUEST", "requests.cpu"), of("LIMIT", "limits.cpu"), named}
		}
	}
	file := func(container, field string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: container + "-" + field, ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: container, Resource: field, Divisor: resource.MustParse("1m")}}
	}
	reads.Spec.Volumes = []v1.Volume{{Name: "projected", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{file("sidecar", "requests.cpu")}}}}}}},
		{Name: "plain", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{file("c", "limits.cpu"), file("d", "limits.cpu")}}}}}
	reads.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{{Name: "projected", MountPath: "/projected"}, {Name: "plain", MountPath: "/plain"}}
	reads.Spec.Containers[1].Args[1] = "env; for f in /projected/* /plain/*; do echo $f=$(cat $f); done; " + fixture.Awake
	p := start(t, c, namespace, reads)[0]
	for container, want := range map[string][]string{
		"c":       {"REQUEST=300\n", "LIMIT=700\n", "NAMED=300\n"},
		"d":       {"REQUEST=100\n", "LIMIT=1000\n", "NAMED=100\n", "/projected/sidecar-requests.cpu=50\n", "/plain/c-limits.cpu=700\n", "/plain/d-limits.cpu=1000\n"},
		"init":    {"REQUEST=200\n", "LIMIT=250\n", "NAMED=200\n"},
		"sidecar": {"REQUEST=50\n", "LIMIT=1000\n", "NAMED=50\n"},
	} {
		waitFor(t, 30*time.Second, "container "+container+" prints its CPU", func() error {
			printed := logs(t, c, p, container)
			for _, line := range want {
				if !strings.Contains(printed, line) {
					return fmt.Errorf("it printed\n%swant %s", printed, line)
				}
			}
			return nil
		})
	}
}
