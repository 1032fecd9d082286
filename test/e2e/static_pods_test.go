package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/partition"
)

// The kubelet starts whatever the file held before, and nothing is deleted by hand.
// What runs is moved, under either policy.
func TestContainersFollowChangedPools(t *testing.T) {
	in(t, core, vm)
	underEachPolicy(t, poolsChange)
}

func poolsChange(t *testing.T, c *host.Cluster) {
	namespace := newNamespace(t, c, "management")
	start(t, c, namespace, pod("partitioned", asks, container("c", awake, "cpu=400m memory=16Mi", "")), pod("ordinary", nil, container("c", awake, "cpu=100m memory=16Mi", "")))
	var pods []*v1.Pod
	for _, name := range []string{"partitioned", "ordinary"} {
		debug(t, c, namespace, name)
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
	}
	t.Cleanup(func() {
		if t.Failed() {
			restart(t, c, pinning)
		}
	})
	for _, step := range []struct{ name, file, partitioned, ordinary string }{
		{"the pool moves", `{"management": {"cpuset": "1"}}`, "1", cpus(t, allCPUs(t)).Difference(cpuset.New(1)).String()},
		{"the type loses its CPUs", `{"management": {"cpuset": ""}}`, allCPUs(t), allCPUs(t)},
		{"the file goes", "", allCPUs(t), allCPUs(t)},
		{"the file comes back", pinning, "0", otherCPUs(t)},
		{"the file goes again", "", allCPUs(t), allCPUs(t)},
		{"and comes back", pinning, "0", otherCPUs(t)},
	} {
		t.Run(step.name, func(t *testing.T) {
			restart(t, c, step.file)
			for i, want := range []string{step.partitioned, step.ordinary} {
				p := pods[i]
				for _, status := range []v1.ContainerStatus{p.Status.ContainerStatuses[0], p.Status.EphemeralContainerStatuses[0]} {
					waitFor(t, 30*time.Second, "containers are where they belong", func() error {
						usage, err := host.ContainerUsage(p, status.ContainerID)
						if err == nil && usage.CPUs != want {
							err = fmt.Errorf("container %s of pod %s may use CPUs %s, want %s", status.Name, p.Name, usage.CPUs, want)
						}
						return err
					})
				}
			}
			node := getNode(t, c)
			if _, has := node.Status.Capacity[cores]; has != (step.file != "") {
				t.Errorf("the node's capacity is %v", node.Status.Capacity)
			}
		})
	}
}

func restart(t testing.TB, c *host.Cluster, file string) {
	t.Helper()
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	c.Config.Pinning = file
	if err := c.StartKubelet(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// configureKubelet restarts the kubelet with lines added to its configuration, until the test
// ends.
func configureKubelet(t *testing.T, c *host.Cluster, lines string) {
	t.Helper()
	before := c.Config.KubeletConfiguration
	t.Cleanup(func() {
		c.Config.KubeletConfiguration = before
		restart(t, c, pinning)
	})
	c.Config.KubeletConfiguration = before + lines
	restart(t, c, pinning)
}

// oneContainer is a static pod's manifest; extra is part of its spec.
func oneContainer(name, annotations, resources, extra string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
  annotations:
%sspec:
  terminationGracePeriodSeconds: 1
%s
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, args: [-c, %q], resources: %s}
`, name, annotations, extra, image.Busybox, awake, resources)
}

func TestStaticPodsThatCannotBePartitionedRunAllTheSame(t *testing.T) {
	in(t)
	c := partitioned(t)
	const burstable = "{requests: {cpu: 50m, memory: 16Mi}}"
	const hard = `{"effect": "RequiredDuringScheduling"}`
	tests := map[string]struct{ annotations, resources, extra, reason string }{
		"guaranteed":      {target("management", ""), "{requests: {cpu: 50m, memory: 16Mi}, limits: {cpu: 50m, memory: 16Mi}}", "", "guaranteed"},
		"guaranteed-hard": {target("management", hard), "{limits: {cpu: 50m, memory: 16Mi}}", "", "guaranteed"},
		"qos-change":      {target("management", ""), "{requests: {cpu: 50m}}", "", "qos_change"},
		"pod-level":       {target("management", ""), burstable, "  resources: {requests: {cpu: 80m}}", "pod_level_cpu"},
		"pod-level-hard":  {target("management", hard), burstable, "  resources: {requests: {cpu: 80m}}", "pod_level_cpu"},
		"broken-json":     {target("management", "{"), burstable, "", "invalid_target"},
		"unknown-effect":  {target("management", `{"effect": "Sometimes"}`), burstable, "", "invalid_target"},
		"two-targets":     {target("management", "") + target("other", ""), burstable, "", "invalid_target"},
		"unknown-type":    {target("other", hard), burstable, "", "type_inactive"},
	}
	const counter = "kubelet_workload_partitioning_static_pods_skipped_total"
	before, skipped, manifests := map[string]float64{}, map[string]float64{}, map[string]string{}
	for name, test := range tests {
		before[test.reason] = metric(t, c, counter, "reason", test.reason)
		skipped[test.reason]++
		manifests[name] = oneContainer(name, test.annotations, test.resources, test.extra)
	}
	writeStaticPods(t, c, manifests)
	for name := range tests {
		t.Run(name, func(t *testing.T) {
			p := awaitRunning(t, c, "default", name+"-"+host.NodeName)
			warning := p.Annotations[partition.WarningAnnotation]
			if warning == "" || p.Annotations[managementTarget] != "" || p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 50 {
				t.Errorf("the pod has annotations %v and requests %v", p.Annotations, p.Spec.Containers[0].Resources.Requests)
			}
			expectNoLeak(t, p)
			awaitEvent(t, c, "StaticPodNotPartitioned", "Static pod default/"+name+": "+warning)
			log, err := os.ReadFile(c.Kubelet.Log())
			if line := fmt.Sprintf("Static pod runs as an ordinary pod\" pod=%q", "default/"+name); err != nil || strings.Count(string(log), line) != 1 {
				t.Errorf("the log has %d lines with %s, want one (%v)", strings.Count(string(log), line), line, err)
			}
		})
	}
	for reason, want := range skipped {
		if counted := metric(t, c, counter, "reason", reason) - before[reason]; counted != want {
			t.Errorf("%v static pods were counted as %s, want %v", counted, reason, want)
		}
	}
}

// What is edited on disk is rewritten again, and its mirror pod is made once.
func TestEditedStaticPodsArePartitionedAgain(t *testing.T) {
	in(t)
	c := partitioned(t)
	const name = "edited"
	manifest := func(cpu, annotations string) string {
		return oneContainer(name, annotations, "{requests: {cpu: "+cpu+", memory: 16Mi}}", "")
	}
	writeStaticPod(t, c, name, manifest("100m", target("management", "")))
	settled := func(t *testing.T, partitioned bool, millicores int64) *v1.Pod {
		t.Helper()
		var p *v1.Pod
		waitFor(t, time.Minute, "the pod is as the manifest has it", func() error {
			var err error
			if p, err = c.Client.CoreV1().Pods("default").Get(t.Context(), name+"-"+host.NodeName, metav1.GetOptions{}); err != nil {
				return err
			}
			request, is := p.Spec.Containers[0].Resources.Requests[cores]
			if !is {
				request = *resource.NewQuantity(p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(), resource.DecimalSI)
			}
			if p.Status.Phase != v1.PodRunning || is != partitioned || request.Value() != millicores {
				return fmt.Errorf("phase %s, %v, annotations %v", p.Status.Phase, p.Spec.Containers[0].Resources, p.Annotations)
			}
			return nil
		})
		expectNoLeak(t, p)
		return p
	}
	edit := func(content string) {
		if err := os.WriteFile(filepath.Join(host.ManifestDir, name+".yaml"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, true, 100)
	edit(manifest("200m", target("other", "")))
	settled(t, false, 200)
	edit(manifest("300m", target("management", "")))
	before := settled(t, true, 300)
	// The kubelet reads manifests every two seconds here, and syncs pods every ten.
	time.Sleep(12 * time.Second)
	after := settled(t, true, 300)
	if after.UID != before.UID {
		t.Error("the mirror pod was made again")
	}
	if before, after := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; after.ContainerID != before.ContainerID {
		t.Errorf("container %s was replaced by %s", before.ContainerID, after.ContainerID)
	}
}

// A URL is a second source of static pods.
func TestStaticPodsFromAURLArePartitioned(t *testing.T) {
	in(t)
	c := partitioned(t)
	// Kubernetes decodes JSON there, and a list is allowed.
	manifests := fmt.Sprintf(`{"apiVersion": "v1", "kind": "PodList", "items": [%s, %s]}`,
		asJSON(t, oneContainer("url-partitioned", target("management", ""), "{requests: {cpu: 400m, memory: 16Mi}}", "")),
		asJSON(t, oneContainer("url-skipped", target("other", ""), "{requests: {cpu: 100m, memory: 16Mi}}", "")))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, manifests) }))
	t.Cleanup(server.Close)
	c.Config.StaticPodURL = server.URL
	restart(t, c, pinning)
	t.Cleanup(func() {
		c.Config.StaticPodURL = ""
		restart(t, c, pinning)
	})
	p := awaitRunning(t, c, "default", "url-partitioned-"+host.NodeName)
	if request := p.Spec.Containers[0].Resources.Requests[cores]; request.Value() != 400 {
		t.Errorf("the pod has %v", p.Spec.Containers[0].Resources)
	}
	expectNoLeak(t, p)
	if usage, err := host.PodUsage(p); err != nil || usage.Weight != weight(409) {
		t.Errorf("the pod has weight %d (%v), want %d", usage.Weight, err, weight(409))
	}
	skipped := awaitRunning(t, c, "default", "url-skipped-"+host.NodeName)
	if skipped.Annotations[partition.WarningAnnotation] == "" {
		t.Errorf("the other pod has annotations %v", skipped.Annotations)
	}
	expectNoLeak(t, skipped)
}

func asJSON(t *testing.T, manifest string) string {
	t.Helper()
	data, err := yaml.ToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The node is right after each start, whatever it was before, and what others have
// given it is left alone.
func TestNodeReportsItsCoresAfterEachStart(t *testing.T) {
	in(t, vm)
	c := partitioned(t)
	nodes := c.Client.CoreV1().Nodes()
	expect := func(t *testing.T) *v1.Node {
		t.Helper()
		node := getNode(t, c)
		for what, list := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
			got := list[cores]
			if want := int64(runtime.NumCPU()) * 1000; got.Value() != want {
				t.Errorf("%s has %d cores, want %d", what, got.Value(), want)
			}
			if _, stale := list["stale.workload.openshift.io/cores"]; stale {
				t.Errorf("%s still has the stale type: %v", what, list)
			}
		}
		return node
	}
	t.Run("a node that others have marked, with a type that is gone", func(t *testing.T) {
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		labels := `{"metadata": {"labels": {"example.com/theirs": "label"}, "annotations": {"example.com/theirs": "annotation"}}}`
		if _, err := nodes.Patch(t.Context(), host.NodeName, types.MergePatchType, []byte(labels), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		status := `{"status": {"capacity": {"example.com/gpu": "3", "stale.workload.openshift.io/cores": "4k", "management.workload.openshift.io/cores": "1"},
			"allocatable": {"example.com/gpu": "2", "stale.workload.openshift.io/cores": "4k"}}}`
		if _, err := nodes.Patch(t.Context(), host.NodeName, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		restart(t, c, pinning)
		node := expect(t)
		gpus, free := node.Status.Capacity["example.com/gpu"], node.Status.Allocatable["example.com/gpu"]
		if node.Labels["example.com/theirs"] != "label" || node.Annotations["example.com/theirs"] != "annotation" || gpus.Value() != 3 || free.Value() != 3 {
			t.Errorf("of others the node has labels %v, annotations %v, capacity %v, allocatable %v", node.Labels, node.Annotations, node.Status.Capacity, node.Status.Allocatable)
		}
	})
	t.Run("a node that was deleted", func(t *testing.T) {
		registered(t, c)
		expect(t)
	})
	t.Run("a node that an unpatched kubelet has registered", func(t *testing.T) {
		needsUpstream(t)
		c.UseKubelet(upstreamKubelet)
		t.Cleanup(func() { c.UseKubelet("") })
		if err := c.ChangeCPUManagerPolicy("static"); err != nil {
			t.Fatal(err)
		}
		registered(t, c)
		if err := c.ChangeCPUManagerPolicy("static"); err != nil {
			t.Fatal(err)
		}
		c.UseKubelet("")
		restart(t, c, pinning)
		expect(t)
	})
	t.Run("a type that is taken out of the file", func(t *testing.T) {
		restart(t, c, `{"management": {"cpuset": "0"}, "stale": {"cpuset": ""}}`)
		if _, has := getNode(t, c).Status.Capacity["stale.workload.openshift.io/cores"]; !has {
			t.Error("the node has no second type")
		}
		restart(t, c, pinning)
		expect(t)
	})
}

func target(workloadType, value string) string {
	return fmt.Sprintf("    target.workload.openshift.io/%s: '%s'\n", workloadType, value)
}

// awaitEvent waits for an Event on the Node whose message has the text.
func awaitEvent(t *testing.T, c *host.Cluster, reason, text string) {
	t.Helper()
	waitFor(t, 20*time.Second, "Event "+reason, func() error {
		events, err := c.Client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=" + reason})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("%d such Events, and none about %q", len(events.Items), text)
	})
}

// metric scrapes the kubelet and returns a value; zero if there is no such series.
func metric(t *testing.T, c *host.Cluster, name, label, value string) (found float64) {
	t.Helper()
	data, err := c.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(host.NodeName).SubResource("proxy").Suffix("metrics").
		VersionedParams(&metav1.ListOptions{}, scheme.ParameterCodec).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	series := fmt.Sprintf("%s{%s=%q} ", name, label, value)
	if label == "" {
		series = name + " "
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, series); ok {
			if _, err := fmt.Sscan(rest, &found); err != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

func TestMetricsAndEvents(t *testing.T) {
	in(t, core, vm)
	c := partitioned(t)
	namespace := newNamespace(t, c, "management")
	awaitEvent(t, c, "WorkloadPartitioningEnabled", `The pool of workload type management has the CPUs "0"`)
	waitFor(t, 30*time.Second, "no pod of another test is active", func() error {
		if pods := metric(t, c, "kubelet_workload_partitioning_pods", "workload_type", "management"); pods != 0 {
			return fmt.Errorf("%v pods", pods)
		}
		return nil
	})
	start(t, c, namespace, pod("a", asks, container("c", busy, "cpu=400m memory=16Mi", "")), pod("b", asks, container("c", busy, "cpu=100m memory=16Mi", "")),
		pod("ordinary", nil, container("c", busy, "cpu=100m memory=16Mi", "")))
	for name, want := range map[string]float64{"pods": 2, "requested_millicores": 500, "pool_cpus": 1} {
		if got := metric(t, c, "kubelet_workload_partitioning_"+name, "workload_type", "management"); got != want {
			t.Errorf("kubelet_workload_partitioning_%s is %v, want %v", name, got, want)
		}
	}
}
