/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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

// This file keeps the QoS classes Burstable and BestEffort off CPUs that a container holds
// exclusively (design, section 6, exclusive from the first instruction). The CPU manager
// alone would move their containers off such a CPU up to ten seconds later, and never their
// sandboxes. Guaranteed pods, which may have exclusive CPUs, are not below these classes.

// classes is what is known about the classes' cgroups. Its lock also guards the cpusets of
// these cgroups and of those below.
type classes struct {
	sync.Mutex
	// names are the cgroups of Burstable and BestEffort; empty until upstream first updates
	// them.
	names []string
	// update has upstream update the classes' cgroups, which calls ConfineClasses.
	update func() error
	// kept means that the classes kept exclusive CPUs at the time updated, for a container that
	// had yet to move off them.
	kept    bool
	updated time.Time
	// narrowed are the cgroups of containers, and those below, that were narrowed together with a
	// cgroup above them, by path; see cpusets.fit.
	narrowed map[string]narrowing
	// freed means that this kubelet, which excludes nothing, has given all CPUs to the
	// classes and to the ordinary pods in them.
	freed bool
}

// ConfineClasses takes the exclusive CPUs from the classes Burstable and BestEffort. Upstream
// calls it in every update of their cgroups, among other times before it creates a pod's
// cgroup (pkg/kubelet/cm/qos_container_manager_linux.go, UpdateCgroups). update is that
// function. burstable and bestEffort are the cgroups. ConfineClasses sets burstableCPUs and
// bestEffortCPUs to what upstream must write there; the zero value means that it writes none.
//
// On cgroup v2 the kernel would run a container that has no CPU in common with its class on
// all CPUs of the class, pools included. So the class keeps that container's CPUs until the
// CPU manager has moved it.
//
// On cgroup v1 the kernel refuses a cpuset that does not hold those of all cgroups below. So
// ConfineClasses first fits the cgroups below, and writes the classes itself.
func ConfineClasses[F updateCgroups](update F, burstable string, burstableCPUs *cpuset.CPUSet, bestEffort string, bestEffortCPUs *cpuset.CPUSet) {
	n, on := partitions()
	if !on {
		return
	}
	shim.classes.Lock()
	defer shim.classes.Unlock()
	shim.classes.names = []string{burstable, bestEffort}
	shim.classes.update = func() error { return callUpdateCgroups(update) }
	sets := hierarchy()
	sets.forgetNarrowed()
	cpus, otherwise, known := n.classCPUs(sets)
	if !known {
		return
	}
	if n.excludes() && !sets.v1 {
		needed := neededBelow(sets, cpus)
		cpus, shim.classes.kept, shim.classes.updated = cpus.Union(needed), !needed.IsEmpty(), time.Now()
	}
	ok := true
	for i, set := range []*cpuset.CPUSet{burstableCPUs, bestEffortCPUs} {
		var err error
		if *set, err = confineClass(sets, shim.classes.names[i], cpus, otherwise); err != nil {
			ok, *set = false, cpuset.CPUSet{}
			shim.host.log.Error(err, "Cannot give a QoS class's cgroup its CPUs; trying again at the next update", "cgroup", shim.classes.names[i], "cpus", cpus.String())
		}
	}
	if ok && !n.excludes() && !shim.classes.freed {
		shim.classes.freed = freePods(sets)
	}
}

// classesKnown reports whether upstream has named the classes' cgroups.
func classesKnown() bool {
	shim.classes.Lock()
	defer shim.classes.Unlock()
	return len(shim.classes.names) > 0
}

// confineClass returns the cpuset that upstream must write to a class's cgroup; the zero
// value means none. On cgroup v1 it writes the cpuset itself. otherwise is for cgroups below
// that would have no CPU left.
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
		return cpuset.CPUSet{}, sets.fit(class, cpus, otherwise, 2)
	}
	if has.IsEmpty() && sets.all().IsSubsetOf(cpus) {
		return cpuset.CPUSet{}, nil // nothing is exclusive, and nothing ever was
	}
	return cpus, nil
}

// neededBelow returns the CPUs that containers in the classes still need, although the classes
// should not have them. A container needs its cpuset if it has none of the given CPUs.
// neededBelow looks at the containers' cgroups, and at the cpusets that the CPU manager gave
// them last, or is giving them now: their cgroups might have them only later. One that has ended
// needs nothing, and the CPU manager never learns that of an init container.
func neededBelow(sets cpusets, cpus cpuset.CPUSet) cpuset.CPUSet {
	needed := cpuset.New()
	add := func(set cpuset.CPUSet) {
		if set.Intersection(cpus).IsEmpty() {
			needed = needed.Union(set)
		}
	}
	for _, class := range shim.classes.names {
		for _, pod := range sets.children(class) {
			for _, container := range sets.children(pod) {
				set, _ := sets.cpus(container) // empty if it has gone
				add(set)
			}
		}
	}
	shim.observed.Lock()
	activePods, assigned, last := shim.observed.activePods, shim.observed.state, shim.observed.lastUpdates
	shim.observed.Unlock()
	if activePods == nil || last == nil {
		return needed
	}
	holders := map[string]bool{}
	for _, a := range assignmentsOf(assigned) {
		holders[a.Pod] = true
	}
	for _, pod := range activePods() {
		uid := string(pod.UID)
		if holders[uid] {
			continue // Guaranteed, so in no class
		}
		ended := shim.observed.ended(pod)
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				if ended[containers[i].Name] {
					continue
				}
				given, _ := last.GetCPUSet(uid, containers[i].Name)
				add(given)
				add(shim.observed.givingTo(pod.UID, containers[i].Name))
			}
		}
	}
	return needed
}

// updateKept has upstream update the classes again while they keep exclusive CPUs, at most
// once a second.
func updateKept() {
	shim.classes.Lock()
	update, due := shim.classes.update, shim.classes.kept && time.Since(shim.classes.updated) > time.Second
	shim.classes.Unlock()
	if due {
		if err := update(); err != nil {
			shim.host.log.Error(err, "Cannot update the QoS classes' cgroups")
		}
	}
}

// freePods gives ordinary pods the cpuset of their class, on cgroup v1, where they were
// narrowed together with it. It leaves partitioned pods to RepairPodCgroup. It reports whether
// all pods have been freed.
func freePods(sets cpusets) bool {
	pods, known := shim.observed.allPods()
	done := known
	for _, pod := range pods {
		if _, partitioned := partition.PartitionedType(pod); partitioned || !sets.v1 {
			continue
		}
		if path, found := sets.podCgroup(pod); found {
			if err := sets.widenToParent(path, sameAsItsPod); err != nil && !gone(err) {
				done = false
				shim.host.log.Error(err, "Cannot give a pod's cgroup its CPUs back; trying again at the next update", "pod", klog.KObj(pod), "cgroup", path)
			}
		}
	}
	return done
}

// classCPUs returns the CPUs for the classes and, in otherwise, those for a cgroup below that
// would have none of them left. It returns false while these are unknown, or if the classes
// must stay as upstream makes them.
func (n *node) classCPUs(sets cpusets) (cpus, otherwise cpuset.CPUSet, known bool) {
	all := sets.all()
	if !n.excludes() {
		return all, all, shim.host.previous.mayHaveNarrowed() || (n != nil && !n.Pooled.IsEmpty())
	}
	shim.observed.Lock()
	assigned, ready := shim.observed.state, shim.observed.ready
	shim.observed.Unlock()
	if assigned == nil {
		return cpus, otherwise, false
	}
	exclusive := cpuset.New()
	for _, a := range assignmentsOf(assigned) {
		exclusive = exclusive.Union(a.CPUs)
	}
	// No pool loses a CPU that upstream gave away; see refuse.
	cpus, otherwise = all.Difference(exclusive.Difference(n.Pooled)), n.sharedIn(assigned).Intersection(onlineCPUs())
	if otherwise.IsEmpty() {
		// Nothing is left to share, so shared containers run on CPUs that are exclusive or reserved.
		// The classes keep these CPUs: a container without any CPU left would be spread over the
		// pools. They are known once all pods are. Until then the classes keep what they have, and get
		// the CPU for containers that start.
		var used cpuset.CPUSet
		if ready != nil && ready() {
			used, _ = n.unsharedNow()
		} else if used, known = classesHave(sets); !known {
			return cpus, otherwise, false
		}
		spare := n.unshared(cpuset.New())
		cpus, otherwise = cpus.Union(used).Union(spare), spare
	}
	return cpus, otherwise, true
}

// classesHave returns the CPUs that the classes have now, together; false if one of them has no cpuset,
// and so lacks none.
func classesHave(sets cpusets) (all cpuset.CPUSet, known bool) {
	for _, class := range shim.classes.names {
		has, err := sets.cpus(class)
		if err != nil || has.IsEmpty() {
			return all, false
		}
		all = all.Union(has)
	}
	return all, true
}

// excludes reports whether this kubelet keeps the classes off exclusive CPUs.
func (n *node) excludes() bool { return n != nil && !n.Pooled.IsEmpty() && shim.host.static }

// freed reports whether this kubelet, which has no pools, has taken back the cpusets that a
// previous one gave to the cgroups of pods and classes, as far as it can.
func freed() bool {
	if !shim.host.podCgroups {
		return true
	}
	shim.classes.Lock()
	done := shim.classes.freed
	shim.classes.Unlock()
	return done && shim.observed.noneNeedsRepair()
}
