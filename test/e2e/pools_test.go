package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/partition"
)

// needsCPUs skips tests of what hosts with few CPUs can not have.
func needsCPUs(t *testing.T, count int) {
	t.Helper()
	if runtime.NumCPU() < count {
		t.Skipf("the host has %d CPUs, and this needs %d", runtime.NumCPU(), count)
	}
}

// expectPlaced checks that the first container of a pod, and each task of it, may use
// exactly these CPUs, once the CPU manager has seen to it.
func expectPlaced(t *testing.T, p *v1.Pod, want cpuset.CPUSet) {
	t.Helper()
	waitFor(t, time.Minute, "container of pod "+p.Name+" is where it belongs", func() error {
		usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID)
		if err == nil && (usage.CPUs != want.String() || len(usage.Tasks) != 1 || usage.Tasks[0] != want.String()) {
			err = fmt.Errorf("it may use CPUs %s, and its tasks %q; want %s", usage.CPUs, usage.Tasks, want)
		}
		return err
	})
}

// Two types with a pool each, and pools of every shape: across NUMA nodes, with holes,
// with one of two siblings. Whatever the shape, each pod is where it belongs, beside one
// with exclusive CPUs.
func TestPoolsOfEveryShape(t *testing.T) {
	in(t, vm, vmCore)
	needsCPUs(t, 8)
	c := partitioned(t)
	t.Cleanup(func() { restart(t, c, pinning) })
	online := cpus(t, allCPUs(t))
	for _, test := range []struct{ name, management, infra string }{
		{"a core for each of two types", "0-1", "4-5"},
		{"holes across NUMA nodes and siblings", "0,4,2-3", "7"},
		{"siblings in different pools", "0", "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "siblings in different pools" {
				in(t, vm)
			}
			restart(t, c, fmt.Sprintf(`{"management": {"cpuset": %q}, "infra": {"cpuset": %q}}`, test.management, test.infra))
			management, infra := cpus(t, test.management), cpus(t, test.infra)
			node := getNode(t, c)
			if got, want := node.Status.Allocatable.Cpu().MilliValue(), int64(online.Size()-management.Size()-infra.Size())*1000; got != want {
				t.Errorf("the node's allocatable cpu is %dm, want %dm", got, want)
			}
			for _, workloadType := range []string{"management", "infra"} {
				name := v1.ResourceName(partition.CoresResource(workloadType))
				capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
				if want := int64(online.Size()) * 1000; capacity.Value() != want || allocatable.Value() != want {
					t.Errorf("%s: capacity %d, allocatable %d, want %d", name, capacity.Value(), allocatable.Value(), want)
				}
			}
			namespace := newNamespace(t, c, "management,infra")
			pods := start(t, c, namespace,
				pod("management", asks, container("c", busy, "cpu=400m memory=16Mi", "")),
				pod("infra", asksFor("infra"), container("c", busy, "cpu=200m memory=16Mi", "")),
				pod("ordinary", nil, container("c", busy, "cpu=100m memory=16Mi", "")),
				pod("exclusive", nil, container("c", awake, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi")))
			shared := online.Difference(management).Difference(infra)
			exclusive := cpus(t, containerUsage(t, pods[3], 0).CPUs)
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

// Exclusive containers take every CPU outside the pool. A container that shares runs on
// one of them then, and neither is spread over them nor comes onto the pool.
func TestSharedContainersKeepOneCPU(t *testing.T) {
	in(t, vm, vmCore)
	needsCPUs(t, 4)
	c := partitioned(t)
	namespace := newNamespace(t, c, "management")
	online := cpus(t, allCPUs(t))
	exclusive := func(name string, count int) *v1.Pod {
		amount := fmt.Sprintf("cpu=%d memory=32Mi", count)
		return pod(name, nil, container("c", awake, amount, amount))
	}
	shared := start(t, c, namespace, pod("shared", nil, container("c", awake, "", "")))[0]
	holders := []*v1.Pod{exclusive("most", online.Size()-3), exclusive("last-but-one", 1), exclusive("last", 1)}
	holders = start(t, c, namespace, holders...)
	onOne := func(t *testing.T, p *v1.Pod) string {
		t.Helper()
		found := ""
		waitFor(t, time.Minute, "container of pod "+p.Name+" has one CPU outside the pool", func() error {
			found = containerUsage(t, p, 0).CPUs
			if set := cpus(t, found); set.Size() != 1 || set.Contains(0) {
				return fmt.Errorf("it may use CPUs %s", found)
			}
			return nil
		})
		return found
	}
	first := onOne(t, shared)
	late := start(t, c, namespace, pod("late", nil, container("c", awake, "", "")))[0]
	if got, want := onOne(t, late), fmt.Sprint(slices.Max(online.List())); got != want {
		t.Errorf("a container that starts now has CPU %s, want %s", got, want)
	}
	awaitEvent(t, c, "NoSharedCPUs", "disturb "+namespace+"/")
	if value := metric(t, c, "kubelet_workload_partitioning_shared_cpus", "", ""); value != 0 {
		t.Errorf("kubelet_workload_partitioning_shared_cpus is %v", value)
	}
	t.Run("the kubelet starts again", func(t *testing.T) {
		restart(t, c, pinning)
		time.Sleep(10 * time.Second)
		if got := onOne(t, shared); got != first {
			t.Errorf("the container that shared has CPU %s, and had %s", got, first)
		}
		onOne(t, late)
		for _, p := range holders {
			expectPlaced(t, p, cpus(t, containerUsage(t, p, 0).CPUs))
		}
	})
	t.Run("a CPU is given back", func(t *testing.T) {
		back := cpus(t, containerUsage(t, holders[2], 0).CPUs)
		releaseExclusive(t, c, holders[2])
		expectPlaced(t, shared, back)
		expectPlaced(t, late, back)
		awaitEvent(t, c, "NoSharedCPUs", fmt.Sprintf("share the CPUs %q again", back.String()))
	})
	for _, p := range holders[:2] {
		releaseExclusive(t, c, p)
	}
}

// releaseExclusive deletes a pod with exclusive CPUs, and waits until the CPU manager has
// them back: no pool may have them before.
func releaseExclusive(t *testing.T, c *host.Cluster, p *v1.Pod) {
	t.Helper()
	if err := c.Client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 2*time.Minute, "the CPU manager forgets pod "+p.Name, func() error {
		data, err := os.ReadFile(filepath.Join(c.KubeletDir(), "cpu_manager_state"))
		if err == nil && strings.Contains(string(data), string(p.UID)) {
			err = fmt.Errorf("its checkpoint is %s", data)
		}
		return err
	})
}

// The CPU manager gives whole cores of one NUMA node, as its options and the Topology
// Manager's say, and none of a busy pool.
func TestExclusiveCPUsAreWholeCores(t *testing.T) {
	in(t, vm, vmCore)
	needsCPUs(t, 8)
	c := partitioned(t)
	reconfigure := func(configuration string) {
		if err := c.ChangeCPUManagerPolicy("static"); err != nil {
			t.Fatal(err)
		}
		c.Config.KubeletConfiguration = configuration
		restart(t, c, c.Config.Pinning)
	}
	t.Cleanup(func() {
		c.Config.Pinning = pinning
		reconfigure("")
	})
	c.Config.Pinning = `{"management": {"cpuset": "0-1"}}`
	reconfigure("cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\ntopologyManagerPolicy: single-numa-node\n")
	namespace := newNamespace(t, c, "management")
	pods := start(t, c, namespace,
		pod("busy", asks, container("c", busy+" & "+busy, "cpu=400m memory=16Mi", "")),
		pod("ordinary", nil, container("c", busy, "cpu=100m memory=16Mi", "")),
		pod("aligned", nil, container("c", awake, "cpu=2 memory=32Mi", "cpu=2 memory=32Mi")),
		pod("larger", nil, container("c", awake, "cpu=2 memory=32Mi", "cpu=2 memory=32Mi")))
	pool, taken := cpuset.New(0, 1), cpuset.New()
	for _, p := range pods[2:] {
		has := cpus(t, containerUsage(t, p, 0).CPUs)
		if has.Size() != 2 || !has.Intersection(pool.Union(taken)).IsEmpty() {
			t.Errorf("the container of pod %s has CPUs %s; the pool is %s, and others have %s", p.Name, has, pool, taken)
		}
		siblings := cpus(t, sysCPU(t, has.List()[0], "topology/thread_siblings_list"))
		if (siblings.Size() > 1 || c.Config.Dedicated) && !siblings.Equals(has) {
			t.Errorf("the container of pod %s has CPUs %s, and not the core %s", p.Name, has, siblings)
		}
		if numaNode(t, has.List()[0]) != numaNode(t, has.List()[1]) {
			t.Errorf("the container of pod %s has CPUs %s of two NUMA nodes", p.Name, has)
		}
		taken = taken.Union(has)
		expectPlaced(t, p, has)
	}
	for _, p := range pods[2:] {
		defer releaseExclusive(t, c, p)
	}
	expectPlaced(t, pods[0], pool)
	expectPlaced(t, pods[1], cpus(t, allCPUs(t)).Difference(pool).Difference(taken))
}

func sysCPU(t *testing.T, cpu int, file string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/%s", cpu, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func numaNode(t *testing.T, cpu int) string {
	t.Helper()
	nodes, err := filepath.Glob(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/node*", cpu))
	if err != nil || len(nodes) != 1 {
		t.Fatalf("CPU %d is in NUMA nodes %q (%v)", cpu, nodes, err)
	}
	return filepath.Base(nodes[0])
}
