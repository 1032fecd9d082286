// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// What happens to hosts happens to one node: it reboots, its kubelet hangs, a CPU goes offline,
// the power fails, memory runs out. Each time its pods run again or run on, on their CPUs.
func TestNodeSurvivesRebootsAndFailures(t *testing.T) {
	// This is for the last step. The usual threshold would be too low: the kubelet does not count
	// the kernel's own memory, some hundred megabytes, and before its count is that low the VM
	// does little but read its programs again. The transition period is short because no pod is
	// scheduled to a node with memory pressure.
	const eviction = "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 5s}\nevictionPressureTransitionPeriod: 10s\n"
	// A core is for the pool, one for the exclusive pod, and one for all others. An emulated VM of
	// more CPUs is slower.
	topology := vm.Topology{Sockets: 1, Cores: 3, Threads: 2}
	n := bootNode(t, `{"management": {"cpuset": "0-1"}}`, vm.Config{Topology: topology}, host.Config{KubeletConfiguration: eviction})
	namespace := fixture.Namespace(t, n.client, "management")
	n.create(t, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Busy, "cpu=400m memory=16Mi", "")), fixture.Pod("ordinary", nil, fixture.Container("c", fixture.Idle, "cpu=100m memory=16Mi", "")),
		fixture.Exclusive("exclusive", 2))
	n.awaitRunning(t, 2*time.Minute)
	n.expectPlaced(t)

	t.Run("it reboots, and its pool has the CPUs that a pod held exclusively", func(t *testing.T) {
		// No container of that pod runs after a boot, so the pool gets its CPUs, and the pod
		// others.
		pool := fixture.CPUs(t, n.exclusive(t))
		n.writePinningFile(t, fmt.Sprintf(`{"management": {"cpuset": %q}}`, pool))
		n.reboot(t)
	})
	t.Run("its kubelet hangs, and systemd's watchdog ends it", func(t *testing.T) { n.watchdog(t) })
	t.Run("a CPU goes offline", func(t *testing.T) { n.cpuOffline(t) })
	t.Run("the power fails while pods are created", func(t *testing.T) { n.powerCut(t, namespace) })
	t.Run("memory runs out", func(t *testing.T) { n.memoryPressure(t, namespace) })
}

// reboot reboots the node, and expects all pods to run again on their CPUs.
func (n *node) reboot(t *testing.T) {
	t.Helper()
	before := n.awaitRunning(t, time.Minute)
	begin := time.Now()
	if err := n.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	booted := time.Now()
	n.learn(t)
	n.awaitReady(t, n.now(t).Add(-time.Duration(5)*time.Second))
	t.Logf("rebooted in %s, and Ready after another %s", booted.Sub(begin).Round(time.Second), time.Since(booted).Round(time.Second))
	n.awaitRestarted(t, before)
	n.expectPlaced(t)
	n.expectClean(t)
}

// awaitRestarted waits until all pods run, and in other containers than before.
func (n *node) awaitRestarted(t *testing.T, before []v1.Pod) {
	t.Helper()
	old := map[string]bool{}
	for _, p := range before {
		old[p.Status.ContainerStatuses[0].ContainerID] = true
	}
	waitFor(t, 3*time.Minute, "all pods run again", func(ctx context.Context) error {
		list, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil || old[p.Status.ContainerStatuses[0].ContainerID] {
				return fmt.Errorf("pod %s is %s, with the containers %v", p.Name, p.Status.Phase, p.Status.ContainerStatuses)
			}
		}
		return nil
	})
}

// exclusive returns the CPUs of the Guaranteed pod, as a CPU list. It is empty if there is no
// such pod.
func (n *node) exclusive(t *testing.T) string {
	t.Helper()
	list, err := n.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Status.QOSClass == v1.PodQOSGuaranteed {
			return n.run(t, "cat $(find /sys/fs/cgroup/kubepods.slice -name cri-containerd-"+fixture.ContainerID(p.Status.ContainerStatuses[0])+".scope)/cpuset.cpus.effective")
		}
	}
	return ""
}

// watchdog has the kubelet hang, and expects another one to start while the pods run on.
func (n *node) watchdog(t *testing.T) {
	before := n.awaitRunning(t, time.Minute)
	pid := n.run(t, "systemctl show --value --property=MainPID kubelet")
	begin := n.now(t)
	n.run(t, "kill -STOP "+pid)
	waitFor(t, 3*time.Minute, "systemd starts another kubelet", func(ctx context.Context) error {
		now, err := n.Run(ctx, "systemctl show --value --property=MainPID kubelet")
		if err == nil && (now == pid || now == "0") {
			err = fmt.Errorf("its process is %s, and was %s", now, pid)
		}
		return err
	})
	n.awaitReady(t, begin.Add(30*time.Second))
	after := n.awaitRunning(t, time.Minute)
	for _, p := range before {
		if !slices.ContainsFunc(after, func(now v1.Pod) bool {
			return now.UID == p.UID && now.Status.ContainerStatuses[0].ContainerID == p.Status.ContainerStatuses[0].ContainerID
		}) {
			t.Errorf("the container of pod %s no longer runs", p.Name)
		}
	}
	n.expectPlaced(t)
}

// cpuOffline takes one CPU of the pool and one outside it offline. The kernel takes them out of
// all cpusets, and Events name them. A kubelet does not start while a CPU of the pool is
// offline, and names it.
func (n *node) cpuOffline(t *testing.T) {
	pool := n.pools["management"]
	lost, other := pool.List()[pool.Size()-1], -1
	for _, cpu := range n.cpus.Difference(pool).Difference(fixture.CPUs(t, n.exclusive(t))).List() {
		other = cpu
	}
	online := func(cpu, state int) string {
		return fmt.Sprintf("echo %d > /sys/devices/system/cpu/cpu%d/online", state, cpu)
	}
	n.run(t, online(lost, 0))
	fixture.AwaitEvent(t, n.client, time.Minute, "WorkloadPartitioningCPUOffline", fmt.Sprintf("CPU %d in the pool of workload type management was taken offline", lost))
	n.expectPlaced(t, lost)
	n.run(t, online(other, 0))
	fixture.AwaitEvent(t, n.client, time.Minute, "WorkloadPartitioningCPUOffline", fmt.Sprintf("CPU %d, which is in no pool, was taken offline", other))
	n.expectPlaced(t, lost, other)
	n.run(t, online(other, 1))
	n.run(t, "systemctl restart kubelet")
	waitFor(t, time.Minute, "the kubelet names the CPU that the host lacks", func(ctx context.Context) error {
		_, err := n.Run(ctx, fmt.Sprintf("grep -q 'the host has no CPU %d;' %s/logs/kubelet.log", lost, host.Dir))
		return err
	})
	n.run(t, online(lost, 1))
	n.awaitReady(t, n.now(t))
	n.expectPlaced(t)
}

// powerCut cuts the power of the VM while pods are created, and expects every pod to run that
// the API had confirmed.
func (n *node) powerCut(t *testing.T, namespace string) {
	const pods = 12
	n.learn(t)
	var created atomic.Int64
	ended := make(chan error, 1)
	go func() {
		var err error
		defer func() { ended <- err }()
		for i := range pods {
			p := fixture.Pod(fmt.Sprintf("cut-%d", i), []map[string]string{asks, nil}[i%2], fixture.Container("c", fixture.Idle, "cpu=20m memory=16Mi", ""))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			_, err = n.client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
			cancel()
			if err != nil {
				return
			}
			created.Add(1)
			time.Sleep(300 * time.Millisecond) // the rate of the load, not a wait
		}
	}()
	waitFor(t, 3*time.Minute, "more than half of the pods are created", func(context.Context) error {
		select {
		case err := <-ended:
			if ended <- err; err != nil {
				t.Fatalf("only %d of %d pods were created: %v", created.Load(), pods, err)
			}
		default:
		}
		if count := created.Load(); count < pods*6/10 {
			return fmt.Errorf("there are %d of %d", count, pods)
		}
		return nil
	})
	if err := n.PowerOff(); err != nil {
		t.Fatal(err)
	}
	<-ended
	count := int(created.Load())
	begin := time.Now()
	if err := n.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.learn(t)
	booted := time.Now()
	n.awaitReady(t, n.now(t).Add(-time.Duration(5)*time.Second))
	t.Logf("the power was cut after %d of %d pods; booted in %s, and Ready after another %s", count, pods, booted.Sub(begin).Round(time.Second), time.Since(booted).Round(time.Second))
	list := n.awaitRunning(t, 5*time.Minute)
	found := 0
	for _, p := range list {
		if strings.HasPrefix(p.Name, "cut-") {
			found++
		}
	}
	if found < count {
		t.Errorf("of %d pods that the API had confirmed, %d are there", count, found)
	}
	n.expectPlaced(t)
	n.expectClean(t)
}

// memoryPressure fills the memory of the node, and expects the kubelet to evict the pod that does so
// while the control plane runs on.
func (n *node) memoryPressure(t *testing.T, namespace string) {
	before := n.controlPlane(t)
	hog := fixture.Pod("hog", nil, fixture.Container("c", `dd if=/dev/zero of=/memory/first bs=1M count=$(($(sed -n 's/^MemAvailable: *\([0-9]*\)[0-9][0-9][0-9] kB/\1/p' /proc/meminfo) - 1300))
i=0; while :; do dd if=/dev/zero of=/memory/$i bs=1M count=16; i=$((i+1)); sleep 1; done`, "memory=16Mi", ""))
	hog.Spec.Volumes = []v1.Volume{{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}}
	hog.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "memory", MountPath: "/memory"}}
	n.create(t, namespace, hog)
	waitFor(t, 10*time.Minute, "the pod is evicted", func(ctx context.Context) error {
		p, err := n.client.CoreV1().Pods(namespace).Get(ctx, "hog", metav1.GetOptions{})
		if err == nil && (p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted") {
			err = fmt.Errorf("it is %s, with the reason %q", p.Status.Phase, p.Status.Reason)
		}
		return err
	})
	if after := n.controlPlane(t); !slices.Equal(after, before) {
		t.Errorf("the containers of the control plane were %q, and are %q", before, after)
	}
	n.awaitReady(t, n.now(t))
}
