// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/criproxy"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// Runtimes size a virtual machine by the cpusets of its containers. So under the policy none on
// cgroup v2 these have none, and the pod's cgroup is confined instead. Here an ordinary runtime
// has a RuntimeClass with an overhead, which is all that a kubelet can see of a virtual machine.
func TestVirtualMachinesAreConfinedByTheirPodsCgroup(t *testing.T) {
	in(t, vm, long)
	c := partitioned(t)
	quietNode(t, c)
	usePolicy(t, c, "none")
	proxy := sharedThroughProxy(t, c)
	class := runtimeClass(t, c, &nodev1.Overhead{PodFixed: v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Mi")}})
	inVM := func(p *v1.Pod) *v1.Pod {
		p.Spec.RuntimeClassName = &class
		return p
	}
	all := fixture.CPUs(t, allCPUs(t))
	offPool := ofOrdinarySandboxes(all)
	machines := virtualMachines{proxy: proxy}
	restart(t, c, "")
	namespace := fixture.Namespace(t, c.Client, "management")
	here := func(p *v1.Pod) *v1.Pod {
		p.Spec.NodeName = c.Config.Node.Name // it has no cores for a scheduler to see
		return inVM(p)
	}
	// The type is latched, so the first is partitioned, and the kubelet knows nothing of it.
	before := start(t, c, namespace,
		here(fixture.Pod("partitioned-before", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))),
		here(fixture.Pod("ordinary-before", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", ""))))
	restart(t, c, pinning)
	fresh := start(t, c, namespace,
		inVM(fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""), fixture.Container("d", fixture.Awake, "", ""))),
		inVM(fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", ""), fixture.Container("d", fixture.Awake, "", ""))),
		inVM(fixture.Pod("besteffort", nil, fixture.Container("c", fixture.Awake, "", ""))),
		// Its sandbox starts with this quota, too: with 10m that takes minutes under emulation.
		inVM(fixture.Pod("guaranteed", nil, fixture.Container("c", fixture.Awake, "cpu=300m memory=16Mi", "cpu=300m memory=16Mi"))))
	machines.partitioned, machines.ordinary = []*v1.Pod{before[0], fresh[0]}, []*v1.Pod{before[1], fresh[1], fresh[2], fresh[3]}
	machines.expect(t, cpuset.New(0), all.Difference(cpuset.New(0)))
	for _, step := range []struct {
		name, file            string
		partitioned, ordinary cpuset.CPUSet
		suites                []mark
	}{
		{"the kubelet starts again", pinning, cpuset.New(0), all.Difference(cpuset.New(0)), nil},
		{"the pool moves", `{"management": {"cpuset": "1"}}`, cpuset.New(1), all.Difference(cpuset.New(1)), []mark{vm}},
		{"the type loses its CPUs", `{"management": {"cpuset": ""}}`, all, all, nil},
		{"the pool comes back", pinning, cpuset.New(0), all.Difference(cpuset.New(0)), nil},
		{"the file goes", "", all, all, []mark{vm}},
		{"the file comes back", pinning, cpuset.New(0), all.Difference(cpuset.New(0)), []mark{vm}},
	} {
		t.Run(step.name, func(t *testing.T) {
			in(t, step.suites...)
			restart(t, c, step.file)
			machines.expect(t, step.partitioned, step.ordinary)
		})
	}
	t.Run("the policy becomes static", func(t *testing.T) {
		if err := c.ChangeCPUManagerPolicy("static"); err != nil {
			t.Fatal(err)
		}
		restart(t, c, pinning)
		for _, p := range machines.ordinary {
			want := offPool
			if p.Status.QOSClass == v1.PodQOSGuaranteed {
				want = all // as upstream makes it
			}
			expectPodCgroup(t, p, want)
			expectPlaced(t, p, all.Difference(cpuset.New(0)))
		}
	})
}

// A kernel such as gVisor's is one process in the pod's cgroup, and what its containers have is nothing
// to it. So that cgroup is confined, too, whether or not the RuntimeClass has an overhead. On cgroup v1
// it is as upstream makes it.
func TestPodsOfARuntimeClassAreConfinedByTheirPodsCgroup(t *testing.T) {
	in(t, vm)
	c := partitioned(t)
	class := runtimeClass(t, c, nil)
	all := fixture.CPUs(t, allCPUs(t))
	offPool := ofOrdinarySandboxes(all)
	namespace := fixture.Namespace(t, c.Client, "management")
	of := func(p *v1.Pod) *v1.Pod {
		p.Spec.RuntimeClassName = &class
		return p
	}
	for _, policy := range []string{"none", "static"} {
		t.Run(policy, func(t *testing.T) {
			usePolicy(t, c, policy)
			pods := start(t, c, namespace,
				of(fixture.Pod("partitioned-"+policy, asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))),
				of(fixture.Pod("ordinary-"+policy, nil, fixture.Container("c", fixture.Awake, "memory=16Mi", ""))))
			expectPodCgroup(t, pods[0], cpuset.New(0))
			expectPlaced(t, pods[0], cpuset.New(0))
			expectPodCgroup(t, pods[1], offPool)
			expectPlaced(t, pods[1], all.Difference(cpuset.New(0)))
			for _, p := range pods {
				deleteNow(t, c, p)
			}
		})
	}
}

// ofOrdinarySandboxes returns the CPUs of the cgroup of an ordinary pod with a RuntimeClass, next to the
// pool of the shared node. all are those of the host.
func ofOrdinarySandboxes(all cpuset.CPUSet) cpuset.CPUSet {
	if host.CgroupV1() {
		return all
	}
	return all.Difference(cpuset.New(0))
}

// runtimeClass creates a RuntimeClass of the ordinary runtime, and returns its name.
func runtimeClass(t *testing.T, c *host.Cluster, overhead *nodev1.Overhead) string {
	t.Helper()
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "runc-"}, Handler: "runc", Overhead: overhead}
	classes := c.Client.NodeV1().RuntimeClasses()
	class, err := classes.Create(t.Context(), class, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := classes.Delete(context.Background(), class.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return class.Name
}

// expectPodCgroup waits until a pod's cgroup has CPUs.
func expectPodCgroup(t *testing.T, p *v1.Pod, want cpuset.CPUSet) {
	t.Helper()
	waitFor(t, 2*time.Minute, "the cgroup of pod "+p.Name+" has the CPUs "+want.String(), func() error {
		whole, err := host.PodUsage(p)
		if err == nil && whole.CPUs != want.String() {
			err = fmt.Errorf("it has CPUs %s", whole.CPUs)
		}
		return err
	})
}

type virtualMachines struct {
	proxy                 *criproxy.Proxy
	partitioned, ordinary []*v1.Pod
}

// expect checks which CPUs the pods have, and that no container was ever given a cpuset.
func (m virtualMachines) expect(t *testing.T, partitioned, ordinary cpuset.CPUSet) {
	t.Helper()
	for _, kind := range []struct {
		pods []*v1.Pod
		want cpuset.CPUSet
	}{{m.partitioned, partitioned}, {m.ordinary, ordinary}} {
		for _, p := range kind.pods {
			if host.CgroupV1() { // as all others
				expectPlaced(t, p, kind.want)
				continue
			}
			waitFor(t, 2*time.Minute, "pod "+p.Name+" and what is in it have the CPUs "+kind.want.String(), func() error { return confinedTo(p, kind.want) })
		}
	}
	if host.CgroupV1() {
		return
	}
	time.Sleep(reconciliations(2)) // the period in which updates are counted
	calls, err := m.proxy.Calls()
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		var linux *runtimeapi.LinuxContainerResources
		switch request := call.Request.(type) {
		case *runtimeapi.CreateContainerRequest:
			linux = request.GetConfig().GetLinux().GetResources()
		case *runtimeapi.UpdateContainerResourcesRequest:
			linux = request.GetLinux()
		}
		if linux.GetCpusetCpus() != "" {
			t.Errorf("a container in a virtual machine was given a cpuset by %s: %v", call.Method, linux)
		}
	}
}
