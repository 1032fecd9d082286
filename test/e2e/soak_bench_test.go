// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha256"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/kubernetes/test/e2e/internal/soak"
	"workload.openshift.io/partition"
)

var (
	soakHours = flag.Float64("soak", 1, "hours that BenchmarkSoak takes")
	soakSeed  = flag.Uint64("soak-seed", 0, "seed of its rounds; zero means that of its state, or a new one")
	soakRound = flag.Int("soak-round", -1, "the only round that it runs, without a state; a negative one means all")
	soakState = flag.String("soak-state", "", "directory of its state; empty means one that is removed")
)

// BenchmarkSoak has pods of all kinds come and go on a node for hours, while components restart, are
// killed, and pools change, in rounds that follow from a seed. After each event no container may
// have run off its CPUs, weights must be those of the requests, and after each round nothing may be
// left. Over all rounds kubelet and kube-apiserver must not grow.
func BenchmarkSoak(b *testing.B) {
	c := partitioned(b)
	b.Cleanup(func() {
		if shared == c && c.Config.Pinning != pinning {
			restart(b, c, pinning)
		}
	})
	content, err := whatRuns(c)
	if err != nil {
		b.Fatal(err)
	}
	setup := soak.Setup{Seed: *soakSeed, Content: content, CPUs: fixture.CPUs(b, allCPUs(b)).Size()}
	if *soakRound >= 0 {
		if *soakSeed == 0 {
			b.Fatal("-soak-round needs -soak-seed")
		}
		round := &soakRun{c: c, plan: soak.Plan(*soakSeed, *soakRound, setup.CPUs), state: &soak.State{Setup: setup, Events: map[string]int{}}}
		b.Run(fmt.Sprint("round-", *soakRound), round.run)
		return
	}
	dir := *soakState
	if dir == "" {
		dir = b.TempDir()
	}
	state, err := soak.Load(dir, setup)
	if err != nil {
		b.Fatal(err)
	}
	if state.Seed == 0 {
		state.Seed = uint64(time.Now().UnixNano())
	}
	state.Parts++
	// Package tidy removes the cluster then, while this goroutine goes on.
	ending := soak.WatchEnding(removal(), os.Interrupt, syscall.SIGTERM)
	defer ending.Stop()
	began := time.Now()
	for failed := false; !failed && time.Since(began).Hours() < *soakHours; {
		round := &soakRun{c: c, plan: soak.Plan(state.Seed, state.Next, setup.CPUs), state: state, dir: dir}
		roundBegan := time.Now()
		failed = !b.Run(fmt.Sprint("round-", state.Next), round.run)
		if err := state.EndRound(dir, time.Since(roundBegan), failed, round.said, ending.Why()); err != nil {
			b.Fatal(err)
		}
	}
	b.Log(state.Report())
	for _, growth := range soak.GrowthOf(state.Samples, soak.Bounds) {
		if growth.Beyond() {
			b.Errorf("%s; see %s", growth, soak.CompareHeaps(dir, growth.Process))
		}
	}
	b.ReportMetric(0, "ns/op")
}

// rounds are the sources of what a round does, and of what it looks at.
//
//go:embed soak_bench_test.go storm_test.go bench_test.go helpers_*_test.go internal/fixture internal/soak
var rounds embed.FS

// whatRuns returns a hash of what a soak is made of: the node's programs, how they are configured, and the rounds.
// Builds are reproducible, so it is the same in each checkout, and a change that is in none of these is no other soak.
func whatRuns(c *host.Cluster) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, c.Description())
	if err := fs.WalkDir(rounds, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := rounds.ReadFile(path)
		fmt.Fprintf(hash, "%s\n%s\n", path, data)
		return err
	}); err != nil {
		return "", err
	}
	var programs []string
	for _, name := range []string{"kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		programs = append(programs, filepath.Join(config.Bin, name))
	}
	for _, name := range []string{"etcd", "containerd", "containerd-shim-runc-v2", "runc", "bridge", "host-local", "loopback", "portmap"} {
		programs = append(programs, filepath.Join(config.Tools, name))
	}
	for _, path := range programs {
		if err := func() error {
			program, err := os.Open(path)
			if err != nil {
				return err
			}
			defer program.Close()
			_, err = io.Copy(hash, program)
			return err
		}(); err != nil {
			return "", fmt.Errorf("hash of %s: %w", path, err)
		}
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:6]), nil
}

// loaded is when this package was, which is before the limits of go test and of package tidy begin.
var loaded = time.Now()

// removal returns when package tidy will remove the cluster because the time limit of go test comes;
// zero means never. It is a moment too early rather than too late.
func removal() time.Time {
	limit, ok := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration)
	if !ok || limit <= 0 {
		return time.Time{}
	}
	return loaded.Add(limit - 2*time.Minute)
}

// soakRun is a round while it runs. It remembers what was wrong.
type soakRun struct {
	testing.TB
	c     *host.Cluster
	plan  soak.Round
	state *soak.State
	// dir is that of the state; empty if it is not kept.
	dir  string
	said []string

	namespace string
	// pool is the CPU of the present pool.
	pool    int
	running soak.Running
	// before is what containers, by their IDs, had used of each CPU when the pool last changed.
	before map[string][]time.Duration
}

func (r *soakRun) Error(args ...any) { r.Helper(); r.Errorf("%s", fmt.Sprint(args...)) }
func (r *soakRun) Fatal(args ...any) { r.Helper(); r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *soakRun) Errorf(format string, args ...any) {
	r.Helper()
	r.said = append(r.said, fmt.Sprintf(format, args...))
	r.TB.Errorf(format, args...)
}

func (r *soakRun) Fatalf(format string, args ...any) {
	r.Helper()
	r.said = append(r.said, fmt.Sprintf(format, args...))
	r.TB.Fatalf(format, args...)
}

func (r *soakRun) run(b *testing.B) {
	r.TB = b
	defer func() {
		if b.Failed() {
			b.Logf("to run this round again: %s", soak.Again(r.state.Seed, r.plan.Number))
		}
	}()
	if file := poolFile(r.plan.Pool); r.c.Config.Pinning != file {
		restart(r, r.c, file)
	}
	r.pool = r.plan.Pool
	quietNode(r, r.c)
	cgroups, shims := r.cgroups(), r.shims()
	r.storm()
	r.namespace = fixture.Namespace(r, r.c.Client, "management")
	r.before = map[string][]time.Duration{}
	for _, pod := range r.plan.Pods {
		r.create(pod)
	}
	r.awaitAll()
	r.check("the start")
	for _, event := range r.plan.Events {
		r.Logf("round %d: %s", r.plan.Number, event)
		r.do(event)
		r.state.Events[event.Label()]++
		r.check(event.String())
	}
	r.remove(soak.Exclusive) // the next round may have its CPU in the pool
	deletePods(r, r.c.Client, r.namespace)
	quietNode(r, r.c)
	waitFor(r, time.Minute, "the round leaves no cgroups and no shims", func() error {
		if now := r.cgroups(); !slices.Equal(now, cgroups) {
			return fmt.Errorf("there are the cgroups %q, and there were %q before it", now, cgroups)
		}
		// One of a pod before the round may have been about to end.
		if more := slices.DeleteFunc(r.shims(), func(pid int) bool { return slices.Contains(shims, pid) }); len(more) > 0 {
			return fmt.Errorf("there are the shims %v, and were not before it", more)
		}
		return nil
	})
	r.sample("kubelet", r.c.Kubelet.PID(), "", "nodes", host.NodeName, "proxy")
	r.sample("kube-apiserver", r.c.APIServer.PID(), r.watchCache())
}

// poolFile is the pinning file whose pool is one CPU.
func poolFile(cpu int) string {
	return fmt.Sprintf(`{"management": {"cpuset": "%d"}}`, cpu)
}

// storm lets partitioned pods alone come and go. On cgroup v1 their account must not show more off
// the pool than TestStorm permits.
func (r *soakRun) storm() {
	namespace := fixture.Namespace(r, r.c.Client, "management")
	pool := cpuset.New(r.plan.Pool)
	before, _ := podsUsage(r, pool)
	_, processes := storm(r, r.c, namespace, 15*time.Second, stormLoad)
	if after, _ := podsUsage(r, pool); host.CgroupV1() {
		expectOff(r, after-before, processes)
	}
	r.state.Pods += processes / 2
	if err := r.c.Client.CoreV1().Pods(namespace).DeleteCollection(r.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
		r.Fatal(err)
	}
	quietNode(r, r.c)
}

// create creates a pod.
func (r *soakRun) create(pod soak.Pod) {
	name := r.running.Add(pod)
	if _, err := r.c.Client.CoreV1().Pods(r.namespace).Create(r.Context(), soakPod(name, pod), metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	r.state.Pods++
}

// soakPod returns a pod as it is sent.
func soakPod(name string, pod soak.Pod) *v1.Pod {
	annotations, requests := map[string]string(nil), "memory=16Mi"
	if pod.Partitioned {
		annotations = asks
	}
	if pod.Millicores > 0 {
		requests = fmt.Sprintf("cpu=%dm memory=16Mi", pod.Millicores)
	}
	container := fixture.Container("c", fixture.Awake, requests, "")
	switch pod.Kind {
	case soak.Exclusive:
		return fixture.Exclusive(name, 1)
	case soak.BestEffort:
		return fixture.Pod(name, annotations, fixture.Container("c", fixture.Awake, "", ""))
	case soak.Limited:
		limits := "memory=32Mi"
		if pod.Millicores > 0 {
			limits = fmt.Sprintf("cpu=%dm memory=32Mi", 2*pod.Millicores)
		}
		container = fixture.Container("c", fixture.Awake, requests, limits)
	case soak.Crashing:
		container = fixture.Container("c", someWork+"exit 1", requests, "")
	}
	p := fixture.Pod(name, annotations, container)
	if pod.Kind == soak.WithInit {
		p.Spec.Containers = append(p.Spec.Containers, fixture.Container("d", fixture.Awake, requests, ""))
		p.Spec.InitContainers = []v1.Container{fixture.Container("init", someWork, requests, ""), fixture.Sidecar("sidecar", fixture.Awake, requests, "")}
	}
	p.Spec.HostNetwork = pod.Kind == soak.HostNetwork
	return p
}

// awaitAll waits until all pods run, or have run if they crash.
func (r *soakRun) awaitAll() {
	for _, pod := range r.running.All() {
		if pod.Kind != soak.Crashing {
			awaitRunning(r, r.c, r.namespace, pod.Name)
			continue
		}
		waitFor(r, 3*time.Minute, "pod "+pod.Name+" has a container", func() error {
			p, err := r.c.Client.CoreV1().Pods(r.namespace).Get(r.Context(), pod.Name, metav1.GetOptions{})
			if err == nil && (len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].ContainerID == "") {
				err = fmt.Errorf("it is %s, with the conditions %v", p.Status.Phase, p.Status.Conditions)
			}
			return err
		})
	}
}

func (r *soakRun) do(event soak.Event) {
	switch event.Action {
	case soak.Restart:
		if err := r.c.Restart(r.Context(), event.Component); err != nil {
			r.Fatal(err)
		}
	case soak.Kill:
		r.kill(event.Component)
	case soak.ChangePools:
		// A kubelet does not start if a container has a CPU of its pool for itself.
		r.remove(soak.Exclusive)
		r.changePool(event.CPU)
		r.check(event.String())
		r.changePool(r.plan.Pool)
		r.create(soak.Pod{Kind: soak.Exclusive})
	case soak.Resize:
		for _, pod := range r.running.Of(soak.Limited) {
			if err := resizeMemory(r, r.c, r.namespace, pod.Name, fmt.Sprintf("%dMi", event.MiB), fmt.Sprintf("%dMi", 2*event.MiB)); err != nil {
				r.Fatal(err)
			}
		}
	case soak.Replace:
		for _, kind := range []soak.Kind{soak.Burstable, soak.WithInit, soak.BestEffort} {
			for _, pod := range r.remove(kind) {
				r.create(pod)
			}
		}
	}
	// A control plane that comes back takes a moment.
	waitFor(r, 2*time.Minute, "the control plane answers", func() error {
		_, err := r.c.Client.CoreV1().Pods(r.namespace).List(r.Context(), metav1.ListOptions{})
		return err
	})
	r.awaitAll()
}

// kill ends a component as a crash would, and starts it again.
func (r *soakRun) kill(name string) {
	var err error
	switch name {
	case "kubelet":
		if err = r.c.Kubelet.Kill(); err == nil {
			err = r.c.StartKubelet(r.Context())
		}
	case "containerd":
		err = r.c.RestartContainerd(r.Context())
	case "kube-apiserver":
		err = r.c.RestartAPIServer(r.Context())
	default:
		var component host.Component
		if component, err = r.c.Component(name); err == nil {
			if err = component.Kill(); err == nil {
				err = component.Start()
			}
		}
	}
	if err != nil {
		r.Fatal(err)
	}
}

// remove deletes all pods of a kind, and returns what they were like.
func (r *soakRun) remove(kind soak.Kind) (removed []soak.Pod) {
	for _, pod := range r.running.Of(kind) {
		p, err := r.c.Client.CoreV1().Pods(r.namespace).Get(r.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			r.Fatal(err)
		}
		if kind == soak.Exclusive {
			releaseExclusive(r, r.c, p)
		} else {
			deleteNow(r, r.c, p)
		}
		r.running.Remove(pod.Name)
		removed = append(removed, pod.Pod)
	}
	return removed
}

// changePool restarts the kubelet with another pool, waits until containers have moved, and keeps
// what they have used until then.
func (r *soakRun) changePool(cpu int) {
	restart(r, r.c, poolFile(cpu))
	r.pool = cpu
	r.awaitAll()
	r.each(func(p *v1.Pod, status v1.ContainerStatus) {
		waitFor(r, 30*time.Second, fmt.Sprintf("container %s of pod %s has moved", status.Name, p.Name), func() error {
			usage, err := host.ContainerUsage(p, status.ContainerID)
			if err != nil {
				return nil // it has ended, or crashed
			}
			if may, ours := r.may(p); ours && !fixture.CPUs(r, usage.CPUs).IsSubsetOf(may) {
				return fmt.Errorf("it may use CPUs %s, want some of %s", usage.CPUs, may)
			}
			r.before[status.ContainerID] = usage.Used
			return nil
		})
	})
}

// may returns the CPUs on which a pod may run. It returns false for one that is being removed.
func (r *soakRun) may(p *v1.Pod) (may cpuset.CPUSet, ours bool) {
	pod, ours := r.running.Get(p.Name)
	if pod.Partitioned {
		return cpuset.New(r.pool), ours
	}
	return fixture.CPUs(r, allCPUs(r)).Difference(cpuset.New(r.pool)), ours
}

// each calls a function with each container that runs.
func (r *soakRun) each(do func(p *v1.Pod, status v1.ContainerStatus)) {
	list, err := r.c.Client.CoreV1().Pods(r.namespace).List(r.Context(), metav1.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		for _, status := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if status.State.Running != nil && p.DeletionTimestamp == nil {
				do(p, status)
			}
		}
	}
}

// check checks where containers may run and have run, and the weights.
func (r *soakRun) check(after string) {
	r.each(func(p *v1.Pod, status v1.ContainerStatus) {
		pod, ours := r.running.Get(p.Name)
		usage, err := host.ContainerUsage(p, status.ContainerID)
		if !ours || (err != nil && pod.Kind == soak.Crashing) {
			return
		}
		if err != nil {
			r.Errorf("after %s: container %s of pod %s: %v", after, status.Name, p.Name, err)
			return
		}
		for cpu, used := range r.before[status.ContainerID] {
			usage.Used[cpu] -= used
		}
		may, _ := r.may(p)
		expectWithin(r, p, status.Name+" after "+after, may, usage.CPUs, usage.Used)
		for _, list := range usage.Tasks {
			expectWithin(r, p, status.Name+" after "+after, may, list, nil)
		}
	})
	r.checkWeights(after)
}

// checkWeights checks the weights of pods, and of the class Burstable, against their requests. Each
// kubelet sets that of the class once a minute, and for new pods.
func (r *soakRun) checkWeights(after string) {
	shares := func(millicores int64) int64 { return max(partition.MinShares, millicores*1024/1000) }
	list, err := r.c.Client.CoreV1().Pods(r.namespace).List(r.Context(), metav1.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	var sum int64
	for i := range list.Items {
		p := &list.Items[i]
		pod, ours := r.running.Get(p.Name)
		if !ours || pod.Kind == soak.Exclusive {
			continue
		}
		sum += pod.Request()
		want := weight(shares(pod.Request()))
		if usage, err := host.PodUsage(p); err != nil || usage.Weight != want {
			r.Errorf("after %s: pod %s has the weight %d (%v), want %d", after, p.Name, usage.Weight, err, want)
		}
	}
	waitFor(r, 90*time.Second, "the class Burstable has the weight of its pods after "+after, func() error {
		class, err := host.QoSUsage(v1.PodQOSBurstable)
		if err == nil && class.Weight != weight(shares(sum)) {
			err = fmt.Errorf("its weight is %d, want %d", class.Weight, weight(shares(sum)))
		}
		return err
	})
}

// cgroups returns the cgroups of pods, of all controllers. Those of all pods and of a QoS class are
// left out: the runtime makes some of them for the first pod of that class, and they stay.
func (r *soakRun) cgroups() (found []string) {
	classes := host.ClassCgroups()
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods*", "/sys/fs/cgroup/*/kubepods*"} {
		roots, err := filepath.Glob(pattern)
		if err != nil {
			r.Fatal(err)
		}
		for _, root := range roots {
			if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil // it has just gone
				}
				ofClass := func(class string) bool { return strings.HasSuffix(path, "/"+class) }
				if err == nil && entry.IsDir() && !slices.ContainsFunc(classes, ofClass) {
					found = append(found, path)
				}
				return err
			}); err != nil {
				r.Fatal(err)
			}
		}
	}
	return found
}

// shims returns the process numbers of this cluster's shims, which have containerd's socket as an
// argument. A pod has one, so none is left after the last pod.
func (r *soakRun) shims() (found []int) {
	processes, err := procfs.AllProcs()
	if err != nil {
		r.Fatal(err)
	}
	for _, process := range processes {
		args, err := process.CmdLine() // there are none once it has ended
		if err == nil && len(args) > 0 && strings.HasSuffix(args[0], "containerd-shim-runc-v2") && slices.Contains(args, r.c.RuntimeSocket()) {
			found = append(found, process.PID)
		}
	}
	slices.Sort(found)
	return found
}

// watchCacheOfPods finds how many events of pods kube-apiserver keeps.
var watchCacheOfPods = regexp.MustCompile(`(?m)^watch_cache_capacity\{[^}]*resource="pods"\} (\S+)$`)

// watchCache says how large the watch cache of pods is. kube-apiserver doubles or halves it by how
// fast pods change (k8s.io/apiserver, pkg/storage/cacher), and each event in it has a pod. So another
// size begins another lifetime, with another level of memory.
func (r *soakRun) watchCache() string {
	data, err := r.c.Client.RESTClient().Get().AbsPath("/metrics").DoRaw(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	found := watchCacheOfPods.FindSubmatch(data)
	if found == nil {
		r.Fatal("kube-apiserver does not say how large its watch cache of pods is")
	}
	return fmt.Sprintf(" with a watch cache of %s pods", found[1])
}

// sample reads the size of a process. with tells lifetimes of a process apart, and its profiles are
// at the path.
func (r *soakRun) sample(name string, pid int, with string, path ...string) {
	if r.dir == "" {
		return
	}
	prefix := ""
	if len(path) > 0 {
		prefix = "/api/v1/" + strings.Join(path, "/")
	}
	get := r.c.Client.RESTClient().Get
	heap := liveHeap(r, get().AbsPath(prefix+"/debug/pprof/heap"))
	count := goroutines(r, get().AbsPath(prefix+"/debug/pprof/goroutine"))
	memory, files := resident(r, pid)
	profile, err := get().AbsPath(prefix + "/debug/pprof/heap").DoRaw(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	ours, err := soak.OursIn(profile)
	if err != nil {
		r.Fatal(err)
	}
	sample := soak.Sample{Process: name, Lifetime: strconv.Itoa(r.state.Parts) + "/" + strconv.Itoa(pid) + with, Round: r.plan.Number,
		Values: map[string]float64{"heap": heap / 1024, "heap of ours": ours, "goroutines": count, "files": files, "resident": memory / 1024}}
	if err := r.state.Add(r.dir, sample, profile); err != nil {
		r.Fatal(err)
	}
}
