// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

const (
	// usedCPUs prints which CPUs a container may use and, on cgroup v1, how long it has used each.
	usedCPUs = "grep Cpus_allowed_list /proc/self/status; cat /sys/fs/cgroup/cpuacct/cpuacct.usage_percpu 2>/dev/null || true"
	// someWork takes some milliseconds.
	someWork = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; "
)

// No partitioned container runs off its pool for a nanosecond, and no other container runs on
// it. This holds for every kind of container, and whatever happens to the node.
func TestNoLeak(t *testing.T) {
	in(t, core, vm)
	underEachPolicy(t, noLeak, core)
}

func noLeak(t *testing.T, c *host.Cluster) {
	namespace := fixture.Namespace(t, c.Client, "management")
	mix := startMix(t, c, namespace)
	for _, name := range []string{"partitioned", "burstable"} {
		debug(t, c, namespace, name)
	}
	check := func(t *testing.T) {
		t.Helper()
		for name, may := range mix {
			p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			expectNoLeak(t, p, may)
		}
	}
	time.Sleep(2 * time.Second) // the period in which they work, and the kernel counts where
	check(t)
	for _, event := range []struct {
		name string
		do   func() error
	}{
		{"the kubelet was killed and has reconciled", func() error {
			if err := c.Kubelet.Kill(); err != nil {
				return err
			}
			if err := c.StartKubelet(t.Context()); err != nil {
				return err
			}
			time.Sleep(reconciliations(2)) // the period in which the CPU manager must move nothing
			return nil
		}},
		{"containerd was killed and came back", func() error { return c.RestartContainerd(t.Context()) }},
		{"memory was resized in place", func() error {
			for _, name := range []string{"partitioned", "burstable"} {
				if err := resizeMemory(t, c, namespace, name, "24Mi", "64Mi"); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		t.Run("after "+event.name, func(t *testing.T) {
			if err := event.do(); err != nil {
				t.Fatal(err)
			}
			check(t)
		})
	}
	t.Run("in pods that come and go", func(t *testing.T) { comeAndGo(t, c, namespace) })
	t.Run("in containers that crash again and again", func(t *testing.T) {
		for name, may := range map[string]cpuset.CPUSet{"partitioned-crashes": onPool, "crashes": offPool(t)} {
			p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(c.KubeletDir(), "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/record/used"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(data)), "\n")
			if perRun := 2; host.CgroupV1() && len(lines) < 2*perRun || len(lines) < 2 {
				t.Errorf("pod %s has run only once, and printed %q", name, lines)
			}
			expectPrinted(t, p, may, string(data))
		}
	})
	check(t)
}

// startMix starts pods of every kind, all of which work. It returns the names of those that run on, and the CPUs of
// each.
func startMix(t *testing.T, c *host.Cluster, namespace string) map[string]cpuset.CPUSet {
	t.Helper()
	record := []v1.VolumeMount{{Name: "record", MountPath: "/record"}}
	full := func(name string, annotations map[string]string, requests, limits string) *v1.Pod {
		p := fixture.Pod(name, annotations, fixture.Container("c", fixture.Awake, requests, limits), fixture.Container("d", fixture.Awake, requests, limits))
		p.Spec.InitContainers = []v1.Container{fixture.Container("init", someWork+usedCPUs, requests, limits), fixture.Sidecar("sidecar", fixture.Awake, requests, limits)}
		return p
	}
	crashing := func(name string, annotations map[string]string, requests string) *v1.Pod {
		p := fixture.Pod(name, annotations, fixture.Container("c", someWork+"("+usedCPUs+") >>/record/used; exit 1", requests, ""))
		p.Spec.Volumes = []v1.Volume{{Name: "record", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = record
		return p
	}
	onHost := func(p *v1.Pod) *v1.Pod {
		p.Spec.HostNetwork = true
		return p
	}
	confined := []*v1.Pod{
		full("partitioned", asks, "cpu=100m memory=16Mi", "cpu=500m memory=32Mi"),
		fixture.Pod("partitioned-besteffort", asks, fixture.Container("c", fixture.Awake, "", "")),
		onHost(fixture.Pod("partitioned-on-host", asks, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", ""))),
	}
	others := []*v1.Pod{
		// The exclusive container may take all allocatable cpu, so the others request memory only.
		full("burstable", nil, "memory=16Mi", "memory=32Mi"),
		fixture.Pod("besteffort", nil, fixture.Container("c", fixture.Awake, "", "")),
		onHost(fixture.Pod("on-host", nil, fixture.Container("c", fixture.Awake, "memory=16Mi", ""))),
		fixture.Exclusive("exclusive", 1),
	}
	for _, p := range []*v1.Pod{crashing("partitioned-crashes", asks, "cpu=100m memory=16Mi"), crashing("crashes", nil, "memory=16Mi")} {
		if _, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	mix := map[string]cpuset.CPUSet{}
	for _, p := range confined {
		mix[p.Name] = onPool
	}
	for _, p := range others {
		mix[p.Name] = offPool(t)
	}
	for _, p := range start(t, c, namespace, slices.Concat(confined, others)...) {
		if len(p.Spec.InitContainers) > 0 {
			expectPrinted(t, p, mix[p.Name], logs(t, c, p, "init"))
		}
	}
	return mix
}

// comeAndGo starts and ends many short pods, several at a time, and checks where each has run.
func comeAndGo(t *testing.T, c *host.Cluster, namespace string) {
	pods, atOnce, limit := 100, 25, 2*time.Minute
	if config.Slow { // an emulated VM takes seconds for each pod
		pods, atOnce, limit = 6, 3, 10*time.Minute
	}
	name := func(i int) string { return fmt.Sprintf("short-%d", i) }
	for i := range pods + atOnce {
		if i < pods {
			p := fixture.Pod(name(i), nil, fixture.Container("c", someWork+usedCPUs, "memory=8Mi", ""))
			if i%2 == 0 {
				p = fixture.Pod(p.Name, asks, fixture.Container("c", someWork+usedCPUs, "cpu=50m memory=8Mi", ""))
			}
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			if _, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if i < atOnce {
			continue
		}
		first := name(i - atOnce)
		p := awaitEnd(t, c, namespace, first, limit)
		may := offPool(t)
		if (i-atOnce)%2 == 0 {
			may = onPool
		}
		expectPrinted(t, p, may, logs(t, c, p, "c"))
		deleteNow(t, c, p)
	}
}

// expectPrinted checks what usedCPUs has printed in a pod, once or more: it may run, and has run, on some of these CPUs
// only.
func expectPrinted(t *testing.T, p *v1.Pod, may cpuset.CPUSet, printed string) {
	t.Helper()
	list := ""
	for line := range strings.Lines(printed) {
		if rest, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			list = strings.TrimSpace(rest)
			expectWithin(t, p, "that ended", may, list, nil)
			continue
		}
		var used []time.Duration
		for field := range strings.FieldsSeq(line) {
			nanoseconds, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				t.Fatalf("pod %s printed %q, want CPU times: %v", p.Name, printed, err)
			}
			used = append(used, time.Duration(nanoseconds))
		}
		expectWithin(t, p, "that ended", may, list, used)
	}
	if list == "" {
		t.Errorf("pod %s printed %q, want its CPUs", p.Name, printed)
	}
}
