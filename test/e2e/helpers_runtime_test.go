// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/criproxy"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// throughProxy starts a proxy for a test, and has kubelets that start from now on reach the runtime
// through it. The proxy ends with the test; the kubelet is not restarted.
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

// sharedThroughProxy is throughProxy for the shared node. After the test, and before the proxy
// ends, it restarts the kubelet without the proxy.
func sharedThroughProxy(t *testing.T, c *host.Cluster) *criproxy.Proxy {
	t.Helper()
	proxy := throughProxy(t, c)
	t.Cleanup(func() {
		c.Config.RuntimeSocket = ""
		restart(t, c, pinning)
	})
	return proxy
}

// updatesAfterStart restarts the kubelet, and returns the updates that it sends to the runtime, by
// container, until its CPU manager has nothing more to do.
func updatesAfterStart(t *testing.T, c *host.Cluster, proxy *criproxy.Proxy, file string) map[string][]*runtimeapi.LinuxContainerResources {
	t.Helper()
	proxy.Forget()
	restart(t, c, file)
	time.Sleep(reconciliations(5)) // the period in which updates are counted
	calls, err := proxy.Calls()
	if err != nil {
		t.Fatal(err)
	}
	updates := map[string][]*runtimeapi.LinuxContainerResources{}
	for _, call := range calls {
		if update, is := call.Request.(*runtimeapi.UpdateContainerResourcesRequest); is {
			updates[update.ContainerId] = append(updates[update.ContainerId], update.Linux)
		}
	}
	return updates
}

// runtimeClient returns a client of the runtime.
func runtimeClient(t *testing.T, c *host.Cluster) runtimeapi.RuntimeServiceClient {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+c.RuntimeSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return runtimeapi.NewRuntimeServiceClient(connection)
}

// recordedCPUs returns the cpuset that the runtime has recorded of a pod's first container.
func recordedCPUs(t *testing.T, runtime runtimeapi.RuntimeServiceClient, p *v1.Pod) (string, error) {
	t.Helper()
	id := fixture.ContainerID(p.Status.ContainerStatuses[0])
	response, err := runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	resources := response.GetStatus().GetResources().GetLinux()
	if err == nil && resources == nil {
		err = errors.New("it reports no resources")
	}
	return resources.GetCpusetCpus(), err
}

// stopInRuntime stops a pod in the runtime, behind the kubelet's back, as crictl stopp does.
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
