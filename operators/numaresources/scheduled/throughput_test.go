// SPDX-License-Identifier: Apache-2.0

package scheduled

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/testenv"
)

var (
	benchNodes = flag.Int("nodes", 1000, "how many nodes the benchmark has, each with four zones")
	benchPods  = flag.Int("pods", 2000, "how many pods each scheduler places in the benchmark")
)

// BenchmarkThroughput has kube-scheduler and then topo-aware-scheduler place pods with exclusive CPUs on the same nodes, which have reported
// their zones. No kubelet plays: reports do not change. It reports the pods that each places in a second, and the ratio.
func BenchmarkThroughput(b *testing.B) {
	file := program(b, "TEST_ASSET_SCHEDULER")
	plane := testenv.Start(b)
	config := *plane.Config
	config.QPS, config.Burst = -1, -1
	c, err := client.New(&config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	k := &kubelets{t: b, client: c, nodes: map[string]*node{}}
	k.clear()
	b.Cleanup(k.clear)
	together(b, *benchNodes, func(i int) { k.add(fmt.Sprintf("node-%d", i), []int64{16, 16, 16, 16}) })
	for b.Loop() {
		plain := filepath.Join(b.TempDir(), "kube-scheduler.yaml")
		text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: false}\nclientConnection: {kubeconfig: " + plane.Kubeconfig + ", qps: 1000, burst: 1000}\n"
		if err := os.WriteFile(plain, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		theirs := k.placed(b, corev1.DefaultSchedulerName, func() *testenv.Process {
			return testenv.RunBeside(b, "kube-scheduler", "--config="+plain, "--secure-port=0")
		})
		ours := k.placed(b, schedulerName, func() *testenv.Process {
			return testenv.RunFile(b, file, "--config="+configuration(b, plane.Kubeconfig), "--secure-port=0")
		})
		b.ReportMetric(theirs, "kube-scheduler-pods/s")
		b.ReportMetric(ours, "topo-aware-pods/s")
		b.ReportMetric(ours/theirs, "ratio")
	}
}

// placed returns how many of the pods a scheduler places in a second, between a tenth and nine tenths of them.
func (k *kubelets) placed(b *testing.B, name string, start func() *testenv.Process) float64 {
	b.Helper()
	together(b, *benchPods, func(i int) {
		k.pod(fmt.Sprintf("pod-%d", i), "2", func(pod *corev1.Pod) { pod.Spec.SchedulerName = name })
	})
	process := start()
	defer process.Kill()
	var from, to time.Time
	first := 0
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var waiting corev1.PodList
		k.must(k.client.List(b.Context(), &waiting, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", "")}))
		placed := *benchPods - len(waiting.Items)
		if from.IsZero() && placed >= *benchPods/10 {
			from, first = time.Now(), placed
		}
		if placed >= *benchPods*9/10 {
			to = time.Now()
			k.must(k.client.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
			return float64(placed-first) / to.Sub(from).Seconds()
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s has placed %d of %d pods", name, placed, *benchPods)
		}
	}
}

// together calls a function for each number, some at a time.
func together(b *testing.B, n int, do func(int)) {
	b.Helper()
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() { defer func() { <-slots }(); do(i) })
	}
	group.Wait()
}
