package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/criproxy"
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
	namespace := newNamespace(t, c, "management")
	// The type is latched, so these are partitioned, and the kubelet knows nothing of it:
	// as on a node whose file was away, or that had an unpatched kubelet.
	here := func(p *v1.Pod) *v1.Pod {
		p.Spec.NodeName = c.Config.Node.Name // it has no cores for a scheduler to see
		return p
	}
	pods := start(t, c, namespace,
		here(pod("limited", asks, container("c", awake, "cpu=400m memory=16Mi", "cpu=500m memory=64Mi"))),
		here(pod("unlimited", asks, container("c", awake, "cpu=100m memory=16Mi", ""))),
		here(pod("besteffort", asks, container("c", awake, "", ""))),
		here(pod("ordinary", nil, container("c", awake, "cpu=50m memory=16Mi", ""))))
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
		// The CPU manager reconciles every two seconds here.
		time.Sleep(10 * time.Second)
		if updates := updatesOf(t, proxy); len(updates) > 0 {
			t.Errorf("the runtime was asked for %v", updates)
		}
	})
	t.Run("what somebody else has put off the pools stays there", func(t *testing.T) {
		needsCPUs(t, 4)
		if c.Config.CPUManagerPolicy != "none" {
			t.Skip("the policy static moves what it has not placed, as upstream's does")
		}
		last := fmt.Sprint(slices.Max(cpus(t, otherCPUs(t)).List()))
		p := pods[3]
		id := containerID(p)
		update := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: last}}
		if _, err := runtimeClient(t, c).UpdateContainerResources(t.Context(), update); err != nil {
			t.Fatal(err)
		}
		restart(t, c, pinning)
		time.Sleep(10 * time.Second)
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
	namespace := newNamespace(t, c, "management")
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
		c := container(name, awake, list, "")
		if quantity, has := c.Resources.Requests[cores]; has {
			c.Resources.Limits = v1.ResourceList{cores: quantity}
		}
		return c
	}
	p := pod("theirs", map[string]string{managementTarget: `{"effect": "PreferredDuringScheduling"}`, partition.ResourcesAnnotation("asks"): `{"cpushares": 409}`},
		with("asks", string(cores)+"=400 memory=16Mi"), with("asks-nothing", "memory=16Mi"))
	p = start(t, c, namespace, p)[0]
	time.Sleep(3 * time.Second)
	for i := range p.Spec.Containers {
		expectCPUs(t, p, i, "0", 1)
	}
	if usage, err := host.PodUsage(p); err != nil || usage.Weight != weight(409+2) && usage.Weight != weight(409) {
		t.Errorf("the pod has weight %d (%v), want that of 400m, %d", usage.Weight, err, weight(409))
	}
}

// throughProxy puts a proxy between the kubelet and the runtime for a test, whatever becomes
// of the kubelet after it.
func throughProxy(t *testing.T, c *host.Cluster) *criproxy.Proxy {
	t.Helper()
	proxy, err := criproxy.Listen(c.ProxySocket(), c.RuntimeSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	c.Config.RuntimeSocket = c.ProxySocket()
	return proxy
}

// sharedThroughProxy is throughProxy for the node that tests share: at the end of the test, and
// before the proxy ends, its kubelet starts without it.
func sharedThroughProxy(t *testing.T, c *host.Cluster) *criproxy.Proxy {
	t.Helper()
	proxy := throughProxy(t, c)
	t.Cleanup(func() {
		c.Config.RuntimeSocket = ""
		restart(t, c, pinning)
	})
	return proxy
}

func updatesOf(t *testing.T, proxy *criproxy.Proxy) (updates []string) {
	t.Helper()
	calls, err := proxy.Calls()
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		if call.Method == "UpdateContainerResources" {
			updates = append(updates, fmt.Sprint(call.Request))
		}
	}
	return updates
}

// runtimeClient talks to the runtime as the kubelet does.
func runtimeClient(t *testing.T, c *host.Cluster) runtimeapi.RuntimeServiceClient {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+c.RuntimeSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return runtimeapi.NewRuntimeServiceClient(connection)
}

// stopInRuntime ends all containers of a pod without the kubelet's knowledge, as crictl
// stopp does.
func stopInRuntime(t *testing.T, c *host.Cluster, p *v1.Pod) {
	t.Helper()
	runtime := runtimeClient(t, c)
	label := map[string]string{"io.kubernetes.pod.uid": string(p.UID)}
	sandboxes, err := runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: label}})
	if err != nil {
		t.Fatal(err)
	}
	for _, sandbox := range sandboxes.Items {
		if _, err := runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.Id}); err != nil {
			t.Fatal(err)
		}
	}
}

func containerID(p *v1.Pod) string {
	return filepath.Base(p.Status.ContainerStatuses[0].ContainerID)
}

// The node never reports zero cores, whatever its device manager has lost: pods that find
// none are rejected, and static ones for good. Upstream writes zero if the node registers
// before the device manager has started, for which it waits until the runtime is ready.
func TestCoresAreNeverZero(t *testing.T) {
	in(t, vm)
	c := partitioned(t)
	proxy := sharedThroughProxy(t, c)
	var readyAt atomic.Pointer[time.Time]
	proxy.Then("Status", func(proto.Message) error {
		if at := readyAt.Load(); at != nil && time.Now().Before(*at) {
			return errors.New("not yet")
		}
		return nil
	})
	watching, err := c.Client.CoreV1().Nodes().Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: c.Config.Node.Name}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() {
		states := 0
		for event := range watching.ResultChan() {
			node, ok := event.Object.(*v1.Node)
			if !ok {
				continue
			}
			states++
			for what, list := range map[string]v1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
				if quantity := list[cores]; quantity.Sign() <= 0 {
					t.Errorf("the node's %s has %s cores", what, quantity.String())
				}
			}
		}
		ended <- states
	}()
	for i := range 4 {
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			at := time.Now().Add(3 * time.Second)
			readyAt.Store(&at)
			// Without checkpoints upstream takes the node for a new one.
			for _, directory := range []string{filepath.Join(c.KubeletDir(), "device-plugins"), "/var/lib/kubelet/device-plugins"} {
				if err := os.RemoveAll(directory); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := c.StartKubelet(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	watching.Stop()
	if states := <-ended; states < 4 {
		t.Errorf("only %d states of the node were seen", states)
	}
}
