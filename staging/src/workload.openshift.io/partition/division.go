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
	"slices"

	"k8s.io/utils/cpuset"
)

// Division is how pools divide the CPUs of a host.
type Division struct {
	// Pooled are the CPUs of all pools, and Others the CPUs of the host that are in none.
	Pooled, Others cpuset.CPUSet
	// Ordinary are the CPUs on which shared containers run under the policy none: the others,
	// less the isolated ones, on which the kernel puts only what asks for them.
	Ordinary cpuset.CPUSet
	// Reserved are the reserved CPUs, those of pools included. Fallback are the CPUs for shared
	// containers when exclusive containers have taken all others; see [Division.Unshared].
	Reserved, Fallback cpuset.CPUSet
}

// Divide divides the CPUs that are online. isolated are those that the kernel argument isolcpus
// names.
func (p Pools) Divide(online, isolated, reserved cpuset.CPUSet) Division {
	d := Division{Pooled: p.Union(), Reserved: reserved}
	d.Others = online.Difference(d.Pooled)
	d.Ordinary = WithoutIsolated(d.Others, isolated)
	if d.Fallback = reserved.Intersection(d.Others); d.Fallback.IsEmpty() && !d.Others.IsEmpty() {
		d.Fallback = cpuset.New(slices.Max(d.Others.UnsortedList()))
	}
	return d
}

// WithoutIsolated returns the CPUs that are not isolated; all of them if every one is isolated.
func WithoutIsolated(cpus, isolated cpuset.CPUSet) cpuset.CPUSet {
	if left := cpus.Difference(isolated); !left.IsEmpty() {
		return left
	}
	return cpus
}

// HoldEvery reports whether the pools hold every CPU of the host. Then they confine and reserve
// nothing, as [Pools.Unconfined] has them: there is nothing left to keep apart.
func (p Pools) HoldEvery(online cpuset.CPUSet) bool {
	union := p.Union()
	return !union.IsEmpty() && online.IsSubsetOf(union)
}

// Unconfined returns pools of the same types without a CPU.
func (p Pools) Unconfined() Pools {
	pools := make(Pools, len(p))
	for workloadType := range p {
		pools[workloadType] = cpuset.New()
	}
	return pools
}

// Unshared returns the CPUs for a shared container when exclusive containers have taken every
// CPU that was shared. has are the CPUs that it has now; none if it starts. exclusive are the
// CPUs that containers hold exclusively.
//
// If exactly one of the CPUs that it has is in no pool, the container stays on it. If several
// are, they were taken between two passes of the CPU manager. Then, or if there are none, the
// container gets the fallback: the reserved CPUs that are in no pool, or, if there are none, the
// highest-numbered CPU that is in no pool. The fallback is always the same, so that few pods are
// disturbed. A CPU may have been reserved while a container held it, so the fallback lacks the
// exclusive CPUs, if that leaves any.
func (d Division) Unshared(has, exclusive cpuset.CPUSet) cpuset.CPUSet {
	if kept := has.Difference(d.Pooled); kept.Size() == 1 {
		return kept
	}
	if left := d.Fallback.Difference(exclusive); !left.IsEmpty() {
		return left
	}
	return d.Fallback
}

// Gate is the [Gate] of static pods on a node with these pools. A static pod is the node
// administrator's, so no namespace has to allow it.
func (p Pools) Gate(workloadType string) Reason {
	if _, ok := p[workloadType]; !ok {
		return ReasonTypeInactive
	}
	return NoReason
}
