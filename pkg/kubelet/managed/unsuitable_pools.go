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
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// cpuTopology is where the kernel shows what each CPU is a thread of. Tests change it.
var cpuTopology = "/sys/devices/system/cpu"

// reportUnsuitablePools reports pools that are valid and do not suit the host.
func (n *node) reportUnsuitablePools() {
	warn := func(reason, message string) {
		shim.host.log.Error(nil, message)
		nodeEvent(v1.EventTypeWarning, reason, "%s", message)
	}
	isolated := n.pools.OnIsolated(shim.host.isolated)
	for _, workloadType := range slices.Sorted(maps.Keys(isolated)) {
		warn(partition.EventPoolOnIsolated, partition.OnIsolatedMessage(workloadType, n.pools[workloadType], isolated[workloadType]))
	}
	if !shim.host.static || !partition.GivesReservedAway(release) {
		return
	}
	cores, sockets := physical(shim.host.online)
	if given := n.pools.GivenAway(n.Reserved, cores, sockets); !given.IsEmpty() {
		warn(partition.EventPoolSplitsCore, partition.GivenAwayMessage(given))
	}
}

// physical returns the CPUs of each physical core and of each socket, as far as they are online;
// none of what the kernel does not show.
func physical(online cpuset.CPUSet) (cores, sockets []cpuset.CPUSet) {
	coresByFirst, socketsByID := map[int]cpuset.CPUSet{}, map[string]cpuset.CPUSet{}
	for _, cpu := range online.List() {
		directory := filepath.Join(cpuTopology, fmt.Sprint("cpu", cpu), "topology")
		if siblings, err := readList(filepath.Join(directory, "thread_siblings_list")); err == nil && siblings.Contains(cpu) {
			siblings = siblings.Intersection(online)
			coresByFirst[siblings.List()[0]] = siblings
		}
		if id, err := os.ReadFile(filepath.Join(directory, "physical_package_id")); err == nil {
			socket := strings.TrimSpace(string(id))
			socketsByID[socket] = socketsByID[socket].Union(cpuset.New(cpu))
		}
	}
	return slices.Collect(maps.Values(coresByFirst)), slices.Collect(maps.Values(socketsByID))
}
