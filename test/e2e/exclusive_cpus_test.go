// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// A container with exclusive CPUs keeps them, whatever becomes of the pools. The kubelet does
// not start with a pool that has one of these CPUs while the container may be running.
func TestContainersKeepTheirExclusiveCPUs(t *testing.T) {
	in(t, core)
	c := partitioned(t)
	t.Cleanup(func() {
		if t.Failed() {
			restart(t, c, pinning)
		}
	})
	restart(t, c, "")
	namespace := fixture.Namespace(t, c.Client, "management")
	// Without a pool, the CPU manager reserves CPU 0 for the system.
	exclusive := fixture.Exclusive("exclusive", 1)
	pods := start(t, c, namespace, exclusive, fixture.Pod("shared", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")))
	has := containerUsage(t, pods[0], 0).CPUs
	if has != "1" {
		t.Fatalf("the exclusive container has CPUs %s, want 1", has)
	}
	keeps := func(t *testing.T) {
		t.Helper()
		// Three seconds are the period in which it must not be moved: the CPU manager
		// reconciles every two.
		for range 6 {
			if now := containerUsage(t, pods[0], 0).CPUs; now != has {
				t.Errorf("the exclusive container has CPUs %s, and had %s", now, has)
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
	// The shared CPUs outside of the pool. If none are left, a shared container runs on the
	// exclusive one.
	beside := fixture.CPUs(t, allCPUs(t)).Difference(cpuset.New(0, 1))
	if beside.IsEmpty() {
		beside = cpuset.New(1)
	}
	without := fixture.CPUs(t, allCPUs(t)).Difference(cpuset.New(1))
	for _, step := range []struct {
		name, file string
		shared     cpuset.CPUSet
	}{
		{"the file comes", pinning, beside},
		{"the kubelet starts again", pinning, beside},
		{"the pool shrinks", `{"management": {"cpuset": ""}}`, without},
		{"the pool grows", pinning, beside},
		{"the file goes", "", without},
	} {
		t.Run(step.name, func(t *testing.T) {
			restart(t, c, step.file)
			keeps(t)
			if got := containerUsage(t, pods[1], 0).CPUs; got != step.shared.String() {
				t.Errorf("the shared container has CPUs %s, want %s", got, step.shared)
			}
		})
	}
	checkpoint := filepath.Join(c.KubeletDir(), "cpu_manager_state")
	unharmed := func(t *testing.T, before []byte) {
		t.Helper()
		if after, err := os.ReadFile(checkpoint); err != nil || !bytes.Equal(before, after) {
			t.Errorf("the checkpoint was\n%s\nand is\n%s (%v)", before, after, err)
		}
	}
	read := func(t *testing.T) []byte {
		t.Helper()
		data, err := os.ReadFile(checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	t.Run("a pool with the exclusive CPU keeps the kubelet from starting", func(t *testing.T) {
		before := read(t)
		expectNoStart(t, c, `{"management": {"cpuset": "1"}}`, "container c of pod "+namespace+"/exclusive (UID "+string(pods[0].UID)+") exclusively holds CPU 1")
		unharmed(t, before)
	})
	t.Run("the kubelet starts with the previous pool", func(t *testing.T) {
		restart(t, c, pinning)
		keeps(t)
	})
	t.Run("a checkpoint that cannot be read keeps it from starting, as upstream", func(t *testing.T) {
		before := read(t)
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		damaged := []byte("{")
		if err := os.WriteFile(checkpoint, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(checkpoint, before, 0o600); err != nil {
				t.Error(err)
			}
		})
		expectNoStart(t, c, pinning, "could not restore state from checkpoint")
		unharmed(t, damaged)
	})
	restart(t, c, pinning)
	keeps(t)
	taken := `{"management": {"cpuset": "1"}}`
	t.Run("the pool gets the CPU of a pod that does not run, and the pod another one", func(t *testing.T) {
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		stopInRuntime(t, c, pods[0])
		restart(t, c, taken)
		waitFor(t, time.Minute, "the exclusive container runs again", func() error {
			p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), exclusive.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID)
			if err == nil && (fixture.CPUs(t, usage.CPUs).Size() != 1 || usage.CPUs == "1") {
				err = fmt.Errorf("it has CPUs %s", usage.CPUs)
			}
			pods[0], has = p, usage.CPUs
			return err
		})
	})
	t.Run("the pool gets the CPU of a deleted pod once it does not run", func(t *testing.T) {
		if err := c.StopKubelet(); err != nil {
			t.Fatal(err)
		}
		deleteNow(t, c, pods[0])
		takes := `{"management": {"cpuset": "` + has + `"}}`
		expectNoStart(t, c, takes, "container c of pod "+namespace+"/exclusive (UID "+string(pods[0].UID)+") exclusively holds CPU "+has)
		stopInRuntime(t, c, pods[0])
		restart(t, c, takes)
	})
	restart(t, c, pinning)
}

// Where exclusive containers have every CPU outside the pool, a shared container runs on one of
// these CPUs. It is neither spread over them nor moved to the pool.
func TestSharedContainersKeepOneCPU(t *testing.T) {
	in(t, vm, vmCore)
	needsCPUs(t, 4)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	online := fixture.CPUs(t, allCPUs(t))
	shared := start(t, c, namespace, fixture.Pod("shared", nil, fixture.Container("c", fixture.Awake, "", "")))[0]
	holders := []*v1.Pod{fixture.Exclusive("most", online.Size()-3), fixture.Exclusive("last-but-one", 1), fixture.Exclusive("last", 1)}
	holders = start(t, c, namespace, holders...)
	onOne := func(t *testing.T, p *v1.Pod) string {
		t.Helper()
		found := ""
		waitFor(t, time.Minute, "the container of pod "+p.Name+" has one CPU outside the pool", func() error {
			found = containerUsage(t, p, 0).CPUs
			if set := fixture.CPUs(t, found); set.Size() != 1 || set.Contains(0) {
				return fmt.Errorf("it may use CPUs %s", found)
			}
			return nil
		})
		return found
	}
	first := onOne(t, shared)
	late := start(t, c, namespace, fixture.Pod("late", nil, fixture.Container("c", fixture.Awake, "", "")))[0]
	if got, want := onOne(t, late), fmt.Sprint(slices.Max(online.List())); got != want {
		t.Errorf("a shared container that starts now has CPU %s, want %s", got, want)
	}
	fixture.AwaitEvent(t, c.Client, eventLimit, "NoSharedCPUs", "disturb "+namespace+"/")
	if value := metric(t, c, "kubelet_workload_partitioning_shared_cpus", "", ""); value != 0 {
		t.Errorf("kubelet_workload_partitioning_shared_cpus is %v, want 0", value)
	}
	t.Run("the kubelet starts again", func(t *testing.T) {
		restart(t, c, pinning)
		time.Sleep(reconciliations(5)) // the period in which the CPU manager must not move it
		if got := onOne(t, shared); got != first {
			t.Errorf("the shared container has CPU %s, and had %s", got, first)
		}
		onOne(t, late)
		for _, p := range holders {
			expectPlaced(t, p, fixture.CPUs(t, containerUsage(t, p, 0).CPUs))
		}
	})
	t.Run("a CPU comes back", func(t *testing.T) {
		back := fixture.CPUs(t, containerUsage(t, holders[2], 0).CPUs)
		releaseExclusive(t, c, holders[2])
		expectPlaced(t, shared, back)
		expectPlaced(t, late, back)
		fixture.AwaitEvent(t, c.Client, eventLimit, "NoSharedCPUs", fmt.Sprintf("share the CPUs %q again", back.String()))
	})
	for _, p := range holders[:2] {
		releaseExclusive(t, c, p)
	}
}

// releaseExclusive deletes a pod with exclusive CPUs, and waits until the CPU manager has
// dropped the assignment. Before that, no pool may have these CPUs.
func releaseExclusive(t testing.TB, c *host.Cluster, p *v1.Pod) {
	t.Helper()
	// Also in a cleanup, when the test's context has ended.
	if err := c.Client.CoreV1().Pods(p.Namespace).Delete(context.WithoutCancel(t.Context()), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 2*time.Minute+c.Config.ReconcilePeriod, "the CPU manager has dropped the assignment to pod "+p.Name, func() error {
		data, err := os.ReadFile(filepath.Join(c.KubeletDir(), "cpu_manager_state"))
		if err == nil && strings.Contains(string(data), string(p.UID)) {
			err = fmt.Errorf("the checkpoint is %s", data)
		}
		return err
	})
}

// With full-pcpus-only and single-numa-node, exclusive containers get whole cores of one NUMA
// node with a busy pool, as they would without it.
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
	namespace := fixture.Namespace(t, c.Client, "management")
	pods := start(t, c, namespace,
		fixture.Pod("busy", asks, fixture.Container("c", fixture.Busy+" & "+fixture.Busy, "cpu=400m memory=16Mi", "")),
		fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Busy, "cpu=100m memory=16Mi", "")),
		fixture.Exclusive("aligned", 2),
		fixture.Exclusive("larger", 2))
	pool, taken := cpuset.New(0, 1), cpuset.New()
	for _, p := range pods[2:] {
		has := fixture.CPUs(t, containerUsage(t, p, 0).CPUs)
		if has.Size() != 2 || !has.Intersection(pool.Union(taken)).IsEmpty() {
			t.Errorf("the container of pod %s has CPUs %s, want two that are neither in the pool %s nor taken: %s", p.Name, has, pool, taken)
		}
		siblings := fixture.CPUs(t, sysCPU(t, has.List()[0], "topology/thread_siblings_list"))
		if (siblings.Size() > 1 || c.Config.Dedicated) && !siblings.Equals(has) {
			t.Errorf("the container of pod %s has CPUs %s, want the whole core %s", p.Name, has, siblings)
		}
		if numaNode(t, has.List()[0]) != numaNode(t, has.List()[1]) {
			t.Errorf("the container of pod %s has CPUs %s of two NUMA nodes, want one", p.Name, has)
		}
		taken = taken.Union(has)
		expectPlaced(t, p, has)
	}
	for _, p := range pods[2:] {
		defer releaseExclusive(t, c, p)
	}
	expectPlaced(t, pods[0], pool)
	expectPlaced(t, pods[1], fixture.CPUs(t, allCPUs(t)).Difference(pool).Difference(taken))
}

// sysCPU reads what the kernel says of a CPU.
func sysCPU(t *testing.T, cpu int, file string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/%s", cpu, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// numaNode returns the name of a CPU's NUMA node.
func numaNode(t *testing.T, cpu int) string {
	t.Helper()
	nodes, err := filepath.Glob(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/node*", cpu))
	if err != nil || len(nodes) != 1 {
		t.Fatalf("CPU %d is in NUMA nodes %q (%v)", cpu, nodes, err)
	}
	return filepath.Base(nodes[0])
}

// From the first instruction of an exclusive container on, nothing of other pods runs on its
// CPU: no shared container, sandbox or helper of the runtime. The CPU manager moves containers
// only later.
func TestExclusiveFromTheFirstInstruction(t *testing.T) {
	in(t, vm, vmCore, maybe(unpatchedBinaries))
	needsCPUs(t, 4)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	var sharing []*v1.Pod
	for i := range fixture.CPUs(t, otherCPUs(t)).Size() {
		// As many as there are CPUs, so that one would run on the exclusive CPU.
		sharing = append(sharing, fixture.Pod(fmt.Sprint("shares-", i), nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")))
	}
	sharing = start(t, c, namespace, sharing...)
	exclusive := start(t, c, namespace, fixture.Exclusive("exclusive", 1))[0]
	has := fixture.CPUs(t, containerUsage(t, exclusive, 0).CPUs)
	if has.Size() != 1 {
		t.Fatalf("the exclusive container has CPUs %s, want one", has)
	}
	// At once: this does not wait for the CPU manager's reconciliation.
	for _, class := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		usage, err := host.QoSUsage(class)
		if err != nil {
			t.Fatal(err)
		}
		if shared := fixture.CPUs(t, usage.CPUs); !shared.Intersection(has).IsEmpty() {
			t.Errorf("the QoS class %s has CPUs %s, want all but the exclusive CPU %s", class, usage.CPUs, has)
		}
	}
	for _, p := range sharing {
		usage := containerUsage(t, p, 0)
		for _, list := range usage.Tasks {
			if !fixture.CPUs(t, list).Intersection(has).IsEmpty() {
				t.Errorf("a task of pod %s may use CPUs %s, want all but the exclusive CPU %s", p.Name, list, has)
			}
		}
	}
	t.Run("while ordinary pods come and go", func(t *testing.T) {
		in(t, vm)
		watch := watchCPUs(t, has)
		for i := range 5 {
			p := fixture.Pod(fmt.Sprint("short-", i), nil, fixture.Container("c", someWork, "memory=16Mi", ""))
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			if _, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			awaitEnd(t, c, namespace, p.Name, 2*time.Minute)
		}
		seen := watch("")
		expectSeen(t, seen, exclusive)
		for who, time := range seen.pods {
			if !strings.Contains(who, podPart(exclusive)) {
				t.Errorf("%s was on the exclusive CPU %s for %s", who, has, time)
			}
		}
		t.Logf("on the exclusive CPU %s were the pods %v, and the host for %s", has, seen.pods, seen.allOfHost())
	})
	t.Run("when the CPU is given to another container", func(t *testing.T) {
		in(t, vm)
		releaseExclusive(t, c, exclusive)
		// An emulated VM starts containers slowly. The CPU manager must not come round before
		// they run, or it would hide what is to be seen.
		slowly := func(kubelet, file string) {
			c.Config.ReconcilePeriod = 2 * time.Minute
			c.UseKubelet(kubelet)
			restart(t, c, file)
		}
		t.Cleanup(func() {
			c.Config.ReconcilePeriod = config.ReconcilePeriod
			c.UseKubelet("")
			restart(t, c, pinning)
		})
		slowly("", pinning)
		t.Run("by the patched kubelet", func(t *testing.T) {
			for who, time := range besideNextHolder(t, c, namespace, "patched", has) {
				t.Errorf("%s was on the exclusive CPU %s for %s", who, has, time)
			}
		})
		t.Run("by the unpatched kubelet, for comparison", func(t *testing.T) {
			needs(t, unpatchedBinaries)
			restart(t, c, "")
			slowly(upstreamKubelet, "")
			// Otherwise the patched kubelet has done nothing that was to be seen.
			if len(besideNextHolder(t, c, namespace, "unpatched", has)) == 0 {
				t.Error("no other pod was on its exclusive CPU, want those that have shared it")
			}
		})
	})
	t.Run("until it ends", func(t *testing.T) {
		_ = c.Client.CoreV1().Pods(namespace).Delete(t.Context(), exclusive.Name, metav1.DeleteOptions{}) // unless it has gone
		waitFor(t, 90*time.Second, "the QoS class Burstable has the CPU back", func() error {
			usage, err := host.QoSUsage(v1.PodQOSBurstable)
			if err == nil && usage.CPUs != allCPUs(t) {
				err = fmt.Errorf("it has CPUs %s", usage.CPUs)
			}
			return err
		})
		for _, p := range sharing {
			expectPlaced(t, p, fixture.CPUs(t, otherCPUs(t)))
		}
	})
}

// besideNextHolder starts a container that gets the given exclusive CPUs, and returns how long
// other pods were on them, from its first instruction until 30 s later. The container itself must have been seen there.
func besideNextHolder(t *testing.T, c *host.Cluster, namespace, name string, has cpuset.CPUSet) map[string]time.Duration {
	t.Helper()
	watch := watchCPUs(t, has)
	holder := start(t, c, namespace, fixture.Exclusive(name, 1))[0]
	if got := containerUsage(t, holder, 0).CPUs; got != has.String() {
		t.Fatalf("the exclusive container has CPUs %s, want those of the previous one, %s", got, has)
	}
	time.Sleep(30 * time.Second) // the period that is traced
	seen := watch(fixture.ContainerID(holder.Status.ContainerStatuses[0]))
	expectSeen(t, seen, holder)
	maps.DeleteFunc(seen.pods, func(who string, _ time.Duration) bool { return strings.Contains(who, podPart(holder)) })
	t.Logf("on CPU %s, from its holder's first instruction on, were the pods %v, and the host for %s", has, seen.pods, seen.allOfHost())
	// The CPU manager drops the assignment when it comes round next, or before it makes another one.
	deleteNow(t, c, holder)
	return seen.pods
}

// expectSeen checks that a pod was on the CPUs of an account: one that sees nothing proves nothing.
func expectSeen(t *testing.T, seen onCPUs, p *v1.Pod) {
	t.Helper()
	for who, time := range seen.pods {
		if strings.Contains(who, podPart(p)) && time > 0 {
			return
		}
	}
	t.Errorf("pod %s was not seen on its CPU, only %v", p.Name, seen.pods)
}

// podPart returns a part of the names of all cgroups of a pod, which no other pod's have.
func podPart(p *v1.Pod) string {
	if config.CgroupDriver != host.SystemdDriver {
		return string(p.UID)
	}
	return strings.ReplaceAll(string(p.UID), "-", "_")
}

// Exclusive CPUs are given away and come back many times, while the kubelet is killed now and
// then. No container is ever without a CPU or on another's pool, the kernel refuses no cpuset,
// and in the end no cpuset is still narrowed.
func TestExclusiveCPUsLeaveNothingNarrowed(t *testing.T) {
	in(t, vm)
	needsCPUs(t, 4)
	times := 200
	if config.Slow {
		times = 40
	}
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	quietNode(t, c)
	random := newRandom(t)
	refused := refusals(t, c)
	sharing := start(t, c, namespace, fixture.Pod("shares", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", "")), fixture.Pod("besteffort", nil, fixture.Container("c", fixture.Awake, "", "")),
		fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")))
	var holders []*v1.Pod
	free := fixture.CPUs(t, otherCPUs(t)).Size() - 1
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
			p, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), fixture.Exclusive(fmt.Sprint("exclusive-", i), count), metav1.CreateOptions{})
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
		time.Sleep(time.Duration(random.Intn(1000)) * time.Millisecond) // a random moment, to meet the kubelet in any state
		for _, p := range sharing {
			if usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID); err != nil || usage.CPUs == "" {
				t.Fatalf("change %d: pod %s has CPUs %q (%v)", i, p.Name, usage.CPUs, err)
			} else if has := fixture.CPUs(t, usage.CPUs); p.Name == "partitioned" && usage.CPUs != "0" || p.Name != "partitioned" && has.Contains(0) {
				t.Errorf("change %d: pod %s has CPUs %s; the pool is CPU 0", i, p.Name, usage.CPUs)
			}
		}
	}
	for _, p := range holders {
		releaseExclusive(t, c, p)
	}
	for _, class := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		waitFor(t, 2*time.Minute, "the QoS class "+string(class)+" has all CPUs again", func() error {
			usage, err := host.QoSUsage(class)
			if err == nil && usage.CPUs != allCPUs(t) {
				err = fmt.Errorf("it has CPUs %s", usage.CPUs)
			}
			return err
		})
	}
	for _, p := range sharing[:2] {
		expectPlaced(t, p, fixture.CPUs(t, otherCPUs(t)))
		if whole, err := host.PodUsage(p); err != nil || whole.CPUs != allCPUs(t) {
			t.Errorf("the cgroup of pod %s has CPUs %s (%v), want %s", p.Name, whole.CPUs, err, allCPUs(t))
		}
	}
	for _, line := range refused() {
		t.Errorf("the kernel refused a cpuset: %s", line)
	}
}
