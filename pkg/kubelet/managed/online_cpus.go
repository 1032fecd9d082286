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
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// reportOnline sends Events about CPUs that went offline or came after the kubelet started.
func (n *node) reportOnline() {
	online, err := readCPUs(onlineCPUsFile)
	if err != nil {
		return // Configure could read it, so a later sync will, too
	}
	before := shim.host.online
	if last := shim.lastOnline.Swap(&online); last != nil {
		before = *last
	}
	n.reportOffline(before, online)
	n.reportAdded(before, online)
}

// reportOffline sends Events about CPUs that went offline after the kubelet started. The
// kernel silently takes such a CPU out of every cpuset, and it would go unnoticed that a pool is
// smaller. A kubelet that starts while the CPU is offline refuses a pinning file that names
// it.
func (n *node) reportOffline(before, online cpuset.CPUSet) {
	gone := shim.host.online.Difference(online)
	if gone.Equals(shim.host.online.Difference(before)) {
		return
	}
	if gone.IsEmpty() {
		nodeEvent(v1.EventTypeNormal, partition.EventCPUOnline, "All CPUs %q of the host are online again", online.String())
		return
	}
	for _, workloadType := range n.pools.Types() {
		pool := n.pools[workloadType]
		if lost := pool.Intersection(gone); !lost.IsEmpty() {
			nodeEvent(v1.EventTypeWarning, partition.EventCPUOffline, "CPU %s in the pool of workload type %s was taken offline: its pods have %q left of %q; bring it online, or remove it from %s and restart the kubelet",
				lost, workloadType, pool.Difference(gone).String(), pool.String(), partition.PinningFilePath)
		}
	}
	if lost := n.Others.Intersection(gone); !lost.IsEmpty() {
		nodeEvent(v1.EventTypeWarning, partition.EventCPUOffline, "CPU %s, which is in no pool, was taken offline: ordinary pods have %q left; bring it online",
			lost, n.Others.Difference(gone).String())
	}
	n.reportSpread(gone, online)
}

// reportSpread sends Events about pods to which no CPU is left of those that were theirs alone. The
// kernel runs what has none on those of the cgroups above.
func (n *node) reportSpread(gone, online cpuset.CPUSet) {
	for _, workloadType := range n.pools.Types() {
		if pool := n.pools[workloadType]; !pool.IsEmpty() && pool.IsSubsetOf(gone) {
			nodeEvent(v1.EventTypeWarning, partition.EventCPUOffline, "No CPU of %q is left to pods of workload type %s, so the kernel runs them on those of other pods; bring one online", pool.String(), workloadType)
		}
	}
	var holders []string
	for _, a := range shim.observed.assignments() {
		// Some of them may have been offline before this kubelet started.
		if !a.CPUs.IsEmpty() && a.CPUs.Intersection(online).IsEmpty() {
			holders = append(holders, podName(a.Pod))
		}
	}
	if len(holders) > 0 {
		nodeEvent(v1.EventTypeWarning, partition.EventCPUOffline, "The CPUs that are held exclusively by %s are all offline, so the kernel runs them on those of other pods, pools included; bring one online, or delete the pod",
			strings.Join(slices.Compact(slices.Sorted(slices.Values(holders))), ", "))
	}
}

// reportAdded sends an Event about CPUs that came after the kubelet started. Without pools and
// under the policy none, containers have no cpuset and run there at once; with pools their
// cpusets name the CPUs that the kubelet found.
func (n *node) reportAdded(before, online cpuset.CPUSet) {
	if n.Pooled.IsEmpty() || shim.host.online.IsEmpty() {
		return
	}
	if added := online.Difference(before).Difference(shim.host.online); !added.IsEmpty() {
		nodeEvent(v1.EventTypeWarning, partition.EventCPUOnline, "CPU %s came online after the kubelet had started, so no container may use it yet: restart the kubelet", added)
	}
}
