// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// A runtime that reads the annotations, as CRI-O can, gives containers other shares than the
// kubelet would, and reports a quota of 0 where there is none. After a start the kubelet leaves
// that alone. It gives no container without a cpuset an explicit one of all CPUs.
func TestRuntimeAndKubeletAgree(t *testing.T) {
	in(t, vm, long)
	underEachPolicy(t, runtimeAndKubeletAgree)
}

func runtimeAndKubeletAgree(t *testing.T, c *host.Cluster) {
	proxy := sharedThroughProxy(t, c)
	// What CRI-O would write from the resources annotation.
	annotated := map[string]int64{"limited": 400, "unlimited": 100, "besteffort": 2}
	runtime := runtimeClient(t, c)
	proxy.Then("CreateContainer", func(answer proto.Message) error {
		created, err := runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: answer.(*runtimeapi.CreateContainerResponse).ContainerId})
		if err != nil {
			return err
		}
		shares, is := annotated[created.Status.Labels["io.kubernetes.pod.name"]]
		if !is {
			return nil
		}
		_, err = runtime.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{ContainerId: created.Status.Id, Linux: &runtimeapi.LinuxContainerResources{CpuShares: shares}})
		return err
	})
	proxy.Then("ContainerStatus", func(answer proto.Message) error {
		if linux := answer.(*runtimeapi.ContainerStatusResponse).GetStatus().GetResources().GetLinux(); linux != nil {
			linux.CpuQuota = max(linux.CpuQuota, 0)
		}
		return nil
	})
	restart(t, c, pinning)
	namespace := fixture.Namespace(t, c.Client, "management")
	pods := start(t, c, namespace,
		fixture.Pod("limited", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "cpu=500m memory=64Mi")),
		fixture.Pod("unlimited", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")),
		fixture.Pod("besteffort", asks, fixture.Container("c", fixture.Awake, "", "")),
		fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")))
	expectWritten := func(t *testing.T) {
		t.Helper()
		for _, p := range pods[:3] {
			usage := containerUsage(t, p, 0)
			// On cgroup v2 the runtime converts shares in its own way.
			if want := annotated[p.Name]; host.CgroupV1() && usage.Weight != want {
				t.Errorf("the container of pod %s has %d shares, and the runtime gave it %d", p.Name, usage.Weight, want)
			}
			want := 0.0
			if p.Name == "limited" {
				want = 0.5
			}
			if usage.Quota != want {
				t.Errorf("the container of pod %s has the quota %v, want %v", p.Name, usage.Quota, want)
			}
		}
	}
	expectWritten(t)
	for _, step := range []struct {
		name   string
		suites []mark
	}{
		{"the kubelet starts again", []mark{vm}},
		{"and again", nil},
	} {
		t.Run(step.name, func(t *testing.T) {
			in(t, step.suites...)
			if updates := updatesAfterStart(t, c, proxy, pinning); len(updates) > 0 {
				t.Errorf("the runtime was asked for %v", updates)
			}
			expectWritten(t)
			for _, p := range pods[:3] {
				expectNoLeak(t, p, onPool)
			}
			expectNoLeak(t, pods[3], offPool(t))
		})
	}
	if c.Config.CPUManagerPolicy != "none" {
		return // the policy static gives each container an explicit cpuset, as upstream's does
	}
	t.Cleanup(func() { restart(t, c, pinning) })
	const empty = `{"management": {"cpuset": ""}}`
	for _, test := range []struct{ name, file, then string }{{"the type has lost its CPUs", empty, ""}, {"the file has gone", "", empty}} {
		t.Run(test.name, func(t *testing.T) {
			in(t) // on cgroup v2 the runtime answers the same
			restart(t, c, pinning)
			restart(t, c, test.file)
			free := fixture.Pod("", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", ""))
			free.GenerateName = "free-"
			if test.file != "" {
				free.Annotations = asks
			}
			free = start(t, c, namespace, free)[0]
			for _, file := range []string{test.file, test.then} {
				if updates := updatesAfterStart(t, c, proxy, file)[fixture.ContainerID(free.Status.ContainerStatuses[0])]; len(updates) > 0 {
					t.Errorf("with the file %q the runtime was asked for %v", file, updates)
				}
			}
			if recorded, err := recordedCPUs(t, runtime, free); err != nil || recorded != "" {
				t.Errorf("the container has the cpuset %q (%v), want none", recorded, err)
			}
		})
	}
}

// A runtime that does not report resources, as cri-dockerd, gets each container's cpuset once in
// a kubelet's lifetime.
func TestRuntimeThatReportsNoResourcesGetsEachCpusetOnce(t *testing.T) {
	in(t, long)
	underEachPolicy(t, runtimeThatReportsNoResourcesGetsEachCpusetOnce)
}

func runtimeThatReportsNoResourcesGetsEachCpusetOnce(t *testing.T, c *host.Cluster) {
	proxy := sharedThroughProxy(t, c)
	proxy.Then("ContainerStatus", func(answer proto.Message) error {
		if status := answer.(*runtimeapi.ContainerStatusResponse).GetStatus(); status != nil {
			status.Resources = nil
		}
		return nil
	})
	restart(t, c, pinning)
	pods := start(t, c, fixture.Namespace(t, c.Client, "management"),
		fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")),
		fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")))
	for _, when := range []string{"the kubelet starts again", "and again"} {
		t.Run(when, func(t *testing.T) {
			updates := updatesAfterStart(t, c, proxy, pinning)
			for i, may := range []cpuset.CPUSet{onPool, offPool(t)} {
				p := pods[i]
				var sent []string
				for _, update := range updates[fixture.ContainerID(p.Status.ContainerStatuses[0])] {
					sent = append(sent, update.CpusetCpus)
				}
				if want := []string{may.String()}; !slices.Equal(sent, want) {
					t.Errorf("the container of pod %s was sent the cpusets %q, want %q", p.Name, sent, want)
				}
				expectNoLeak(t, p, may)
			}
		})
	}
}
