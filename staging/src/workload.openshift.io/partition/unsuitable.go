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
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/cpuset"
)

// This file finds pools that do not suit their host. Such a pool is valid; who reads it warns.

// GivesReservedAway reports whether the static policy of this release, such as "1.37", may give
// reserved CPUs away; see [Pools.GivenAway]. v1.38 has repaired it
// (kubernetes/kubernetes pull request 140498).
func GivesReservedAway(release string) bool {
	return version.MustParse(release).LessThan(version.MustParse("1.38"))
}

// GivenAway returns the CPUs of pools that the static policy of the CPU manager may choose for an
// exclusive container, although they are reserved, where [GivesReservedAway] is true. reserved are
// all reserved CPUs; those of the pools need not be among them. cores are the CPUs of each physical
// core of the host, and sockets those of each socket.
//
// Upstream takes a core, or a socket, for free if it has as many free CPUs as they all have on
// average, rounded down; then it gives all of its CPUs away
// (pkg/kubelet/cm/cpumanager/cpu_assignment.go, isCoreFree and isSocketFree). On a host whose cores
// have one thread or two, one free thread is enough. Where all cores have equally many CPUs, and all
// sockets as well, the set is empty.
func (p Pools) GivenAway(reserved cpuset.CPUSet, cores, sockets []cpuset.CPUSet) cpuset.CPUSet {
	pooled, given := p.Union(), cpuset.New()
	reserved = reserved.Union(pooled)
	for _, groups := range [][]cpuset.CPUSet{cores, sockets} {
		all := 0
		for _, group := range groups {
			all += group.Size()
		}
		for _, group := range groups {
			// Other exclusive containers may leave fewer free, down to the average.
			if average := all / len(groups); group.Difference(reserved).Size() >= max(average, 1) {
				given = given.Union(group.Intersection(pooled))
			}
		}
	}
	return given
}

// GivenAwayMessage says what it means that [Pools.GivenAway] returned these CPUs, and what to do.
func GivenAwayMessage(cpus cpuset.CPUSet) string {
	return fmt.Sprintf("A pool has CPU %s without the rest of its physical core or socket, and those of this host have different numbers of CPUs: before v1.38, the static policy of the CPU manager may choose it for an exclusive container, which then cannot start; give the pools whole cores",
		cpus)
}

// OnIsolated returns, by workload type, the CPUs of its pool that the kernel argument isolcpus
// names. The kernel moves no task between them, however busy one is
// (Documentation/admin-guide/kernel-parameters.txt, isolcpus). A pool of a single CPU has nothing to
// balance and is left out. isolated are those of /sys/devices/system/cpu/isolated.
func (p Pools) OnIsolated(isolated cpuset.CPUSet) map[string]cpuset.CPUSet {
	found := map[string]cpuset.CPUSet{}
	for workloadType, pool := range p {
		if on := pool.Intersection(isolated); pool.Size() > 1 && !on.IsEmpty() {
			found[workloadType] = on
		}
	}
	return found
}

// OnIsolatedMessage says what it means that [Pools.OnIsolated] returned these CPUs for a type with
// this pool, and what to do.
func OnIsolatedMessage(workloadType string, pool, isolated cpuset.CPUSet) string {
	effect := fmt.Sprintf("so they stay idle while CPU %s of the pool is busy", pool.Difference(isolated))
	if pool.Equals(isolated) {
		effect = "so all of the type's pods crowd onto one of them, usually the first"
	}
	return fmt.Sprintf("The pool of workload type %s has CPU %s, which the kernel argument isolcpus names: the kernel balances no load there, %s; take them out of isolcpus, or give the pool other CPUs",
		workloadType, isolated, effect)
}
