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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

// The cgroup of a partitioned pod, and each one below it, has the pool, whatever becomes of
// the pools and of the kubelet. Those of other pods have what upstream gives them.
func TestPodCgroupsHaveTheirPool(t *testing.T) {
	in(t, core, vm)
	underEachPolicy(t, podCgroups)
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
		// As CRI-O does with infra_ctr_cpuset. On v2 such a set stays: the kernel intersects.
		for _, p := range pods[:3] {
			if err := host.SetSandboxCPUs(p, "0"); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("memory is resized in place", func(t *testing.T) {
		if err := resizeMemory(t, c, namespace, probed.Name, "24Mi", "64Mi"); err != nil {
			t.Fatal(err)
		}
		if err := confinedTo(pods[1], cpuset.New(0), false); err != nil {
			t.Error("pod probed:", err)
		}
	})
	refused := refusals(t, c)
	random := newRandom(t)
	for _, step := range []struct {
		name, file string
		want       cpuset.CPUSet
	}{
		{"created with the pool", pinning, cpuset.New(0)},
		{"the pool moves", `{"management": {"cpuset": "` + last.String() + `"}}`, last},
		{"the type loses its CPUs", `{"management": {"cpuset": ""}}`, all},
		{"the pool comes back", pinning, cpuset.New(0)},
		{"the file goes", "", all},
		{"the file comes back", pinning, cpuset.New(0)},
		{"the kubelet starts again", pinning, cpuset.New(0)},
	} {
		t.Run(step.name, func(t *testing.T) {
			// One is killed in the middle of its work: at random, so that it is anywhere in it.
			restart(t, c, step.file)
			time.Sleep(time.Duration(random.Intn(1000)) * time.Millisecond)
			if err := c.Kubelet.Kill(); err != nil {
				t.Fatal(err)
			}
			restart(t, c, step.file)
			for i, p := range pods {
				want := step.want
				if i == 3 {
					want = all
				}
				waitFor(t, 2*time.Minute, "the cgroup of pod "+p.Name+" has the CPUs "+want.String(), func() error {
					return confinedTo(p, want, i == 3)
				})
			}
			if config.Supervisor != host.Systemd {
				return
			}
			if output, err := exec.CommandContext(t.Context(), "systemctl", "daemon-reload").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			for _, p := range pods[:3] {
				if err := confinedTo(p, step.want, false); err != nil {
					t.Errorf("after systemd's daemon-reload, pod %s: %v", p.Name, err)
				}
			}
		})
	}
	t.Run("a pod went while no kubelet ran, and the pool moves", func(t *testing.T) {
		left := start(t, c, namespace, fixture.Pod("left", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")))[0]
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		stopInRuntime(t, c, left)
		deleteNow(t, c, left)
		if _, err := host.PodUsage(left); err != nil {
			t.Fatal("its cgroup is not there any more: ", err)
		}
		restart(t, c, `{"management": {"cpuset": "`+last.String()+`"}}`)
		waitFor(t, 2*time.Minute, "its cgroup is removed", func() error {
			if _, err := host.PodUsage(left); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("it is there (%v)", err)
			}
			return nil
		})
		for _, p := range pods[:3] {
			waitFor(t, 2*time.Minute, "the cgroup of pod "+p.Name+" has the CPUs "+last.String(), func() error { return confinedTo(p, last, false) })
		}
	})
	for _, line := range refused() {
		t.Errorf("the kernel refused the kubelet a set: %s", line)
	}
}

// A runtime may give each sandbox a set of its own, as CRI-O does with infra_ctr_cpuset: the
// pool, or the union of the pools. Sandboxes of ordinary pods have it, too.
func TestRuntimesMayGiveSandboxesCPUs(t *testing.T) {
	in(t, vm)
	for _, test := range []struct{ name, infra, file, moved string }{
		{"the pool", "0", pinning, `{"management": {"cpuset": "1"}}`},
		{"the union of the pools", "0-1", `{"management": {"cpuset": "0"}, "other": {"cpuset": "1"}}`, `{"management": {"cpuset": "1"}, "other": {"cpuset": "0"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if fixture.CPUs(t, test.infra).Size() > 1 {
				needsCPUs(t, 4) // pools that hold every CPU confine nothing
			}
			c := partitioned(t)
			proxy := sharedThroughProxy(t, c)
			restart(t, c, test.file)
			var sandboxes atomic.Int64
			proxy.Then("RunPodSandbox", func(answer proto.Message) error {
				response, ok := answer.(*runtimeapi.RunPodSandboxResponse)
				if !ok {
					return fmt.Errorf("the answer is %T", answer)
				}
				sandboxes.Add(1)
				return host.SetCPUs(response.PodSandboxId, test.infra)
			})
			refused := refusals(t, c)
			namespace := fixture.Namespace(t, c.Client, "management")
			pods := start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")),
				fixture.Pod("besteffort", asks, fixture.Container("c", fixture.Awake, "", "")))
			if sandboxes.Load() < 2 {
				t.Fatalf("the runtime gave sets to %d sandboxes", sandboxes.Load())
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
				t.Errorf("the kernel refused the kubelet a set: %s", line)
			}
		})
	}
}

// sandboxAndContainer checks that a pod's container has the pool, and its sandbox that, or, on
// cgroup v1, the CPUs that the runtime gave it.
func sandboxAndContainer(p *v1.Pod, pool, infra cpuset.CPUSet) error {
	below, err := host.Below(p)
	if err != nil {
		return err
	}
	if len(below) < 2 {
		return fmt.Errorf("below it there are only %d cgroups", len(below))
	}
	for name, usage := range below {
		want := pool
		if !strings.Contains(name, fixture.ContainerID(p.Status.ContainerStatuses[0])) && host.CgroupV1() && pool.IsSubsetOf(infra) {
			want = infra
		}
		if usage.CPUs != want.String() {
			return fmt.Errorf("%s below it has CPUs %s, want %s", name, usage.CPUs, want)
		}
	}
	return nil
}

// What upstream writes to the cgroup of a pod beside its CPUs leaves them as they are.
func TestMemorySettingsLeaveAPodItsCPUs(t *testing.T) {
	in(t, vm)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	memory := v1.ResourceList{v1.ResourceMemory: resource.MustParse("32Mi")}
	podLevel := func(name string) *v1.Pod {
		p := fixture.Pod(name, asks, fixture.Container("c", fixture.Awake, "", ""))
		p.Spec.Resources = &v1.ResourceRequirements{Requests: memory, Limits: memory}
		return p
	}
	t.Run("resources of the pod as a whole", func(t *testing.T) {
		p := start(t, c, namespace, podLevel("whole"))[0]
		if _, is := partition.PartitionedType(p); !is {
			t.Fatalf("the pod is not partitioned: %v", p.Annotations)
		}
		if err := confinedTo(p, cpuset.New(0), false); err != nil {
			t.Error(err)
		}
	})
	t.Run("memory QoS", func(t *testing.T) {
		if host.CgroupV1() {
			t.Skip("it needs cgroup v2")
		}
		configureKubelet(t, c, "featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.9\n")
		p := start(t, c, namespace, fixture.Pod("protected", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "memory=32Mi")))[0]
		for _, kubelet := range []string{"that created it", "that starts again"} {
			if err := confinedTo(p, cpuset.New(0), false); err != nil {
				t.Errorf("with the kubelet %s: %v", kubelet, err)
			}
			usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID)
			if err != nil || usage.MemoryHigh == 0 {
				t.Errorf("with the kubelet %s the container has no memory.high (%v): memory QoS is not at work", kubelet, err)
			}
			restart(t, c, pinning)
		}
	})
}

// The command of docs/user/upgrade.md frees what a patched kubelet has left confined. What it
// leaves is what a patched kubelet left that confined only containers: one that starts then
// confines pods, too.
func TestUpgradePageFreesPods(t *testing.T) {
	in(t, vm)
	freedByHand(t, partitioned(t))
}

func freedByHand(t *testing.T, c *host.Cluster) {
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
		t.Fatalf("no command begins with %q", starts)
	}
	namespace := fixture.Namespace(t, c.Client, "management")
	p := start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")))[0]
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { restart(t, c, pinning) })
	if output, err := exec.CommandContext(t.Context(), "bash", "-c", starts+command).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	whole, err := host.PodUsage(p)
	if err != nil || whole.CPUs != allCPUs(t) {
		t.Errorf("the pod's cgroup has CPUs %s (%v), want %s", whole.CPUs, err, allCPUs(t))
	}
	if container := containerUsage(t, p, 0); container.CPUs != "0" {
		t.Errorf("its container has CPUs %s: an unpatched kubelet moves it, not this command", container.CPUs)
	}
	restart(t, c, pinning)
	waitFor(t, time.Minute, "the pod's cgroup has the pool again", func() error { return confinedTo(p, cpuset.New(0), false) })
}

// A VM's node has systemd's cgroups. With the kubelet's own on cgroup v2 it is the same.
func TestPodCgroupsWithTheCgroupfsDriver(t *testing.T) {
	in(t, vm)
	if config.CgroupDriver != host.SystemdDriver {
		t.Skip("the other tests have this driver here")
	}
	with := config
	with.Pinning, with.CgroupDriver = pinning, host.Cgroupfs
	c := share(t, "node with the cgroupfs driver", with)
	t.Run("pools that change", func(t *testing.T) { podCgroups(t, c) })
	t.Run("freed by hand", func(t *testing.T) { freedByHand(t, c) })
}

// A cgroup of all pods that lacks a CPU of the pool is told of; what runs where then is
// nobody's promise.
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

// Without cgroups of pods the kubelet says that only containers are confined, and confines
// them.
func TestContainersAreConfinedWithoutPodCgroups(t *testing.T) {
	in(t)
	c := partitioned(t)
	quietNode(t, c)
	configureKubelet(t, c, "cgroupsPerQOS: false\nenforceNodeAllocatable: []\n")
	if log, err := os.ReadFile(c.Kubelet.Log()); err != nil || !bytes.Contains(log, []byte("Pods have no cgroups of their own, so only their containers are confined")) {
		t.Error("the kubelet does not say so:", err)
	}
	namespace := fixture.Namespace(t, c.Client, "management")
	for name, annotations := range map[string]map[string]string{"partitioned": asks, "ordinary": nil} {
		p := fixture.Pod(name, annotations, fixture.Container("c", usedCPUs+"; "+fixture.Awake, "memory=16Mi", ""))
		p = start(t, c, namespace, p)[0]
		expectPrinted(t, p, logs(t, c, p, "c"))
	}
}

// confinedTo compares the sets of a pod's cgroup and of those below it. The containers of an
// ordinary pod have others than its cgroup has.
func confinedTo(p *v1.Pod, want cpuset.CPUSet, ordinary bool) error {
	whole, err := host.PodUsage(p)
	if err != nil {
		return err
	}
	if whole.CPUs != want.String() {
		return fmt.Errorf("it has CPUs %s", whole.CPUs)
	}
	below, err := host.Below(p)
	if err != nil {
		return err
	}
	if len(below) < 1+len(p.Spec.Containers) {
		return fmt.Errorf("below it there are only %d cgroups", len(below))
	}
	for name, usage := range below {
		if ordinary && strings.Contains(name, fixture.ContainerID(p.Status.ContainerStatuses[0])) {
			continue
		}
		if usage.CPUs != want.String() {
			return fmt.Errorf("%s below it has CPUs %s", name, usage.CPUs)
		}
	}
	return nil
}

// refusals returns the lines of the kubelet's log, from now on, that say that a set was not
// accepted.
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
