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
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// shared returns the shared CPUs.
func (n *node) shared() cpuset.CPUSet {
	shim.observed.Lock()
	assigned := shim.observed.state
	shim.observed.Unlock()
	if shim.host.static && assigned != nil {
		// Without the lock: it waits while the CPU manager writes its checkpoint.
		return n.sharedIn(assigned)
	}
	return n.Ordinary
}

// sharedIn returns the CPUs that are shared according to the CPU manager's state. When an exclusive
// container ends, the CPU manager shares all of its CPUs, those of a pool included; see refuse.
func (n *node) sharedIn(assigned state.State) cpuset.CPUSet {
	return assigned.GetDefaultCPUSet().Difference(n.Pooled)
}

// reportShared sends an Event when exclusive containers have taken every CPU that was shared,
// or every CPU is reserved. The Event names the CPUs on which shared containers run then, and the pods that they
// disturb there. A second Event reports the end.
func (n *node) reportShared() {
	if n.Pooled.IsEmpty() {
		return
	}
	message := n.nothingShared()
	shim.observed.Lock()
	before := shim.observed.unshared
	shim.observed.unshared = message
	shim.observed.Unlock()
	switch {
	case message == before:
	case message == "":
		nodeEvent(v1.EventTypeNormal, partition.EventNoSharedCPUs, "Containers without exclusive CPUs share the CPUs %q again", n.shared().String())
	default:
		nodeEvent(v1.EventTypeWarning, partition.EventNoSharedCPUs, "%s", message)
	}
}

// unsharedNow returns the CPUs on which shared containers run while nothing is left to share,
// and the names of the active pods by UID.
func (n *node) unsharedNow() (used cpuset.CPUSet, names map[string]string) {
	shim.observed.Lock()
	activePods, assigned, last := shim.observed.activePods, shim.observed.state, shim.observed.lastUpdates
	shim.observed.Unlock()
	used, names = cpuset.New(), map[string]string{}
	if activePods == nil || assigned == nil || last == nil {
		return used, names
	}
	for _, pod := range activePods() {
		uid := string(pod.UID)
		names[uid] = pod.Namespace + "/" + pod.Name
		if _, partitioned := n.pool(pod); partitioned {
			continue
		}
		ended := shim.observed.ended(pod)
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				if _, exclusive := assigned.GetCPUSet(uid, containers[i].Name); exclusive || ended[containers[i].Name] {
					continue
				}
				if has, known := last.GetCPUSet(uid, containers[i].Name); known {
					used = used.Union(n.unshared(has))
				}
			}
		}
	}
	return used, names
}

// nothingShared returns the message for the Event of reportShared; empty while a CPU is
// shared.
func (n *node) nothingShared() string {
	shim.observed.Lock()
	activePods, assigned, last := shim.observed.activePods, shim.observed.state, shim.observed.lastUpdates
	shim.observed.Unlock()
	if !shim.host.static || assigned == nil || activePods == nil || last == nil || !n.sharedIn(assigned).IsEmpty() {
		return ""
	}
	used, names := n.unsharedNow()
	if used.IsEmpty() {
		used = n.unshared(cpuset.New()) // where the next one would run
	}
	assignments := assignmentsOf(assigned)
	if len(assignments) == 0 {
		return fmt.Sprintf("Every CPU is reserved: containers without exclusive CPUs run on the CPUs %s, which are in no pool", used)
	}
	var disturbed []string
	for _, a := range assignments {
		if !a.CPUs.Intersection(used).IsEmpty() {
			disturbed = append(disturbed, cmp.Or(names[a.Pod], podName(a.Pod)))
		}
	}
	if len(disturbed) == 0 {
		return fmt.Sprintf("Exclusive containers have every CPU that was shared: others run on the reserved CPUs %s", used)
	}
	return fmt.Sprintf("Exclusive containers have every CPU that was shared: others run on CPU %s and disturb %s there; ask for fewer exclusive CPUs on this node",
		used, strings.Join(slices.Compact(disturbed), ", "))
}
