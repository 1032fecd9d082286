package managed

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// offline are the CPUs that were last reported as taken from the host.
var offline struct {
	sync.Mutex
	cpus cpuset.CPUSet
}

// reportOffline tells of CPUs that were taken offline since the kubelet started. The
// kernel takes them out of every cpuset, and says nothing; a pool must not shrink in
// silence. A kubelet that starts then refuses a pinning file that names them.
func (n *node) reportOffline() {
	online, err := readCPUs(onlineCPUsFile)
	if err != nil {
		return // Configure has read it
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
