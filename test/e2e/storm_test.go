// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// While partitioned pods start, are probed, crash and end for a minute, next to nothing of them
// runs off the pool.
//
// On cgroup v1, the kernel's account of all pods, deleted ones included, must not exceed a
// quarter of a millisecond for each process. A process joins one hierarchy after another, and
// in between it may run anywhere. From its fork to its first instruction in a container it
// needs some milliseconds of CPU time, of which a busy host was seen to spend 25 microseconds
// off the pool.
//
// Cgroup v2 has one hierarchy, and no account for each CPU. There the kernel's tracer must not
// see any task of a pod off the pool, apart from those of an application that has its own CPU.
func TestStorm(t *testing.T) {
	in(t, vm, long)
	c := partitioned(t)
	namespace := fixture.Namespace(t, c.Client, "management")
	quietNode(t, c)
	pool := cpuset.New(0)
	expectOnPool := watchStorm
	if host.CgroupV1() {
		expectOnPool = accountForStorm
	}
	end := expectOnPool(t, c, namespace, pool)
	ended, processes := storm(t, c, namespace, time.Minute, stormLoad)
	if ended == 0 {
		t.Error("no short pod has ended")
	}
	end(processes)
}

// stormLoad is the load of TestStorm and of the soak; that of the noise has more busy pods.
var stormLoad = load{busy: 6, annotations: asks, requests: "cpu=10m memory=8Mi"}

// accountForStorm returns a function that ends the account, of so many processes.
func accountForStorm(t *testing.T, _ *host.Cluster, _ string, pool cpuset.CPUSet) (end func(processes int)) {
	t.Helper()
	offBefore, onBefore := podsUsage(t, pool)
	return func(processes int) {
		t.Helper()
		off, on := podsUsage(t, pool)
		off, on = off-offBefore, on-onBefore
		t.Logf("%d processes in pods used %s of the pool and 1/%.0f of that off it, %s", processes, on, float64(on)/float64(max(off, 1)), off)
		expectOff(t, off, processes)
	}
}

// podsUsage returns how long all pods, deleted ones included, have run off a pool and on it.
func podsUsage(t testing.TB, pool cpuset.CPUSet) (off, on time.Duration) {
	t.Helper()
	usage, err := host.AllPodsUsage()
	if err != nil {
		t.Fatal(err)
	}
	for cpu, used := range usage.Used {
		if pool.Contains(cpu) {
			on += used
		} else {
			off += used
		}
	}
	return off, on
}

// expectOff bounds how long so many processes of a storm were off the pool; see TestStorm.
func expectOff(t testing.TB, off time.Duration, processes int) {
	t.Helper()
	if bound := time.Duration(processes) * 250 * time.Microsecond; off > bound {
		t.Errorf("pods used %s off the pool, want %s at most, for %d processes", off, bound, processes)
	}
}

// watchStorm starts an application next to the storm, and returns a function that ends the trace.
func watchStorm(t *testing.T, c *host.Cluster, namespace string, pool cpuset.CPUSet) (end func(processes int)) {
	t.Helper()
	application := startApplication(t, c, namespace)
	watch := watchCPUs(t, fixture.CPUs(t, allCPUs(t)).Difference(pool))
	return func(processes int) {
		t.Helper()
		seen := watch("")
		application.takeOut(seen)
		for who, time := range seen.pods {
			t.Errorf("%s was off the pool for %s", who, time)
		}
		t.Logf("of %d processes in pods, %d were seen off the pool; the host was there for %s", processes, len(seen.pods), seen.allOfHost())
		application.report(t, c, seen)
	}
}

// stormApplication is an application with an exclusive CPU during a storm. It is nil where the
// meter was not compiled for this host.
type stormApplication struct {
	pod *v1.Pod
	cpu int
}

func startApplication(t *testing.T, c *host.Cluster, namespace string) *stormApplication {
	t.Helper()
	if meter == "" {
		return nil
	}
	p := start(t, c, namespace, meterPod("application", meter, "/noise/meter", 2*time.Minute))[0]
	own := fixture.CPUs(t, containerUsage(t, p, 0).CPUs)
	if own.Size() != 1 || own.Contains(0) {
		t.Fatalf("the application has the CPUs %s, want one besides the pool", own)
	}
	return &stormApplication{p, own.List()[0]}
}

// takeOut leaves the application itself out of what was seen.
func (a *stormApplication) takeOut(seen onCPUs) {
	if a == nil {
		return
	}
	// The systemd driver writes a UID with underscores.
	maps.DeleteFunc(seen.pods, func(who string, _ time.Duration) bool {
		return strings.Contains(strings.ReplaceAll(who, "_", "-"), string(a.pod.UID))
	})
}

// report logs how the application was disturbed.
func (a *stormApplication) report(t *testing.T, c *host.Cluster, seen onCPUs) {
	t.Helper()
	if a == nil {
		return
	}
	reading := meterReading(t, c, awaitEnd(t, c, a.pod.Namespace, a.pod.Name, 5*time.Minute))
	if reading.CPU != a.cpu {
		t.Errorf("the application ended on CPU %d, want %d", reading.CPU, a.cpu)
	}
	t.Logf("the application had CPU %d: %.0f involuntary switches a minute in %s; tasks of the host were on that CPU for %s",
		a.cpu, reading.PerMinute(), reading.Spun.Round(time.Second), seen.host[a.cpu])
}

// load is what a storm is made of, besides pods that are probed, crash or end: so many busy pods, and
// the annotations and requests of all of them.
type load struct {
	busy        int
	annotations map[string]string
	requests    string
}

// storm creates and ends pods for a while. It returns how many short ones have ended, and how many
// processes the runtime has started in all of them, at least.
func storm(t testing.TB, c *host.Cluster, namespace string, length time.Duration, of load) (ended, processes int) {
	t.Helper()
	annotations, requests := of.annotations, of.requests
	var busyPods, probed, crashing, short, most = of.busy, 3, 3, 3, length
	if config.Slow { // an emulated VM takes seconds for each pod
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
		create(fixture.Pod(fmt.Sprint("busy-", i), annotations, fixture.Container("c", fixture.Busy, requests, "")))
	}
	for i := range probed {
		p := fixture.Pod(fmt.Sprint("probed-", i), annotations, fixture.Container("c", "trap exit TERM; while :; do echo a line of a log that is never read; done", requests, ""))
		probeEachSecond(p)
		create(p)
	}
	for i := range crashing {
		create(fixture.Pod(fmt.Sprint("crashes-", i), annotations, fixture.Container("c", someWork+"exit 1", requests, "")))
	}
	var running []string
	next := 0
	// The storm is the measurement. It lasts for its length, or longer on a slow host, until
	// short pods have ended.
	_ = poll.Until(t.Context(), 200*time.Millisecond, most, func(context.Context) error {
		for len(running) < short {
			p := fixture.Pod(fmt.Sprint("short-", next), annotations, fixture.Container("c", someWork, requests, ""))
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			running = append(running, create(p).Name)
			next++
		}
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
		if time.Since(begin) < length || ended < short {
			return errors.New("the storm goes on")
		}
		return nil
	})
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
	return ended, processes + probed*int(time.Since(begin).Seconds()/2) // a probe every two seconds, at least
}

// probeEachSecond has the kubelet run a command in the pod's container every second.
func probeEachSecond(p *v1.Pod) {
	p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
}

// newRandom returns a source of random numbers, and logs its seed.
func newRandom(t *testing.T) *rand.Rand {
	seed := time.Now().UnixNano()
	t.Log("the seed of random numbers is", seed)
	return rand.New(rand.NewSource(seed))
}

// quietNode waits until the node has no pods, and no cgroups of pods.
func quietNode(t testing.TB, c *host.Cluster) {
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
