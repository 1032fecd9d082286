// SPDX-License-Identifier: Apache-2.0

// Package readmission foresees which pods of a node a kubelet rejects when it starts again: it admits
// each pod that it knows as if that were new. Most of upstream's admission cannot be imported without
// the whole kubelet and the scheduler, and is repeated here. Tests compare it with upstream's own.
package readmission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// Kubelet is what decides, together with the Node, which pods a kubelet admits when it starts: the settings of
// that start, and the host's CPUs.
type Kubelet struct {
	// Policy and Options are cpuManagerPolicy and cpuManagerPolicyOptions. Only "static" gives pods CPUs
	// of their own.
	Policy  string
	Options map[string]string
	// Reserved is the cpu of kubeReserved and systemReserved together. ReservedCPUs are those of
	// reservedSystemCPUs and of all pools; if there are any, they are the reservation.
	Reserved     resource.Quantity
	ReservedCPUs cpuset.CPUSet
	// TopologyPolicy, TopologyScope and TopologyOptions are the topology manager's; empty means
	// upstream's defaults, none and container.
	TopologyPolicy, TopologyScope string
	TopologyOptions               map[string]string
	// MemoryPolicy is memoryManagerPolicy; empty means None.
	MemoryPolicy string
	// CPUs are those that are online. Without any only Online is known, and without that only the number
	// of CPUs, from the Node.
	CPUs   []CPU
	Online cpuset.CPUSet
	// Held is what the CPU manager's checkpoint has given to containers, which keep it. Without any the
	// kubelet starts with an empty checkpoint.
	Held []partition.Assignment
}

// CPU says where a CPU is. The IDs of cores are unique on the host, as upstream makes them.
type CPU struct{ ID, Core, NUMANode, Socket int }

// MaxCPUs is how many CPUs Linux can have (NR_CPUS). A Node's status is written by its kubelet, which may say that it has
// any number.
const MaxCPUs = 8192

// Capacity returns how much CPU a node has: at most what MaxCPUs have.
func Capacity(node *v1.Node) resource.Quantity {
	cpu := *node.Status.Capacity.Cpu()
	if most := *resource.NewQuantity(MaxCPUs, resource.DecimalSI); cpu.Cmp(most) > 0 {
		return most
	}
	return cpu.DeepCopy()
}

// ReservedNow returns how much CPU a node sets aside at present, as its status shows it.
func ReservedNow(node *v1.Node) resource.Quantity {
	reserved := Capacity(node)
	reserved.Sub(*node.Status.Allocatable.Cpu())
	return reserved
}

// Reservation returns how much CPU the kubelet sets aside.
func (k Kubelet) Reservation() resource.Quantity {
	if !k.ReservedCPUs.IsEmpty() {
		return *resource.NewQuantity(int64(k.ReservedCPUs.Size()), resource.DecimalSI)
	}
	return k.Reserved
}

// Rejection is a pod that ends because of a restart of the kubelet.
type Rejection struct {
	Pod *v1.Pod
	// Reason is upstream's, as the status of the pod will have it.
	Reason string
	// Text says why, and goes on from the pod's name.
	Text string
	// Maybe means that it cannot be foreseen from here. The pod may well stay.
	Maybe bool
}

// Upstream's reasons. Those for a resource that does not suffice are OutOf and its name.
const (
	// NodeAffinity: the Node lacks what the pod's nodeSelector or required node affinity asks for.
	NodeAffinity = "NodeAffinity"
	// TaintToleration: the Node has a taint NoExecute that the pod does not tolerate.
	TaintToleration = "TaintToleration"
	// Preempting: a critical pod needs the room.
	Preempting = "Preempting"
	// TopologyAffinityError: the topology manager finds no NUMA nodes for the pod.
	TopologyAffinityError = "TopologyAffinityError"
	// UnexpectedAdmissionError is every error without its own reason.
	UnexpectedAdmissionError = "UnexpectedAdmissionError"
	// SMTAlignmentError: the option full-pcpus-only leaves no whole cores.
	SMTAlignmentError = "SMTAlignmentError"
)

// Foresee returns the pods that a kubelet with these settings rejects at its start, in the order in which
// it does. Node is the Node of the API as it is then: labels, taints, and allocatable. At its first start
// a kubelet may still go by the allocatable that the Node had before. Then these pods fall out at its
// second.
//
// Each pod that has not ended is admitted again (pkg/kubelet/kubelet.go, HandlePodAdditions): static pods
// first, since their files are read first, then the oldest. Upstream's admission handlers run in this
// order:
//
//   - the CPU and the topology manager, for the policy static: whole-CPU containers of Guaranteed pods
//     against the CPUs that are neither reserved nor held (see exclusive.go). What a rejected pod was
//     given stays given until all pods have been looked at.
//   - the predicates (pkg/kubelet/lifecycle/predicate.go): all requests against allocatable, required
//     node affinity, and taints NoExecute. If only resources are missing, others end for a critical pod
//     (see preemption.go).
//
// Partitioned pods ask for no cpu, and get no exclusive CPUs. Ports, operating systems and pressure are
// left out.
func Foresee(node *v1.Node, kubelet Kubelet, pods []v1.Pod) []Rejection {
	all := candidates(pods)
	var static *staticPolicy
	if kubelet.Policy == partition.StaticPolicy {
		static = newStaticPolicy(node, kubelet, all)
	}
	var rejections []Rejection
	var admitted []candidate
	used := map[v1.ResourceName]resource.Quantity{}
	admit := func(c candidate) {
		admitted = append(admitted, c)
		for name, q := range c.requests {
			q.Add(used[name])
			used[name] = q
		}
		if static == nil {
			return
		}
		if why := static.unforeseeable(c.pod); why != "" {
			rejections = append(rejections, Rejection{Pod: c.pod, Reason: TopologyAffinityError, Text: "may be rejected: " + why, Maybe: true})
		}
	}
	end := func(c candidate) {
		admitted = slices.DeleteFunc(admitted, func(other candidate) bool { return other.pod == c.pod })
		for name, q := range c.requests {
			left := used[name]
			left.Sub(q)
			used[name] = left
		}
	}
	for _, c := range all {
		if static != nil {
			if r := static.admit(c.pod); r != nil {
				rejections = append(rejections, *r)
				continue
			}
		}
		short, mismatch := c.shortOf(node.Status.Allocatable, used), mismatch(c.pod, node)
		switch {
		case len(short) == 0 && mismatch == nil:
			admit(c)
			continue
		case mismatch != nil && (len(short) == 0 || c.critical()):
			// Of all that fails upstream names the first: resources, unless the pod is critical.
			rejections = append(rejections, *mismatch)
			continue
		case !c.critical():
			rejections = append(rejections, c.outOf(short, node.Status.Allocatable, used))
			continue
		}
		victims, enough := c.victims(admitted, short)
		if !enough {
			r := c.outOf(short, node.Status.Allocatable, used)
			r.Reason = UnexpectedAdmissionError
			rejections = append(rejections, r)
			continue
		}
		for _, victim := range victims {
			rejections = append(rejections, Rejection{Pod: victim.pod, Reason: Preempting,
				Text: fmt.Sprintf("ends so that %s/%s fits, which is critical", c.pod.Namespace, c.pod.Name)})
			end(victim)
		}
		admit(c)
	}
	return rejections
}

// candidate is a pod that the kubelet will see. requests are what it takes from others, and asks what must be free for it: the
// same without the devices that a DRA driver gives it.
type candidate struct {
	pod            *v1.Pod
	requests, asks v1.ResourceList
}

// candidates returns the pods that have not ended in the order in which they are admitted. A static pod
// starts again, whatever has become of it.
func candidates(pods []v1.Pod) []candidate {
	var list []candidate
	for i := range pods {
		pod := &pods[i]
		if !IsStatic(pod) && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed) {
			continue
		}
		// The kubelet goes by what it has allocated, which the status shows. It does not count what the
		// status of a partitioned pod says (pkg/kubelet/managed, WithoutReportedCPU).
		_, partitioned := partition.PartitionedType(pod)
		requests := func(pod *v1.Pod) v1.ResourceList {
			list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: !partitioned, InPlacePodLevelResourcesVerticalScalingEnabled: true})
			list[v1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
			return list
		}
		c := candidate{pod: pod, requests: requests(pod)}
		if c.asks = c.requests; pod.Status.ExtendedResourceClaimStatus != nil {
			c.asks = requests(withoutClaimed(pod))
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		if a, b := IsStatic(a.pod), IsStatic(b.pod); a != b {
			if a {
				return -1
			}
			return 1
		}
		return a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time)
	})
	return list
}

// withoutClaimed returns a pod without the extended resources that a DRA driver gives it by the claim in its status, and that
// its Node need not have (pkg/kubelet/lifecycle/predicate.go, removeMissingExtendedResources). Up to v1.35 no pod has such a
// claim without the feature gate DRAExtendedResource.
func withoutClaimed(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	for _, m := range pod.Status.ExtendedResourceClaimStatus.RequestMappings {
		name := v1.ResourceName(m.ResourceName)
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for _, c := range containers {
				if c.Name == m.ContainerName {
					delete(c.Resources.Requests, name)
				}
			}
		}
		for _, statuses := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for _, s := range statuses {
				if s.Name == m.ContainerName && s.Resources != nil {
					delete(s.Resources.Requests, name)
				}
			}
		}
	}
	return pod
}

// IsStatic reports whether a pod of the API is the mirror of a static one.
func IsStatic(pod *v1.Pod) bool {
	_, is := pod.Annotations[v1.MirrorPodAnnotationKey]
	return is
}

// UID returns the UID by which the kubelet knows a pod. For the mirror of a static pod that is the static
// pod's, which the mirror has as an annotation (pkg/kubelet/pod/mirror_client.go).
func UID(pod *v1.Pod) string {
	if uid, is := pod.Annotations[v1.MirrorPodAnnotationKey]; is {
		return uid
	}
	return string(pod.UID)
}

// amount returns how much of a resource a pod asks for: millicores of cpu, else units.
func (c candidate) amount(name v1.ResourceName) int64 { return amount(c.requests[name], name) }

func amount(q resource.Quantity, name v1.ResourceName) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// shortOf returns how much of which resources is missing on top of what admitted pods use.
func (c candidate) shortOf(allocatable v1.ResourceList, used map[v1.ResourceName]resource.Quantity) map[v1.ResourceName]int64 {
	short := map[v1.ResourceName]int64{}
	for name, q := range c.asks {
		if _, has := allocatable[name]; !has && isExtended(name) {
			continue // a resource of the cluster, or of a driver: the kubelet leaves it alone
		}
		asks := amount(q, name)
		missing := asks + amount(used[name], name) - amount(allocatable[name], name)
		if asks > 0 && missing > 0 {
			short[name] = missing
		}
	}
	return short
}

func isExtended(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// outOf is the rejection of a pod that does not fit. Like upstream it names one resource, the first
// of pods, cpu, memory, ephemeral-storage and all others.
func (c candidate) outOf(short map[v1.ResourceName]int64, allocatable v1.ResourceList, used map[v1.ResourceName]resource.Quantity) Rejection {
	order := []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	order = append(order, slices.Sorted(maps.Keys(short))...)
	name := order[slices.IndexFunc(order, func(name v1.ResourceName) bool { return short[name] > 0 })]
	asked, taken, all := c.asks[name], used[name], allocatable[name]
	return Rejection{Pod: c.pod, Reason: "OutOf" + string(name),
		Text: fmt.Sprintf("asks for %s of %s, and older pods have %s of %s", asked.String(), name, taken.String(), all.String())}
}
