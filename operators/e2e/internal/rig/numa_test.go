// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"strings"
	"testing"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Tests wait until a report agrees, so one that does not must not pass.
func TestReportsThatDisagree(t *testing.T) {
	seen := NUMA{
		Zones: map[string]NUMANode{
			"node-0": {CPUs: "0-3", Memory: 3 << 30, Given: map[string][2]int64{"memory": {2 << 30, 1 << 30}}},
			"node-1": {CPUs: "4-7", Memory: 3 << 30, Given: map[string][2]int64{"memory": {2 << 30, 2 << 30}}},
		},
		Allocatable: "1-3,5-7",
		Pods:        map[string]string{"a/exclusive": "1-2", "a/shared": ""},
	}
	for name, tc := range map[string]struct {
		change func(report *v1alpha2.NodeResourceTopology)
		want   string
	}{
		"one that agrees":                    {},
		"a zone is missing":                  {func(r *v1alpha2.NodeResourceTopology) { r.Zones = r.Zones[:1] }, "1 zones, and 2 NUMA nodes"},
		"a zone has another name":            {func(r *v1alpha2.NodeResourceTopology) { r.Zones[0].Name = "node-2" }, "no zone node-0"},
		"it has a CPU that a pod has":        {func(r *v1alpha2.NodeResourceTopology) { r.Zones[0].Resources[0].Available.Set(2) }, "node-0 has [4 3 2] CPUs"},
		"it has the CPU of the pool":         {func(r *v1alpha2.NodeResourceTopology) { r.Zones[1].Resources[0].Allocatable.Set(4) }, "node-1 has [4 4 3] CPUs"},
		"it has no CPUs":                     {func(r *v1alpha2.NodeResourceTopology) { r.Zones[1].Resources = r.Zones[1].Resources[1:] }, "node-1 has [0 0 0] CPUs (false)"},
		"it has the memory of a pod":         {func(r *v1alpha2.NodeResourceTopology) { r.Zones[0].Resources[1].Available.Set(2 << 30) }, "of memory the zone node-0"},
		"it has no memory":                   {func(r *v1alpha2.NodeResourceTopology) { r.Zones[1].Resources = r.Zones[1].Resources[:1] }, "of memory the zone node-1"},
		"it has more memory than the kernel": {func(r *v1alpha2.NodeResourceTopology) { r.Zones[0].Resources[1].Capacity.Set(4 << 30) }, "by sysfs 3221225472"},
	} {
		t.Run(name, func(t *testing.T) {
			report := &v1alpha2.NodeResourceTopology{Zones: v1alpha2.ZoneList{zone("node-0", 1, 1<<30), zone("node-1", 3, 2<<30)}}
			if tc.change != nil {
				tc.change(report)
			}
			err := seen.agrees(report)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it is found to be %v, want %q", err, tc.want)
			}
		})
	}
}

// zone returns a zone of four CPUs and three GiB.
func zone(name string, cpus, memory int64) v1alpha2.Zone {
	info := func(name string, capacity, allocatable, available int64) v1alpha2.ResourceInfo {
		quantity := func(amount int64) resource.Quantity { return *resource.NewQuantity(amount, resource.DecimalSI) }
		return v1alpha2.ResourceInfo{Name: name, Capacity: quantity(capacity), Allocatable: quantity(allocatable), Available: quantity(available)}
	}
	return v1alpha2.Zone{Name: name, Type: "Node", Resources: v1alpha2.ResourceInfoList{info("cpu", 4, 3, cpus), info("memory", 3<<30, 2<<30, memory)}}
}
