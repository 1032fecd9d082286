package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// Step 5: the kubelet finds the file.
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
		t.Errorf("cpu allocatable is %s of %s, want one CPU less: that of the pool", allocatable, capacity)
	}
}

// Step 6: the node advertises the resource.
func TestNodeAdvertisesCores(t *testing.T) {
	in(t, core, vm)
	node := getNode(t, partitioned(t))
	for name, list := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		if got, want := list[cores], node.Status.Capacity.Cpu().Value()*1000; got.Value() != want {
			t.Errorf("%s of %s is %s, want %d", name, cores, got.String(), want)
		}
	}
}

// Step 7: static pods are rewritten.
func TestStaticPodsArePartitioned(t *testing.T) {
	in(t, core, vm)
	c := partitioned(t)
	writeStaticPods(t, c, staticPod("static", map[string]string{managementTarget: soft}, fixture.Busy, "cpu=400m memory=16Mi", ""))
	p := awaitRunning(t, c, "default", "static-"+host.NodeName)
	if got := p.Annotations[partition.ResourcesAnnotation("c")]; got != `{"cpushares":400}` {
		t.Errorf("the container's annotation is %q", got)
	}
	requests := p.Spec.Containers[0].Resources.Requests
	if got := requests[cores]; got.Value() != 400 || !requests.Cpu().IsZero() {
		t.Errorf("the container requests %v", requests)
	}
	awaitWork(t, p, 0, time.Second/2)
	expectCPUs(t, p, 0, "0", 1)
	if usage := containerUsage(t, p, 0); usage.Used[0] == 0 {
		t.Error("the container has not run")
	}
}

// Steps 8 to 10: admission rewrites pods, and the scheduler places them.
func TestPodsArePartitionedAtAdmission(t *testing.T) {
	in(t, core)
	c := partitioned(t)
	t.Run("a Deployment's pods in an allowed namespace are rewritten, placed and run", func(t *testing.T) {
		namespace := fixture.Namespace(t, c.Client, "management")
		labels := map[string]string{"app": "operator"}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: asks}, Spec: fixture.Pod("", nil, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "cpu=500m")).Spec},
		}}
		if _, err := c.Client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var name string
		waitFor(t, 30*time.Second, "the Deployment has a pod", func() error {
			pods, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(pods.Items) != 1 {
				return fmt.Errorf("%d pods (%v)", len(pods.Items), err)
			}
			name = pods.Items[0].Name
			return nil
		})
		p := awaitRunning(t, c, namespace, name)
		if p.Spec.NodeName != host.NodeName {
			t.Errorf("the pod is on node %q", p.Spec.NodeName)
		}
		if got := p.Annotations[managementTarget]; got != softNormal {
			t.Errorf("the target annotation is %q", got)
		}
		if got := p.Annotations[partition.ResourcesAnnotation("c")]; got != `{"cpushares":400,"cpulimit":500}` {
			t.Errorf("the container's annotation is %q", got)
		}
		resources := p.Spec.Containers[0].Resources
		request, limit := resources.Requests[cores], resources.Limits[cores]
		if request.Value() != 400 || limit.Value() != 400 || !resources.Requests.Cpu().IsZero() || !resources.Limits.Cpu().IsZero() {
			t.Errorf("the container has %v", resources)
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
			t.Errorf("the pod has annotations %v", p.Annotations)
		}
		if !slices.Equal(recorded.texts, []string{want}) {
			t.Errorf("the client was told %q", recorded.texts)
		}
		waitFor(t, 10*time.Second, "the audit log has the warning", func() error {
			data, err := os.ReadFile(c.AuditLog())
			if err == nil && !strings.Contains(string(data), partition.WarningAnnotation) {
				err = fmt.Errorf("%s does not have it", c.AuditLog())
			}
			return err
		})
		hard := map[string]string{managementTarget: `{"effect": "RequiredDuringScheduling"}`}
		if _, err := client.CoreV1().Pods(plain).Create(t.Context(), fixture.Pod("hard", hard, fixture.Container("c", fixture.Busy, "", "")), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the hard effect got %v", err)
		}
		others := fixture.Namespace(t, c.Client, "other")
		if _, err := client.CoreV1().Pods(others).Create(t.Context(), fixture.Pod("soft", asks, fixture.Container("c", fixture.Busy, "", "")), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a namespace with other types gave %v", err)
		}
	})
	t.Run("nobody enters a partition later", func(t *testing.T) {
		client, recorded := recording(t)
		namespace := fixture.Namespace(t, c.Client, "management")
		start(t, c, namespace, fixture.Pod("besteffort", nil, fixture.Container("c", fixture.Busy, "", "")))
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "", %q: "{\"cpushares\":2}", "mine": "x"}}}`, managementTarget, partition.ResourcesAnnotation("c"))
		p, err := client.CoreV1().Pods(namespace).Patch(t.Context(), "besteffort", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Annotations) != 1 || p.Annotations["mine"] != "x" || len(recorded.texts) != 1 {
			t.Errorf("the pod has annotations %v, the client was told %q", p.Annotations, recorded.texts)
		}
	})
	t.Run("CPU is not resized in place", func(t *testing.T) {
		namespace := fixture.Namespace(t, c.Client, "management")
		start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "cpu=500m")))
		resize := `{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "300m"}}}]}}`
		_, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), "partitioned", types.StrategicMergePatchType, []byte(resize), metav1.PatchOptions{}, "resize")
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "it is counted as management.workload.openshift.io/cores") {
			t.Errorf("the resize got %v", err)
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
			t.Errorf("the client was told %q", recorded.texts)
		}
	})
	t.Run("a node without the pool has an Event, and is counted", func(t *testing.T) {
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
		metrics := scrape(t, c)
		for _, want := range []string{
			`apiserver_workload_partitioning_active{workload_type="management"} 1`, `apiserver_workload_partitioning_nodes_missing{workload_type="management"} 1`,
			`apiserver_workload_partitioning_pods_total{outcome="partitioned",reason="",workload_type="management"}`,
			`apiserver_workload_partitioning_pods_total{outcome="refused",reason="namespace_other_types",workload_type="management"} 1`,
		} {
			if !strings.Contains(metrics, want) {
				t.Errorf("kube-apiserver's metrics do not have %s", want)
			}
		}
	})
	t.Run("the type is latched", func(t *testing.T) {
		namespace, err := c.Client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil || !partition.ListsType(namespace.Annotations[partition.EnabledAnnotation], "management") {
			t.Errorf("kube-system has annotations %v (%v)", namespace.Annotations, err)
		}
	})
}

// Steps 11 and 12: everything is confined to its CPUs, and stays so.
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
			t.Errorf("the sidecar has %+v (%v)", usage, err)
		}
	}
	// Those without requests get little beside the others.
	for i, amount := range []time.Duration{time.Second, time.Millisecond, time.Second, time.Millisecond} {
		awaitWork(t, pods[i], 0, amount)
	}
	check(t)
	t.Run("an init container ran on the pool", func(t *testing.T) {
		log, err := c.Client.CoreV1().Pods(namespace).GetLogs("partitioned", &v1.PodLogOptions{Container: "init"}).DoRaw(t.Context())
		if got := strings.Fields(string(log)); err != nil || len(got) != 2 || got[1] != "0" {
			t.Errorf("it printed %q (%v)", log, err)
		}
	})
	t.Run("after the CPU manager has reconciled, and a kubelet that was killed is back", func(t *testing.T) {
		if err := c.Kubelet.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.StartKubelet(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // the period in which the CPU manager reconciles twice, and must move nothing
		check(t)
	})
}

// Weights and quotas are those of the original requests and limits.
func TestWeightsFollowTheOriginalRequests(t *testing.T) {
	in(t, core, vm)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	both := start(t, c, namespace, fixture.Pod("weighted", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "cpu=500m")), fixture.Pod("resized", asks, fixture.Container("c", fixture.Idle, "cpu=200m memory=16Mi", "cpu=300m memory=32Mi")))
	p, resized := both[0], both[1]
	before := containerUsage(t, resized, 0)
	of := containerUsage(t, p, 0)
	// On cgroup v2 the runtime converts a container's shares in a way of its own.
	if want := weight(409); of.Weight != want && want == 409 {
		t.Errorf("the container has weight %d, want that of 400m, %d", of.Weight, want)
	}
	if of.Quota != 0.5 {
		t.Errorf("the container has a quota of %g CPUs, want 0.5", of.Quota)
	}
	ofPod, err := host.PodUsage(p)
	if err != nil || ofPod.Weight != weight(409) || ofPod.Quota != 0.5 {
		t.Errorf("the pod has %+v (%v), want weight %d and 0.5 CPUs", ofPod, err, weight(409))
	}
	t.Run("and stay so when memory is resized in place", func(t *testing.T) {
		if err := resizeMemory(t, c, namespace, "resized", "24Mi", "64Mi"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // the period in which syncs that follow must not change it, either
		after := containerUsage(t, resized, 0)
		if after.Weight != before.Weight || after.Quota != before.Quota || after.CPUs != before.CPUs {
			t.Errorf("before the resize the container had %+v, after it %+v", before, after)
		}
	})
}

// What partitioned containers use is counted as cores and not as cpu.
func TestCoresAreCountedInsteadOfCPU(t *testing.T) {
	in(t, core, vm)
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
	time.Sleep(3 * time.Second) // the period in which a later sync must not report what the runtime says of its CPU
	p, err := get()
	if err != nil {
		t.Fatal(err)
	}
	for what, list := range map[string]v1.ResourceList{
		"requests of the container": p.Status.ContainerStatuses[0].Resources.Requests, "limits of the container": p.Status.ContainerStatuses[0].Resources.Limits,
		"allocated resources": p.Status.ContainerStatuses[0].AllocatedResources,
	} {
		if cpu, has := list[v1.ResourceCPU]; has {
			t.Errorf("the %s in the status have cpu: %s", what, cpu.String())
		}
	}
	if p.Status.Resources != nil && (!p.Status.Resources.Requests.Cpu().IsZero() || !p.Status.Resources.Limits.Cpu().IsZero()) {
		t.Errorf("the pod's resources in the status have cpu: %v", p.Status.Resources)
	}
	t.Run("kubectl describe counts it under cores only", func(t *testing.T) {
		output, err := exec.CommandContext(t.Context(), filepath.Join(config.Bin, "kubectl"), "--kubeconfig="+host.Kubeconfig, "describe", "node", host.NodeName).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		_, allocated, _ := strings.Cut(string(output), "Allocated resources:")
		found := map[string]string{}
		for line := range strings.Lines(allocated) {
			if fields := strings.Fields(line); len(fields) > 1 {
				found[fields[0]] = fields[1]
			}
		}
		if found["cpu"] != "0" || found[string(cores)] != "400" {
			t.Errorf("it says cpu %s and cores %s, want 0 and 400:\n%s", found["cpu"], found[string(cores)], allocated)
		}
	})
	t.Run("an ordinary pod gets all of the node's allocatable cpu", func(t *testing.T) {
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

// Environment variables and volume files give what a container originally asked for, and the
// size of its pool where it has no limit.
func TestDownwardAPIGivesTheOriginalCPU(t *testing.T) {
	in(t, core, vm)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	of := func(name, field string) v1.EnvVar {
		return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: field, Divisor: resource.MustParse("1m")}}}
	}
	told := fixture.Pod("told", asks, fixture.Container("c", "env; "+fixture.Awake, "cpu=300m memory=16Mi", "cpu=700m"), fixture.Container("d", "", "cpu=100m memory=16Mi", ""))
	told.Spec.InitContainers = []v1.Container{fixture.Container("init", "env", "cpu=200m memory=16Mi", "cpu=250m"),
		fixture.Sidecar("sidecar", "env; "+fixture.Awake, "cpu=50m memory=16Mi", "")}
	for _, containers := range [][]v1.Container{told.Spec.InitContainers, told.Spec.Containers} {
		for i := range containers {
			named := of("NAMED", "requests.cpu")
			named.ValueFrom.ResourceFieldRef.ContainerName = containers[i].Name
			containers[i].Env = []v1.EnvVar{of("REQUEST", "requests.cpu"), of("LIMIT", "limits.cpu"), named}
		}
	}
	file := func(container, field string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: container + "-" + field, ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: container, Resource: field, Divisor: resource.MustParse("1m")}}
	}
	told.Spec.Volumes = []v1.Volume{{Name: "told", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{file("sidecar", "requests.cpu")}}}}}}},
		{Name: "plain", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{file("c", "limits.cpu"), file("d", "limits.cpu")}}}}}
	told.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{{Name: "told", MountPath: "/told"}, {Name: "plain", MountPath: "/plain"}}
	told.Spec.Containers[1].Args[1] = "env; for f in /told/* /plain/*; do echo $f=$(cat $f); done; " + fixture.Awake
	p := start(t, c, namespace, told)[0]
	for container, want := range map[string][]string{
		"c":       {"REQUEST=300\n", "LIMIT=700\n", "NAMED=300\n"},
		"d":       {"REQUEST=100\n", "LIMIT=1000\n", "NAMED=100\n", "/told/sidecar-requests.cpu=50\n", "/plain/c-limits.cpu=700\n", "/plain/d-limits.cpu=1000\n"},
		"init":    {"REQUEST=200\n", "LIMIT=250\n", "NAMED=200\n"},
		"sidecar": {"REQUEST=50\n", "LIMIT=1000\n", "NAMED=50\n"},
	} {
		waitFor(t, 30*time.Second, "container "+container+" prints what it was told", func() error {
			printed := logs(t, c, p, container) // some of it, as long as it is printing
			for _, line := range want {
				if !strings.Contains(printed, line) {
					return fmt.Errorf("it printed\n%s, want %s", printed, line)
				}
			}
			return nil
		})
	}
}
