// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

var profiles = flag.String("profiles", "", "directory for the profiles of BenchmarkProfileCreate; empty means one that is removed")

// BenchmarkProfileCreate takes profiles of CPU and of allocations of a patched and of an unpatched
// kube-apiserver while each creates the same number of pods that ask for a partition, and logs by
// functions what the patched one takes more, or less. It also logs the CPU time of both and of those
// who take part, which a profile of one does not show. They take turns, each in the other's place.
func BenchmarkProfileCreate(b *testing.B) {
	b.Setenv("GOGC", "1000") // of both servers and etcd
	needs(b, unpatchedBinaries)
	dir := *profiles
	if dir == "" {
		dir = b.TempDir()
	}
	with := config
	with.WithoutNode = true
	c := alone(b, with)
	reportingNode(b, c, "reporting", "management")
	namespace := fixture.Namespace(b, c.Client, "management")
	if err := c.ControllerManager.Stop(10 * time.Second); err != nil {
		b.Fatal(err)
	}
	const clients, blocks, warming, window = 16, 4, 240, 60 * time.Second
	asking := twoContainers(asks)
	pods := 0
	parts := []string{"kube-apiserver", "etcd", "client"}
	used := map[bool]map[string]time.Duration{true: {}, false: {}}
	files := map[string]map[bool][]string{"profile": {}, "allocs": {}}
	for b.Loop() {
		for block := range blocks {
			servers := bothServers(b, c, namespace, clients, block%2 == 0)
			deleteAll := func(client *kubernetes.Clientset) {
				deletePods(b, client, namespace)
				for _, clients := range servers {
					awaitNoPods(b, clients[0], namespace)
				}
			}
			if block == 0 {
				// As many as fill three quarters of the window with the slower server: a profile of
				// an idle one says nothing, and the first turns are not the slowest.
				const trial = 10 * warming
				var took time.Duration
				for _, patched := range []bool{true, false} {
					took = max(took, createMany(b, servers[patched], namespace, asking, trial))
					deleteAll(servers[patched][0])
				}
				pods = int(trial*(window*3/4).Seconds()/took.Seconds()) / clients * clients
			}
			for _, patched := range []bool{block < blocks/2, block >= blocks/2} {
				createMany(b, servers[patched], namespace, asking, warming)
				// Each is in the first place in half of the blocks.
				server := c.SecondAPIServer.PID()
				if patched == (block%2 == 0) {
					server = c.APIServer.PID()
				}
				processes := map[string]int{"kube-apiserver": server, "etcd": c.Etcd.PID(), "client": os.Getpid()}
				for kind, file := range profileWhile(b, servers[patched][0], dir, patched, block, window, func() {
					before := map[string]time.Duration{}
					for _, part := range parts {
						before[part] = cpuTime(b, []int{processes[part]})
					}
					took := createMany(b, servers[patched], namespace, asking, pods)
					text := ""
					for _, part := range parts {
						now := cpuTime(b, []int{processes[part]}) - before[part]
						used[patched][part] += now
						text += fmt.Sprintf("; %s %s", part, now.Round(time.Millisecond))
					}
					b.Logf("block %d, %s: %d pods in %s, with the CPU time%s", block, sideName(patched), pods, took, strings.TrimPrefix(text, ";"))
				}) {
					files[kind][patched] = append(files[kind][patched], file)
				}
				deleteAll(servers[patched][0])
			}
		}
	}
	for _, part := range parts {
		patched, unpatched := used[true][part], used[false][part]
		b.Logf("CPU time of %s for a pod: %s patched, %s unpatched, ratio %.4f", part,
			patched/time.Duration(blocks*pods), unpatched/time.Duration(blocks*pods), patched.Seconds()/unpatched.Seconds())
	}
	for kind, index := range map[string]string{"profile": "cpu", "allocs": "alloc_space"} {
		// pprof adds up the profiles that it is given, and takes one base: of several it would take the last.
		base := filepath.Join(b.TempDir(), kind+".pb.gz")
		pprof(b, append([]string{"-proto", "-output=" + base}, files[kind][false]...)...)
		difference := pprof(b, append([]string{"-top", "-cum", "-nodecount=80", "-sample_index=" + index, "-diff_base=" + base}, files[kind][true]...)...)
		b.Logf("%s of the patched kube-apiserver less those of the unpatched one, for %d pods:\n%s", index, blocks*pods, difference)
	}
	b.ReportMetric(0, "ns/op")
}

// pprof runs go tool pprof, and returns what it prints.
func pprof(b *testing.B, args ...string) []byte {
	b.Helper()
	output, err := exec.CommandContext(b.Context(), "go", append([]string{"tool", "pprof"}, args...)...).CombinedOutput()
	if err != nil {
		b.Fatalf("go tool pprof %s: %v: %s", strings.Join(args, " "), err, output)
	}
	return output
}

// sideName is what a kube-apiserver is called.
func sideName(patched bool) string {
	return map[bool]string{true: "patched", false: "unpatched"}[patched]
}

// profileWhile profiles a kube-apiserver for a period, at whose beginning the load is started. It
// returns the files, by kinds. The load must end within the period, or the profiles would not be of
// all of it.
func profileWhile(b *testing.B, server *kubernetes.Clientset, dir string, patched bool, block int, window time.Duration, load func()) map[string]string {
	b.Helper()
	name := sideName(patched)
	files := map[string]string{}
	for _, kind := range []string{"profile", "allocs"} {
		files[kind] = filepath.Join(dir, fmt.Sprintf("%s-%s-%d.pb.gz", kind, name, block))
	}
	var all sync.WaitGroup
	for kind, file := range files {
		all.Go(func() {
			data, err := server.RESTClient().Get().AbsPath("/debug/pprof/"+kind).Param("seconds", fmt.Sprint(window.Seconds())).DoRaw(b.Context())
			if err == nil {
				err = os.WriteFile(file, data, 0o644)
			}
			if err != nil {
				b.Errorf("profile %s of the %s kube-apiserver: %v", kind, name, err)
			}
		})
	}
	began := time.Now()
	load()
	if took := time.Since(began); took > window-time.Second {
		b.Errorf("the pods took %s, longer than the profiles of %s", took, window)
	}
	all.Wait()
	return files
}
