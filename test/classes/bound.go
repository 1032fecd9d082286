// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"math"
	"slices"
	"time"
)

// leastHours is less than or equal to what anybody needs who starts all pods when they are created: at
// each moment as many nodes as the sum of what pods ask for.
func leastHours(t trace) (hours float64) {
	type change struct {
		at          time.Duration
		cpu, memory int64
	}
	var changes []change
	for _, j := range t.jobs {
		cpu, memory := j.cpu+overheadCPU, j.memory+overheadMemory
		changes = append(changes, change{j.created, cpu, memory}, change{j.ends(), -cpu, -memory})
	}
	slices.SortFunc(changes, func(a, b change) int { return int(a.at - b.at) })
	var cpu, memory int64
	var before time.Duration
	for _, c := range changes {
		nodes := math.Ceil(max(float64(cpu)/float64(t.cpu), float64(memory)/float64(t.memory)))
		hours += nodes * (c.at - before).Hours()
		cpu, memory, before = cpu+c.cpu, memory+c.memory, c.at
	}
	return hours
}

// requestHours is the sum of what pods ask for, as hours of nodes that are full.
func requestHours(t trace) (hours float64) {
	for _, j := range t.jobs {
		hours += max(float64(j.cpu+overheadCPU)/float64(t.cpu), float64(j.memory+overheadMemory)/float64(t.memory)) * j.length.Hours()
	}
	return hours
}

// planByArrival is what a planner needs that knows how long each pod runs, never evicts, and has nodes at once:
// each pod goes where it lengthens the life of a node least.
func planByArrival(t trace) (hours float64) {
	type node struct {
		from, to time.Duration
		jobs     []job
	}
	var nodes []*node
	for _, j := range t.jobs {
		var best *node
		longer := func(n *node) time.Duration { return max(0, j.ends()-n.to) }
		nodes = slices.DeleteFunc(nodes, func(n *node) bool {
			if n.to > j.created {
				return false
			}
			hours += (n.to - n.from).Hours()
			return true
		})
		for _, n := range nodes {
			n.jobs = slices.DeleteFunc(n.jobs, func(has job) bool { return has.ends() <= j.created })
			cpu, memory := j.cpu+overheadCPU, j.memory+overheadMemory
			for _, has := range n.jobs {
				cpu, memory = cpu+has.cpu+overheadCPU, memory+has.memory+overheadMemory
			}
			if cpu > t.cpu || memory > t.memory {
				continue
			}
			if best == nil || longer(n) < longer(best) || longer(n) == longer(best) && n.to > best.to {
				best = n
			}
		}
		if best == nil {
			best = &node{from: j.created, to: j.created}
			nodes = append(nodes, best)
		}
		best.jobs = append(best.jobs, j)
		best.to = max(best.to, j.ends())
	}
	for _, n := range nodes {
		hours += (n.to - n.from).Hours()
	}
	return hours
}

// planByLength is what another planner needs: the longest pods first, each on the first node that has room
// all the time it runs, where it lengthens the node's life least.
func planByLength(t trace) (hours float64) {
	const slot = 10 * time.Second
	slots := int(t.until/slot) + 2
	type node struct {
		cpu, memory []int64
		from, to    int
	}
	jobs := slices.Clone(t.jobs)
	slices.SortStableFunc(jobs, func(a, b job) int { return int(b.length - a.length) })
	var nodes []*node
	for _, j := range jobs {
		from, to := int(j.created/slot), int((j.ends()+slot-1)/slot)
		cpu, memory := j.cpu+overheadCPU, j.memory+overheadMemory
		var best *node
		longer := func(n *node) int { return max(n.to, to) - min(n.from, from) - (n.to - n.from) }
		for _, n := range nodes {
			if from > n.to || to < n.from || best != nil && longer(n) >= longer(best) {
				continue
			}
			fits := true
			for at := from; at < to && fits; at++ {
				fits = n.cpu[at]+cpu <= t.cpu && n.memory[at]+memory <= t.memory
			}
			if fits {
				best = n
			}
		}
		if best == nil || longer(best) >= to-from {
			best = &node{make([]int64, slots), make([]int64, slots), from, to}
			nodes = append(nodes, best)
		}
		for at := from; at < to; at++ {
			best.cpu[at] += cpu
			best.memory[at] += memory
		}
		best.from, best.to = min(best.from, from), max(best.to, to)
	}
	for _, n := range nodes {
		hours += float64(n.to-n.from) * slot.Hours()
	}
	return hours
}
