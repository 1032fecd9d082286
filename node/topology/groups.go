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
