// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// When the pools change, running containers move to their new CPUs, under either policy of the
// CPU manager. The kubelet starts whatever the file held before, and there is no need to delete a
// checkpoint. In a VM TestPodCgroupsHaveTheirPool says so of containers, too.
func TestContainersFollowChangedPools(t *testing.T) {
	in(t, core)
	underEachPolicy(t, poolsChange, core)
}

func poolsChange(t *testing.T, c *host.Cluster) {
	namespace := fixture.Namespace(t, c.Client, "management")
	start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "")), fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")))
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
		{"the pool moves", `{"management": {"cpuset": "1"}}`, "1", fixture.CPUs(t, allCPUs(t)).Difference(cpuset.New(1)).String()},
		{"the type loses its CPUs", `{"management": {"cpuset": ""}}`, allCPUs(t), allCPUs(t)},
		{"the file goes", "", allCPUs(t), allCPUs(t)},
		{"the file comes back", pinning, "0", otherCPUs(t)},
		{"the file goes again", "", allCPUs(t), allCPUs(t)},
		{"the file comes back again", pinning, "0", otherCPUs(t)},
	} {
		t.Run(step.name, func(t *testing.T) {
			restart(t, c, step.file)
			for i, want := range []string{step.partitioned, step.ordinary} {
				p := pods[i]
				for _, status := range []v1.ContainerStatus{p.Status.ContainerStatuses[0], p.Status.EphemeralContainerStatuses[0]} {
					waitFor(t, 30*time.Second, fmt.Sprintf("container %s of pod %s has its CPUs", status.Name, p.Name), func() error {
						usage, err := host.ContainerUsage(p, status.ContainerID)
						if err == nil && usage.CPUs != want {
							err = fmt.Errorf("it may use CPUs %s, want %s", usage.CPUs, want)
						}
						return err
					})
				}
			}
			node := getNode(t, c)
			if _, has := node.Status.Capacity[cores]; has != (step.file != "") {
				t.Errorf("the node's capacity is %v, want cores: %v", node.Status.Capacity, step.file != "")
			}
		})
	}
}

// A pod that takes its time to end is no pod that upstream synchronises. Its container follows the pool
// all the same: on cgroup v2 it would stay where its pod's cgroup is.
func TestAPodThatEndsFollowsItsPool(t *testing.T) {
	in(t, core, vm, vmCore)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	p := fixture.Pod("ending", asks, fixture.Container("c", "trap '' TERM; while :; do sleep 0.2; done", "cpu=400m memory=16Mi", ""))
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](300)
	p = start(t, c, namespace, p)[0]
	t.Cleanup(func() {
		_ = c.Client.CoreV1().Pods(namespace).Delete(context.WithoutCancel(t.Context()), p.Name, *metav1.NewDeleteOptions(0)) // the namespace goes, too
		if t.Failed() {
			restart(t, c, pinning)
		}
	})
	if err := c.Client.CoreV1().Pods(namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, pool := range []string{"1", "0"} {
		restart(t, c, fmt.Sprintf(`{"management": {"cpuset": %q}}`, pool))
		waitFor(t, 30*time.Second, "the container runs in the pool "+pool, func() error {
			usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID)
			if err == nil && usage.CPUs != pool {
				err = fmt.Errorf("it may use CPUs %s", usage.CPUs)
			}
			return err
		})
	}
}

// Two types have a pool each, of any shape: with holes, across NUMA nodes, with one of two
// siblings. Each pod has exactly its CPUs, next to one with an exclusive CPU.
func TestPoolsMayHaveAnyShape(t *testing.T) {
	in(t, vm, vmCore)
	needsCPUs(t, 8)
	c := partitioned(t)
	t.Cleanup(func() { restart(t, c, pinning) })
	online := fixture.CPUs(t, allCPUs(t))
	for _, test := range []struct{ name, management, infra string }{
		{"a physical core for each type", "0-1", "4-5"},
		{"holes, across NUMA nodes and siblings", "0,4,2-3", "7"},
		{"siblings in different pools", "0", "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "siblings in different pools" {
				in(t, vm)
			}
			restart(t, c, fmt.Sprintf(`{"management": {"cpuset": %q}, "infra": {"cpuset": %q}}`, test.management, test.infra))
			management, infra := fixture.CPUs(t, test.management), fixture.CPUs(t, test.infra)
			node := getNode(t, c)
			if got, want := node.Status.Allocatable.Cpu().MilliValue(), int64(online.Size()-management.Size()-infra.Size())*1000; got != want {
				t.Errorf("the node's allocatable cpu is %dm, want %dm", got, want)
			}
			for _, workloadType := range []string{"management", "infra"} {
				name := v1.ResourceName(partition.CoresResource(workloadType))
				capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
				if want := int64(online.Size()) * 1000; capacity.Value() != want || allocatable.Value() != want {
					t.Errorf("the node has a capacity of %d and an allocatable amount of %d %s, want %d", capacity.Value(), allocatable.Value(), name, want)
				}
			}
			namespace := fixture.Namespace(t, c.Client, "management,infra")
			pods := start(t, c, namespace,
				fixture.Pod("management", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "")),
				fixture.Pod("infra", fixture.Asks("infra"), fixture.Container("c", fixture.Busy, "cpu=200m memory=16Mi", "")),
				fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")),
				fixture.Exclusive("exclusive", 1))
			shared := online.Difference(management).Difference(infra)
			exclusive := fixture.CPUs(t, containerUsage(t, pods[3], 0).CPUs)
			if exclusive.Size() != 1 || !exclusive.IsSubsetOf(shared) {
				t.Errorf("the exclusive container has CPUs %s, want one of %s", exclusive, shared)
			}
			for i, want := range []cpuset.CPUSet{management, infra, shared.Difference(exclusive), exclusive} {
				expectPlaced(t, pods[i], want)
			}
			defer releaseExclusive(t, c, pods[3])
			for i, shares := range []int64{409, 204, 102} {
				if usage, err := host.PodUsage(pods[i]); err != nil || usage.Weight != weight(shares) {
					t.Errorf("pod %s has weight %d (%v), want %d", pods[i].Name, usage.Weight, err, weight(shares))
				}
			}
		})
	}
}

// The node's allocatable cpu is its capacity less the pool, and less nothing else.
func TestNodeReservesItsPoolAndNothingElse(t *testing.T) {
	in(t, vm)
	c := partitioned(t)
	node := getNode(t, c)
	if got, want := node.Status.Allocatable.Cpu().MilliValue(), int64(runtime.NumCPU()-1)*1000; got != want {
		t.Errorf("the node's allocatable cpu is %dm, want %dm", got, want)
	}
	if got, want := node.Status.Capacity.Cpu().Value(), int64(runtime.NumCPU()); got != want {
		t.Errorf("the node's capacity is %d CPUs, want %d", got, want)
	}
}

// A type without CPUs is on, and its pods run on all CPUs in no pool, with the weights of their
// original requests.
func TestTypeWithoutCPUsRunsBesideThePool(t *testing.T) {
	in(t)
	c := partitioned(t)
	restart(t, c, `{"management": {"cpuset": "0"}, "infra": {"cpuset": ""}}`)
	t.Cleanup(func() { restart(t, c, pinning) })
	const infraCores = v1.ResourceName("infra.workload.openshift.io/cores")
	node := getNode(t, c)
	for _, name := range []v1.ResourceName{cores, infraCores} {
		capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
		if want := int64(runtime.NumCPU()) * 1000; capacity.Value() != want || allocatable.Value() != want {
			t.Errorf("the node has a capacity of %d and an allocatable amount of %d %s, want %d", capacity.Value(), allocatable.Value(), name, want)
		}
	}
	namespace := fixture.Namespace(t, c.Client, "management, infra")
	pods := start(t, c, namespace, fixture.Pod("management", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "")),
		fixture.Pod("infra", fixture.Asks("infra"), fixture.Container("c", fixture.Busy, "cpu=200m memory=16Mi", "")))
	if request := pods[1].Spec.Containers[0].Resources.Requests[infraCores]; request.Value() != 200 {
		t.Errorf("pod infra has %v, want 200 cores of its type", pods[1].Spec.Containers[0].Resources)
	}
	for _, p := range pods {
		awaitWork(t, p, 0, 2*time.Second)
	}
	expectCPUs(t, pods[0], 0, "0", 1)
	expectCPUs(t, pods[1], 0, otherCPUs(t), 0)
	if usage, err := host.PodUsage(pods[1]); err != nil || usage.Weight != weight(204) {
		t.Errorf("pod infra has weight %d (%v), want that of 200m, %d", usage.Weight, err, weight(204))
	}
}
