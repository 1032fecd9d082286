// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// The kubelet sends an Event that names the pool, and its metrics count partitioned pods, their
// original requests and the CPUs of the pool.
func TestMetricsAndEvents(t *testing.T) {
	in(t, core)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	fixture.AwaitEvent(t, c.Client, eventLimit, "WorkloadPartitioningEnabled", `The pool of workload type management has the CPUs "0"`)
	waitFor(t, 30*time.Second, "the kubelet has forgotten the pods of other tests", func() error {
		if pods := metric(t, c, "kubelet_workload_partitioning_pods", "workload_type", "management"); pods != 0 {
			return fmt.Errorf("it counts %v", pods)
		}
		return nil
	})
	start(t, c, namespace, fixture.Pod("a", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "")), fixture.Pod("b", asks, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")),
		fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")))
	for name, want := range map[string]float64{"pods": 2, "requested_millicores": 500, "pool_cpus": 1} {
		if got := metric(t, c, "kubelet_workload_partitioning_"+name, "workload_type", "management"); got != want {
			t.Errorf("kubelet_workload_partitioning_%s is %v, want %v", name, got, want)
		}
	}
}

// metric returns the value of one of the kubelet's metrics, with a label unless that is empty.
// A series that does not exist has the value zero.
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
