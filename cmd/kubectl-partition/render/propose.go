// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/topology"
)

// DefaultCPUs is how many CPUs a pool usually has on a single-node cluster (design, section 1).
const DefaultCPUs = 4

// Proposal is a pool that Propose chose.
type Proposal struct {
	Pool cpuset.CPUSet
	// Reasons are sentences that explain the choice, in the order of its steps.
	Reasons []string
}

// Propose chooses a pool of at least so many CPUs: whole physical cores with all their
// threads, on one NUMA node, CPU 0 among them if that is possible. It leaves out CPUs that the
// kernel argument isolcpus sets aside for an application. It returns an error if no NUMA node
// has as many, or no CPU would be left.
func Propose(host *topology.Topology, cpus int) (Proposal, error) {
	if cpus < 1 {
		return Proposal{}, fmt.Errorf("a pool needs at least one CPU, not %d", cpus)
	}
	// The node of CPU 0 comes first: it has the lowest CPU of all.
	nodes := slices.Clone(host.Nodes)
	slices.SortStableFunc(nodes, func(a, b topology.Node) int { return a.CPUs.List()[0] - b.CPUs.List()[0] })
	var pool cpuset.CPUSet
	var on topology.Node
	var cores []cpuset.CPUSet
	most := 0
	for _, on = range nodes {
		pool, cores = cpuset.New(), nil
		for _, core := range host.Cores {
			if pool.Size() < cpus && core.Node == on.Number && core.CPUs.Intersection(host.Isolated).IsEmpty() {
				pool = pool.Union(core.CPUs)
				cores = append(cores, core.CPUs)
			}
		}
		most = max(most, pool.Size())
		if pool.Size() >= cpus {
			break
		}
	}
	if pool.Size() < cpus {
		return Proposal{}, fmt.Errorf("no NUMA node has %d CPUs of whole physical cores that are not isolated; %d is the most", cpus, most)
	}
	rest := host.Online.Difference(pool)
	if rest.IsEmpty() {
		return Proposal{}, fmt.Errorf("a pool of %d CPUs would be every CPU of the host, %s; ask for fewer", cpus, host.Online)
	}
	p := Proposal{Pool: pool}
	say := func(format string, args ...any) { p.Reasons = append(p.Reasons, fmt.Sprintf(format, args...)) }
	say("The host has %s, %s: %s on %s.", count(host.Online.Size(), "CPU"), host.Online, count(len(host.Cores), "physical core"), count(len(host.Nodes), "NUMA node"))
	say("The pool is %s.", pool)
	if threads := cores[0].Size(); threads > 1 {
		say("These are whole physical cores, so that no application shares a core with the pool: %s.", siblings(cores))
	}
	if extra := pool.Size() - cpus; extra > 0 {
		say("You asked for %s. The last core has %s more, which the pool takes as well.", count(cpus, "CPU"), fmt.Sprint(extra))
	}
	if len(host.Nodes) > 1 {
		say("All of them are on NUMA node %d, so that pods of the pool share caches and memory.", on.Number)
	}
	if pool.Contains(0) {
		say("CPU 0 is among them: the kernel has work that it can do only there.")
	}
	if !host.Isolated.IsEmpty() {
		say("CPUs %s were left out: the kernel argument isolcpus sets them aside.", host.Isolated)
	}
	say("That leaves %s to ordinary pods: %s.", count(rest.Size(), "CPU"), rest)
	return p, nil
}

// siblings prints cores as 0 with 4, 1 with 5.
func siblings(cores []cpuset.CPUSet) (text string) {
	for i, core := range cores {
		if i > 0 {
			text += ", "
		}
		first := cpuset.New(core.List()[0])
		text += first.String()
		if others := core.Difference(first); !others.IsEmpty() {
			text += " with " + others.String()
		}
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
