// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// Flags of a task (Linux, include/linux/sched.h).
const (
	isKernelThread = 0x00200000 // PF_KTHREAD
	isBound        = 0x04000000 // PF_NO_SETAFFINITY: it cannot be moved
)

// monitors begin the names of the processes by which runtimes watch containers. The kernel keeps
// 15 bytes of a name.
var monitors = []string{"containerd-shim", "conmon"}

// mostNamed is how many names a note has; it counts the others.
const mostNamed = 4

// remarks returns the notes: what may run on CPUs outside the pools, and who it is. Without pools
// there is none.
func (n *node) remarks() (notes []Finding) {
	add := func(code Code, object, format string, args ...any) {
		notes = append(notes, Finding{Code: code, Object: object, Message: fmt.Sprintf(format, args...), Remedy: remedies[code]})
	}
	for _, note := range n.notes {
		add(NotePinning, partition.PinningFilePath, "%s", note)
	}
	if n.rightsErr != nil {
		add(NotePermissions, "partitioned pods", "it was not checked whether their namespaces allow their type, which the node does not know: %v", n.rightsErr)
	}
	pooled := n.pools.Union()
	if pooled.IsEmpty() {
		return notes
	}
	onIsolated := n.pools.OnIsolated(n.isolated)
	for _, workloadType := range slices.Sorted(maps.Keys(onIsolated)) {
		add(NoteIsolated, "pool of "+workloadType, "%s", partition.OnIsolatedMessage(workloadType, n.pools[workloadType], onIsolated[workloadType]))
	}
	outside := n.online.Difference(pooled)
	n.narrow(add)
	n.sandboxes(pooled, add)
	n.processes(outside, add)
	n.interrupts(outside, add)
	if text, err := readText(filepath.Join(n.host.Sys, "devices/virtual/workqueue/cpumask")); err == nil {
		if mask, err := parseMask(text); err == nil && !mask.Intersection(outside).IsEmpty() {
			add(NoteWorkqueues, "unbound workqueues", "the kernel's unbound workqueues may use CPU %s outside the pools", mask.Intersection(outside))
		}
	}
	n.disks(outside, add)
	n.slices(outside, add)
	return notes
}

type adder func(code Code, object, format string, args ...any)

// narrow notes containers and tasks that may use fewer CPUs than their pool has: no leak, but
// less than was asked for.
func (n *node) narrow(add adder) {
	for _, g := range n.groups {
		pool, confined := n.confined(g.pod)
		if !confined || g.kind != ofContainer {
			continue
		}
		pool = pool.Intersection(n.online)
		lists := map[string]bool{g.usage.effective.String(): g.usage.effective.IsSubsetOf(pool) && !g.usage.effective.Equals(pool)}
		for _, id := range g.tasks {
			if t, runs := n.tasks[id]; runs && t.allowed.IsSubsetOf(pool) && !t.allowed.Equals(pool) {
				lists[t.allowed.String()] = true
			}
		}
		for _, list := range slices.Sorted(maps.Keys(lists)) {
			if lists[list] {
				add(NoteNarrow, g.object(), "it, or a task in it, may use only CPU %s of its pool %s", list, pool)
			}
		}
	}
}

// sandboxes notes those of ordinary pods on a pool, all in one: upstream gives them every CPU.
func (n *node) sandboxes(pooled cpuset.CPUSet, add adder) {
	var who []string
	for _, g := range n.groups {
		if _, confined := n.confined(g.pod); g.kind == sandbox && !confined && !g.usage.effective.Intersection(pooled).IsEmpty() {
			who = append(who, g.pod.String())
		}
	}
	if len(who) > 0 {
		add(NoteSandboxes, "ordinary pods", "%s may use CPUs of the pools: those of %s", count(len(who), "sandbox", "sandboxes"), named(who))
	}
}

// processes notes the host's processes outside the pools, by their units.
func (n *node) processes(outside cpuset.CPUSet, add adder) {
	type key struct{ code, who string }
	found := map[key]map[string]int{}
	cpus := map[key]cpuset.CPUSet{}
	for id, t := range n.tasks {
		on := t.allowed.Intersection(outside)
		if on.IsEmpty() || n.inPods[id] || t.flags&isBound != 0 || id != t.process {
			continue
		}
		k := key{string(NoteProcesses), ""}
		switch {
		case t.flags&isKernelThread != 0:
			k.code, k.who = string(NoteKernel), "kernel threads"
		case slices.ContainsFunc(monitors, func(name string) bool { return strings.HasPrefix(t.comm, name) }):
			k.code = string(NoteMonitors)
		}
		if k.who == "" {
			k.who = n.unit(id)
		}
		if found[k] == nil {
			found[k], cpus[k] = map[string]int{}, cpuset.New()
		}
		found[k][fmt.Sprintf("%q", t.comm)]++
		cpus[k] = cpus[k].Union(on)
	}
	keys := slices.SortedFunc(maps.Keys(found), func(a, b key) int { return strings.Compare(a.code+a.who, b.code+b.who) })
	for _, k := range keys {
		total := 0
		for _, processes := range found[k] {
			total += processes
		}
		add(Code(k.code), k.who, "%s may use CPU %s outside the pools: %s", count(total, "process", "processes"), cpus[k], named(slices.Sorted(maps.Keys(found[k]))))
	}
}

// unit returns the systemd unit of a process, or its cgroup.
func (n *node) unit(pid int) string {
	procs, err := n.host.procfs()
	if err != nil {
		return "host"
	}
	process, err := procs.Proc(pid)
	if err != nil {
		return "host"
	}
	cgroups, err := process.Cgroups()
	if err != nil {
		return "host"
	}
	for _, cgroup := range cgroups {
		if cgroup.HierarchyID != 0 && !slices.Contains(cgroup.Controllers, "name=systemd") {
			continue
		}
		parts := strings.Split(cgroup.Path, "/")
		for _, part := range slices.Backward(parts) {
			if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") || strings.HasSuffix(part, ".slice") {
				return part
			}
		}
	}
	return "host"
}

// interrupts notes those that may be handled outside the pools, all with the same CPUs in one.
func (n *node) interrupts(outside cpuset.CPUSet, add adder) {
	found := map[string][]string{}
	irqs, _ := filepath.Glob(filepath.Join(n.host.Proc, "irq", "[0-9]*")) // the pattern is well-formed
	for _, irq := range irqs {
		path := filepath.Join(irq, "smp_affinity_list")
		text, err := readText(path)
		if err != nil {
			continue // it has gone
		}
		cpus, err := parseCPUs(path, text)
		if on := cpus.Intersection(outside); err == nil && !on.IsEmpty() {
			name := filepath.Base(irq)
			// The kernel makes a directory for each handler, with its name.
			entries, _ := os.ReadDir(irq)
			for _, entry := range entries {
				if entry.IsDir() {
					name += " " + entry.Name()
				}
			}
			found[on.String()] = append(found[on.String()], name)
		}
	}
	for _, cpus := range slices.Sorted(maps.Keys(found)) {
		add(NoteInterrupts, "host", "%s may be handled on CPU %s outside the pools: %s", count(len(found[cpus]), "interrupt", "interrupts"), cpus, named(found[cpus]))
	}
}

// disks notes those whose requests may end on another CPU than they began on, all in one. What then runs there is soft
// interrupts, RCU callbacks and the threads of that CPU.
func (n *node) disks(outside cpuset.CPUSet, add adder) {
	if outside.IsEmpty() {
		return
	}
	var who []string
	for _, path := range n.host.disks() {
		if text, err := readText(path); err == nil && text != "2" {
			who = append(who, filepath.Base(filepath.Dir(filepath.Dir(path))))
		}
	}
	if len(who) > 0 {
		add(NoteDisks, "host", "requests of %s may end on CPU %s outside the pools, although the pools began them: %s", count(len(who), "disk", "disks"), outside, named(who))
	}
}

// slices notes systemd's slices and scopes at the top that may use CPUs outside the pools. On
// cgroup v1 systemd does not manage cpusets.
func (n *node) slices(outside cpuset.CPUSet, add adder) {
	if n.cgroups.v1 {
		return
	}
	for _, child := range n.cgroups.children("/") {
		name := filepath.Base(child)
		if strings.HasPrefix(name, "kubepods") || !(strings.HasSuffix(name, ".slice") || strings.HasSuffix(name, ".scope")) {
			continue
		}
		r := reader{}
		effective := r.cpus(n.cgroups.dir("", child), "cpuset.cpus.effective")
		if on := effective.Intersection(outside); r.err == nil && !on.IsEmpty() {
			add(NoteSlices, name, "everything in it may use CPU %s outside the pools", on)
		}
	}
}

// count returns a number with its noun.
func count(number int, one, many string) string {
	if number == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", number, many)
}

// named lists a few names, and counts the others.
func named(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
