// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// simulatedNodes returns a control plane without a kubelet, with nodes that kwok plays; see
// createNodes.
func simulatedNodes(t testing.TB, count int, offered string) *host.Cluster {
	t.Helper()
	needs(t, kwok)
	with := config
	with.WithoutNode, with.Controllers = true, []string{"kube-controller-manager", "kube-scheduler", "kwok"}
	c := alone(t, with)
	createNodes(t, c, count, "simulated", offered)
	awaitNodes(t, c, count)
	return c
}

// simulated is the label of simulated nodes, whose value is the name of their template.
const simulated = "example.com/simulated"

// createNodes creates nodes that kwok plays: each of eight CPUs, one of which is in the pool, and
// with this amount of cores.
func createNodes(t testing.TB, c *host.Cluster, count int, name, offered string) {
	t.Helper()
	if err := c.CreateNodes(t.Context(), count, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{simulated: name}},
		Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("7"), v1.ResourceMemory: resource.MustParse("32Gi"),
			v1.ResourcePods: resource.MustParse("110"), cores: resource.MustParse(offered)}},
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitNodes waits until so many simulated nodes are Ready and have no taint.
func awaitNodes(t testing.TB, c *host.Cluster, count int) {
	t.Helper()
	began := time.Now()
	limit := time.Minute + time.Duration(count)*100*time.Millisecond
	fixture.WaitFor(t, time.Second, limit, "the nodes are Ready", func(ctx context.Context) error {
		nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: simulated, ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready := 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue && len(node.Spec.Taints) == 0 {
					ready++
				}
			}
		}
		if ready != count {
			return fmt.Errorf("%d of %d", ready, len(nodes.Items))
		}
		return nil
	})
	t.Logf("%d nodes were Ready after %s", count, time.Since(began))
}

// The scheduler counts cores on many nodes as it does on one: of pods that take more than half
// of a pool each node gets one, and one pod more has no place.
func TestSchedulerFillsPoolsOfManyNodes(t *testing.T) {
	in(t, long, kwok)
	const count = 50
	c := simulatedNodes(t, count, "1000")
	namespace := fixture.Namespace(t, c.Client, "management")
	awaitActive(t, creating(t, c, namespace), true)
	var pods []*v1.Pod
	for i := range count {
		pods = append(pods, fixture.Pod(fmt.Sprintf("p-%d", i), asks, fixture.Container("c", fixture.Awake, "cpu=600m memory=16Mi", "")))
	}
	hosts := map[string]string{}
	for _, p := range start(t, c, namespace, pods...) {
		if workloadType, _ := partition.PartitionedType(p); workloadType != "management" {
			t.Errorf("pod %s runs as an ordinary pod, with annotations %v", p.Name, p.Annotations)
		}
		if other, taken := hosts[p.Spec.NodeName]; taken {
			t.Errorf("%s has both %s and %s, which ask for more than its pool", p.Spec.NodeName, other, p.Name)
		}
		hosts[p.Spec.NodeName] = p.Name
	}
	more := fixture.Pod("more", asks, fixture.Container("c", fixture.Awake, "cpu=600m memory=16Mi", ""))
	if _, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), more, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitUnschedulable(t, c, namespace, more.Name, string(cores))
}

// By default the scheduler looks at cpu and memory, so partitioned pods stay away from nodes with
// an application, and pile up on the others. With the configuration of the documentation they
// spread by cores.
func TestSchedulerSpreadsByCores(t *testing.T) {
	in(t, long, kwok)
	const example = "scheduler.yaml"
	file, err := os.ReadFile(filepath.Join(docs, "examples", example))
	page, pageErr := os.ReadFile(filepath.Join(docs, "scheduler.md"))
	if err := errors.Join(err, pageErr); err != nil {
		t.Fatal(err)
	}
	_, begins, _ := strings.Cut(string(file), "apiVersion:")
	if !strings.Contains(string(page), "apiVersion:"+begins) {
		t.Errorf("scheduler.md does not have what examples/%s has", example)
	}
	const count, pods = 50, 400
	c := simulatedNodes(t, count, "8000")
	namespace := fixture.Namespace(t, c.Client, "management")
	awaitActive(t, creating(t, c, namespace), true)
	var applications []*v1.Pod
	for i := range count / 2 {
		applications = append(applications, application(fmt.Sprintf("simulated-%d", 2*i)))
	}
	start(t, c, namespace, applications...)
	for round, test := range []struct {
		configuration string
		spreads       bool
	}{{"", false}, {example, true}} {
		configureScheduler(t, c, test.configuration)
		var partitioned []*v1.Pod
		for i := range pods {
			partitioned = append(partitioned, fixture.Pod(fmt.Sprintf("p-%d-%d", round, i), asks, fixture.Container("c", fixture.Idle, sizes[i%len(sizes)], "")))
		}
		running := start(t, c, namespace, partitioned...)
		_, of := spreadOf(running, cores, count)
		t.Logf("with the configuration %q, the nodes have %s of cores", test.configuration, of)
		if spreads := of.least >= of.mean/2 && of.most <= of.mean*3/2; spreads != test.spreads {
			t.Errorf("with the configuration %q, the nodes have %s of cores: each has about as much: %v, want %v", test.configuration, of, spreads, test.spreads)
		}
		for _, p := range running {
			deleteNow(t, c, p)
		}
	}
}

// sizes are the requests of pods that are scheduled on simulated nodes: 200m on average.
var sizes = []string{"cpu=100m memory=16Mi", "cpu=300m memory=16Mi", "cpu=200m memory=16Mi", "cpu=200m memory=16Mi"}

// application is an ordinary pod that takes most of a simulated node's cpu, and half of its memory.
func application(node string) *v1.Pod {
	p := fixture.Pod("application-on-"+node, nil, fixture.Container("c", fixture.Idle, "cpu=5 memory=16Gi", ""))
	p.Spec.NodeName = node
	return p
}

// configureScheduler restarts kube-scheduler with a configuration of the documentation; the empty
// name means none.
func configureScheduler(t testing.TB, c *host.Cluster, name string) {
	t.Helper()
	kubeconfig := filepath.Join(c.Config.Paths.Data, "kube-scheduler.kubeconfig")
	argument := "--kubeconfig=" + kubeconfig
	if name != "" {
		data, err := os.ReadFile(filepath.Join(docs, "examples", name))
		if err != nil {
			t.Fatal(err)
		}
		configuration := map[string]any{}
		if err := yaml.UnmarshalStrict(data, &configuration); err != nil {
			t.Fatal(err)
		}
		// As the flags are that it has without a file.
		configuration["clientConnection"] = map[string]any{"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000}
		if data, err = yaml.Marshal(configuration); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(c.Config.Paths.Data, name)
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		argument = "--config=" + file
	}
	args := c.Scheduler.Args()
	args[slices.IndexFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "--kubeconfig=") || strings.HasPrefix(arg, "--config=")
	})] = argument
	if err := errors.Join(c.Scheduler.Kill(), c.Scheduler.Start()); err != nil {
		t.Fatal(err)
	}
}

// spread says how evenly something is spread over nodes.
type spread struct{ least, median, most, mean, deviation float64 }

func (s spread) String() string {
	return fmt.Sprintf("%.0f to %.0f, %.0f in the median, %.1f on average with a standard deviation of %.1f", s.least, s.most, s.median, s.mean, s.deviation)
}

// spreadOf returns how pods, and what they request of a resource in its smallest unit that the
// scheduler knows (millicores, bytes), are spread over a number of nodes.
func spreadOf(pods []*v1.Pod, name v1.ResourceName, nodes int) (count, amount spread) {
	counts, amounts := map[string]float64{}, map[string]float64{}
	for _, p := range pods {
		counts[p.Spec.NodeName]++
		for _, container := range p.Spec.Containers {
			quantity := container.Resources.Requests[name]
			if name == v1.ResourceCPU {
				amounts[p.Spec.NodeName] += float64(quantity.MilliValue())
			} else {
				amounts[p.Spec.NodeName] += float64(quantity.Value())
			}
		}
	}
	return newSpread(counts, nodes), newSpread(amounts, nodes)
}

// newSpread returns the spread of values over nodes, of which those without one have zero.
func newSpread(values map[string]float64, nodes int) (s spread) {
	all := append(slices.Sorted(maps.Values(values)), make([]float64, nodes-len(values))...)
	slices.Sort(all)
	s.least, s.median, s.most = all[0], all[len(all)/2], all[len(all)-1]
	var sum, squares float64
	for _, value := range all {
		sum += value
		squares += value * value
	}
	n := float64(len(all))
	s.mean = sum / n
	s.deviation = math.Sqrt(max(0, squares/n-s.mean*s.mean))
	return s
}
