package managed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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
// earlier kubelet with one has left, as long as there is a record of that.
func NodeStatus(_ context.Context, apiNode *v1.Node) error {
	n := current.Load()
	if n == nil && !host.wasOn {
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

// shared are the CPUs that containers of no partition share.
func (n *node) shared() cpuset.CPUSet {
	observed.Lock()
	defer observed.Unlock()
	if host.static && observed.state != nil {
		return observed.state.GetDefaultCPUSet()
	}
	return n.ordinary
}

// reportShared tells when exclusive containers have taken every CPU that was shared, where
// the others run then and whom they disturb, and when that ends.
func (n *node) reportShared() {
	if n.pooled.IsEmpty() {
		return
	}
	message := n.nothingShared()
	observed.Lock()
	before := observed.unshared
	observed.unshared = message
	observed.Unlock()
	switch {
	case message == before:
	case message == "":
		nodeEvent(v1.EventTypeNormal, eventNoSharedCPUs, "Containers without exclusive CPUs share the CPUs %q again", n.shared().String())
	default:
		nodeEvent(v1.EventTypeWarning, eventNoSharedCPUs, "%s", message)
	}
}

// unsharedNow returns the CPUs on which containers without exclusive ones run when nothing is
// left to share, and the names of the active pods by UID.
func (n *node) unsharedNow() (used cpuset.CPUSet, names map[string]string) {
	observed.Lock()
	activePods, assigned, last := observed.activePods, observed.state, observed.lastUpdates
	observed.Unlock()
	used, names = cpuset.New(), map[string]string{}
	if activePods == nil || assigned == nil || last == nil {
		return used, names
	}
	for _, pod := range activePods() {
		uid := string(pod.UID)
		names[uid] = pod.Namespace + "/" + pod.Name
		if _, partitioned := n.pool(pod); partitioned {
			continue
		}
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				if _, exclusive := assigned.GetCPUSet(uid, containers[i].Name); exclusive {
					continue
				}
				if has, known := last.GetCPUSet(uid, containers[i].Name); known {
					used = used.Union(n.unshared(has))
				}
			}
		}
	}
	return used, names
}

// nothingShared is empty as long as a CPU is shared.
func (n *node) nothingShared() string {
	observed.Lock()
	activePods, assigned, last := observed.activePods, observed.state, observed.lastUpdates
	observed.Unlock()
	if !host.static || assigned == nil || activePods == nil || last == nil || !assigned.GetDefaultCPUSet().IsEmpty() {
		return ""
	}
	used, names := n.unsharedNow()
	if used.IsEmpty() {
		used = n.fallback // for those to come
	}
	var disturbed []string
	for _, a := range assignmentsOf(assigned) {
		if !a.cpus.Intersection(used).IsEmpty() {
			disturbed = append(disturbed, cmp.Or(names[a.pod], podName(a.pod)))
		}
	}
	if len(disturbed) == 0 {
		return fmt.Sprintf("Exclusive containers have every CPU that was shared: others run on the reserved CPUs %s", used)
	}
	return fmt.Sprintf("Exclusive containers have every CPU that was shared: others run on CPU %s and disturb %s there; ask for fewer exclusive CPUs on this node, or reserve one more in reservedSystemCPUs",
		used, strings.Join(slices.Compact(disturbed), ", "))
}
