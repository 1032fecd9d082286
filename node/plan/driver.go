// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// CPUDriver is the DRA driver that gives CPUs, kubernetes-sigs/dra-driver-cpu, as its ResourceSlices have it.
const CPUDriver = "dra.cpu"

// Offered are the CPUs of a node that the driver offers: those that it does not reserve.
type Offered struct {
	// CPUs are those that it names. It does so unless it groups them for its own allocator.
	CPUs cpuset.CPUSet
	// Count is the number of all, named or not.
	Count int64
}

// OfferedBy returns what the driver's slices of a node offer; nil if there are none. Of each pool of slices the newest
// generation counts.
func OfferedBy(slices []resourcev1.ResourceSlice) *Offered {
	newest := map[string]int64{}
	for _, slice := range slices {
		if slice.Spec.Driver == CPUDriver {
			newest[slice.Spec.Pool.Name] = max(newest[slice.Spec.Pool.Name], slice.Spec.Pool.Generation)
		}
	}
	if len(newest) == 0 {
		return nil
	}
	offered := &Offered{}
	for _, slice := range slices {
		if slice.Spec.Driver != CPUDriver || slice.Spec.Pool.Generation < newest[slice.Spec.Pool.Name] {
			continue
		}
		for _, device := range slice.Spec.Devices {
			offered.add(device)
		}
	}
	return offered
}

// add adds what a device stands for: one CPU, or a group with a capacity (docs/user/device-attributes.md of the driver).
func (o *Offered) add(device resourcev1.Device) {
	count := int64(1)
	for name, capacity := range device.Capacity {
		if strings.TrimPrefix(string(name), CPUDriver+"/") == "cpu" {
			count = capacity.Value.Value()
		}
	}
	o.Count += count
	for name, attribute := range device.Attributes {
		switch strings.TrimPrefix(string(name), CPUDriver+"/") {
		case "cpuID":
			if attribute.IntValue != nil {
				o.CPUs = o.CPUs.Union(cpuset.New(int(*attribute.IntValue)))
			}
		case "cpuIDs":
			if attribute.StringValue != nil {
				if cpus, err := partition.ParseCPUs(*attribute.StringValue); err == nil {
					o.CPUs = o.CPUs.Union(cpus)
				}
			}
		}
	}
}

// driver adds that a DRA driver offers CPUs of the pools: it does not know them, but by its own setting.
func (f *foresight) driver() {
	pooled := f.after.division.Pooled
	switch {
	case pooled.IsEmpty():
		return
	case f.OfferedDenied != "":
		f.add(Problem{Severity: Warning, Code: CodeDriverUnknown, Object: CPUDriver,
			Text: because(fmt.Sprintf("it is not known whether the DRA driver offers CPU %s of the pools to pods", pooled), f.OfferedDenied)})
		return
	case f.Offered == nil:
		return
	}
	const remedy = "set the driver's reservedCPUs to the CPUs of the pools, and restart it, before you write the file"
	free := int64(f.Online.Difference(pooled).Size())
	switch taken := f.Offered.CPUs.Intersection(pooled); {
	case !taken.IsEmpty():
		f.add(Problem{Severity: Error, Code: CodeDriverOffers, Object: CPUDriver, Remedy: remedy,
			Text: fmt.Sprintf("the DRA driver offers CPU %s of the pools to pods, as if each had it alone", taken)})
	case f.Offered.Count > free:
		f.add(Problem{Severity: Error, Code: CodeDriverOffers, Object: CPUDriver, Remedy: remedy,
			Text: fmt.Sprintf("the DRA driver offers %d CPUs to pods, and only %d are in no pool", f.Offered.Count, free)})
	case f.Offered.CPUs.IsEmpty():
		f.add(Problem{Severity: Info, Code: CodeDriverUnknown, Object: CPUDriver,
			Text: fmt.Sprintf("the DRA driver offers %d CPUs to pods, and does not say which: its reservedCPUs must contain the pools, %s", f.Offered.Count, pooled)})
	}
}
