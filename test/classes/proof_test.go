// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"workload.openshift.io/operators/workloadclasses"
)

var (
	out  = flag.String("out", "", "directory for the charts and the table; empty means none")
	seed = flag.Uint64("seed", 1, "of the traces")
)

const (
	none   = "no scale-down"
	theirs = "the autoscaler's rule"
	packed = "the autoscaler's rule, and a scheduler that packs"
	ours   = "workload classes"
	roomy  = "workload classes with `roomPercent: 20`"
)

func contestants() []contestant {
	policy := workloadclasses.DefaultPolicy()
	room := policy
	room.RoomPercent = 20
	return []contestant{
		{name: none},
		{name: theirs, removes: true},
		{name: packed, removes: true, packs: true},
		{name: ours, policy: &policy},
		{name: roomy, policy: &room},
		{name: "workload classes, and a scheduler that packs", policy: &policy, packs: true},
	}
}

// The wave and a day, for all contestants. Nobody is disturbed, and nodes are given back without pods that
// wait longer for new ones.
func TestTheProof(t *testing.T) {
	for _, tr := range []trace{wave(*seed), day(*seed)} {
		t.Run(tr.name, func(t *testing.T) {
			all := contestants()
			results := make([]result, len(all))
			var wait sync.WaitGroup
			for i, c := range all {
				wait.Go(func() {
					var err error
					if results[i], err = simulate(t.Context(), c, tr); err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
				})
			}
			wait.Wait()
			byArrival, byLength := planByArrival(tr), planByLength(tr)
			best := min(byArrival, byLength)
			var table strings.Builder
			fmt.Fprintf(&table, "%s: %d pods. Node-hours: sum of requests %.0f, least at each moment %.0f; planner by arrival %.0f, by length %.0f.\n\n", tr.name, len(tr.jobs), requestHours(tr), leastHours(tr), byArrival, byLength)
			table.WriteString("| | node-hours | of the better planner | pods wait: half, one in 20, one in 100 | pods disturbed | nodes at most, and in all |\n|---|---|---|---|---|---|\n")
			by := map[string]result{}
			var lines []line
			for i, r := range results {
				name := all[i].name
				by[name] = r
				lines = append(lines, line{strings.ReplaceAll(name, "`", ""), r.samples})
				fmt.Fprintf(&table, "| %s | %.0f | %.2f | %s, %s, %s | %d | %d, %d |\n", name, r.hours, r.hours/best, r.p50, r.p95, r.p99, r.disturbed, r.most, r.made)
			}
			t.Log("\n" + table.String())
			if *out != "" {
				save(t, strings.ReplaceAll(tr.name, " ", "-"), table.String(), tr.name, lines)
			}
			for _, name := range []string{ours, roomy} {
				r := by[name]
				if r.disturbed > 0 {
					t.Errorf("%s: %d pods were disturbed", name, r.disturbed)
				}
				if r.hours > 0.8*by[theirs].hours {
					t.Errorf("%s: %.0f node-hours, and the autoscaler's rule needs %.0f", name, r.hours, by[theirs].hours)
				}
				// More nodes go and come in a day, so that more pods wait for one; a scheduler that packs has the same.
				if limit := max(by[theirs].p99, by[packed].p99) + 5*time.Second; r.p99 > limit {
					t.Errorf("%s: one pod in 100 waits for %s, and for %s without", name, r.p99, limit)
				}
			}
		})
	}
}

func save(t *testing.T, name, table, title string, lines []line) {
	t.Helper()
	canvas, err := chart(title, lines)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(*out, name+".svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := canvas.WriteTo(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*out, name+".md"), []byte(table), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What a control plane is compared with: TestTheWaveOnAControlPlane of operators/workloadclasses/controller reads it.
func TestCompressed(t *testing.T) {
	tr, policy := compressed(*seed), compressedPolicy()
	r, err := simulate(t.Context(), contestant{policy: &policy}, tr)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pods: %.2f node-hours, pods wait %s, %s, %s, disturbed %d, nodes %d, %d", len(tr.jobs), r.hours, r.p50, r.p95, r.p99, r.disturbed, r.most, r.made)
	if r.disturbed > 0 || r.made < 5 {
		t.Errorf("%d pods were disturbed, and there were %d nodes", r.disturbed, r.made)
	}
	if *out == "" {
		return
	}
	type pod struct {
		Created, Length time.Duration
		CPU, Memory     int64
	}
	wave := struct {
		Pods        []pod
		Until, Boot time.Duration
		Hours       float64
		P50, P99    time.Duration
		Most, Made  int
		Policy      workloadclasses.Policy
		Timing      workloadclasses.Timing
	}{Until: tr.until, Boot: tr.boot, Hours: r.hours, P50: r.p50, P99: r.p99, Most: r.most, Made: r.made, Policy: policy, Timing: tr.timing}
	for _, j := range tr.jobs {
		wave.Pods = append(wave.Pods, pod{j.created, j.length, j.cpu, j.memory})
	}
	text, err := json.Marshal(wave)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*out, "compressed.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A run says the same each time.
func TestRunsAreAlike(t *testing.T) {
	short := wave(7)
	short.jobs, short.until = short.jobs[:200], 6*time.Hour
	policy := workloadclasses.DefaultPolicy()
	var hours []float64
	for range 2 {
		r, err := simulate(t.Context(), contestant{policy: &policy}, short)
		if err != nil {
			t.Fatal(err)
		}
		hours = append(hours, r.hours)
	}
	if hours[0] != hours[1] || hours[0] < requestHours(short) {
		t.Errorf("node-hours %v, and pods ask for %.0f", hours, requestHours(short))
	}
}
