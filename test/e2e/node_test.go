package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"workload.openshift.io/kubernetes/cmd/cluster/local"
	"workload.openshift.io/partition"
)

// The kubelet starts whatever the file held before, and nothing is deleted by hand.
func TestPoolsChange(t *testing.T) {
	c := partitioned(t)
	namespace := newNamespace(t, c, "management")
	pods := start(t, c, namespace, pod("partitioned", asks, container("c", busy, "cpu=400m memory=16Mi", "")), pod("ordinary", nil, container("c", busy, "cpu=100m memory=16Mi", "")))
	t.Cleanup(func() {
		if t.Failed() {
			restart(t, c, pinning)
		}
	})
	for _, step := range []struct{ name, file, partitioned, ordinary string }{
		{"the pool moves", `{"management": {"cpuset": "1"}}`, "1", strings.Replace(otherCPUs(t), "1", "0", 1)},
		{"the type loses its CPUs", `{"management": {"cpuset": ""}}`, allCPUs(t), allCPUs(t)},
		{"the file goes", "", allCPUs(t), allCPUs(t)},
		{"the file comes back", pinning, "0", otherCPUs(t)},
	} {
		t.Run(step.name, func(t *testing.T) {
			restart(t, c, step.file)
			for i, want := range []string{step.partitioned, step.ordinary} {
				waitFor(t, 30*time.Second, "containers are where they belong", func() error {
					if usage := containerUsage(t, pods[i], 0); usage.CPUs != want {
						return fmt.Errorf("pod %s may use CPUs %s, want %s", pods[i].Name, usage.CPUs, want)
					}
					return nil
				})
			}
			node := getNode(t, c)
			if _, has := node.Status.Capacity[cores]; has != (step.file != "") {
				t.Errorf("the node's capacity is %v", node.Status.Capacity)
			}
		})
	}
}

func restart(t *testing.T, c *local.Cluster, file string) {
	t.Helper()
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	c.Config.Pinning = file
	if err := c.StartKubelet(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestStaticPodsThatCanNotBePartitionedRunAllTheSame(t *testing.T) {
	c := partitioned(t)
	for name, test := range map[string]struct{ annotations, resources, reason string }{
		"guaranteed":  {target("management", ""), "{requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 100m, memory: 16Mi}}", "guaranteed"},
		"qos-change":  {target("management", ""), "{requests: {cpu: 100m}}", "qos_change"},
		"broken-json": {target("management", "{"), "{requests: {cpu: 100m, memory: 16Mi}}", "invalid_target"},
		"two-targets": {target("management", "") + target("other", ""), "{requests: {cpu: 100m, memory: 16Mi}}", "invalid_target"},
		"unknown":     {target("other", `{"effect": "RequiredDuringScheduling"}`), "{requests: {cpu: 100m, memory: 16Mi}}", "type_inactive"},
	} {
		t.Run(name, func(t *testing.T) {
			before := metric(t, c, "kubelet_workload_partitioning_static_pods_skipped_total", "reason", test.reason)
			writeStaticPod(t, c, name, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
  annotations:
%sspec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, args: [-c, %q], resources: %s}
`, name, test.annotations, local.BusyboxImage, "trap exit TERM; sleep 1000 & wait", test.resources))
			p := awaitRunning(t, c, "default", name+"-"+local.NodeName)
			warning := p.Annotations[partition.WarningAnnotation]
			if warning == "" || p.Annotations[managementTarget] != "" || p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 100 {
				t.Errorf("the pod has annotations %v and requests %v", p.Annotations, p.Spec.Containers[0].Resources.Requests)
			}
			expectCPUs(t, p, 0, otherCPUs(t), 0)
			if after := metric(t, c, "kubelet_workload_partitioning_static_pods_skipped_total", "reason", test.reason); after != before+1 {
				t.Errorf("%v were counted before, %v after", before, after)
			}
			awaitEvent(t, c, "StaticPodNotPartitioned", "Static pod default/"+name+": ")
		})
	}
}

func target(workloadType, value string) string {
	return fmt.Sprintf("    target.workload.openshift.io/%s: '%s'\n", workloadType, value)
}

// awaitEvent waits for an Event on the Node whose message has the text.
func awaitEvent(t *testing.T, c *local.Cluster, reason, text string) {
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
func metric(t *testing.T, c *local.Cluster, name, label, value string) (found float64) {
	t.Helper()
	data, err := c.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(local.NodeName).SubResource("proxy").Suffix("metrics").
		VersionedParams(&metav1.ListOptions{}, scheme.ParameterCodec).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	series := fmt.Sprintf("%s{%s=%q} ", name, label, value)
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
	c := partitioned(t)
	namespace := newNamespace(t, c, "management")
	awaitEvent(t, c, "WorkloadPartitioningEnabled", `Workload type management has the CPUs "0"`)
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
