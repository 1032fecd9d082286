// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// After its start, a kubelet repairs the containers and pods that were there before: it gives
// them the CPUs, weights and quotas that they should have, once. It does not touch what is
// right.
func TestContainersAreRepairedOnce(t *testing.T) {
	in(t, vm)
	underEachPolicy(t, repairedOnce)
}

func repairedOnce(t *testing.T, c *host.Cluster) {
	proxy := sharedThroughProxy(t, c)
	restart(t, c, "")
	namespace := fixture.Namespace(t, c.Client, "management")
	// The type is latched, so kube-apiserver partitions these pods, and without the file the
	// kubelet does not confine them. This happens on a node whose file was away, or that had an
	// unpatched kubelet.
	here := func(p *v1.Pod) *v1.Pod {
		p.Spec.NodeName = c.Config.Node.Name // the scheduler would not place them: the node reports no cores
		return p
	}
	pods := start(t, c, namespace,
		here(fixture.Pod("limited", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "cpu=500m memory=64Mi"))),
		here(fixture.Pod("unlimited", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))),
		here(fixture.Pod("besteffort", asks, fixture.Container("c", fixture.Awake, "", ""))),
		here(fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "cpu=50m memory=16Mi", ""))))
	if usage := containerUsage(t, pods[0], 0); usage.Weight != weight(2) || usage.Quota != 0 {
		t.Fatalf("without the file the container has weight %d and quota %v, so there is nothing to repair", usage.Weight, usage.Quota)
	}
	restart(t, c, pinning)
	runtime := runtimeClient(t, c)
	for i, want := range []struct {
		millicores int64
		quota      float64
		cpus       string
	}{{400, 0.5, "0"}, {100, 0, "0"}, {0, 0, "0"}, {50, 0, otherCPUs(t)}} {
		shares := max(want.millicores*1024/1000, 2)
		waitFor(t, time.Minute, "pod "+pods[i].Name+" is repaired", func() error {
			container, err := host.ContainerUsage(pods[i], pods[i].Status.ContainerStatuses[0].ContainerID)
			if err != nil {
				return err
			}
			// On cgroup v2, a runtime converts shares to weights in its own way.
			if container.CPUs != want.cpus || container.Quota != want.quota || (host.CgroupV1() && container.Weight != shares) {
				return fmt.Errorf("its container has CPUs %s, weight %d and quota %v, want %s, %d and %v", container.CPUs, container.Weight, container.Quota, want.cpus, shares, want.quota)
			}
			// The runtime writes the cgroup first and its own record last. A kubelet that ends in
			// between has not repaired the container.
			if recorded, err := recordedCPUs(t, runtime, pods[i]); err != nil || recorded != want.cpus {
				return fmt.Errorf("the runtime has recorded the CPUs %q (%v), want %s", recorded, err, want.cpus)
			}
			whole, err := host.PodUsage(pods[i])
			if err == nil && (whole.Weight != weight(shares) || whole.Quota != want.quota) {
				err = fmt.Errorf("as a whole it has weight %d and quota %v, want %d and %v", whole.Weight, whole.Quota, weight(shares), want.quota)
			}
			return err
		})
	}
	t.Run("a second start updates nothing", func(t *testing.T) {
		if updates := updatesAfterStart(t, c, proxy, pinning); len(updates) > 0 {
			t.Errorf("the kubelet sent the updates %v, want none", updates)
		}
	})
	t.Run("a container that others have put outside the pools stays there", func(t *testing.T) {
		needsCPUs(t, 4)
		if c.Config.CPUManagerPolicy != "none" {
			t.Skip("the static policy moves containers that it has not placed, as it does upstream")
		}
		last := fmt.Sprint(slices.Max(fixture.CPUs(t, otherCPUs(t)).List()))
		p := pods[3]
		id := fixture.ContainerID(p.Status.ContainerStatuses[0])
		update := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: last}}
		if _, err := runtimeClient(t, c).UpdateContainerResources(t.Context(), update); err != nil {
			t.Fatal(err)
		}
		restart(t, c, pinning)
		time.Sleep(reconciliations(5)) // the period in which it must not be moved
		if usage := containerUsage(t, p, 0); usage.CPUs != last {
			t.Errorf("the container has CPUs %s, want those that others gave it, %s", usage.CPUs, last)
		}
	})
	t.Run("a container that an NRI plugin has put there stays there", func(t *testing.T) {
		needsCPUs(t, 4)
		switch {
		case c.Config.CPUManagerPolicy != "none":
			t.Skip("the static policy moves containers that it has not placed, as it does upstream")
		case host.CgroupV1():
			t.Skip("on cgroup v1 the kernel narrows cpusets as well, so what the runtime reports counts")
		}
		// containerd goes on reporting what the kubelet had asked for.
		first := fmt.Sprint(slices.Min(fixture.CPUs(t, otherCPUs(t)).List()))
		p := pods[3]
		if err := os.WriteFile(filepath.Join(containerCgroup(t, p), "cpuset.cpus"), []byte(first), 0); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			restart(t, c, pinning)
			time.Sleep(reconciliations(5)) // the period in which it must not be moved
			if usage := containerUsage(t, p, 0); usage.CPUs != first {
				t.Errorf("the container has CPUs %s, want those that the plugin gave it, %s", usage.CPUs, first)
			}
		}
	})
}

// containerCgroup returns the directory of the cgroup of a pod's first container, on cgroup v2.
func containerCgroup(t *testing.T, p *v1.Pod) (path string) {
	t.Helper()
	id := fixture.ContainerID(p.Status.ContainerStatuses[0])
	if err := filepath.WalkDir("/sys/fs/cgroup", func(at string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(entry.Name(), id) {
			path = at
			return fs.SkipAll
		}
		return nil // others come and go
	}); err != nil || path == "" {
		t.Fatalf("container %s has no cgroup (%v)", id, err)
	}
	return path
}

// OpenShift's kubelet annotates only containers with a CPU request, and writes shares in
// 1024ths. Such pods run in their pool, with the weight of their cores.
func TestPodsOfOpenShiftsKubeletRunInTheirPool(t *testing.T) {
	in(t, long, unpatchedBinaries)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	// The plugin would change such a pod.
	useAPIServer(t, c, filepath.Join(upstreamBin, "kube-apiserver"))
	t.Cleanup(func() { useAPIServer(t, c, "") })
	with := func(name, list string) v1.Container {
		c := fixture.Container(name, fixture.Awake, list, "")
		if quantity, has := c.Resources.Requests[cores]; has {
			c.Resources.Limits = v1.ResourceList{cores: quantity}
		}
		return c
	}
	p := fixture.Pod("theirs", map[string]string{managementTarget: soft, partition.ResourcesAnnotation("asks"): `{"cpushares": 409}`},
		with("asks", string(cores)+"=400 memory=16Mi"), with("asks-nothing", "memory=16Mi"))
	p = start(t, c, namespace, p)[0]
	for i := range p.Spec.Containers {
		awaitWork(t, p, i, 20*time.Millisecond)
		expectCPUs(t, p, i, "0", 1)
	}
	if usage, err := host.PodUsage(p); err != nil || usage.Weight != weight(409+2) && usage.Weight != weight(409) {
		t.Errorf("the pod has weight %d (%v), want %d or %d, as 400m have", usage.Weight, err, weight(409), weight(409+2))
	}
}
