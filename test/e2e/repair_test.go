package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// A kubelet gives the containers that were there before it the CPUs, weights and quotas that they
// should have, once. It does not touch what is right.
func TestContainersAreRepairedOnce(t *testing.T) {
	in(t, vm)
	underEachPolicy(t, repairedOnce)
}

func repairedOnce(t *testing.T, c *host.Cluster) {
	proxy := sharedThroughProxy(t, c)
	restart(t, c, "")
	namespace := fixture.Namespace(t, c.Client, "management")
	// The type is latched, so these are partitioned, and the kubelet knows nothing of it:
	// as on a node whose file was away, or that had an unpatched kubelet.
	here := func(p *v1.Pod) *v1.Pod {
		p.Spec.NodeName = c.Config.Node.Name // it has no cores for a scheduler to see
		return p
	}
	pods := start(t, c, namespace,
		here(fixture.Pod("limited", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "cpu=500m memory=64Mi"))),
		here(fixture.Pod("unlimited", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))),
		here(fixture.Pod("besteffort", asks, fixture.Container("c", fixture.Awake, "", ""))),
		here(fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "cpu=50m memory=16Mi", ""))))
	if usage := containerUsage(t, pods[0], 0); usage.Weight != weight(2) || usage.Quota != 0 {
		t.Fatalf("without the file the container has weight %d and quota %v: there is nothing to repair", usage.Weight, usage.Quota)
	}
	restart(t, c, pinning)
	for i, want := range []struct {
		millicores int64
		quota      float64
		cpus       string
	}{{400, 0.5, "0"}, {100, 0, "0"}, {0, 0, "0"}, {50, 0, otherCPUs(t)}} {
		shares := max(want.millicores*1024/1000, 2)
		waitFor(t, time.Minute, "pod "+pods[i].Name+" has what it should have", func() error {
			container, err := host.ContainerUsage(pods[i], pods[i].Status.ContainerStatuses[0].ContainerID)
			if err != nil {
				return err
			}
			// Inside a pod the runtime converts shares as it likes; see TestFairness.
			if container.CPUs != want.cpus || container.Quota != want.quota || (host.CgroupV1() && container.Weight != shares) {
				return fmt.Errorf("its container has CPUs %s, weight %d, quota %v; want %s, %d, %v", container.CPUs, container.Weight, container.Quota, want.cpus, shares, want.quota)
			}
			whole, err := host.PodUsage(pods[i])
			if err == nil && (whole.Weight != weight(shares) || whole.Quota != want.quota) {
				err = fmt.Errorf("it has weight %d and quota %v as a whole, want %d and %v", whole.Weight, whole.Quota, weight(shares), want.quota)
			}
			return err
		})
	}
	t.Run("a second start sends no update", func(t *testing.T) {
		proxy.Forget()
		restart(t, c, pinning)
		time.Sleep(10 * time.Second) // the period in which updates are counted: five reconciliations of the CPU manager
		if updates := updatesOf(t, proxy); len(updates) > 0 {
			t.Errorf("the runtime was asked for %v", updates)
		}
	})
	t.Run("what somebody else has put off the pools stays there", func(t *testing.T) {
		needsCPUs(t, 4)
		if c.Config.CPUManagerPolicy != "none" {
			t.Skip("the policy static moves what it has not placed, as upstream's does")
		}
		last := fmt.Sprint(slices.Max(fixture.CPUs(t, otherCPUs(t)).List()))
		p := pods[3]
		id := fixture.ContainerID(p.Status.ContainerStatuses[0])
		update := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: last}}
		if _, err := runtimeClient(t, c).UpdateContainerResources(t.Context(), update); err != nil {
			t.Fatal(err)
		}
		restart(t, c, pinning)
		time.Sleep(10 * time.Second) // the period in which nobody must move it: five reconciliations of the CPU manager
		if usage := containerUsage(t, p, 0); usage.CPUs != last {
			t.Errorf("the container has CPUs %s, and somebody gave it %s", usage.CPUs, last)
		}
	})
}

// OpenShift's kubelet annotates only containers that ask for CPU, and its shares are not
// millicores. Such pods run in their pool all the same, with the weight of their cores.
func TestPodsOfOpenShiftsKubeletRunInTheirPool(t *testing.T) {
	in(t)
	needsUpstream(t)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	use := func(path string) {
		c.UseAPIServer(path)
		if err := c.RestartAPIServer(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	// Only without the plugin can such a pod come into the cluster.
	use(filepath.Join(upstreamBin, "kube-apiserver"))
	t.Cleanup(func() { use("") })
	with := func(name, list string) v1.Container {
		c := fixture.Container(name, fixture.Awake, list, "")
		if quantity, has := c.Resources.Requests[cores]; has {
			c.Resources.Limits = v1.ResourceList{cores: quantity}
		}
		return c
	}
	p := fixture.Pod("theirs", map[string]string{managementTarget: `{"effect": "PreferredDuringScheduling"}`, partition.ResourcesAnnotation("asks"): `{"cpushares": 409}`},
		with("asks", string(cores)+"=400 memory=16Mi"), with("asks-nothing", "memory=16Mi"))
	p = start(t, c, namespace, p)[0]
	for i := range p.Spec.Containers {
		awaitWork(t, p, i, 20*time.Millisecond)
		expectCPUs(t, p, i, "0", 1)
	}
	if usage, err := host.PodUsage(p); err != nil || usage.Weight != weight(409+2) && usage.Weight != weight(409) {
		t.Errorf("the pod has weight %d (%v), want that of 400m, %d", usage.Weight, err, weight(409))
	}
}
