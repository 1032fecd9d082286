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

package cpupolicy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/cpuset"
	virtv1 "kubevirt.io/api/core/v1"
	"workload.openshift.io/operators/cpupolicy/operation"
)

// Kubelet is what decides which pods a kubelet admits when it starts: the settings of its next
// start, and the host's CPUs.
type Kubelet struct {
	// Policy and Options are cpuManagerPolicy and cpuManagerPolicyOptions.
	Policy  Policy
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
	// CPUs are those that are online. Without any, only their number is known, from the Node.
	CPUs []CPU
}

// CPU says where a CPU is. The IDs of cores are unique on the host, as upstream makes them.
type CPU struct{ ID, Core, NUMANode, Socket int }

// capacity returns how much CPU a node has: at most what [operation.MaxCPUs] have, since its kubelet writes
// what it likes.
func capacity(node *corev1.Node) resource.Quantity {
	cpu := *node.Status.Capacity.Cpu()
	if most := *resource.NewQuantity(operation.MaxCPUs, resource.DecimalSI); cpu.Cmp(most) > 0 {
		return most
	}
	return cpu.DeepCopy()
}

// ReservedNow returns how much CPU a node sets aside at present, as its status shows it.
func ReservedNow(node *corev1.Node) resource.Quantity {
	reserved := capacity(node)
	reserved.Sub(*node.Status.Allocatable.Cpu())
	return reserved
}

// reservation returns how much CPU the kubelet sets aside.
func (k Kubelet) reservation() resource.Quantity {
	if !k.ReservedCPUs.IsEmpty() {
		return *resource.NewQuantity(int64(k.ReservedCPUs.Size()), resource.DecimalSI)
	}
	return k.Reserved
}

// Rejection is a pod that would end because of a restart of the kubelet.
type Rejection struct {
	Pod *corev1.Pod
	// Reason is upstream's, as the status of the pod will have it.
	Reason string
	// Text says why, and goes on from the pod's name.
	Text string
	// Maybe means that it cannot be foreseen from here. The pod may well stay.
	Maybe bool
}

// Readmission foresees which pods of a node a kubelet rejects that starts with these settings and
// without a checkpoint of the CPU manager. Each pod that has not ended is admitted again, as if it
// were new (pkg/kubelet/kubelet.go, HandlePodAdditions): static pods first, since their files are
// read first, then the oldest. Upstream's admission handlers run in this order:
//
//   - the CPU and the topology manager, for the policy static: whole-CPU containers of Guaranteed
//     pods against the CPUs that are not reserved (see exclusive.go). What a rejected pod was given
//     stays given until all pods have been looked at.
//   - the scheduler's predicates (pkg/kubelet/lifecycle/predicate.go): all requests against the
//     new allocatable, and required node affinity, since the node's label changes with its policy.
//     For a critical pod others end (see preemption.go).
//
// At its first start a kubelet may still go by the allocatable and the labels that the Node had
// before. Then these pods fall out at its second, which is no better. Partitioned pods ask for no
// cpu, and get no CPUs of their own: for them nothing changes.
//
// What a switch does not change is left out: taints, ports, operating systems, pressure. Pods come
// back in the order in which they are rejected.
func Readmission(node *corev1.Node, kubelet Kubelet, pods []corev1.Pod) []Rejection {
	after := node.DeepCopy()
	cpu := capacity(node)
	cpu.Sub(kubelet.reservation())
	set(&after.Status.Allocatable, corev1.ResourceCPU, cpu)
	if after.Labels == nil {
		after.Labels = map[string]string{}
	}
	for _, label := range []string{Label, virtv1.CPUManager} {
		if _, has := node.Labels[label]; has || label == Label {
			after.Labels[label] = strconv.FormatBool(kubelet.Policy == Static)
		}
	}

	var static *staticPolicy
	if kubelet.Policy == Static {
		static = newStaticPolicy(node, kubelet)
	}
	var rejections []Rejection
	var admitted []candidate
	admit := func(c candidate) {
		admitted = append(admitted, c)
		if static == nil {
			return
		}
		if why := static.unforeseeable(c.pod); why != "" {
			rejections = append(rejections, Rejection{Pod: c.pod, Reason: topologyAffinityError, Text: "may be rejected: " + why, Maybe: true})
		}
	}
	for _, c := range candidates(pods) {
		if static != nil {
			if r := static.admit(c.pod); r != nil {
				rejections = append(rejections, *r)
				continue
			}
		}
		if matches, err := nodeaffinity.GetRequiredNodeAffinity(c.pod).Match(after); err != nil || !matches {
			rejections = append(rejections, Rejection{Pod: c.pod, Reason: "NodeAffinity",
				Text: fmt.Sprintf("does not select the node once it has the label %s=%s", Label, after.Labels[Label])})
			continue
		}
		short := c.shortOf(after.Status.Allocatable, admitted)
		if len(short) == 0 {
			admit(c)
			continue
		}
		victims, enough := c.victims(admitted, short)
		if !c.critical() || !enough {
			r := c.outOf(short, after.Status.Allocatable, admitted)
			if c.critical() {
				// Upstream looked for pods to end, and found too few.
				r.Reason = unexpectedAdmissionError
			}
			rejections = append(rejections, r)
			continue
		}
		for _, victim := range victims {
			rejections = append(rejections, Rejection{Pod: victim.pod, Reason: "Preempting",
				Text: fmt.Sprintf("ends so that %s/%s fits, which is critical", c.pod.Namespace, c.pod.Name)})
			admitted = slices.DeleteFunc(admitted, func(other candidate) bool { return other.pod == victim.pod })
		}
		admit(c)
	}
	return rejections
}

// candidate is a pod that the kubelet will see, with its requests.
type candidate struct {
	pod      *corev1.Pod
	requests corev1.ResourceList
}

// candidates returns the pods that have not ended in the order in which they are admitted.
func candidates(pods []corev1.Pod) []candidate {
	var list []candidate
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		// The kubelet goes by what it has allocated, which the status shows.
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
		requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
		list = append(list, candidate{pod, requests})
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		if a, b := isStatic(a.pod), isStatic(b.pod); a != b {
			if a {
				return -1
			}
			return 1
		}
		if order := a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.pod.Namespace+"/"+a.pod.Name, b.pod.Namespace+"/"+b.pod.Name)
	})
	return list
}

// isStatic reports whether a pod of the API is the mirror of a static one.
func isStatic(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// amount returns how much of a resource a pod asks for: millicores of cpu, else units.
func (c candidate) amount(name corev1.ResourceName) int64 { return amount(c.requests, name) }

func amount(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q := list[name]
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// shortOf returns how much of which resources is missing beside the admitted pods.
func (c candidate) shortOf(allocatable corev1.ResourceList, admitted []candidate) map[corev1.ResourceName]int64 {
	short := map[corev1.ResourceName]int64{}
	for name := range c.requests {
		if _, has := allocatable[name]; !has && isExtended(name) {
			continue // a resource of the cluster, or of a driver: the kubelet leaves it alone
		}
		missing := c.amount(name) - amount(allocatable, name)
		for _, other := range admitted {
			missing += other.amount(name)
		}
		if c.amount(name) > 0 && missing > 0 {
			short[name] = missing
		}
	}
	return short
}

func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// outOf is the rejection of a pod that does not fit. Like upstream it names one resource, the first
// of pods, cpu, memory, ephemeral-storage and all others.
func (c candidate) outOf(short map[corev1.ResourceName]int64, allocatable corev1.ResourceList, admitted []candidate) Rejection {
	order := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	order = append(order, slices.Sorted(maps.Keys(short))...)
	name := order[slices.IndexFunc(order, func(name corev1.ResourceName) bool { return short[name] > 0 })]
	used := resource.Quantity{}
	for _, other := range admitted {
		used.Add(other.requests[name])
	}
	asked, all := c.requests[name], allocatable[name]
	return Rejection{Pod: c.pod, Reason: "OutOf" + string(name),
		Text: fmt.Sprintf("asks for %s of %s, and older pods have %s of %s", asked.String(), name, used.String(), all.String())}
}
