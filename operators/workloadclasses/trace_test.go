// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var seedOfTrace = flag.Uint64("trace-seed", 0, "only the trace of this seed")

// A model of a class on a virtual clock: the seed's wave and trickle of pods that nobody restarts, under
// several contestants. The rules are the real ones. Scheduler and autoscaler are models of theirs: filter by
// CPU, cordon and node affinity; score by the least or the most allocated, with a preferred taint above
// that; one new node for each that waiting pods fill, which takes three minutes; and the autoscaler's rule
// for scaling down, which for such pods means nodes that have been empty for ten minutes.

// job is a pod, in CPUs.
type job struct {
	created, started, ends time.Duration
	length                 time.Duration
	cpu                    float64
	notOn                  string
	disturbed              bool
}

type host struct {
	name             string
	created, ready   time.Duration
	jobs             []*job
	record           Record
	leaving          time.Duration // when it began; zero if it is not
	emptySince       time.Duration
	removed          time.Duration
	free             float64
	cordoned, prefer bool
}

type contestant struct {
	name          string
	mostAllocated bool
	// ours gives nodes back by the rules; autoscaler by its own. Neither never does.
	ours, autoscaler bool
	policy           Policy
}

const (
	cpus  = 16.0
	boot  = 3 * time.Minute
	tick  = 5 * time.Second
	until = 12 * time.Hour
)

// wave returns a wave of pods at once, then a trickle for hours.
func wave(seed uint64) (jobs []*job) {
	random := rand.New(rand.NewPCG(seed, 2))
	length := func() time.Duration { // most are short, a few run for hours
		minutes := math.Exp(random.NormFloat64()*0.8 + math.Log(25))
		return time.Duration(min(max(minutes, 2), 240) * float64(time.Minute))
	}
	add := func(at time.Duration) { jobs = append(jobs, &job{created: at, length: length(), cpu: 1.3}) }
	for range 600 {
		add(time.Duration(random.IntN(600)) * time.Second)
	}
	for at := 15 * time.Minute; at < until-4*time.Hour; at += time.Duration(random.ExpFloat64() * 20 * float64(time.Second)) {
		add(at)
	}
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.created, b.created) })
	return jobs
}

type result struct {
	hours     float64
	p50, p99  time.Duration
	disturbed int
	most      int
	// atEnd is how many nodes there are when the last pod has ended.
	atEnd int
}

func simulate(c contestant, jobs []*job) result {
	base := now
	var hosts, gone []*host
	var pending []*job
	next, made, precluded := 0, 0, ""
	var r result
	var waits []time.Duration
	clock := func(at time.Duration) time.Time { return base.Add(at) }
	add := func(at time.Duration) {
		made++
		hosts = append(hosts, &host{name: fmt.Sprintf("n%04d", made), created: at, ready: at + boot, free: cpus, emptySince: at + boot})
	}
	add(-time.Hour)
	hosts[0].ready, hosts[0].emptySince = -time.Hour, -time.Hour
	fits := func(h *host, j *job) bool { return h.free >= j.cpu-1e-9 && j.notOn != h.name }
	for at := time.Duration(0); at < until; at += tick {
		for _, h := range hosts {
			h.jobs = slices.DeleteFunc(h.jobs, func(j *job) bool {
				if j.ends > at {
					return false
				}
				h.free += j.cpu
				return true
			})
			if len(h.jobs) > 0 || h.ready > at {
				h.emptySince = at
			}
		}
		for ; next < len(jobs) && jobs[next].created <= at; next++ {
			jobs[next].notOn = precluded
			pending = append(pending, jobs[next])
		}
		pending = slices.DeleteFunc(pending, func(j *job) bool {
			var best *host
			score := func(h *host) float64 {
				s := h.free // the least allocated is the best
				if c.mostAllocated {
					s = -h.free
				}
				if h.prefer {
					s -= 1000
				}
				return s
			}
			for _, h := range hosts {
				if h.ready <= at && !h.cordoned && fits(h, j) && (best == nil || score(h) > score(best)) {
					best = h
				}
			}
			if best == nil {
				return false
			}
			j.started, j.ends = at, at+j.length
			waits = append(waits, at-j.created)
			best.free -= j.cpu
			best.jobs = append(best.jobs, j)
			best.emptySince = at
			return true
		})
		// The autoscaler scales up for what does not fit on nodes that come.
		if at%(10*time.Second) == 0 {
			room := map[*host]float64{}
			for _, j := range pending {
				if at-j.created < tick {
					continue
				}
				found := false
				for _, h := range hosts {
					if h.ready > at && h.free-room[h] >= j.cpu-1e-9 {
						room[h] += j.cpu
						found = true
						break
					}
				}
				if !found && len(hosts) < 80 {
					add(at)
					room[hosts[len(hosts)-1]] = j.cpu
				}
			}
		}
		remove := func(h *host) {
			h.removed = at
			for _, j := range h.jobs {
				j.disturbed = true
				r.disturbed++
			}
			gone = append(gone, h)
			hosts = slices.DeleteFunc(hosts, func(other *host) bool { return other == h })
		}
		if c.autoscaler && at%(10*time.Second) == 0 {
			for _, h := range slices.Clone(hosts) {
				if len(hosts) > 1 && h.ready <= at && len(h.jobs) == 0 && at-h.emptySince >= 10*time.Minute && len(pending) == 0 {
					remove(h)
				}
			}
		}
		if c.ours && at%c.policy.Period == 0 {
			var views []NodeView
			for _, h := range hosts {
				v := NodeView{Name: h.name, Created: clock(h.created), Record: h.record, Leaving: h.leaving > 0, Pods: len(h.jobs), Used: int64(math.Round((cpus - h.free) * 1000)), Free: int64(math.Round(h.free * 1000))}
				if h.ready > at {
					v.Held = "it is not ready"
				}
				v.Demanded = slices.ContainsFunc(pending, func(j *job) bool { return at > j.created && fits(h, j) })
				views = append(views, v)
			}
			evaluation := Evaluate(views, len(pending) > 0, clock(at), c.policy)
			precluded = evaluation.Precluded
			for _, d := range evaluation.Decisions {
				h := hosts[slices.IndexFunc(hosts, func(h *host) bool { return h.name == d.Name })]
				if h.leaving > 0 {
					continue
				}
				if cmpState(h.record.State) != d.State {
					h.record = Record{d.State, clock(at)}
				}
				h.cordoned, h.prefer = d.State == NoSchedule, d.State == PreferNoSchedule
				if d.GiveBack {
					h.leaving = at
				}
			}
		}
		for _, h := range slices.Clone(hosts) {
			if h.leaving > 0 && at-h.leaving >= DefaultTiming().Grace {
				if len(h.jobs) > 0 || slices.ContainsFunc(pending, func(j *job) bool { return fits(h, j) }) {
					h.leaving, h.cordoned, h.record = 0, false, Record{None, clock(at)}
					continue
				}
				remove(h)
			}
		}
		r.most = max(r.most, len(hosts))
	}
	r.atEnd = len(hosts)
	for _, h := range append(gone, hosts...) {
		if h.removed == 0 {
			h.removed = until
		}
		r.hours += (h.removed - max(h.created, 0)).Hours()
	}
	slices.Sort(waits)
	r.p50, r.p99 = waits[len(waits)/2], waits[len(waits)*99/100]
	return r
}

// planned is what a planner would need that knows all durations, never evicts, and has nodes at once: each
// pod goes where it lengthens the life of a node the least.
func planned(jobs []*job) (hours float64) {
	type node struct {
		from, to time.Duration
		jobs     []*job
	}
	var nodes []*node
	var ended float64
	for _, j := range jobs {
		ends := j.created + j.length
		var best *node
		cost := func(n *node) time.Duration { return max(0, ends-n.to) }
		for _, n := range nodes {
			n.jobs = slices.DeleteFunc(n.jobs, func(has *job) bool { return has.created+has.length <= j.created })
			used := 0.0
			for _, has := range n.jobs {
				used += has.cpu
			}
			if used+j.cpu > cpus+1e-9 || n.to < j.created {
				continue
			}
			if best == nil || cost(n) < cost(best) || cost(n) == cost(best) && n.to > best.to {
				best = n
			}
		}
		if best == nil {
			best = &node{from: j.created, to: j.created}
			nodes = append(nodes, best)
		}
		best.jobs = append(best.jobs, j)
		best.to = max(best.to, ends)
		nodes = slices.DeleteFunc(nodes, func(n *node) bool {
			if n.to >= j.created {
				return false
			}
			ended += (n.to - n.from).Hours()
			return true
		})
	}
	for _, n := range nodes {
		ended += (n.to - n.from).Hours()
	}
	return ended
}

func TestTheWaveAndTheTrickle(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if *seedOfTrace > 0 {
		seeds = []uint64{*seedOfTrace}
	}
	for _, seed := range seeds {
		var work float64
		for _, j := range wave(seed) {
			work += j.cpu * j.length.Hours()
		}
		bound, plan := work/cpus, planned(wave(seed))
		results := map[string]result{}
		t.Logf("seed %d: bound by the sum of requests %.0f node-hours, a planner that knows all durations %.0f", seed, bound, plan)
		for _, c := range []contestant{
			{name: "no scale-down"},
			{name: "autoscaler", autoscaler: true},
			{name: "autoscaler, most allocated", autoscaler: true, mostAllocated: true},
			{name: "classes", ours: true, policy: DefaultPolicy()},
			{name: "classes, most allocated", ours: true, mostAllocated: true, policy: DefaultPolicy()},
		} {
			r := simulate(c, wave(seed))
			results[c.name] = r
			t.Logf("  %-28s %6.0f node-hours, %.2f of the planner; pending p50 %s, p99 %s; disturbed %d; most %d nodes, %d at the end", c.name, r.hours, r.hours/plan, r.p50, r.p99, r.disturbed, r.most, r.atEnd)
		}
		ours, theirs := results["classes"], results["autoscaler"]
		for _, share := range []int{25, 50, 75} {
			for _, room := range []int{0, 10, 20, 50} {
				policy := DefaultPolicy()
				policy.SharePercent, policy.RoomPercent = share, room
				r := simulate(contestant{ours: true, policy: policy}, wave(seed))
				t.Logf("  classes, share %2d %%, room %2d %%: %4.0f node-hours, %.2f of the planner; pending p99 %s; disturbed %d", share, room, r.hours, r.hours/plan, r.p99, r.disturbed)
				if r.disturbed > 0 || r.p99 > theirs.p99+5*time.Second {
					t.Errorf("seed %d, share %d, room %d: %+v", seed, share, room, r)
				}
			}
		}
		if ours.disturbed > 0 {
			t.Errorf("seed %d: %d pods were disturbed", seed, ours.disturbed)
		}
		if ours.hours > 0.8*theirs.hours {
			t.Errorf("seed %d: %.0f node-hours, and the autoscaler's rule needs %.0f", seed, ours.hours, theirs.hours)
		}
	}
}
