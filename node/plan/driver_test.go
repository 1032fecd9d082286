// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
)

func TestADRADriverMustNotOfferCPUsOfPools(t *testing.T) {
	one := func(cpu int64) resourcev1.Device {
		return resourcev1.Device{Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"dra.cpu/cpuID": {IntValue: ptr.To(cpu)}, "dra.cpu/coreID": {IntValue: ptr.To(int64(0))}}}
	}
	group := func(cpus, named string) resourcev1.Device {
		device := resourcev1.Device{Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"dra.cpu/cpu": {Value: resource.MustParse(cpus)}}}
		if named != "" {
			device.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"cpuIDs": {StringValue: ptr.To(named)}}
		}
		return device
	}
	slice := func(driver string, generation int64, devices ...resourcev1.Device) resourcev1.ResourceSlice {
		return resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: driver, Pool: resourcev1.ResourcePool{Name: "worker-1", Generation: generation}, Devices: devices}}
	}
	for name, test := range map[string]struct {
		slices []resourcev1.ResourceSlice
		pools  string
		want   string
	}{
		"it offers each CPU in no pool":               {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, one(2), one(3))}, "0-1", ""},
		"it offers one of a pool":                     {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, one(1), one(2), one(3))}, "0-1", CodeDriverOffers},
		"it offers one in another slice":              {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, one(2)), slice(CPUDriver, 1, one(1))}, "0-1", CodeDriverOffers},
		"it did, and has published others since":      {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, one(1)), slice(CPUDriver, 2, one(2))}, "0-1", ""},
		"it offers a group that it names":             {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, group("2", "2-3"))}, "0-1", ""},
		"it names one of a pool":                      {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, group("3", "1-3"))}, "0-1", CodeDriverOffers},
		"it counts more than are in no pool":          {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, group("2", ""), group("1", ""))}, "0-1", CodeDriverOffers},
		"it counts as many, and may mean others":      {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, group("2", ""))}, "0-1", CodeDriverUnknown},
		"what a node writes is no list of CPUs":       {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, group("2", "0-"))}, "0-1", CodeDriverUnknown},
		"there are only slices of other drivers":      {[]resourcev1.ResourceSlice{slice("gpu.example.com", 1, one(1))}, "0-1", ""},
		"there are no slices":                         {nil, "0-1", ""},
		"the pools are not confined, so none is lost": {[]resourcev1.ResourceSlice{slice(CPUDriver, 1, one(1))}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := Node{Online: cpuset.New(0, 1, 2, 3), Offered: OfferedBy(test.slices)}
			var found string
			for _, problem := range n.Plan(There([]byte(`{"management": {"cpuset": "` + test.pools + `"}}`))).Problems {
				if problem.Object == CPUDriver {
					found = problem.Code
				}
			}
			if found != test.want {
				t.Errorf("the problem is %q, want %q", found, test.want)
			}
		})
	}
}

func TestADriverOfWhichTheAPISaysNothingIsWarnedOf(t *testing.T) {
	for pools, want := range map[string]int{"0-1": 1, "": 0} {
		got := 0
		for _, problem := range (Node{Online: cpuset.New(0, 1, 2, 3), OfferedDenied: "forbidden"}).Plan(There([]byte(`{"management": {"cpuset": "` + pools + `"}}`))).Problems {
			if problem.Code == CodeDriverUnknown && problem.Severity == Warning && strings.Contains(problem.Text, "forbidden") {
				got++
			}
		}
		if got != want {
			t.Errorf("with the pools %q there are %d warnings, want %d", pools, got, want)
		}
	}
}
