// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"workload.openshift.io/operators/workloadclasses"
)

// job is one pod of a trace: when it is created, how long it runs, and what it asks for, in
// millicores and MiB. No contestant knows its length.
type job struct {
	created, length time.Duration
	cpu, memory     int64
}

// ends is when it ends if it starts at once.
func (j *job) ends() time.Duration { return j.created + j.length }

// trace is what pods come.
type trace struct {
	name string
	jobs []job
	// most is how many nodes there may be.
	most int
	// until is the end of the measurement: all jobs have ended before.
	until time.Duration
	// cpu and memory are what a node has for pods, in millicores and MiB.
	cpu, memory int64
	// boot is how long a machine takes until its node is Ready. It is paid for from the beginning.
	boot   time.Duration
	timing workloadclasses.Timing
	// deleted pods do not stay after their end.
	deleted bool
}

// What a pod has in addition, by the RuntimeClass of its class.
const overheadCPU, overheadMemory = 300, 600

func newTrace(name string, most int, jobs []job) trace {
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(a.created, b.created) })
	return trace{
		name: name, jobs: jobs, most: most, until: jobs[len(jobs)-1].created + longest + time.Hour,
		cpu: 16_000, memory: 64 << 10, boot: 3 * time.Minute, timing: workloadclasses.DefaultTiming(),
	}
}

const longest = 4 * time.Hour

// length is of jobs of which most are short, and a few run for hours.
func length(random *rand.Rand) time.Duration {
	minutes := math.Exp(random.NormFloat64()*0.8 + math.Log(25))
	return time.Duration(min(max(minutes, 2), longest.Minutes()) * float64(time.Minute)).Round(time.Second)
}

// wave is what openshift/ci-tools suffers from: 600 pods within ten minutes, and then a trickle for eight hours.
func wave(seed uint64) trace {
	random := rand.New(rand.NewPCG(seed, 2))
	var jobs []job
	add := func(at time.Duration) { jobs = append(jobs, job{at.Round(time.Second), length(random), 1000, 2 << 10}) }
	for range 600 {
		add(time.Duration(random.IntN(600)) * time.Second)
	}
	for at := 15 * time.Minute; at < 8*time.Hour; at += time.Duration(random.ExpFloat64() * 20 * float64(time.Second)) {
		add(at)
	}
	return newTrace("wave and trickle", 80, jobs)
}

// day is 24 hours with a calm night, periodic jobs at each hour, and two great waves. Its pods differ in
// size.
func day(seed uint64) trace {
	random := rand.New(rand.NewPCG(seed, 5))
	var jobs []job
	add := func(at time.Duration) {
		cpu := []int64{500, 500, 1000, 1000, 1000, 1000, 1000, 2000, 2000, 4000}[random.IntN(10)]
		jobs = append(jobs, job{at.Round(time.Second), length(random), cpu, cpu * 2})
	}
	for at := time.Duration(0); at < 24*time.Hour; {
		// From one in ten seconds at three in the morning to one in two and a half at three in the afternoon.
		rate := 0.25 + 0.15*math.Sin(2*math.Pi*(at.Hours()-9)/24)
		at += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		add(min(at, 24*time.Hour))
	}
	for hour := range 24 {
		for range 80 {
			add(time.Duration(hour)*time.Hour + time.Duration(random.IntN(120))*time.Second)
		}
	}
	for _, hour := range []int{9, 15} {
		for range 700 {
			add(time.Duration(hour)*time.Hour + 20*time.Minute + time.Duration(random.IntN(600))*time.Second)
		}
	}
	return newTrace("day", 200, jobs)
}

// compression is that of compressed.
const compression = 10

// compressed is a wave of two hours in a tenth of the time, for small nodes: a control plane of a test can do it, too.
// Back-offs and the autoscaler's period are not compressed.
func compressed(seed uint64) trace {
	random := rand.New(rand.NewPCG(seed, 9))
	var jobs []job
	add := func(at time.Duration) {
		jobs = append(jobs, job{(at / compression).Round(time.Second), (min(length(random), 90*time.Minute) / compression).Round(time.Second), 500, 500})
	}
	for range 40 {
		add(time.Duration(random.IntN(300)) * time.Second)
	}
	for at := 10 * time.Minute; at < 90*time.Minute; at += time.Duration(random.ExpFloat64() * 120 * float64(time.Second)) {
		add(at)
	}
	t := newTrace("compressed", 20, jobs)
	t.until = 12 * time.Minute
	t.cpu, t.memory, t.boot, t.deleted = 4000, 16<<10, t.boot/compression, true
	t.timing.Grace, t.timing.Patience = t.timing.Grace/compression, t.timing.Patience/compression
	t.jobs = slices.DeleteFunc(t.jobs, func(j job) bool { return j.ends()+t.boot+30*time.Second > t.until })
	return t
}

// compressedPolicy is the policy for compressed.
func compressedPolicy() workloadclasses.Policy {
	policy := workloadclasses.DefaultPolicy()
	policy.Period, policy.MaxCordon, policy.MinNodeAge = policy.Period/compression, policy.MaxCordon/compression, policy.MinNodeAge/compression
	return policy
}
