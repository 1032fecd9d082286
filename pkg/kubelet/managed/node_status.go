package managed

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/partition"
)

// SetCores sets the cores resource of each workload type to the host's CPUs in millicores, in
// capacity and allocatable alike, and removes the resource of types that the node lacks
// (design, section 6, node). It must run after the setter that reports the host's CPUs.
// Without a pinning file it removes all of them, as long as there is a record of a previous
// file. It never returns an error.
func SetCores(_ context.Context, apiNode *v1.Node) error {
	n, on := partitions()
	if !on {
		return nil
	}
	var pools partition.Pools
	if n != nil {
		pools = n.pools
		n.reportOffline()
		n.reportShared()
	}
	capacity := apiNode.Status.Capacity.Cpu().MilliValue()
	for _, list := range []v1.ResourceList{apiNode.Status.Capacity, apiNode.Status.Allocatable} {
		for name := range list {
			if workloadType, ok := partition.TypeOfCores(string(name)); ok {
				if _, ours := pools[workloadType]; !ours {
					delete(list, name)
				}
			}
		}
		if list == nil {
			continue
		}
		for workloadType := range pools {
			list[v1.ResourceName(partition.CoresResource(workloadType))] = *resource.NewQuantity(capacity, resource.DecimalSI)
		}
	}
	return nil
}
