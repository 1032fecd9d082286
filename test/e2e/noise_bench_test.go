// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/kubernetes/test/e2e/internal/noise"
)

var noisePlot = flag.String("noise-plot", "", "file for the plot of BenchmarkNoise, as SVG; empty means none")

// noiseKind is how a node is set up while an application is measured, and what was seen.
type noiseKind struct {
	name string
	// kubelet is empty for the patched one, policy that of its CPU manager, file the pinning
	// file, and configuration is added to the kubelet's.
	kubelet, policy, file, configuration string
	// hostOn confines the host to the pool: its processes, and of the kernel all that can be moved.
	hostOn bool
	// storm is the load of the pool; without it, the node is idle.
	storm bool
	// resting means that the application sleeps, so that it shows what a busy one takes.
	resting bool

	// readings are those of the turns, in the order of the rounds.
	readings []noise.Reading
	// others is the CPU time of other pods on the application's CPU, and steal what the
	// hypervisor took of that CPU; of all CPUs, where the application has none exclusively.
	others, steal time.Duration
	// pool is the CPU time of all pods on the pool. It, interrupts and soft interrupts on the
	// application's CPU are those of the period.
	pool, period               time.Duration
	interrupts, softInterrupts map[string]uint64
	// causers are who was on the application's CPU while that was traced.
	causers noise.Causers
	traced  time.Duration
	// lists counts what was asked of the kube-apiserver, images those that were unpacked, and pods
	// the short pods that have ended meanwhile.
	lists, images, pods int
}

// BenchmarkNoise measures how an application with an exclusive CPU is disturbed while the pool is
// under a storm: by this kubelet, by an unpatched one with reservedSystemCPUs and the static policy,
// and without any isolation. They take turns in one run. The application is a meter that spins on
// the clock. In some turns it rests instead: what the pool then has more is what a busy application
// takes from it.
//
// In the part "pairs" the host is on the pool, and each turn under the storm is compared with the
// turn of the same round on the idle node. In the part "kinds" the host is free, or the application
// rests.
//
// The pods of the storm are the same. Where nothing partitions them they have no cpu request, since
// none is left next to the application.
func BenchmarkNoise(b *testing.B) {
	if !host.CgroupV1() {
		b.Skip("cgroup v2 has no account of each CPU")
	}
	const reserved = "reservedSystemCPUs: \"0\"\n"
	partitioned := noiseKind{policy: "static", file: pinning, storm: true}
	unpatched := noiseKind{kubelet: upstreamKubelet, policy: "static", configuration: reserved, storm: true}
	shared := noiseKind{kubelet: upstreamKubelet, policy: "none", storm: true}
	called := func(name string, kind noiseKind) *noiseKind { kind.name = name; return &kind }
	hostToo := func(kind noiseKind) noiseKind { kind.hostOn = true; return kind }
	resting := func(kind noiseKind) noiseKind { kind.resting = true; return kind }

	idle := called("idle", hostToo(noiseKind{policy: "static", file: pinning}))
	busy, restingHost := called("partitioned", partitioned), called("partitioned-resting", resting(partitioned))
	busyHostToo, restingHostToo := called("partitioned-host-too", hostToo(partitioned)), called("partitioned-resting-host-too", hostToo(resting(partitioned)))
	pairs := []*noiseKind{idle, busyHostToo, called("reserved-host-too", hostToo(unpatched))}
	others := []*noiseKind{busy, restingHost, restingHostToo, called("reserved", unpatched), called("not-isolated", shared)}
	b.Run("pairs", func(b *testing.B) {
		takeTurns(b, pairs)
		for _, kind := range pairs[1:] {
			kind.compare(b, idle)
		}
	})
	b.Run("kinds", func(b *testing.B) { takeTurns(b, others) })
	for _, pair := range [][2]*noiseKind{{busy, restingHost}, {busyHostToo, restingHostToo}} {
		if pair[0].period > 0 && pair[1].period > 0 {
			b.Logf("%s: pods had %.2f %% of the pool, and %.2f %% next to an application that rests, so a busy one takes %.2f %% of what they would have",
				pair[0].name, 100*pair[0].share(), 100*pair[1].share(), 100*(1-pair[0].share()/pair[1].share()))
		}
	}
	if *noisePlot == "" {
		return
	}
	var lines []noise.Line
	for _, kind := range slices.Concat(pairs, others) {
		if len(kind.readings) > 0 {
			lines = append(lines, noise.Line{Name: kind.name, Reading: kind.whole()})
		}
	}
	if err := os.WriteFile(*noisePlot, []byte(noise.Plot("How often an application with an exclusive CPU is kept from running", lines)), 0o644); err != nil {
		b.Fatal(err)
	}
	b.Logf("the plot is %s", *noisePlot)
}

// takeTurns measures each kind once a round, and reports what was seen. The order is that of the
// kinds, and in every other round the reverse one: a host that gets slower slows all of them.
func takeTurns(b *testing.B, kinds []*noiseKind) {
	b.Helper()
	c := partitioned(b)
	configuration, without := c.Config.KubeletConfiguration, c.Config.WithoutReservation
	set := func(kind *noiseKind) {
		c.UseKubelet(kind.kubelet)
		c.Config.KubeletConfiguration, c.Config.WithoutReservation = configuration+kind.configuration, without || kind.configuration != ""
		if err := c.ChangeCPUManagerPolicy(kind.policy); err != nil {
			b.Fatal(err)
		}
		restart(b, c, kind.file)
	}
	b.Cleanup(func() { set(&noiseKind{policy: "static", file: pinning}) })
	meter, err := noise.Build(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	unpacked, tracer := newLargeImage(b, c), newNoiseTracer(b)
	turns := slices.Clone(kinds)
	for round := 0; b.Loop(); round++ {
		for _, kind := range turns {
			quietNode(b, c)
			set(kind)
			measureNoise(b, c, kind, meter, unpacked, tracer, fmt.Sprintf("%s-%d", kind.name, round))
		}
		slices.Reverse(turns)
	}
	for _, kind := range kinds {
		kind.report(b)
	}
}

// whole returns what the application has seen in all turns together.
func (kind *noiseKind) whole() (sum noise.Reading) {
	for _, reading := range kind.readings {
		sum = sum.Add(reading)
	}
	return sum
}

// compare reports how many switches each turn had for one of the idle node in the same round, and how
// many gaps of a millisecond.
func (kind *noiseKind) compare(b *testing.B, idle *noiseKind) {
	b.Helper()
	if len(kind.readings) != len(idle.readings) {
		b.Fatalf("%s has %d turns, and %s %d", kind.name, len(kind.readings), idle.name, len(idle.readings))
	}
	ratios := make([]float64, len(kind.readings))
	for i, reading := range kind.readings {
		ratios[i] = reading.PerMinute() / idle.readings[i].PerMinute()
	}
	ratio, here, there := noise.SpreadOf(ratios), spreadOver(kind, noise.Reading.PerMinute), spreadOver(idle, noise.Reading.PerMinute)
	const millisecond = time.Millisecond
	gaps, idleGaps := kind.whole().Longer(millisecond), idle.whole().Longer(millisecond)
	b.Logf("%s: %s involuntary switches a minute, and %s on the idle node: %s times as many; %d gaps of %s or more, and %d", kind.name, here, there, ratio, gaps, millisecond, idleGaps)
	b.ReportMetric(ratio.Median, "times-idle-"+kind.name)
	b.ReportMetric(float64(gaps-idleGaps)/float64(len(ratios)), "more-ms-gaps/turn-"+kind.name)
}

// spreadOver returns the spread of a number over a kind's turns.
func spreadOver(kind *noiseKind, number func(noise.Reading) float64) noise.Spread {
	numbers := make([]float64, len(kind.readings))
	for i, reading := range kind.readings {
		numbers[i] = number(reading)
	}
	return noise.SpreadOf(numbers)
}

// share returns the part of the pool that pods have used.
func (kind *noiseKind) share() float64 { return kind.pool.Seconds() / kind.period.Seconds() }

// report logs what was seen, and reports metrics.
func (kind *noiseKind) report(b *testing.B) {
	b.Helper()
	isolated := kind.policy == "static"
	perMinute := func(of float64) float64 { return of / kind.period.Minutes() }
	if kind.storm {
		b.Logf("%s: %.1f lists, %.1f images of 64 MiB and %.1f short pods a minute", kind.name, perMinute(float64(kind.lists)), perMinute(float64(kind.images)), perMinute(float64(kind.pods)))
		if isolated {
			b.ReportMetric(100*kind.share(), "percent-of-pool-"+kind.name)
		}
	}
	if kind.resting {
		return
	}
	r := kind.whole()
	b.Logf("%s: %.0f involuntary switches a minute, %.2f %% of the time lost, gaps p99.99 %s, largest %s; other pods on its CPU %s; stolen %s, all in %s",
		kind.name, r.PerMinute(), 100*r.Share(), r.Quantile(0.9999), r.Largest, kind.others, kind.steal, kind.period.Round(time.Second))
	b.ReportMetric(r.PerMinute(), "switches/min-"+kind.name)
	b.ReportMetric(float64(r.Quantile(0.9999).Microseconds()), "µs-p99.99-"+kind.name)
	b.ReportMetric(float64(r.Largest.Microseconds()), "µs-largest-"+kind.name)
	b.ReportMetric(perMinute(float64(kind.steal.Milliseconds())), "ms-stolen/min-"+kind.name)
	if !isolated {
		return
	}
	b.ReportMetric(float64(kind.others.Microseconds())/kind.period.Seconds(), "µs-of-others/s-"+kind.name)
	b.Logf("%s: interrupts a second on its CPU: %s", kind.name, noise.PerSecond(kind.interrupts, kind.period))
	b.Logf("%s: soft interrupts a second on its CPU: %s", kind.name, noise.PerSecond(kind.softInterrupts, kind.period))
	if kind.traced > 0 {
		b.Logf("%s: who else was on its CPU, in %s:\n%s", kind.name, kind.traced, kind.causers.String(kind.traced))
	}
}

// measureNoise starts the application, and with it a storm of pods, a client that lists all of
// them without a pause, and one that has an image unpacked without a pause.
func measureNoise(b *testing.B, c *host.Cluster, kind *noiseKind, meter string, unpacked largeImage, tracer noiseTracer, name string) {
	b.Helper()
	const length = 80 * time.Second
	namespace := fixture.Namespace(b, c.Client, "management")
	does := "/noise/meter"
	if kind.resting {
		does = "sleep"
	}
	if kind.hostOn {
		defer confineHost(b, cpuset.New(0))() // b reports its error at its end
	}
	p := start(b, c, namespace, meterPod(name, meter, does, length))[0]
	began := time.Now()
	own := fixture.CPUs(b, containerUsage(b, p, 0).CPUs)
	isolated := kind.policy == "static"
	if isolated && (own.Size() != 1 || own.Contains(0)) {
		b.Fatalf("%s: the application has the CPUs %s, want one besides the pool", kind.name, own)
	}
	cpu := own.List()[0]
	if isolated && !kind.resting {
		// In the middle of the storm.
		defer tracer.record(b, kind, cpu, 20*time.Second, 10*time.Second)()
	}
	before := noiseAccount(b, p)
	if kind.storm {
		of := stormLoad
		of.busy = 30
		if kind.file == "" {
			of.annotations, of.requests = nil, "memory=8Mi"
		}
		lists := repeat(b, func(ctx context.Context) error {
			_, err := c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return err
		})
		images := repeat(b, unpacked.again)
		ended, _ := storm(b, c, namespace, length-20*time.Second, of)
		kind.lists += lists()
		kind.images += images()
		kind.pods += ended
	}
	time.Sleep(time.Until(began.Add(length - 4*time.Second))) // nearly all of the period that the meter sees
	after := noiseAccount(b, p)
	awaitEnd(b, c, namespace, p.Name, time.Minute)
	kind.period += after.at.Sub(before.at)
	if isolated {
		kind.others += (after.pods[cpu] - before.pods[cpu]) - (after.application[cpu] - before.application[cpu])
		kind.pool += after.pods[0] - before.pods[0]
		kind.steal += after.stolen(b, cpu) - before.stolen(b, cpu)
		kind.interrupts = noise.Sum(kind.interrupts, noise.Since(counts(b, before.interrupts, cpu), counts(b, after.interrupts, cpu)))
		kind.softInterrupts = noise.Sum(kind.softInterrupts, noise.Since(counts(b, before.softInterrupts, cpu), counts(b, after.softInterrupts, cpu)))
	} else {
		for _, cpu := range own.List() {
			kind.steal += after.stolen(b, cpu) - before.stolen(b, cpu)
		}
	}
	if !kind.resting {
		kind.readings = append(kind.readings, meterReading(b, c, p))
	}
	if err := c.Client.CoreV1().Pods(namespace).DeleteCollection(b.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
}

// meterPod returns a pod that has its own CPU, and does something for a while: the meter is
// /noise/meter.
func meterPod(name, meter, does string, length time.Duration) *v1.Pod {
	const resources = "cpu=1 memory=32Mi"
	p := fixture.Pod(name, nil, fixture.Container("c", fmt.Sprintf("exec %s %g", does, length.Seconds()), resources, resources))
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "noise", MountPath: "/noise", ReadOnly: true}}
	p.Spec.Volumes = []v1.Volume{{Name: "noise", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: filepath.Dir(meter)}}}}
	return p
}

// meterReading returns what the meter of a pod that has ended has printed.
func meterReading(t testing.TB, c *host.Cluster, p *v1.Pod) noise.Reading {
	t.Helper()
	text, err := c.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &v1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reading, err := noise.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return reading
}

// largeImage is the archive of an image that is never run.
type largeImage struct {
	c                  *host.Cluster
	archive, reference string
}

// newLargeImage makes an image of 64 MiB that no compression makes smaller.
func newLargeImage(b *testing.B, c *host.Cluster) largeImage {
	b.Helper()
	dir := b.TempDir()
	content := make([]byte, 64<<20)
	_, _ = rand.Read(content) // it returns no error
	program := filepath.Join(dir, "content")
	if err := os.WriteFile(program, content, 0o600); err != nil {
		b.Fatal(err)
	}
	const reference = "workload.openshift.io/unpacked:1"
	if err := image.SaveProgram(dir, reference, program); err != nil {
		b.Fatal(err)
	}
	return largeImage{c, filepath.Join(dir, "unpacked.tar"), reference}
}

// again has the runtime unpack the image, and remove it.
func (i largeImage) again(ctx context.Context) error {
	if err := i.c.ImportImage(ctx, i.archive); err != nil {
		return err
	}
	return i.c.RemoveImage(ctx, i.reference)
}

// counts reads what an account has of interrupts.
func counts(b *testing.B, text string, cpu int) map[string]uint64 {
	b.Helper()
	counts, err := noise.Counts(text, cpu)
	if err != nil {
		b.Fatal(err)
	}
	return counts
}

// noiseTracer is the directory of an instance of the kernel's tracer that records when CPUs switch
// tasks; it is empty if the host has no tracer.
type noiseTracer string

// newNoiseTracer makes an instance that does not record yet.
func newNoiseTracer(b *testing.B) noiseTracer {
	b.Helper()
	const root = "/sys/kernel/tracing"
	if _, err := os.Stat(filepath.Join(root, "instances")); err != nil {
		if err := unix.Mount("tracefs", root, "tracefs", 0, ""); err != nil {
			b.Log("the host has no tracefs, so it is unknown what disturbs: ", err)
			return ""
		}
		b.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	}
	tracer := noiseTracer(filepath.Join(root, "instances", "workload-partitioning-noise"))
	_ = os.Remove(string(tracer)) // a run that was killed may have left it
	if err := os.Mkdir(string(tracer), 0o755); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		waitFor(b, 5*time.Second, string(tracer)+" is removed", func() error {
			if err := errors.Join(tracer.write("tracing_on", "0"), tracer.write("events/enable", "0")); err != nil {
				return err
			}
			return os.Remove(string(tracer))
		})
	})
	if err := errors.Join(tracer.write("tracing_on", "0"), tracer.write("trace_clock", "mono"), tracer.write("events/sched/sched_switch/enable", "1")); err != nil {
		b.Fatal(err)
	}
	return tracer
}

func (tracer noiseTracer) write(file, value string) error {
	return os.WriteFile(filepath.Join(string(tracer), file), []byte(value), 0o600)
}

// record has the tracer record a CPU for a while, after a while. It returns a function that adds who
// was there to what was seen of a kind. That function is called once the application has ended: it
// takes CPU time, too.
func (tracer noiseTracer) record(b *testing.B, kind *noiseKind, cpu int, after, length time.Duration) (add func()) {
	b.Helper()
	if tracer == "" {
		return func() {}
	}
	// An application that the host disturbs is switched some thousand times a second. Writing to trace empties it.
	if err := errors.Join(tracer.write(fmt.Sprintf("per_cpu/cpu%d/buffer_size_kb", cpu), "32768"), tracer.write("trace", ""), tracer.write("tracing_cpumask", new(big.Int).Lsh(big.NewInt(1), uint(cpu)).Text(16))); err != nil {
		b.Fatal(err)
	}
	type window struct {
		length time.Duration
		kinds  map[int]noise.Kind
		err    error
	}
	recorded := make(chan window, 1)
	time.AfterFunc(after, func() {
		began := time.Now()
		err := tracer.write("tracing_on", "1")
		time.Sleep(length)
		err = errors.Join(err, tracer.write("tracing_on", "0"))
		w := window{length: time.Since(began)}
		kinds, kindsErr := taskKinds() // while they run
		w.kinds, w.err = kinds, errors.Join(err, kindsErr)
		recorded <- w
	})
	return func() {
		w := <-recorded
		if w.err != nil {
			b.Errorf("%s: %v", tracer, w.err)
			return
		}
		switches, err := tracer.switches(cpu)
		if err != nil {
			b.Errorf("%s: %v", tracer, err)
			return
		}
		if kind.causers == nil {
			kind.causers = noise.Causers{}
		}
		kind.causers.Add(switches, "meter", func(task int) noise.Kind {
			if kind, is := w.kinds[task]; is {
				return kind
			}
			return noise.Unknown
		})
		kind.traced += w.length
	}
}

// switches returns when which tasks have left a CPU.
func (tracer noiseTracer) switches(cpu int) (switches []noise.Switch, err error) {
	if err := lostEvents(filepath.Join(string(tracer), fmt.Sprintf("per_cpu/cpu%d/stats", cpu))); err != nil {
		return nil, err
	}
	file, err := os.Open(filepath.Join(string(tracer), "trace"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		event, ok, err := readEvent(lines.Text())
		if err != nil {
			return nil, err
		}
		if ok && event.name == "sched_switch" && event.cpu == cpu {
			switches = append(switches, noise.Switch{At: event.at, Task: event.from, Command: event.comm})
		}
	}
	return switches, lines.Err()
}

// eachTask calls a function with each task of the host: whether it is a thread of the kernel, and
// whether it is in a pod.
func eachTask(do func(task int, kernel, inPod bool)) error {
	paths, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	if err != nil {
		return err
	}
	for _, path := range paths {
		cgroups, err := os.ReadFile(filepath.Join(path, "cgroup"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return err
		}
		line, _ := os.ReadFile(filepath.Join(path, "cmdline")) // empty for threads of the kernel
		task, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			return err
		}
		do(task, len(line) == 0, strings.Contains(string(cgroups), "kubepods"))
	}
	return nil
}

// taskKinds says of all tasks what they belong to.
func taskKinds() (map[int]noise.Kind, error) {
	kinds := map[int]noise.Kind{}
	return kinds, eachTask(func(task int, kernel, inPod bool) {
		switch {
		case inPod:
			kinds[task] = noise.Pod
		case kernel:
			kinds[task] = noise.Floats
		default:
			kinds[task] = noise.Host
		}
	})
}

// repeat does something without a pause until it is told to end, and then returns how often.
func repeat(b *testing.B, do func(context.Context) error) (end func() int) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	count := make(chan int)
	go func() {
		times := 0
		for ctx.Err() == nil {
			if err := do(ctx); err != nil {
				if ctx.Err() == nil {
					b.Error(err)
				}
				break
			}
			times++
		}
		count <- times
	}()
	return func() int {
		cancel()
		return <-count
	}
}

// noiseTimes are accounts of the kernel.
type noiseTimes struct {
	at time.Time
	// pods is the CPU time of all pods, deleted ones included, on each CPU, and application that
	// of the application alone.
	pods, application []time.Duration
	stat              procfs.Stat
	// interrupts and softInterrupts are the kernel's tables.
	interrupts, softInterrupts string
}

// stolen returns the time that the hypervisor has taken of a CPU.
func (times noiseTimes) stolen(b *testing.B, cpu int) time.Duration {
	b.Helper()
	stat, is := times.stat.CPU[int64(cpu)]
	if !is {
		b.Fatalf("/proc/stat does not have CPU %d", cpu)
	}
	return time.Duration(stat.Steal * float64(time.Second))
}

func noiseAccount(b *testing.B, application *v1.Pod) (times noiseTimes) {
	b.Helper()
	id := fixture.ContainerID(application.Status.ContainerStatuses[0])
	found, err := filepath.Glob("/sys/fs/cgroup/cpuacct/kubepods*/*/*" + id + "*")
	if err != nil || len(found) != 1 {
		b.Fatalf("the application's container %s has the cgroups %q (%v), want one", id, found, err)
	}
	// The file alone, and not all that package host reads of a cgroup: an application that is
	// disturbed often has the same account only for a moment.
	account := func(cgroup string) func() ([]time.Duration, error) {
		return func() (used []time.Duration, err error) {
			text, err := os.ReadFile(filepath.Join(cgroup, "cpuacct.usage_percpu"))
			if err != nil {
				return nil, err
			}
			for field := range strings.FieldsSeq(string(text)) {
				nanoseconds, err := strconv.ParseInt(field, 10, 64)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", cgroup, err)
				}
				used = append(used, time.Duration(nanoseconds))
			}
			return used, nil
		}
	}
	if times.application, times.pods, err = noise.Account(account(found[0]), account(filepath.Dir(filepath.Dir(found[0])))); err != nil {
		b.Fatal(err)
	}
	times.at = time.Now()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		b.Fatal(err)
	}
	if times.stat, err = proc.Stat(); err != nil {
		b.Fatal(err)
	}
	for name, table := range map[string]*string{"interrupts": &times.interrupts, "softirqs": &times.softInterrupts} {
		text, err := os.ReadFile("/proc/" + name)
		if err != nil {
			b.Fatal(err)
		}
		*table = string(text)
	}
	return times
}

// workers is the mask of the CPUs on which the kernel's unbound workers run.
const workers = "/sys/devices/virtual/workqueue/cpumask"

// confineHost confines the host to some CPUs by what works on a running kernel of all that
// kubectl partition render --host writes: its processes, the kernel's threads, unbound workers and
// interrupts, and the ends of requests to disks. The kernel refuses to move threads and interrupts that belong to a CPU.
// Pods are left alone. It returns what undoes all of that: a task that came meanwhile has all CPUs then.
func confineHost(b *testing.B, cpus cpuset.CPUSet) (undo func() error) {
	b.Helper()
	mask := func(cpus cpuset.CPUSet) (set unix.CPUSet) {
		for _, cpu := range cpus.UnsortedList() {
			set.Set(cpu)
		}
		return set
	}
	pool, all := mask(cpus), mask(fixture.CPUs(b, allCPUs(b)))
	interrupts, err := filepath.Glob("/proc/irq/[0-9]*/smp_affinity_list")
	if err != nil {
		b.Fatal(err)
	}
	disks, err := filepath.Glob("/sys/block/*/queue/rq_affinity")
	if err != nil {
		b.Fatal(err)
	}
	before := map[string][]byte{}
	for _, path := range slices.Concat(interrupts, disks, []string{workers}) {
		if before[path], err = os.ReadFile(path); err != nil {
			b.Fatal(err)
		}
	}
	had := map[int]unix.CPUSet{}
	err = eachTask(func(task int, kernel, inPod bool) {
		var has unix.CPUSet
		if !inPod && unix.SchedGetaffinity(task, &has) == nil { // it may have ended
			had[task] = has
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	undo = undoAtEnd(b, func() error {
		err := eachTask(func(task int, kernel, inPod bool) {
			if inPod {
				return
			}
			to, known := had[task]
			if !known {
				to = all
			}
			_ = unix.SchedSetaffinity(task, &to) // it may have ended, or belong to a CPU
		})
		for _, path := range interrupts {
			_ = os.WriteFile(path, before[path], 0) // it may belong to a CPU
		}
		for _, path := range append(disks, workers) {
			err = errors.Join(err, os.WriteFile(path, before[path], 0))
		}
		return err
	})
	err = eachTask(func(task int, _, inPod bool) {
		if !inPod {
			_ = unix.SchedSetaffinity(task, &pool)
		}
	})
	for _, path := range interrupts {
		_ = os.WriteFile(path, []byte(cpus.String()), 0)
	}
	for _, path := range disks {
		err = errors.Join(err, os.WriteFile(path, []byte("2"), 0))
	}
	if err := errors.Join(err, os.WriteFile(workers, fmt.Appendf(nil, "%x", uint64(pool[0])), 0)); err != nil {
		b.Fatal(err)
	}
	return undo
}
