// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/topology"
)

// Observed is what was read of a node at one moment.
type Observed struct {
	// Nodes are the NUMA nodes of its sysfs.
	Nodes []topology.NUMANode
	// Allocatable is what the kubelet gives to pods, whether they have it or not.
	Allocatable *podresourcesv1.AllocatableResourcesResponse
	// Pods are the kubelet's pods, and what each has got.
	Pods []*podresourcesv1.PodResources
	// Kubelet is how the kubelet runs.
	Kubelet Kubelet
	// Started is when the kubelet started; zero if that is not known.
	Started time.Time
	// CPUDriver is the DRA driver that gives the node's CPUs to pods, such as dra.cpu. Empty means that the kubelet alone does.
	CPUDriver string
	// Fingerprint says which pods the fingerprint is of; the zero value is [FingerprintExclusive].
	Fingerprint Fingerprint
}

// zone is what a NUMA node has of each resource.
type zone struct {
	node topology.NUMANode
	// cpus are those that the kubelet gives to containers exclusively, and free those of them that none has. aligned is
	// false if nobody gives CPUs of single NUMA nodes.
	cpus, free cpuset.CPUSet
	aligned    bool
	// memory has bytes by resource: memory, and huge pages of each size.
	memory map[string]*amount
	// devices has device IDs by resource.
	devices map[string]*devices
}

type amount struct{ allocatable, used uint64 }

type devices struct{ healthy, used map[string]bool }

// Zones says what each NUMA node has, in the order of their numbers: capacity is the hardware's, allocatable is
// what the kubelet gives to pods, and available is what no container has got. A resource is in the zones only if the kubelet
// gives it by NUMA node: CPUs under the policy static of its CPU manager, memory and huge pages under the policy Static of
// its memory manager, and devices of which it knows the NUMA nodes. What containers share lowers nothing. A CPU that the
// kubelet has reserved, such as one of a pool, is in the capacity alone. So are all CPUs where a DRA driver gives them: the
// kubelet does not know which of them pods have.
//
// A device of several NUMA nodes counts in each of them, as it does for the kubelet's topology manager
// (pkg/kubelet/cm/devicemanager/topology_hints.go). An error names what podresources says of a NUMA node or a CPU that
// sysfs does not have.
func (o Observed) Zones() (v1alpha2.ZoneList, error) {
	zones := map[int]*zone{}
	for _, node := range o.Nodes {
		zones[node.Number] = &zone{node: node, memory: map[string]*amount{}, devices: map[string]*devices{}}
	}
	if err := o.addCPUs(zones); err != nil {
		return nil, err
	}
	if err := o.addMemory(zones); err != nil {
		return nil, err
	}
	if err := o.addDevices(zones); err != nil {
		return nil, err
	}
	var list v1alpha2.ZoneList
	for _, number := range slices.Sorted(maps.Keys(zones)) {
		z := zones[number]
		list = append(list, v1alpha2.Zone{Name: ZoneName(number), Type: ZoneType, Costs: costs(z.node), Resources: z.resources()})
	}
	return list, nil
}

// ZoneType is the type of every zone, and ZoneName the name of that of a NUMA node: what the scheduler's plugin
// NodeResourceTopologyMatch reads.
const ZoneType = "Node"

// ZoneName returns the name of the zone of a NUMA node.
func ZoneName(number int) string { return fmt.Sprintf("node-%d", number) }

func costs(node topology.NUMANode) (list v1alpha2.CostList) {
	for _, number := range slices.Sorted(maps.Keys(node.Distances)) {
		list = append(list, v1alpha2.CostInfo{Name: ZoneName(number), Value: node.Distances[number]})
	}
	return list
}

func (o Observed) addCPUs(zones map[int]*zone) error {
	allocatable := setOf(o.Allocatable.GetCpuIds())
	exclusive := cpuset.New()
	for _, pod := range o.Pods {
		exclusive = exclusive.Union(exclusiveCPUs(pod))
	}
	unknown := allocatable
	for _, z := range zones {
		z.cpus = allocatable.Intersection(z.node.CPUs)
		z.free = z.cpus.Difference(exclusive)
		z.aligned = !allocatable.IsEmpty() && !z.node.CPUs.IsEmpty()
		if o.CPUDriver != "" {
			// Without CPUs in the zones, a scheduler would take them for CPUs that are the same on each NUMA node.
			z.cpus, z.free, z.aligned = cpuset.New(), cpuset.New(), !z.node.CPUs.IsEmpty()
		}
		unknown = unknown.Difference(z.node.CPUs)
	}
	if !unknown.IsEmpty() {
		return fmt.Errorf("podresources: the kubelet gives CPUs %s to pods, and sysfs has them in no NUMA node", unknown)
	}
	return nil
}

// exclusiveCPUs are the CPUs that a pod has got for itself. podresources leaves out shared ones since v1.22 (kubernetes
// issue 102190), so a Guaranteed container with a fraction of a CPU has none.
func exclusiveCPUs(pod *podresourcesv1.PodResources) cpuset.CPUSet {
	cpus := setOf(pod.GetCpuIds())
	for _, container := range pod.GetContainers() {
		cpus = cpus.Union(setOf(container.GetCpuIds()))
	}
	return cpus
}

func setOf(ids []int64) cpuset.CPUSet {
	numbers := make([]int, 0, len(ids))
	for _, id := range ids {
		numbers = append(numbers, int(id))
	}
	return cpuset.New(numbers...)
}

func (o Observed) addMemory(zones map[int]*zone) error {
	for _, block := range o.Allocatable.GetMemory() {
		for _, node := range block.GetTopology().GetNodes() {
			z, ok := zones[int(node.GetID())]
			if !ok {
				return fmt.Errorf("podresources: the kubelet gives %s of NUMA node %d to pods, and sysfs has no such node", block.GetMemoryType(), node.GetID())
			}
			z.memory[block.GetMemoryType()] = &amount{allocatable: block.GetSize()}
		}
	}
	for _, pod := range o.Pods {
		for _, block := range blocks(pod) {
			take(zones, block)
		}
	}
	return nil
}

// blocks are what a pod has got of memory and huge pages. What its containers have is part of what it has as a whole.
func blocks(pod *podresourcesv1.PodResources) []*podresourcesv1.ContainerMemory {
	if len(pod.GetMemory()) > 0 {
		return pod.GetMemory()
	}
	var list []*podresourcesv1.ContainerMemory
	for _, container := range pod.GetContainers() {
		list = append(list, container.GetMemory()...)
	}
	return list
}

// take takes a block from its NUMA nodes. podresources does not say how much of it is on each: it is as much as fits, in the
// order of their numbers, as in the kubelet (pkg/kubelet/cm/memorymanager/policy_static.go, updateMachineState).
func take(zones map[int]*zone, block *podresourcesv1.ContainerMemory) {
	var numbers []int
	for _, node := range block.GetTopology().GetNodes() {
		numbers = append(numbers, int(node.GetID()))
	}
	slices.Sort(numbers)
	left := block.GetSize()
	for i, number := range numbers {
		z, ok := zones[number]
		if !ok || z.memory[block.GetMemoryType()] == nil {
			continue
		}
		of := z.memory[block.GetMemoryType()]
		taken := left
		if i < len(numbers)-1 {
			taken = min(left, of.allocatable-min(of.used, of.allocatable))
		}
		of.used += taken
		left -= taken
	}
}

func (o Observed) addDevices(zones map[int]*zone) error {
	for _, list := range o.Allocatable.GetDevices() {
		for _, node := range list.GetTopology().GetNodes() {
			z, ok := zones[int(node.GetID())]
			if !ok {
				return fmt.Errorf("podresources: the kubelet gives %s of NUMA node %d to pods, and sysfs has no such node", list.GetResourceName(), node.GetID())
			}
			of := z.devices[list.GetResourceName()]
			if of == nil {
				of = &devices{healthy: map[string]bool{}, used: map[string]bool{}}
				z.devices[list.GetResourceName()] = of
			}
			for _, id := range list.GetDeviceIds() {
				of.healthy[id] = true
			}
		}
	}
	for _, pod := range o.Pods {
		for _, container := range pod.GetContainers() {
			for _, list := range container.GetDevices() {
				for _, node := range list.GetTopology().GetNodes() {
					z, ok := zones[int(node.GetID())]
					if !ok || z.devices[list.GetResourceName()] == nil {
						continue // all of them are unhealthy
					}
					for _, id := range list.GetDeviceIds() {
						z.devices[list.GetResourceName()].used[id] = true
					}
				}
			}
		}
	}
	return nil
}

// resources lists what a zone has: CPUs, then the rest by name.
func (z *zone) resources() (list v1alpha2.ResourceInfoList) {
	if z.aligned {
		list = append(list, info(string(corev1.ResourceCPU), resource.DecimalSI, int64(z.node.CPUs.Size()), int64(z.cpus.Size()), int64(z.free.Size())))
	}
	for _, name := range slices.Sorted(maps.Keys(z.memory)) {
		of := z.memory[name]
		// The kubelet may have put more there than it now gives away.
		available := of.allocatable - min(of.used, of.allocatable)
		list = append(list, info(name, resource.BinarySI, max(z.capacity(name), int64(of.allocatable)), int64(of.allocatable), int64(available)))
	}
	for _, name := range slices.Sorted(maps.Keys(z.devices)) {
		of := z.devices[name]
		all, free := maps.Clone(of.healthy), 0
		for id := range of.healthy {
			if !of.used[id] {
				free++
			}
		}
		maps.Copy(all, of.used) // also unhealthy ones
		list = append(list, info(name, resource.DecimalSI, int64(len(all)), int64(len(of.healthy)), int64(free)))
	}
	return list
}

// capacity is how many bytes of memory or huge pages a zone has by sysfs.
func (z *zone) capacity(name string) int64 {
	if name == string(corev1.ResourceMemory) {
		return z.node.Memory
	}
	for size, pages := range z.node.HugePages {
		if name == corev1.ResourceHugePagesPrefix+resource.NewQuantity(size, resource.BinarySI).String() {
			return size * pages
		}
	}
	return 0
}

func info(name string, format resource.Format, capacity, allocatable, available int64) v1alpha2.ResourceInfo {
	return v1alpha2.ResourceInfo{
		Name:        name,
		Capacity:    *resource.NewQuantity(capacity, format),
		Allocatable: *resource.NewQuantity(allocatable, format),
		Available:   *resource.NewQuantity(available, format),
	}
}

// Attributes says how the kubelet runs and which pods it has. Policy and scope are there only if they are known.
func (o Observed) Attributes() v1alpha2.AttributeList {
	list := o.Kubelet.attributes()
	if !o.Started.IsZero() {
		list = append(list, v1alpha2.AttributeInfo{Name: AttributeStarted, Value: o.Started.UTC().Format(time.RFC3339)})
	}
	if o.CPUDriver != "" {
		list = append(list, v1alpha2.AttributeInfo{Name: AttributeCPUDriver, Value: o.CPUDriver})
	}
	if o.Fingerprint == FingerprintNone {
		return list
	}
	method := podfingerprint.MethodAll
	if o.Fingerprint != FingerprintAll {
		method = podfingerprint.MethodWithExclusiveResources
	}
	print := podfingerprint.NewFingerprint(len(o.Pods))
	for _, pod := range o.Pods {
		if o.Fingerprint == FingerprintAll || isExclusive(pod) {
			_ = print.Add(pod.GetNamespace(), pod.GetName()) // it returns no error
		}
	}
	return append(list,
		v1alpha2.AttributeInfo{Name: podfingerprint.Attribute, Value: print.Sign()},
		v1alpha2.AttributeInfo{Name: podfingerprint.AttributeMethod, Value: method})
}

// isExclusive reports whether a pod has got anything for itself. The kubelet takes that back from a pod that has ended, also
// before v1.34, whose podresources still list such a pod.
func isExclusive(pod *podresourcesv1.PodResources) bool {
	if !exclusiveCPUs(pod).IsEmpty() || len(blocks(pod)) > 0 {
		return true
	}
	return slices.ContainsFunc(pod.GetContainers(), func(c *podresourcesv1.ContainerResources) bool { return len(c.GetDevices()) > 0 })
}

// Fingerprint says which pods a fingerprint is of.
type Fingerprint string

// The kinds of fingerprints, by the names of nodeGroups[].config.podsFingerprinting.
const (
	FingerprintNone      Fingerprint = "Disabled"
	FingerprintAll       Fingerprint = "Enabled"
	FingerprintExclusive Fingerprint = "EnabledExclusiveResources"
)
