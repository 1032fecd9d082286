package managed

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// NodeStatus sets the cores resource of each workload type, in capacity and
// allocatable alike, to the host's CPUs in millicores, and removes the resource of
// types that the node does not have (design, section 6, node). It runs after the
// setter that reports the host's CPUs. Without a pinning file it removes what an
// earlier kubelet with one has left, and does nothing on any other node.
func NodeStatus(_ context.Context, apiNode *v1.Node) error {
	var pools partition.Pools
	if n := current.Load(); n != nil {
		pools = n.pools
		n.reportOffline()
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

// offline are the CPUs that were last reported as taken from the host.
var offline struct {
	sync.Mutex
	cpus cpuset.CPUSet
}

// reportOffline tells of CPUs that were taken offline since the kubelet started. The
// kernel takes them out of every cpuset, and says nothing; a pool must not shrink in
// silence. A kubelet that starts then refuses a pinning file that names them.
func (n *node) reportOffline() {
	online, err := onlineCPUs()
	if err != nil {
		return // Start has read it
	}
	gone := host.online.Difference(online)
	offline.Lock()
	unchanged := gone.Equals(offline.cpus)
	offline.cpus = gone
	offline.Unlock()
	if unchanged {
		return
	}
	if gone.IsEmpty() {
		nodeEvent(v1.EventTypeNormal, eventCPUOnline, "The host has all its CPUs %q again", online.String())
		return
	}
	for _, workloadType := range n.pools.Types() {
		pool := n.pools[workloadType]
		if lost := pool.Intersection(gone); !lost.IsEmpty() {
			nodeEvent(v1.EventTypeWarning, eventCPUOffline, "CPU %s of workload type %s was taken offline: of its CPUs %q its pods have %q left; set it online, or take it out of %s and restart the kubelet",
				lost, workloadType, pool.String(), pool.Difference(gone).String(), partition.PinningFilePath)
		}
	}
	if lost := n.others.Intersection(gone); !lost.IsEmpty() {
		nodeEvent(v1.EventTypeWarning, eventCPUOffline, "CPU %s, of no workload type, was taken offline: ordinary pods have %q left; set it online",
			lost, n.others.Difference(gone).String())
	}
}
