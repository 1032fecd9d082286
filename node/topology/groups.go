// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"slices"

	"k8s.io/utils/cpuset"
)

// Groups returns the CPUs of each physical core, and those of each socket, as
// partition.Pools.GivenAway takes them. Cores of which the kernel does not know the socket are in one.
func (t *Topology) Groups() (cores, sockets []cpuset.CPUSet) {
	var packages []int
	for _, core := range t.Cores {
		cores = append(cores, core.CPUs)
		at := slices.Index(packages, core.Package)
		if at < 0 {
			at = len(packages)
			packages, sockets = append(packages, core.Package), append(sockets, cpuset.New())
		}
		sockets[at] = sockets[at].Union(core.CPUs)
	}
	return cores, sockets
}
