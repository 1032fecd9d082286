// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"workload.openshift.io/partition"
)

// walkAndTrack looks once at a tree.
func walkAndTrack(t *testing.T, n *tree, tracker *tracker) {
	t.Helper()
	seen, err := n.host().walk(t.Context(), n.runtime, nil)
	if err != nil {
		t.Fatal(err)
	}
	tracker.look(seen, seen.judge())
}

// leaks returns the containers that leaked.
func (t *tracker) leaks() (leaks []string) {
	for _, w := range t.watched {
		if w.leaked() {
			leaks = append(leaks, fmt.Sprintf("%s/%s %s %d", w.Pod, w.Name, w.OffSet, w.LooksOff))
		}
	}
	slices.Sort(leaks)
	return leaks
}

func TestLeaksAreCountedOverTime(t *testing.T) {
	operator, ordinary := testPod{name: "operator", class: "burstable"}, testPod{name: "ordinary", class: "burstable"}
	used := func(n *tree, p testPod, values string) {
		n.write(n.file(n.containerCgroup(p, "c"), "cpuacct", "cpuacct.usage_percpu"), values)
	}
	t.Run("by the accounts of cgroup v1", func(t *testing.T) {
		n := sample(t, true, false)
		used(n, operator, "1000 7000000000 0 0") // before the first look
		tracker := newTracker()
		walkAndTrack(t, n, tracker)
		used(n, operator, "900001000 7005000000 0 0")
		used(n, ordinary, "100000 5000000 5000000 0") // a probe that joins one hierarchy after another
		walkAndTrack(t, n, tracker)
		if got, want := tracker.leaks(), []string{"operator/c 5ms 0"}; !slices.Equal(got, want) {
			t.Errorf("the leaks are %q, want %q", got, want)
		}
	})
	t.Run("of containers that start, and whose CPUs change, between two looks", func(t *testing.T) {
		n := sample(t, true, false)
		used(n, ordinary, "0 5000000 5000000 0")
		tracker := newTracker()
		walkAndTrack(t, n, tracker)
		// What it used of CPU 2 was before another container got that exclusively.
		n.add(testPod{name: "second", cpus: "0-3", containers: []testContainer{{name: "c", cpus: "2"}}})
		n.checkpoint(map[string]map[string]string{uid("exclusive"): {"c": "3"}, uid("second"): {"c": "2"}}, "1")
		n.cgroup(n.containerCgroup(ordinary, "c"), "1", nil)
		n.process(n.pid("ordinary", "c"), "c", "1")
		used(n, ordinary, "0 5000000 9000000 0")
		used(n, testPod{name: "second"}, "0 0 7000000 0")
		late := testPod{name: "late", class: "burstable", cpus: "0-3", containers: []testContainer{{name: "c", cpus: "1"}}}
		n.add(late)
		used(n, late, "4000000 1000000 0 0")
		walkAndTrack(t, n, tracker)
		if got, want := tracker.leaks(), []string{"late/c 4ms 0"}; !slices.Equal(got, want) {
			t.Errorf("the leaks are %q, want %q", got, want)
		}
		used(n, ordinary, "0 5000000 12000000 0")
		walkAndTrack(t, n, tracker)
		if got, want := tracker.leaks(), []string{"late/c 4ms 0", "ordinary/c 3ms 0"}; !slices.Equal(got, want) {
			t.Errorf("then the leaks are %q, want %q", got, want)
		}
	})
	t.Run("by samples of cgroup v2", func(t *testing.T) {
		n := sample(t, false, true)
		tracker := newTracker()
		walkAndTrack(t, n, tracker)
		pid := n.pid("operator", "c")
		stat := fmt.Sprintf("proc/%d/stat", pid)
		data, err := os.ReadFile(filepath.Join(n.dir, stat))
		if err != nil {
			t.Fatal(err)
		}
		n.write(stat, strings.Replace(string(data), " 17 0 0 0 0 0 0", " 17 2 0 0 0 0 0", 1)) // it was on CPU 2, and has not run since the first look
		walkAndTrack(t, n, tracker)
		if got := tracker.leaks(); len(got) > 0 {
			t.Errorf("a task that has not run gives the leaks %q", got)
		}
		n.write(fmt.Sprintf("proc/%d/schedstat", pid), "5000 0 2")
		n.write(n.file(n.containerCgroup(ordinary, "c"), "", "cpuset.cpus.effective"), "1")
		walkAndTrack(t, n, tracker)
		if got, want := tracker.leaks(), []string{"operator/c 0s 1"}; !slices.Equal(got, want) {
			t.Errorf("the leaks are %q, want %q", got, want)
		}
		if w := tracker.watched[n.containerCgroup(ordinary, "c")]; len(w.Changes) != 1 || w.Changes[0].From != "1-2" || w.Changes[0].To != "1" {
			t.Errorf("the changes of the ordinary container are %v, want one from 1-2 to 1", w.Changes)
		}
	})
}

func TestWatchEndsWithItsContext(t *testing.T) {
	eachKind(t, func(t *testing.T, v1, systemd bool) {
		n := sample(t, v1, systemd)
		ctx, cancel := context.WithCancel(t.Context())
		looks := 0
		n.runtime.before = func() {
			if looks++; looks == 3 {
				cancel()
			}
		}
		result, err := Watch(ctx, n.options(), time.Millisecond)
		if err != nil || !result.Clean() || result.Looks < 2 || len(result.Containers) != 6 || result.Method == "" || result.Resolution == "" {
			t.Errorf("the result is %+v (%v), want two looks or more at 4 containers and 2 sandboxes, and no leak", result, err)
		}
	})
}

// Watching tells of what an audit finds, whether it is a leak or not.
func TestWatchTellsOfWhatAnAuditFinds(t *testing.T) {
	eachKind(t, func(t *testing.T, v1, systemd bool) {
		n := sample(t, v1, systemd)
		operator := testPod{name: "operator", class: "burstable"}
		n.cgroup(n.containerCgroup(operator, "c"), "0", map[string]string{"weight": "2", "quota": "50000", "tasks": fmt.Sprint(n.pid("operator", "c"))})
		n.cgroup(filepath.Join(n.podCgroup(operator), "new"), "2", nil) // the runtime has not listed it yet
		audited, err := Audit(t.Context(), n.options())
		if err != nil {
			t.Fatal(err)
		}
		want := append(codes(audited.Findings), "pinning-file "+partition.PinningFilePath)
		slices.Sort(want)
		ctx, cancel := context.WithCancel(t.Context())
		walks := 0
		n.runtime.before = func() {
			switch walks++; walks { // two for a look at which something is wrong
			case 3:
				n.pin("wrong")
			case 7:
				cancel()
			}
		}
		result, err := Watch(ctx, n.options(), time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		var findings []Finding
		for _, s := range result.Findings {
			if s.Looks != 1 {
				t.Errorf("%s was there at %d looks, want 1", s.Code, s.Looks)
			}
			findings = append(findings, s.Finding)
		}
		if got := codes(findings); !slices.Equal(got, want) || result.Clean() || result.Looks != 3 {
			t.Errorf("after %d looks the findings are %q, and clean is %t; want %q after 3", result.Looks, got, result.Clean(), want)
		}
	})
}

// However many tasks come and go, what is found stays bounded by the containers.
func TestWatchCountsTheTasksOfACgroupOnce(t *testing.T) {
	r := &WatchResult{}
	task := func(id string) Finding {
		return Finding{Code: CodeTaskOffSet, Object: "container c", Cgroup: "/c", Message: id, identity: id}
	}
	holds := func(pod string) Finding { return Finding{Code: CodeCheckpoint, Object: "checkpoint", Message: pod} }
	r.look([]Finding{task("1"), task("2"), holds("a"), holds("b")})
	r.look([]Finding{task("3"), holds("b")})
	var got []string
	for _, s := range r.Findings {
		got = append(got, fmt.Sprint(s.Message, " ", s.Looks))
	}
	if want := []string{"1 2", "a 1", "b 2"}; !slices.Equal(got, want) {
		t.Errorf("what was found, and at how many looks, is %q, want %q", got, want)
	}
}

func TestMetricsOfANode(t *testing.T) {
	eachKind(t, func(t *testing.T, v1, systemd bool) {
		n := sample(t, v1, systemd)
		n.write("proc/stat", "cpu  200 0 100 400 0 0 0 0 0 0\ncpu0 100 0 50 200 0 0 0 0 0 0\ncpu1 100 0 50 200 0 0 0 0 0 0")
		n.add(testPod{name: "forged", workloadType: "made-up", class: "burstable", cpus: "0-3", containers: []testContainer{{name: "c", cpus: "0-3"}}})
		exporter := NewExporter(n.options())
		if err := exporter.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		operator := n.containerCgroup(testPod{name: "operator", class: "burstable"}, "c")
		n.cgroup(operator, "0-1", map[string]string{"weight": n.weightOf(400), "quota": "50000", "tasks": fmt.Sprint(n.pid("operator", "c")),
			"used": map[bool]string{true: "2000000000 1000000000 0 0", false: "3000000"}[v1], "throttled": map[bool]string{true: "500000000", false: "500000"}[v1], "pressure": "250000"})
		if err := exporter.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.runtime.err = os.ErrDeadlineExceeded
		if err := exporter.look(t.Context()); err == nil {
			t.Error("a runtime that does not answer gives no error")
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(exporter)
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		body := answer.Body.String()
		want := []string{
			`workload_partitioning_audit_containers{workload_type="management"} 2`, `workload_partitioning_audit_containers{workload_type="-"} 2`, `workload_partitioning_audit_containers{workload_type="other"} 1`,
			`workload_partitioning_audit_containers_off_set{workload_type="management"} 1`, `workload_partitioning_audit_containers_off_set{workload_type="other"} 1`,
			`workload_partitioning_audit_findings{code="off-pool"} 1`, `workload_partitioning_audit_findings{code="weight"} 0`,
			`workload_partitioning_audit_pool_cpus{workload_type="management"} 1`, `workload_partitioning_audit_pool_busy_seconds_total{workload_type="management"} 1.5`,
			`workload_partitioning_audit_cpu_usage_seconds_total{workload_type="management"} 3`, `workload_partitioning_audit_throttled_seconds_total{workload_type="management"} 0.5`,
			`workload_partitioning_audit_walks_total{result="success"} 2`, `workload_partitioning_audit_walks_total{result="error"} 1`,
		}
		if v1 {
			want = append(want, `workload_partitioning_audit_off_set_seconds_total{workload_type="management"} 1`)
		} else {
			want = append(want, `workload_partitioning_audit_cpu_pressure_waiting_seconds_total{workload_type="management"} 0.25`)
		}
		for _, line := range want {
			if !strings.Contains(body, line+"\n") {
				t.Errorf("the metrics lack %s", line)
			}
		}
		if strings.Contains(body, "made-up") {
			t.Error("a user's annotation has become a label")
		}
		if t.Failed() {
			t.Log(body)
		}
		problems, err := promlint.New(strings.NewReader(body)).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("the names of metrics have problems: %v (%v)", problems, err)
		}
	})
}

// The formats are those of this host's kernel.
func TestFormatsAreThoseOfThisHostsKernel(t *testing.T) {
	host := Host{}.withDefaults()
	sets, err := host.hierarchy()
	if err != nil || !sets.v1 {
		t.Skipf("the test makes a cgroup of version 1, which this host lacks (%v)", err)
	}
	scratch := fmt.Sprint("wp-audit-test-", os.Getpid()) // one that was killed may have left its own
	directory := sets.dir("cpuset", scratch)
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Skip("the test needs a cgroup: ", err)
	}
	process := exec.Command("sleep", "60")
	t.Cleanup(func() {
		if process.Process != nil {
			_ = process.Process.Kill() // it has not ended
			_ = process.Wait()         // it was killed
		}
		if err := os.Remove(directory); err != nil {
			t.Error(err)
		}
	})
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if err := os.WriteFile(filepath.Join(directory, file), []byte("0"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "tasks"), []byte(strconv.Itoa(process.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	r := reader{}
	if effective := r.cpus(directory, "cpuset.effective_cpus"); r.err != nil || effective.String() != "0" {
		t.Errorf("its cpuset is %q (%v), want 0", effective, r.err)
	}
	ids, err := sets.tasks(scratch)
	if err != nil || !slices.Equal(ids, []int{process.Process.Pid}) {
		t.Fatalf("its tasks are %v (%v), want %d", ids, err, process.Process.Pid)
	}
	procs, err := host.procfs()
	if err != nil {
		t.Fatal(err)
	}
	proc, err := procs.Proc(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	seen, err := readTask(proc)
	if err != nil || seen.allowed.String() != "0" || seen.comm != "sleep" || seen.started == 0 || seen.ran == 0 {
		t.Errorf("the task is %+v (%v), want a sleep on CPU 0 that has run", seen, err)
	}
	if !slices.Contains(sets.children("/"), "/"+scratch) {
		t.Errorf("the cgroups at the top are %q, and lack %s", sets.children("/"), scratch)
	}
	if _, err := sets.usage("/wp-audit-none"); !gone(err) {
		t.Errorf("a cgroup that does not exist gives %v, want an error that says so", err)
	}
}

func TestMasksAreReadAsTheKernelPrintsThem(t *testing.T) {
	for text, want := range map[string]string{"3": "0-1", "0": "", "00000001,00000000": "32", "ff,ffffffff": "0-39"} {
		if got, err := parseMask(text); err != nil || got.String() != want {
			t.Errorf("%s is %s (%v), want %s", text, got, err, want)
		}
	}
	if _, err := parseMask("3-4"); err == nil {
		t.Error("3-4 is read as a mask")
	}
}
