package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// simulatedNodes returns a control plane without a kubelet, with nodes that kwok plays: each has
// a pool of one CPU out of eight.
func simulatedNodes(t *testing.T, count int) *host.Cluster {
	t.Helper()
	if _, err := os.Stat(filepath.Join(config.Tools, "kwok")); err != nil {
		t.Skip("there is no kwok; make kwok builds it")
	}
	with := config
	with.WithoutNode, with.Controllers = true, []string{"kube-controller-manager", "kube-scheduler", "kwok"}
	c := alone(t, with)
	began := time.Now()
	if err := c.CreateNodes(t.Context(), count, &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "simulated", Labels: map[string]string{"example.com/rack": "r1"}},
		Status: v1.NodeStatus{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("7"), v1.ResourceMemory: resource.MustParse("32Gi"),
			v1.ResourcePods: resource.MustParse("110"), cores: resource.MustParse("1000")}},
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes were created in %s", count, time.Since(began))
	waitFor(t, time.Minute, "the nodes are Ready", func() error {
		nodes, err := c.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "example.com/rack=r1"})
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
	t.Logf("they were Ready after %s", time.Since(began))
	return c
}

// The scheduler counts cores on many nodes as it does on one: of pods that take more than half
// of a pool each node gets one, and one pod more has no place.
func TestSchedulerFillsPoolsOfManyNodes(t *testing.T) {
	in(t, long)
	const count = 50
	c := simulatedNodes(t, count)
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
