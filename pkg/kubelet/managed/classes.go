package managed

import (
	"path/filepath"
	"sync"

	"k8s.io/utils/cpuset"
)

// This file keeps the QoS classes Burstable and BestEffort off CPUs that a container has
// exclusively (design, section 6, exclusive from the first instruction). The CPU manager
// moves their containers off such a CPU up to ten seconds later, and never their sandboxes.
// Guaranteed pods, which may have exclusive CPUs, are not below these classes.

// classes guards the sets of the classes' cgroups.
var classes struct {
	sync.Mutex
	names []string
	// freed tells that this kubelet, which excludes nothing, has given the classes all CPUs.
	freed bool
}

// ConfineClasses sets the CPUs of the classes Burstable and BestEffort in an update of their
// cgroups, which it is given too: all but the exclusive ones. Upstream updates them before
// it creates a pod's cgroup, among other times (pkg/kubelet/cm/qos_container_manager_linux.go,
// UpdateCgroups).
//
// On cgroup v1 the kernel refuses a set that does not hold those of all cgroups below, so
// these are fitted, and the classes written, here.
func ConfineClasses(burstable string, burstableCPUs *cpuset.CPUSet, bestEffort string, bestEffortCPUs *cpuset.CPUSet) {
	n := current.Load()
	if n == nil && !host.wasOn {
		return
	}
	classes.Lock()
	defer classes.Unlock()
	classes.names = []string{burstable, bestEffort}
	cpus, otherwise, known := n.classCPUs()
	if !known {
		return
	}
	ok := true
	for i, set := range []*cpuset.CPUSet{burstableCPUs, bestEffortCPUs} {
		var err error
		if *set, err = confineClass(hierarchy(), classes.names[i], cpus, otherwise); err != nil {
			ok = false
			host.log.Error(err, "A class's cgroup cannot be given its CPUs; trying again at the next update", "cgroup", classes.names[i], "cpus", cpus.String())
		}
	}
	classes.freed = ok && n == nil
}

// classesKnown reports whether upstream has told of the classes' cgroups.
func classesKnown() bool {
	classes.Lock()
	defer classes.Unlock()
	return len(classes.names) > 0
}

// confineClass returns the set that upstream is to write; the zero value means none.
func confineClass(sets cpusets, class string, cpus, otherwise cpuset.CPUSet) (cpuset.CPUSet, error) {
	has, err := sets.cpus(class)
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	if sets.v1 {
		above, err := sets.cpus(filepath.Dir(class))
		if err != nil {
			return cpuset.CPUSet{}, err
		}
		if cpus = cpus.Intersection(above); cpus.Equals(has) || cpus.IsEmpty() {
			return cpuset.CPUSet{}, nil
		}
		return cpuset.CPUSet{}, sets.fit(class, cpus, otherwise)
	}
	if has.IsEmpty() && onlineCPUs().IsSubsetOf(cpus) {
		return cpuset.CPUSet{}, nil // there is nothing to exclude, and never was
	}
	return cpus, sets.fit(class, cpus, otherwise)
}

// classCPUs returns the CPUs of the classes, and those for a cgroup below them of whose set
// they have none; false if it is not known yet, or no business of this project.
func (n *node) classCPUs() (cpus, otherwise cpuset.CPUSet, known bool) {
	online := onlineCPUs()
	if n == nil || n.pooled.IsEmpty() || !host.static {
		return online, online, host.wasOn
	}
	observed.Lock()
	assigned, ready := observed.state, observed.ready
	observed.Unlock()
	if assigned == nil {
		return cpus, otherwise, false
	}
	exclusive := cpuset.New()
	for _, a := range assignmentsOf(assigned) {
		exclusive = exclusive.Union(a.cpus)
	}
	cpus, otherwise = online.Difference(exclusive), assigned.GetDefaultCPUSet().Intersection(online)
	if otherwise.IsEmpty() {
		// The kernel would spread a container over the pools if nothing of its set were left.
		if ready == nil || !ready() {
			return cpus, otherwise, false
		}
		used, _ := n.unsharedNow()
		cpus, otherwise = cpus.Union(used).Union(n.fallback), n.fallback
	}
	return cpus, otherwise, true
}

// onlineCPUs are those that the host has now.
func onlineCPUs() cpuset.CPUSet {
	if online, err := readCPUs(onlineCPUsFile); err == nil {
		return online
	}
	return host.online
}

// freed reports whether this kubelet, which has no pools, has taken back what it can
// of the sets that an earlier one gave to cgroups of pods and classes.
func freed() bool {
	if !host.podCgroups {
		return true
	}
	classes.Lock()
	done := classes.freed
	classes.Unlock()
	return done && observed.sawToAll()
}
