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

package activation

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"workload.openshift.io/partition"
)

// maxTypes is how many workload types count of one node, and how many the cluster knows in all. A node's status is
// written by its kubelet, which may lie, and a known type is a label of metrics and a name in the latch (design,
// section 4.2).
const maxTypes = 32

// NodeChanged replaces a node by its next state; nil is a node that is not there. It does
// not block.
func (t *Tracker) NodeChanged(before, after *v1.Node) {
	if before != nil && after != nil && partition.NodeCounts(before.Labels) == partition.NodeCounts(after.Labels) && sameCores(before, after) {
		return
	}
	if ignored := ignoredCores(after); ignored != "" && ignoredCores(before) == "" && t.mayLog() {
		klog.Background().Info("Ignoring resources of a node: their names have no valid workload type, or there are too many", "node", after.Name, "first", ignored, "most", maxTypes)
	}
	t.mu.Lock()
	t.add(before, -1)
	t.add(after, +1)
	t.publish()
	t.mu.Unlock()
	// Before all nodes are seen a type may seem active that is not.
	if after == nil || !partition.NodeCounts(after.Labels) || t.missing == nil || !t.Synced() {
		return
	}
	for workloadType, state := range *t.types.Load() {
		if cores := after.Status.Capacity[v1.ResourceName(partition.CoresResource(workloadType))]; state.active && cores.Sign() <= 0 {
			t.missing(after, workloadType)
		}
	}
}

// mayLog reports whether no line about the names of resources was logged in the last minute: a kubelet can change them at
// each report.
func (t *Tracker) mayLog() bool {
	last, now := t.logged.Load(), time.Now()
	return (last == nil || now.Sub(*last) >= time.Minute) && t.logged.CompareAndSwap(last, &now)
}

func (t *Tracker) add(node *v1.Node, n int) {
	if node == nil || !partition.NodeCounts(node.Labels) {
		return
	}
	t.nodes += n
	counted, _ := typesOf(node)
	for _, workloadType := range counted {
		if t.reporting[workloadType] += n; t.reporting[workloadType] == 0 {
			delete(t.reporting, workloadType)
		}
	}
}

// typesOf returns the workload types that count of those whose cores a node reports, in alphabetical order, and the
// names of all other resources that end like cores. The API server validates neither: a kubelet can send any bytes.
func typesOf(node *v1.Node) (counted, ignored []string) {
	for name, quantity := range node.Status.Capacity {
		workloadType, ok := partition.TypeOfCores(string(name))
		switch {
		case !ok || quantity.Sign() <= 0:
		case partition.ValidateType(workloadType) != nil:
			ignored = append(ignored, string(name))
		default:
			counted = append(counted, workloadType)
		}
	}
	slices.Sort(counted)
	if len(counted) > maxTypes {
		for _, workloadType := range counted[maxTypes:] {
			ignored = append(ignored, partition.CoresResource(workloadType))
		}
		counted = counted[:maxTypes]
	}
	return counted, ignored
}

// ignoredCores returns the first of the names that do not count; the empty string means that there is none.
func ignoredCores(node *v1.Node) string {
	if node == nil {
		return ""
	}
	if _, ignored := typesOf(node); len(ignored) > 0 {
		return slices.Min(ignored)
	}
	return ""
}

// sameCores spares the lock for nearly every node event, which is a heartbeat.
func sameCores(before, after *v1.Node) bool {
	return subset(before, after) && subset(after, before)
}

func subset(of, in *v1.Node) bool {
	for name, quantity := range of.Status.Capacity {
		if _, ok := partition.TypeOfCores(string(name)); ok && quantity.Sign() > 0 {
			if other := in.Status.Capacity[name]; other.Sign() <= 0 {
				return false
			}
		}
	}
	return true
}
