// SPDX-License-Identifier: Apache-2.0

package scheduled

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/testenv"
)

var (
	benchNodes  = flag.Int("nodes", 1000, "how many nodes the benchmark has, each with four zones")
	benchPods   = flag.Int("pods", 2000, "how many pods wait for each scheduler in the benchmark")
	benchPaced  = flag.Int("paced", 500, "how many come then, one by one")
	benchRate   = flag.Int("rate", 25, "how many of these come in a second")
	benchRounds = flag.Int("rounds", 3, "how many turns each scheduler has")
)

// BenchmarkThroughput has kube-scheduler and topo-aware-scheduler take turns at placing pods with exclusive CPUs on the same nodes, which
// have reported their zones. No kubelet plays: reports do not change. A metric of several rounds is the median.
func BenchmarkThroughput(b *testing.B) {
	file := program(b, "TEST_ASSET_SCHEDULER")
	plane := testenv.Start(b)
	config := *plane.Config
	config.QPS, config.Burst = -1, -1
	c, err := client.NewWithWatch(&config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	k := &kubelets{t: b, client: c, nodes: map[string]*node{}}
	k.clear()
	b.Cleanup(func() { k.t = b; k.clear() })
	together(*benchNodes, func(i int) { k.add(fmt.Sprintf("node-%d", i), []int64{16, 16, 16, 16}) })
	plain := plainConfiguration(b, plane.Kubeconfig)
	args := "--config=" + configuration(b, plane.Kubeconfig)
	for _, test := range []struct {
		name string
		cpus []string
	}{
		{"alike", []string{"2"}},
		{"one to eight CPUs", []string{"1", "2", "3", "4", "5", "6", "7", "8"}},
	} {
		b.Run(test.name, func(b *testing.B) {
			k.t = b
			for b.Loop() {
				var theirs, ours []turn
				their := func() {
					theirs = append(theirs, k.turn(b, c, corev1.DefaultSchedulerName, test.cpus, func() *testenv.Process {
						return testenv.RunBeside(b, "kube-scheduler", "--config="+plain, "--secure-port=0")
					}))
				}
				our := func() {
					ours = append(ours, k.turn(b, c, schedulerName, test.cpus, func() *testenv.Process {
						return testenv.RunFile(b, file, args, "--secure-port=0")
					}))
				}
				var ratios []float64
				for round := range *benchRounds {
					order := []func(){their, our}
					if round%2 == 1 {
						slices.Reverse(order)
					}
					order[0]()
					order[1]()
					ratios = append(ratios, ours[round].perSecond/theirs[round].perSecond)
					b.Logf("round %d: ratio %.2f\n  kube-scheduler      %v\n  topo-aware-scheduler %v", round, ratios[round], theirs[round], ours[round])
				}
				for name, turns := range map[string][]turn{"kube-scheduler": theirs, "topo-aware": ours} {
					b.ReportMetric(medianOf(turns, func(t turn) float64 { return t.perSecond }), name+"-pods/s")
					b.ReportMetric(medianOf(turns, func(t turn) float64 { return t.cpu.Seconds() * 1000 }), name+"-cpu-ms/pod")
					b.ReportMetric(medianOf(turns, func(t turn) float64 { return t.p99.Seconds() * 1000 }), name+"-p99-ms")
				}
				b.ReportMetric(medianOf(ratios, func(r float64) float64 { return r }), "ratio")
				b.ReportMetric(slices.Min(ratios), "least-ratio")
				b.ReportMetric(slices.Max(ratios), "largest-ratio")
			}
		})
	}
}

// medianOf returns the median, and of an even number the lower one.
func medianOf[T any](list []T, of func(T) float64) float64 {
	var values []float64
	for _, one := range list {
		values = append(values, of(one))
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// turn is how a scheduler does on nodes that have no pods.
type turn struct {
	// perSecond is how many it places in a second of the pods that have waited for it, and cpu what it takes for each.
	perSecond float64
	cpu       time.Duration
	// median and p99 are of how long pods that come one by one have no node.
	median, p99 time.Duration
}

func (t turn) String() string {
	return fmt.Sprintf("%.0f pods a second, %.2f ms of CPU each; one by one %.1f ms, p99 %.1f ms", t.perSecond, t.cpu.Seconds()*1000, t.median.Seconds()*1000, t.p99.Seconds()*1000)
}

// turn has a scheduler place pods. They are gone afterwards, and so is the scheduler.
func (k *kubelets) turn(b *testing.B, c client.WithWatch, name string, cpus []string, start func() *testenv.Process) (t turn) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	bound := k.bound(ctx, c)
	next := func() binding {
		select {
		case one := <-bound:
			return one
		case <-time.After(10 * time.Minute):
			b.Fatalf("%s places no pod", name)
		}
		return binding{}
	}
	create := func(kind string, i int) {
		k.pod(fmt.Sprintf("%s-%d", kind, i), cpus[i%len(cpus)], func(pod *corev1.Pod) { pod.Spec.SchedulerName = name })
	}
	together(*benchPods, func(i int) { create("waiting", i) })
	process := start()
	defer process.Kill()
	// The first tenth and the last are left out: the program starts, and the last bindings are still on their way.
	first, last := *benchPods/10, *benchPods*9/10
	var began time.Time
	var took time.Duration
	for placed := 1; placed <= *benchPods; placed++ {
		switch one := next(); placed {
		case first:
			began, took = one.at, cpuOf(b, process)
		case last:
			t.perSecond = float64(last-first) / one.at.Sub(began).Seconds()
			t.cpu = (cpuOf(b, process) - took) / time.Duration(last-first)
		}
	}
	var created sync.Map
	var delays []time.Duration
	go func() {
		ticker := time.NewTicker(time.Second / time.Duration(*benchRate))
		defer ticker.Stop()
		for i := range *benchPaced {
			<-ticker.C
			created.Store(fmt.Sprintf("paced-%d", i), time.Now())
			create("paced", i)
		}
	}()
	for range *benchPaced {
		one := next()
		at, _ := created.Load(one.pod)
		delays = append(delays, one.at.Sub(at.(time.Time)))
	}
	if len(delays) > 0 {
		slices.Sort(delays)
		t.median, t.p99 = delays[len(delays)/2], delays[len(delays)*99/100]
	}
	k.must(k.client.DeleteAllOf(context.WithoutCancel(ctx), &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
	return t
}

// binding is when a pod was seen to have a node.
type binding struct {
	pod string
	at  time.Time
}

// bound returns the bindings from now on, until the context ends.
func (k *kubelets) bound(ctx context.Context, c client.WithWatch) <-chan binding {
	bound := make(chan binding, *benchPods+*benchPaced)
	go func() {
		seen := map[string]bool{}
		for ctx.Err() == nil {
			watcher, err := c.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("spec.nodeName", "")})
			if err != nil {
				continue
			}
			for event := range watcher.ResultChan() { // a busy server ends it early, and the next one begins with what is there
				if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added && !seen[pod.Name] {
					seen[pod.Name] = true
					bound <- binding{pod.Name, time.Now()}
				}
			}
		}
	}()
	return bound
}

// cpuOf is what a process has taken of CPUs.
func cpuOf(b *testing.B, process *testenv.Process) time.Duration {
	b.Helper()
	of, err := procfs.NewProc(process.Pid())
	if err != nil {
		b.Fatal(err)
	}
	stat, err := of.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second))
}

// together calls a function for each number, some at a time.
func together(n int, do func(int)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() { defer func() { <-slots }(); do(i) })
	}
	group.Wait()
}
