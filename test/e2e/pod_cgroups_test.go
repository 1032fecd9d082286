package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand"
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
	namespace := newNamespace(t, c, "management")
	onHost := pod("on-host", asks, container("c", awake, "cpu=100m memory=16Mi", ""))
	onHost.Spec.HostNetwork = true
	probed := pod("probed", asks, container("c", awake, "cpu=100m memory=16Mi", "memory=32Mi"))
	probeEachSecond(probed)
	pods := start(t, c, namespace, onHost, probed, pod("besteffort", asks, container("c", awake, "", "")),
		pod("ordinary", nil, container("c", awake, "memory=16Mi", "")))
	all := cpus(t, allCPUs(t))
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
			// One is killed in the middle of its work.
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
		left := start(t, c, namespace, pod("left", asks, container("c", awake, "cpu=100m memory=16Mi", "")))[0]
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
			if cpus(t, test.infra).Size() > 1 {
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
			namespace := newNamespace(t, c, "management")
			pods := start(t, c, namespace, pod("partitioned", asks, container("c", awake, "cpu=100m memory=16Mi", "")),
				pod("besteffort", asks, container("c", awake, "", "")))
			if sandboxes.Load() < 2 {
				t.Fatalf("the runtime gave sets to %d sandboxes", sandboxes.Load())
			}
			infra := cpus(t, test.infra)
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
		if !strings.Contains(name, containerID(p)) && host.CgroupV1() && pool.IsSubsetOf(infra) {
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
	namespace := newNamespace(t, c, "management")
	memory := v1.ResourceList{v1.ResourceMemory: resource.MustParse("32Mi")}
	podLevel := func(name string) *v1.Pod {
		p := pod(name, asks, container("c", awake, "", ""))
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
		p := start(t, c, namespace, pod("protected", asks, container("c", awake, "cpu=100m memory=16Mi", "memory=32Mi")))[0]
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
	namespace := newNamespace(t, c, "management")
	p := start(t, c, namespace, pod("partitioned", asks, container("c", awake, "cpu=100m memory=16Mi", "")))[0]
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
	namespace := newNamespace(t, c, "management")
	if _, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), pod("partitioned", asks, container("c", awake, "cpu=100m memory=16Mi", "")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, c, "PodCgroupLacksPoolCPUs", "its pods cannot run on CPU 0")
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
	namespace := newNamespace(t, c, "management")
	for name, annotations := range map[string]map[string]string{"partitioned": asks, "ordinary": nil} {
		p := pod(name, annotations, container("c", usedCPUs+"; "+awake, "memory=16Mi", ""))
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
		if ordinary && strings.Contains(name, containerID(p)) {
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

// A storm of partitioned pods that start, end, crash, and are asked in their containers. On
// cgroup v1 the account of all pods, the deleted ones included, bounds what was used off
// the pool: between joining one hierarchy and the next, a process may run anywhere. What a
// process needs from its fork to its first instruction in a container is some milliseconds
// of CPU time; a quarter of one of these may be elsewhere, of which a busy host needs a tenth. On v2, where there is
// one hierarchy and no account for each CPU, no task of a pod is ever seen off the pool.
func TestStorm(t *testing.T) {
	in(t, vm)
	c := partitioned(t)
	namespace := newNamespace(t, c, "management")
	quietNode(t, c)
	pool := cpuset.New(0)
	watch := watchCPUs(t, cpus(t, allCPUs(t)).Difference(pool))
	before, err := host.AllPodsUsage()
	if err != nil {
		t.Fatal(err)
	}
	processes := storm(t, c, namespace, time.Minute)
	after, err := host.AllPodsUsage()
	if err != nil {
		t.Fatal(err)
	}
	seen := watch("")
	if !host.CgroupV1() {
		for who, time := range seen.pods {
			t.Errorf("%s of a pod was on a CPU outside the pool for %s", who, time)
		}
		t.Logf("%d processes of pods; off the pool: none of them, and of the host %s", processes, seen.host)
		return
	}
	const each = 250 * time.Microsecond
	bound := time.Duration(processes) * each
	var off, on time.Duration
	for cpu := range after.Used {
		if used := after.Used[cpu] - before.Used[cpu]; pool.Contains(cpu) {
			on += used
		} else {
			off += used
		}
	}
	t.Logf("%d processes of pods used %s of the pool and %s of other CPUs, 1/%.0f; of the host, %s was there", processes, on, off, float64(on)/float64(max(off, 1)), seen.host)
	if off > bound {
		t.Errorf("pods used %s off the pool; for %d processes at most %s", off, processes, bound)
	}
}

// probeEachSecond has the kubelet run a command in the pod's container each second.
func probeEachSecond(p *v1.Pod) {
	p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
}

// newRandom tells its seed, so that a failure can be had again.
func newRandom(t *testing.T) *rand.Rand {
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	return rand.New(rand.NewSource(seed))
}

// quietNode waits until the node runs no pod.
func quietNode(t *testing.T, c *host.Cluster) {
	t.Helper()
	waitFor(t, 2*time.Minute, "pods of other tests have ended", func() error {
		list, err := c.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			return fmt.Errorf("there are %d pods", len(list.Items))
		}
		if err != nil {
			return err
		}
		left, err := host.PodCgroups()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are the cgroups %q", left)
		}
		return err
	})
}

// storm returns about how many processes it made the runtime start in pods.
func storm(t *testing.T, c *host.Cluster, namespace string, length time.Duration) (processes int) {
	t.Helper()
	var busyPods, probed, crashing, short, most = 6, 3, 3, 3, length
	if config.Slow { // an emulated VM takes seconds for each
		busyPods, probed, crashing, short, most = 2, 1, 1, 1, 8*length
	}
	create := func(p *v1.Pod) *v1.Pod {
		created, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	begin := time.Now()
	for i := range busyPods {
		create(pod(fmt.Sprint("busy-", i), asks, container("c", busy, "cpu=10m memory=8Mi", "")))
	}
	for i := range probed {
		p := pod(fmt.Sprint("probed-", i), asks, container("c", "trap exit TERM; while :; do echo a line of a log that nobody reads; done", "cpu=10m memory=8Mi", ""))
		probeEachSecond(p)
		create(p)
	}
	for i := range crashing {
		create(pod(fmt.Sprint("crashes-", i), asks, container("c", someWork+"exit 1", "cpu=10m memory=8Mi", "")))
	}
	var running []string
	ended := 0
	for next := 0; time.Since(begin) < length || (ended < short && time.Since(begin) < most); {
		for len(running) < short {
			p := pod(fmt.Sprint("short-", next), asks, container("c", someWork, "cpu=10m memory=8Mi", ""))
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			running = append(running, create(p).Name)
			next++
		}
		time.Sleep(200 * time.Millisecond)
		running = slices.DeleteFunc(running, func(name string) bool {
			p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if p.Status.Phase != v1.PodSucceeded {
				return false
			}
			ended++
			deleteNow(t, c, p)
			return true
		})
	}
	if ended == 0 {
		t.Error("no pod came to its end")
	}
	list, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	processes = 2 * ended // a sandbox and a container
	for _, p := range list.Items {
		processes++
		for _, status := range p.Status.ContainerStatuses {
			processes += 1 + int(status.RestartCount)
		}
	}
	return processes + probed*int(time.Since(begin).Seconds()/2) // at least
}

// An exclusive container has its CPUs alone from its first instruction on: no container that
// shares, and no sandbox or helper of such a pod, runs there any more, although the CPU
// manager moves them only later.
func TestExclusiveFromTheFirstInstruction(t *testing.T) {
	in(t, vm, vmCore)
	needsCPUs(t, 4)
	c := partitioned(t)
	namespace := newNamespace(t, c, "management")
	var sharing []*v1.Pod
	for i := range cpus(t, otherCPUs(t)).Size() {
		// Each works often, on whatever CPU it finds, and leaves time to an emulated VM.
		sharing = append(sharing, pod(fmt.Sprint("shares-", i), nil, container("c", awake, "memory=16Mi", "")))
	}
	sharing = start(t, c, namespace, sharing...)
	exclusive := start(t, c, namespace, pod("exclusive", nil, container("c", awake, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi")))[0]
	has := cpus(t, containerUsage(t, exclusive, 0).CPUs)
	if has.Size() != 1 {
		t.Fatalf("the exclusive container has CPUs %s", has)
	}
	// At once: the CPU manager need not have come round.
	for _, class := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		usage, err := host.QoSUsage(class)
		if err != nil {
			t.Fatal(err)
		}
		if shared := cpus(t, usage.CPUs); !shared.Intersection(has).IsEmpty() {
			t.Errorf("class %s has CPUs %s, and CPU %s is exclusive", class, usage.CPUs, has)
		}
	}
	for _, p := range sharing {
		usage := containerUsage(t, p, 0)
		for _, list := range usage.Tasks {
			if !cpus(t, list).Intersection(has).IsEmpty() {
				t.Errorf("pod %s may use CPUs %s, and CPU %s is exclusive", p.Name, list, has)
			}
		}
	}
	t.Run("while ordinary pods come and go", func(t *testing.T) {
		watch := watchCPUs(t, has)
		for i := range 5 {
			p := pod(fmt.Sprint("short-", i), nil, container("c", someWork, "memory=16Mi", ""))
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			if _, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			awaitEnd(t, c, namespace, p.Name, 2*time.Minute)
		}
		seen := watch("")
		for who, time := range seen.pods {
			if !strings.Contains(who, podPart(exclusive)) {
				t.Errorf("%s was on exclusive CPU %s for %s", who, has, time)
			}
		}
		t.Logf("on CPU %s beside its owner: of pods %v, of the host %s", has, seen.pods, seen.host)
	})
	t.Run("given out again", func(t *testing.T) {
		beside := func(name string) map[string]time.Duration {
			watch := watchCPUs(t, has)
			again := start(t, c, namespace, pod(name, nil, container("c", awake, "cpu=1 memory=32Mi", "cpu=1 memory=32Mi")))[0]
			if got := containerUsage(t, again, 0).CPUs; got != has.String() {
				t.Fatalf("the exclusive container has CPUs %s now, and had %s", got, has)
			}
			time.Sleep(10 * time.Second) // the CPU manager comes round every two
			seen := watch(containerID(again))
			releaseExclusive(t, c, again)
			maps.DeleteFunc(seen.pods, func(who string, _ time.Duration) bool { return strings.Contains(who, podPart(again)) })
			t.Logf("%s: on CPU %s from its first instruction on, beside its owner: of pods %v, of the host %s", name, has, seen.pods, seen.host)
			return seen.pods
		}
		releaseExclusive(t, c, exclusive)
		for who, time := range beside("patched") {
			t.Errorf("%s was on exclusive CPU %s for %s", who, has, time)
		}
		if upstreamBin == "" {
			return
		}
		t.Cleanup(func() {
			c.UseKubelet("")
			restart(t, c, pinning)
		})
		restart(t, c, "")
		c.UseKubelet(upstreamKubelet)
		restart(t, c, "")
		beside("unpatched") // for comparison
	})
	t.Run("its end", func(t *testing.T) {
		waitFor(t, 90*time.Second, "the class Burstable has the CPU back", func() error {
			usage, err := host.QoSUsage(v1.PodQOSBurstable)
			if err == nil && usage.CPUs != allCPUs(t) {
				err = fmt.Errorf("it has CPUs %s", usage.CPUs)
			}
			return err
		})
		for _, p := range sharing {
			expectPlaced(t, p, cpus(t, otherCPUs(t)))
		}
	})
}

// podPart is what the names of all cgroups of a pod contain.
func podPart(p *v1.Pod) string {
	if config.CgroupDriver != host.SystemdDriver {
		return string(p.UID)
	}
	return strings.ReplaceAll(string(p.UID), "-", "_")
}

// Exclusive CPUs are given out and come back again and again, and the kubelet is killed at
// random: the kernel refuses nothing, no container is without a CPU, the exclusive ones are
// alone, and in the end nothing is left narrowed.
func TestExclusiveCPUsLeaveNothingNarrowed(t *testing.T) {
	in(t, vm)
	needsCPUs(t, 4)
	const times = 200
	c := partitioned(t)
	namespace := newNamespace(t, c, "management")
	quietNode(t, c)
	random := newRandom(t)
	refused := refusals(t, c)
	sharing := start(t, c, namespace, pod("shares", nil, container("c", awake, "memory=16Mi", "")), pod("besteffort", nil, container("c", awake, "", "")),
		pod("partitioned", asks, container("c", awake, "cpu=100m memory=16Mi", "")))
	var holders []*v1.Pod
	free := cpus(t, otherCPUs(t)).Size() - 1
	begin := time.Now()
	for i := range times {
		if i%20 == 0 {
			t.Logf("change %d after %s", i, time.Since(begin).Round(time.Second))
		}
		switch {
		case i%20 == 19:
			if err := c.Kubelet.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := c.StartKubelet(t.Context()); err != nil {
				t.Fatal(err)
			}
		case free > 0 && (len(holders) == 0 || random.Intn(2) == 0):
			count := 1 + random.Intn(free)
			amount := fmt.Sprintf("cpu=%d memory=16Mi", count)
			p, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), pod(fmt.Sprint("exclusive-", i), nil, container("c", awake, amount, amount)), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			free -= count
			holders = append(holders, p)
		default:
			which := random.Intn(len(holders))
			deleteNow(t, c, holders[which])
			amount := holders[which].Spec.Containers[0].Resources.Requests[v1.ResourceCPU]
			free += int(amount.Value())
			holders = slices.Delete(holders, which, which+1)
		}
		time.Sleep(time.Duration(random.Intn(1000)) * time.Millisecond)
		for _, p := range sharing {
			if usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID); err != nil || usage.CPUs == "" {
				t.Fatalf("change %d: pod %s has CPUs %q (%v)", i, p.Name, usage.CPUs, err)
			} else if has := cpus(t, usage.CPUs); p.Name == "partitioned" && usage.CPUs != "0" || p.Name != "partitioned" && has.Contains(0) {
				t.Errorf("change %d: pod %s has CPUs %s", i, p.Name, usage.CPUs)
			}
		}
	}
	for _, p := range holders {
		releaseExclusive(t, c, p)
	}
	for _, class := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		waitFor(t, 2*time.Minute, "class "+string(class)+" has all CPUs again", func() error {
			usage, err := host.QoSUsage(class)
			if err == nil && usage.CPUs != allCPUs(t) {
				err = fmt.Errorf("it has CPUs %s", usage.CPUs)
			}
			return err
		})
	}
	for _, p := range sharing[:2] {
		expectPlaced(t, p, cpus(t, otherCPUs(t)))
		if whole, err := host.PodUsage(p); err != nil || whole.CPUs != allCPUs(t) {
			t.Errorf("the cgroup of pod %s has CPUs %s (%v)", p.Name, whole.CPUs, err)
		}
	}
	for _, line := range refused() {
		t.Errorf("the kernel refused the kubelet a set: %s", line)
	}
}
