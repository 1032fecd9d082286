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

package partition

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"
)

// Assignment is a set of CPUs that a container, or a pod as a whole, holds exclusively: an entry
// of the CPU manager's checkpoint (pkg/kubelet/cm/cpumanager/state).
type Assignment struct {
	// Pod is a UID. Container is the name of one of its containers; empty means the whole pod.
	Pod, Container string
	CPUs           cpuset.CPUSet
}

// Holder says who holds the CPUs. pod is what a reader knows the pod by.
func (a Assignment) Holder(pod string) string {
	if a.Container == "" {
		return "pod " + pod
	}
	return fmt.Sprintf("container %s of pod %s", a.Container, pod)
}

// SortAssignments puts assignments into a fixed order.
func SortAssignments(assignments []Assignment) {
	slices.SortFunc(assignments, func(a, b Assignment) int {
		return cmp.Compare(a.Pod+"/"+a.Container, b.Pod+"/"+b.Container)
	})
}

// Held is an assignment, and those of its CPUs that others have a claim to.
type Held struct {
	Assignment
	Of cpuset.CPUSet
}

// TakenError is the conflict that keeps the kubelet from starting: an assignment holds CPUs of a
// pool, and a container of its pod may be running.
type TakenError struct{ Held }

// Error names the pod by its UID.
func (e *TakenError) Error() string { return e.Message(e.Pod) }

// Message says what is wrong and what to do. pod is what a reader knows the pod by.
func (e *TakenError) Message(pod string) string {
	return fmt.Sprintf("%s exclusively holds CPU %s, which %s gives to a pool, and may be running; stop its containers with the runtime's own tool (crictl stopp), or start the kubelet with the previous file and delete the pod, then start it with this one",
		e.Holder(pod), e.Of, PinningFilePath)
}

// Checkpoint is what the CPU manager's checkpoint says under the policy static.
type Checkpoint struct {
	// Shared is its default set.
	Shared      cpuset.CPUSet
	Assignments []Assignment
}

// Derivation is what the shared CPUs of a [Checkpoint] are derived from, besides itself.
type Derivation struct {
	// Online are the CPUs of the host, and Reserved those that the policy must not give away.
	Online, Reserved cpuset.CPUSet
	// Strict means that reserved CPUs are not shared either.
	Strict bool
	// File means that there is a pinning file, and Pooled are the CPUs of all its pools.
	File   bool
	Pooled cpuset.CPUSet
	// MayRun reports whether a container of the pod with the UID may be running. It is called
	// at most once for a pod.
	MayRun func(pod string) bool
}

// Derived is what [Checkpoint.Derive] finds.
type Derived struct {
	// Checkpoint is the checkpoint with which the kubelet starts.
	Checkpoint
	// Dropped are the assignments that it lacks.
	Dropped []Assignment
	// Offline are the assignments that stay and hold a CPU that is offline, and Reserved those
	// that stay and hold a reserved CPU that is in no pool.
	Offline, Reserved []Held
	// Exclusive are the CPUs of all assignments that stay.
	Exclusive cpuset.CPUSet
	// Untenable means that upstream would take the checkpoint for damaged, so that its check
	// must not run: nothing is left to share (upstream gets into that state, and writes it, but
	// does not start from it; kubernetes/kubernetes issue 141196), or a container was given a
	// CPU that is offline now and may be running there, or one that is reserved now and in no
	// pool.
	Untenable bool
}

// Derive computes the shared CPUs again: all CPUs that exist, less the reserved ones, less those
// that are assigned exclusively (design, section 6, start-up). So the kubelet starts even if
// pools have changed, a power cut came between two writes, or CPUs have come or gone.
//
// Assignments stay as they are, with two exceptions:
//
//   - If an assignment holds a CPU of a pool and a container of its pod may be running, Derive
//     returns a [TakenError].
//   - If an assignment holds a CPU of a pool, or one that does not exist, and no container of
//     its pod can be running, the pod's assignments are dropped: the containers would be
//     created there. The pod gets other CPUs when it is admitted again. Without a file the same
//     goes for a reserved CPU, with which upstream would not start.
//
// A checkpoint without shared CPUs and assignments is new. Upstream fills it, and it must not be
// passed to Derive.
func (c Checkpoint) Derive(from Derivation) (Derived, error) {
	var derived Derived
	tenable := from.Online.Difference(from.Reserved)
	if from.File {
		tenable = from.Online.Difference(from.Pooled)
	}
	ended := map[string]bool{}
	for _, a := range c.Assignments {
		if a.CPUs.IsSubsetOf(tenable) {
			continue
		}
		if _, asked := ended[a.Pod]; !asked {
			ended[a.Pod] = !from.MayRun(a.Pod)
		}
		if !from.File || ended[a.Pod] {
			continue
		}
		if held := a.CPUs.Intersection(from.Pooled); !held.IsEmpty() {
			return Derived{}, &TakenError{Held{a, held}}
		}
	}
	derived.Exclusive = cpuset.New()
	for _, a := range c.Assignments {
		if ended[a.Pod] {
			derived.Dropped = append(derived.Dropped, a)
			continue
		}
		derived.Assignments = append(derived.Assignments, a)
		derived.Exclusive = derived.Exclusive.Union(a.CPUs)
		if absent := a.CPUs.Difference(from.Online); !absent.IsEmpty() {
			derived.Offline = append(derived.Offline, Held{a, absent})
		}
		if held := a.CPUs.Intersection(from.Reserved); from.File && !held.IsEmpty() {
			derived.Reserved = append(derived.Reserved, Held{a, held})
		}
	}
	derived.Shared = from.Online.Difference(derived.Exclusive)
	if from.Strict {
		derived.Shared = derived.Shared.Difference(from.Reserved)
	}
	derived.Untenable = len(derived.Offline) > 0 || len(derived.Reserved) > 0 || (derived.Shared.IsEmpty() && !derived.Exclusive.IsEmpty())
	return derived, nil
}
