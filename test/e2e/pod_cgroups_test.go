// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// The cgroup of a partitioned pod, and every cgroup below it, has the pool, whatever becomes of
// the pools and the kubelet. The cgroups of ordinary pods stay as upstream makes them.
func TestPodCgroupsHaveTheirPool(t *testing.T) {
	in(t, core, vm)
	underEachPolicy(t, podCgroups, core)
}

func podCgroups(t *testing.T, c *host.Cluster) {
	t.Cleanup(func() { restart(t, c, pinning) })
	namespace := fixture.Namespace(t, c.Client, "management")
	onHost := fixture.Pod("on-host", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))
	onHost.Spec.HostNetwork = true
	probed := fixture.Pod("probed", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "memory=32Mi"))
	probeEachSecond(probed)
	pods := start(t, c, namespace, onHost, probed, fixture.Pod("besteffort", asks, fixture.Container("c", fixture.Awake, "", "")),
		fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")))
	all := fixture.CPUs(t, allCPUs(t))
	last := cpuset.New(slices.Max(all.List()))
	if host.CgroupV1() {
		// CRI-O does this with infra_ctr_cpuset. On v2 such a cpuset would stay, since the
		// kernel intersects.
		for _, p := range pods[:3] {
			if err := host.SetSandboxCPUs(p, "0"); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("memory is resized", func(t *testing.T) {
		if err := resizeMemory(t, c, namespace, probed.Name, "24Mi", "64Mi"); err != nil {
			t.Fatal(err)
		}
		if err := confinedTo(pods[1], cpuset.New(0)); err != nil {
			t.Errorf("pod %s: %v", probed.Name, err)
		}
	})
	refused := refusals(t, c)
	random := newRandom(t)
	for _, step := range []struct {
		name, file string
		want       cpuset.CPUSet
		suites     []mark
	}{
		{"the pool is as it was", pinning, cpuset.New(0), []mark{core}},
		{"the pool moves", `{"management": {"cpuset": "` + last.String() + `"}}`, last, []mark{core, vm}},
		{"the type loses its CPUs", `{"management": {"cpuset": ""}}`, all, []mark{core}},
		{"the pool comes back", pinning, cpuset.New(0), []mark{core}},
		{"the file goes", "", all, []mark{core, vm}},
		{"the file comes back", pinning, cpuset.New(0), []mark{core, vm}},
		{"the kubelet starts again", pinning, cpuset.New(0), []mark{core}},
	} {
		t.Run(step.name, func(t *testing.T) {
			in(t, step.suites...)
			// One kubelet is killed at a random moment, in the middle of its work.
			restart(t, c, step.file)
			time.Sleep(time.Duration(random.Intn(1000)) * time.Millisecond)
			if err := c.Kubelet.Kill(); err != nil {
				t.Fatal(err)
			}
			restart(t, c, step.file)
			for i, p := range pods {
				want, own := step.want, step.want
				if i == 3 && !step.want.Equals(all) {
					want, own = all, all.Difference(step.want)
				}
				waitFor(t, 2*time.Minute, "pod "+p.Name+" has the CPUs "+want.String()+", and its container "+own.String(), func() error {
					return haveCPUs(p, want, own)
				})
			}
			if config.Supervisor != host.Systemd {
				return
			}
			if output, err := exec.CommandContext(t.Context(), "systemctl", "daemon-reload").CombinedOutput(); err != nil {
				t.Fatalf("systemctl daemon-reload: %v: %s", err, output)
			}
			for _, p := range pods[:3] {
				if err := confinedTo(p, step.want); err != nil {
					t.Errorf("after systemctl daemon-reload, pod %s: %v", p.Name, err)
				}
			}
		})
	}
	t.Run("a pod ends while no kubelet runs, and the pool moves", func(t *testing.T) {
		left := start(t, c, namespace, fixture.Pod("left", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")))[0]
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		stopInRuntime(t, c, left)
		deleteNow(t, c, left)
		if _, err := host.PodUsage(left); err != nil {
			t.Fatalf("its cgroup is already gone, so nothing is tested: %v", err)
		}
		restart(t, c, `{"management": {"cpuset": "`+last.String()+`"}}`)
		waitFor(t, 2*time.Minute, "its cgroup is removed", func() error {
			if _, err := host.PodUsage(left); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("it is still there (%v)", err)
			}
			return nil
		})
		for _, p := range pods[:3] {
			waitFor(t, 2*time.Minute, "the cgroup of pod "+p.Name+" has the CPUs "+last.String(), func() error { return confinedTo(p, last) })
		}
	})
	for _, line := range refused() {
		t.Errorf("the kernel refused a cpuset: %s", line)
	}
}

// A runtime may give all sandboxes a cpuset, as CRI-O does with infra_ctr_cpuset: the pool, or
// the union of the pools. Containers have their pool all the same, and the kernel refuses no
// cpuset.
func TestRuntimesMayGiveSandboxesCPUs(t *testing.T) {
	in(t, vm)
	for _, test := range []struct {
		name, infra, file, moved string
		suites                   []mark
	}{
		{"the pool", "0", pinning, `{"management": {"cpuset": "1"}}`, nil},
		{"the union of the pools", "0-1", `{"management": {"cpuset": "0"}, "other": {"cpuset": "1"}}`, `{"management": {"cpuset": "1"}, "other": {"cpuset": "0"}}`, []mark{vm}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, test.suites...)
			if fixture.CPUs(t, test.infra).Size() > 1 {
				needsCPUs(t, 4) // on two CPUs the pools would hold every CPU, and confine nothing
			}
			c := partitioned(t)
			proxy := sharedThroughProxy(t, c)
			restart(t, c, test.file)
			var sandboxes atomic.Int64
			proxy.Then("RunPodSandbox", func(answer proto.Message) error {
				response, ok := answer.(*runtimeapi.RunPodSandboxResponse)
				if !ok {
					return fmt.Errorf("the answer to RunPodSandbox is %T", answer)
				}
				sandboxes.Add(1)
				return host.SetCPUs(response.PodSandboxId, test.infra)
			})
			refused := refusals(t, c)
			namespace := fixture.Namespace(t, c.Client, "management")
			pods := start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")),
				fixture.Pod("besteffort", asks, fixture.Container("c", fixture.Awake, "", "")))
			if sandboxes.Load() < 2 {
				t.Fatalf("only %d sandboxes got a cpuset, want 2 at least", sandboxes.Load())
			}
			infra := fixture.CPUs(t, test.infra)
			expect := func(pool cpuset.CPUSet) {
				t.Helper()
				for _, p := range pods {
					waitFor(t, 2*time.Minute, "pod "+p.Name+" has the CPUs "+pool.String(), func() error { return sandboxAndContainer(p, pool, infra) })
				}
			}
			expect(cpuset.New(0))
			restart(t, c, test.moved)
			expect(cpuset.New(1))
			restart(t, c, test.file)
			expect(cpuset.New(0))
			for _, line := range refused() {
				t.Errorf("the kernel refused a cpuset: %s", line)
			}
		})
	}
}

// sandboxAndContainer checks that a pod's container has the pool, and that its sandbox has the
// pool, too, or on cgroup v1 the cpuset from the runtime.
func sandboxAndContainer(p *v1.Pod, pool, infra cpuset.CPUSet) error {
	below, err := host.Below(p)
	if err != nil {
		return err
	}
	if len(below) < 2 {
		return fmt.Errorf("there are only %d cgroups below it, want 2 at least", len(below))
	}
	for name, usage := range below {
		want := pool
		if !strings.Contains(name, fixture.ContainerID(p.Status.ContainerStatuses[0])) && host.CgroupV1() && pool.IsSubsetOf(infra) {
			want = infra
		}
		if usage.CPUs != want.String() {
			return fmt.Errorf("the cgroup %s below it has CPUs %s, want %s", name, usage.CPUs, want)
		}
	}
	return nil
}

// The pod's cgroup keeps its CPUs when upstream writes memory settings to it.
func TestMemorySettingsLeaveAPodItsCPUs(t *testing.T) {
	in(t, vm)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	t.Run("memory of the pod as a whole", func(t *testing.T) {
		p := fixture.Pod("whole", asks, fixture.Container("c", fixture.Awake, "", ""))
		p.Spec.Resources = &v1.ResourceRequirements{Requests: fixture.Resources("memory=32Mi"), Limits: fixture.Resources("memory=32Mi")}
		p = start(t, c, namespace, p)[0]
		if _, is := partition.PartitionedType(p); !is {
			t.Fatalf("the pod is not partitioned: it has the annotations %v", p.Annotations)
		}
		if err := confinedTo(p, cpuset.New(0)); err != nil {
			t.Error(err)
		}
	})
	t.Run("memory QoS", func(t *testing.T) {
		if host.CgroupV1() {
			t.Skip("memory QoS needs cgroup v2")
		}
		configureKubelet(t, c, "featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.9\n")
		p := start(t, c, namespace, fixture.Pod("protected", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "memory=32Mi")))[0]
		for _, kubelet := range []string{"that created it", "after a restart"} {
			if err := confinedTo(p, cpuset.New(0)); err != nil {
				t.Errorf("with the kubelet %s: %v", kubelet, err)
			}
			usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID)
			if err != nil || usage.MemoryHigh == 0 {
				t.Errorf("with the kubelet %s the container has no memory.high (%v), so memory QoS is not at work", kubelet, err)
			}
			restart(t, c, pinning)
		}
	})
}

// The command in docs/user/upgrade.md frees the cgroups of pods that a patched kubelet has left
// confined. A patched kubelet that starts then confines them again.
func TestUpgradePageFreesPods(t *testing.T) {
	in(t, vm)
	freedByUpgradePage(t, partitioned(t))
}

func freedByUpgradePage(t *testing.T, c *host.Cluster) {
	data, err := os.ReadFile(filepath.Join(docs, "upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	starts := "for s in $(systemctl"
	switch {
	case host.CgroupV1():
		starts = "for d in $(find /sys/fs/cgroup/cpuset/kubepods"
	case c.CgroupDriver() == host.Cgroupfs:
		starts = "for d in $(find /sys/fs/cgroup/kubepods"
	}
	_, rest, found := strings.Cut(string(data), "\n"+starts)
	command, _, _ := strings.Cut(rest, "\n")
	if !found {
		t.Fatalf("no command in %s begins with %q", filepath.Join(docs, "upgrade.md"), starts)
	}
	namespace := fixture.Namespace(t, c.Client, "management")
	p := start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")))[0]
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { restart(t, c, pinning) })
	if output, err := exec.CommandContext(t.Context(), "bash", "-c", starts+command).CombinedOutput(); err != nil {
		t.Fatalf("the command failed: %v: %s", err, output)
	}
	whole, err := host.PodUsage(p)
	if err != nil || whole.CPUs != allCPUs(t) {
		t.Errorf("the pod's cgroup has CPUs %s (%v), want %s", whole.CPUs, err, allCPUs(t))
	}
	if container := containerUsage(t, p, 0); container.CPUs != "0" {
		t.Errorf("its container has CPUs %s, want 0: not this command moves it, but an unpatched kubelet", container.CPUs)
	}
	restart(t, c, pinning)
	waitFor(t, time.Minute, "the pod's cgroup has the pool again", func() error { return confinedTo(p, cpuset.New(0)) })
}

// An Event names the CPUs of the pool that the cgroup of all pods lacks. There is no promise where
// pods run then.
func TestEventNamesThePoolCPUsThatPodsLack(t *testing.T) {
	in(t)
	c := partitioned(t)
	quietNode(t, c)
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	set := func(cpus string, order ...v1.PodQOSClass) {
		for _, class := range order {
			if err := host.SetQoSCPUs(class, cpus); err != nil {
				t.Error(err)
			}
		}
	}
	set("1", v1.PodQOSBurstable, v1.PodQOSBestEffort, "")
	t.Cleanup(func() {
		set(allCPUs(t), "", v1.PodQOSBurstable, v1.PodQOSBestEffort)
		restart(t, c, pinning)
	})
	restart(t, c, pinning)
	namespace := fixture.Namespace(t, c.Client, "management")
	if _, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fixture.AwaitEvent(t, c.Client, eventLimit, "PodCgroupLacksPoolCPUs", "its pods cannot run on CPU 0")
}

// Where pods have no cgroups of their own, the kubelet confines their containers, and the log
// says so.
func TestContainersAreConfinedWithoutPodCgroups(t *testing.T) {
	in(t)
	c := partitioned(t)
	quietNode(t, c)
	configureKubelet(t, c, "cgroupsPerQOS: false\nenforceNodeAllocatable: []\n")
	if log, err := os.ReadFile(c.Kubelet.Log()); err != nil || !bytes.Contains(log, []byte("Pods have no cgroups of their own, so only their containers are confined")) {
		t.Errorf("the log %s does not say that only containers are confined (%v)", c.Kubelet.Log(), err)
	}
	namespace := fixture.Namespace(t, c.Client, "management")
	for name, test := range map[string]struct {
		annotations map[string]string
		may         cpuset.CPUSet
	}{"partitioned": {asks, onPool}, "ordinary": {nil, offPool(t)}} {
		p := fixture.Pod(name, test.annotations, fixture.Container("c", fixture.Awake, "memory=16Mi", ""))
		p.Spec.InitContainers = []v1.Container{fixture.Container("init", usedCPUs, "memory=16Mi", "")} // it has ended, so its log is whole
		p = start(t, c, namespace, p)[0]
		expectPrinted(t, p, test.may, logs(t, c, p, "init"))
	}
}

// confinedTo checks that a pod's cgroup and those below it have exactly these CPUs.
func confinedTo(p *v1.Pod, want cpuset.CPUSet) error { return haveCPUs(p, want, want) }

// haveCPUs checks that a pod's cgroup and those below it have exactly these CPUs, and its first
// container its own.
func haveCPUs(p *v1.Pod, want, own cpuset.CPUSet) error {
	whole, err := host.PodUsage(p)
	if err != nil {
		return err
	}
	if whole.CPUs != want.String() {
		return fmt.Errorf("it has CPUs %s, want %s", whole.CPUs, want)
	}
	below, err := host.Below(p)
	if err != nil {
		return err
	}
	if len(below) < 1+len(p.Spec.Containers) {
		return fmt.Errorf("there are only %d cgroups below it, want %d at least", len(below), 1+len(p.Spec.Containers))
	}
	for name, usage := range below {
		want := want
		if strings.Contains(name, fixture.ContainerID(p.Status.ContainerStatuses[0])) {
			want = own
		}
		if usage.CPUs != want.String() {
			return fmt.Errorf("the cgroup %s below it has CPUs %s, want %s", name, usage.CPUs, want)
		}
	}
	return nil
}

// refusals returns a function that returns lines of the kubelet's log: those, from now on,
// which say that the kernel refused a cpuset.
func refusals(t *testing.T, c *host.Cluster) func() []string {
	t.Helper()
	read := func() []byte {
		data, err := os.ReadFile(c.Kubelet.Log())
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	before := len(read())
	return func() (found []string) {
		for line := range bytes.Lines(read()[before:]) {
			text := string(line)
			for _, refused := range []string{"permission denied", "device or resource busy", "invalid argument", "numerical result out of range"} {
				if strings.Contains(text, "cpuset") && strings.Contains(text, refused) {
					found = append(found, text)
				}
			}
		}
		return found
	}
}
