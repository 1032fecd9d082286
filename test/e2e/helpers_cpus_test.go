// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// reconciliations returns the time in which the CPU manager of a kubelet that has just started
// reconciles n times.
func reconciliations(n int) time.Duration {
	return 2*time.Second + time.Duration(n)*config.ReconcilePeriod
}

// allCPUs returns the host's CPUs, as a CPU list.
func allCPUs(t testing.TB) string {
	t.Helper()
	online, err := host.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	return online.String()
}

// otherCPUs returns all CPUs but the pool, CPU 0.
func otherCPUs(t testing.TB) string {
	t.Helper()
	return fixture.CPUs(t, allCPUs(t)).Difference(cpuset.New(0)).String()
}

// weight returns the weight that shares give a pod, in the host's cgroup version. For v2 it
// converts as upstream does (pkg/kubelet/cm/cgroup_manager_linux.go).
func weight(shares int64) int64 {
	if host.CgroupV1() {
		return shares
	}
	return 1 + ((shares-2)*9999)/262142
}

// needsCPUs skips a test on a host with fewer CPUs than it needs.
func needsCPUs(t *testing.T, count int) {
	t.Helper()
	if runtime.NumCPU() < count {
		t.Skipf("the host has %d CPUs, and this test needs %d", runtime.NumCPU(), count)
	}
}

// expectPlaced waits until the first container of a pod, and each of its tasks, may use exactly
// these CPUs: the CPU manager may move it later.
func expectPlaced(t testing.TB, p *v1.Pod, want cpuset.CPUSet) {
	t.Helper()
	waitFor(t, time.Minute, "the container of pod "+p.Name+" has its CPUs", func() error {
		usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[0].ContainerID)
		if err == nil && (usage.CPUs != want.String() || len(usage.Tasks) != 1 || usage.Tasks[0] != want.String()) {
			err = fmt.Errorf("it may use CPUs %s, and its tasks %q; want %s", usage.CPUs, usage.Tasks, want)
		}
		return err
	})
}

// containerUsage returns what the kernel says of a container, by its index in the pod's status.
func containerUsage(t testing.TB, p *v1.Pod, index int) host.Usage {
	t.Helper()
	usage, err := host.ContainerUsage(p, p.Status.ContainerStatuses[index].ContainerID)
	if err != nil {
		t.Fatal(err)
	}
	return usage
}

// awaitWork waits until a container has used an amount of CPU time. If it ran where it must
// not, the account of that CPU shows it by then.
func awaitWork(t testing.TB, p *v1.Pod, index int, amount time.Duration) {
	t.Helper()
	waitFor(t, time.Minute, fmt.Sprintf("container %s of pod %s has worked", p.Spec.Containers[index].Name, p.Name), func() error {
		var used time.Duration
		for _, onCPU := range containerUsage(t, p, index).Used {
			used += onCPU
		}
		if used < amount {
			return fmt.Errorf("it has used %s, want %s", used, amount)
		}
		return nil
	})
}

// expectCPUs checks that a container and its tasks may use exactly these CPUs, and that it has
// not run on the forbidden one.
func expectCPUs(t testing.TB, p *v1.Pod, index int, cpus string, forbidden int) {
	t.Helper()
	usage := containerUsage(t, p, index)
	if usage.CPUs != cpus {
		t.Errorf("container %s of pod %s may use CPUs %s, want %s", p.Spec.Containers[index].Name, p.Name, usage.CPUs, cpus)
	}
	if !slices.Equal(usage.Tasks, []string{cpus}) {
		t.Errorf("the tasks of container %s of pod %s may use CPUs %q, want %s", p.Spec.Containers[index].Name, p.Name, usage.Tasks, cpus)
	}
	// Cgroup v2 has one account for all CPUs, which says nothing here.
	if len(usage.Used) > 1 && usage.Used[forbidden] != 0 {
		t.Errorf("container %s of pod %s has run on CPU %d for %s, want never", p.Spec.Containers[index].Name, p.Name, forbidden, usage.Used[forbidden])
	}
}

// onPool are the CPUs of pods that must be partitioned, where the pool is CPU 0.
var onPool = cpuset.New(0)

// offPool returns the CPUs of all other pods there.
func offPool(t testing.TB) cpuset.CPUSet {
	t.Helper()
	return fixture.CPUs(t, otherCPUs(t))
}

// expectNoLeak checks that every container of a pod runs that is meant to run on, and that each may run, and has run,
// on some of these CPUs only.
func expectNoLeak(t testing.TB, p *v1.Pod, may cpuset.CPUSet) {
	t.Helper()
	expectNoLeakSince(t, p, may, nil)
}

// expectNoLeakSince leaves out what containers, by their IDs, had used of each CPU before.
func expectNoLeakSince(t testing.TB, p *v1.Pod, may cpuset.CPUSet, before map[string][]time.Duration) {
	t.Helper()
	statuses := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses)
	for _, name := range runOn(p) {
		if !slices.ContainsFunc(statuses, func(status v1.ContainerStatus) bool { return status.Name == name && status.State.Running != nil }) {
			t.Errorf("container %s of pod %s does not run: the pod has the containers %v", name, p.Name, statuses)
		}
	}
	for _, status := range statuses {
		if status.State.Running == nil {
			continue
		}
		usage, err := host.ContainerUsage(p, status.ContainerID)
		if err != nil {
			t.Errorf("container %s of pod %s: %v", status.Name, p.Name, err)
			continue
		}
		for cpu, used := range before[status.ContainerID] {
			usage.Used[cpu] -= used
		}
		expectWithin(t, p, status.Name, may, usage.CPUs, usage.Used)
		for _, list := range usage.Tasks {
			expectWithin(t, p, status.Name, may, list, nil)
		}
	}
}

// runOn returns the names of the containers of a pod that do not end by themselves.
func runOn(p *v1.Pod) (names []string) {
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			names = append(names, c.Name)
		}
	}
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

// expectWithin checks that a container may use only some CPUs, and has used no others.
func expectWithin(t testing.TB, p *v1.Pod, container string, may cpuset.CPUSet, list string, used []time.Duration) {
	t.Helper()
	if set := fixture.CPUs(t, list); set.IsEmpty() || !set.IsSubsetOf(may) {
		t.Errorf("container %s of pod %s may use CPUs %s, want some of %s", container, p.Name, list, may)
	}
	if len(used) < 2 { // cgroup v2 has one account for all CPUs
		return
	}
	for cpu, time := range used {
		if time > 0 && !may.Contains(cpu) {
			t.Errorf("container %s of pod %s has run on CPU %d for %s, want only CPUs %s", container, p.Name, cpu, time, may)
		}
	}
}
