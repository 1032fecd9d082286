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
	"fmt"
	"runtime"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/partition/partitiontest"
)

var clusterSizes = []int{1, 5000, 15000}

// withNodes is a tracker that has seen a cluster of a size.
func withNodes(nodes int) *Tracker {
	tracker := New(config.Activation{})
	tracker.SetSynced(func() bool { return true })
	for i := range nodes {
		tracker.NodeChanged(nil, partitiontest.Node(fmt.Sprintf("node-%d", i), "management"))
	}
	return tracker
}

// BenchmarkNodeEvent is what an event of a node costs: a heartbeat, and a type that
// comes and goes.
func BenchmarkNodeEvent(b *testing.B) {
	for _, nodes := range clusterSizes {
		tracker := withNodes(nodes)
		with, without := partitiontest.Node("a", "management"), partitiontest.Node("a")
		b.Run(fmt.Sprintf("heartbeat/nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tracker.NodeChanged(with, with)
			}
		})
		b.Run(fmt.Sprintf("change/nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tracker.NodeChanged(with, without)
				tracker.NodeChanged(without, with)
			}
		})
	}
}

// BenchmarkMemory is what the plugin keeps of each node.
func BenchmarkMemory(b *testing.B) {
	const nodes = 15000
	objects := make([]*v1.Node, nodes)
	for i := range objects {
		objects[i] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}, Status: partitiontest.Node("", "management").Status}
	}
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	var kept float64
	for b.Loop() {
		tracker := withNodes(0)
		before := heap()
		for _, object := range objects {
			tracker.NodeChanged(nil, object)
		}
		kept = max(0, float64(heap())-float64(before)) / nodes
		runtime.KeepAlive(tracker)
	}
	runtime.KeepAlive(objects)
	b.ReportMetric(kept, "B/node")
	b.ReportMetric(0, "ns/op")
}
