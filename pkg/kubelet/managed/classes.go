package managed

import (
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file keeps the QoS classes Burstable and BestEffort off CPUs that a container has
// exclusively (design, section 6, exclusive from the first instruction). The CPU manager
// moves their containers off such a CPU up to ten seconds later, and never their sandboxes.
// Guaranteed pods, which may have exclusive CPUs, are not below these classes.

// classes guards the sets of the classes' cgroups.
var classes struct {
	sync.Mutex
	names []string
	// update has upstream update the cgroups of the classes.
	update func() error
	// kept tells that they have exclusive CPUs that a container below needs until it is moved;
	// that was so at the time updated.
	kept    bool
	updated time.Time
	// freed tells that this kubelet, if it excludes nothing, has given all CPUs to the classes
	// and to the ordinary pods in them.
	freed bool
}

// ConfineClasses sets the CPUs of the classes Burstable and BestEffort in an update of their
// cgroups, which it is given too: all but the exclusive ones. Upstream updates them before
// it creates a pod's cgroup, among other times (pkg/kubelet/cm/qos_container_manager_linux.go,
// UpdateCgroups).
//
// update is that function.
//
// On cgroup v1 the kernel refuses a set that does not hold those of all cgroups below, so
// these are fitted, and the classes written, here. On v2 it would put a container of whose
// set the class has nothing on all CPUs of the class, pools included: the class keeps that
// set until the CPU manager has moved the container.
func ConfineClasses[F updateCgroups](update F, burstable string, burstableCPUs *cpuset.CPUSet, bestEffort string, bestEffortCPUs *cpuset.CPUSet) {
	n, on := partitions()
	if !on {
		return
	}
	classes.Lock()
	defer classes.Unlock()
	classes.names = []string{burstable, bestEffort}
	classes.update = func() error { return callUpdateCgroups(update) }
	sets := hierarchy()
	cpus, otherwise, known := n.classCPUs(sets)
	if !known {
		return
	}
	if n.excludes() && !sets.v1 {
		needed := neededBelow(sets, cpus)
		cpus, classes.kept, classes.updated = cpus.Union(needed), !needed.IsEmpty(), time.Now()
	}
	ok := true
	for i, set := range []*cpuset.CPUSet{burstableCPUs, bestEffortCPUs} {
		var err error
		if *set, err = confineClass(sets, classes.names[i], cpus, otherwise); err != nil {
			ok, *set = false, cpuset.CPUSet{}
			host.log.Error(err, "A class's cgroup cannot be given its CPUs; trying again at the next update", "cgroup", classes.names[i], "cpus", cpus.String())
		}
	}
	if ok && !n.excludes() && !classes.freed {
		classes.freed = freePods(sets)
	}
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
	if has.IsEmpty() && sets.all().IsSubsetOf(cpus) {
		return cpuset.CPUSet{}, nil // there is nothing to exclude, and never was
	}
	return cpus, nil
}

// neededBelow returns the sets of containers in the classes that have nothing of the given
// CPUs: what their cgroups have, and what the CPU manager has given, or is giving, them.
func neededBelow(sets cpusets, cpus cpuset.CPUSet) cpuset.CPUSet {
	needed := cpuset.New()
	add := func(set cpuset.CPUSet) {
		if set.Intersection(cpus).IsEmpty() {
			needed = needed.Union(set)
		}
	}
	for _, class := range classes.names {
		for _, pod := range sets.children(class) {
			for _, container := range sets.children(pod) {
				set, _ := sets.cpus(container) // it may go
				add(set)
			}
		}
	}
	observed.Lock()
	activePods, assigned, last := observed.activePods, observed.state, observed.lastUpdates
	observed.Unlock()
	if activePods == nil || last == nil {
		return needed
	}
	holders := map[string]bool{}
	for _, a := range assignmentsOf(assigned) {
		holders[a.pod] = true
	}
	for _, pod := range activePods() {
		uid := string(pod.UID)
		if holders[uid] {
			continue
		}
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				given, _ := last.GetCPUSet(uid, containers[i].Name)
				add(given)
				add(observed.givingTo(uid, containers[i].Name))
			}
		}
	}
	return needed
}

// updateKept has the classes updated again while they have CPUs that they should not have,
// once a second.
func updateKept() {
	classes.Lock()
	update, due := classes.update, classes.kept && time.Since(classes.updated) > time.Second
	classes.Unlock()
	if due {
		if err := update(); err != nil {
			host.log.Error(err, "The classes' cgroups cannot be updated")
		}
	}
}

// freePods gives ordinary pods, on cgroup v1, the set of their class: they were narrowed with
// it. Partitioned ones are RepairPodCgroup's. It reports whether that is done.
func freePods(sets cpusets) bool {
	pods, known := observed.allPods()
	done := known
	for _, pod := range pods {
		if _, partitioned := partition.TypeOf(pod); partitioned || !sets.v1 {
			continue
		}
		if path, found := sets.podCgroup(pod); found {
			if err := sets.restore(path, likeItsPod); err != nil && !gone(err) {
				done = false
				host.log.Error(err, "A pod's cgroup cannot be given back its CPUs; trying again at the next update", "pod", klog.KObj(pod), "cgroup", path)
			}
		}
	}
	return done
}

// classCPUs returns the CPUs of the classes, and those for a cgroup below them of whose set
// they have none; false if it is not known yet, or no business of this project.
func (n *node) classCPUs(sets cpusets) (cpus, otherwise cpuset.CPUSet, known bool) {
	all := sets.all()
	if !n.excludes() {
		return all, all, host.earlier.confined || (n != nil && !n.pooled.IsEmpty())
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
	cpus, otherwise = all.Difference(exclusive), assigned.GetDefaultCPUSet().Intersection(onlineCPUs())
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

// excludes reports whether the classes are kept off exclusive CPUs.
func (n *node) excludes() bool { return n != nil && !n.pooled.IsEmpty() && host.static }

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
