// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	cputopology "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/operators/numaresources"
)

// machine is a node's hardware, and how its kubelet runs.
type machine struct {
	// zones is the number of NUMA nodes, each with so many CPUs and so many GiB of memory; reserved are the CPUs of the first one that
	// no pod gets.
	zones, cpus, reserved int
	memory                int64
	policy, scope         string
	// static is whether the memory manager's policy is Static, and threads whether each core has two CPUs.
	static, threads bool
}

func (m machine) String() string {
	memory := ""
	if m.static {
		memory = ", memory manager Static"
	}
	return fmt.Sprintf("%s, scope %s%s", m.policy, m.scope, memory)
}

// kubelet is what decides in a kubelet whether pods are admitted: upstream's topology manager, with the static policies of the CPU and
// the memory manager behind it.
type kubelet struct {
	machine
	manager topologymanager.Manager
	cpu     cpumanager.Policy
	cpus    cpustate.State
	mem     memorymanager.Policy
	memory  memorystate.State
	numa    []topology.NUMANode
	pods    map[string]*corev1.Pod
	started time.Time
}

const gi = 1 << 30

func newKubelet(t *testing.T, m machine) *kubelet {
	t.Helper()
	logger := klog.Background()
	k := &kubelet{machine: m, pods: map[string]*corev1.Pod{}}
	info := &cadvisorapi.MachineInfo{NumCores: m.zones * m.cpus, NumSockets: m.zones}
	reserved := map[int]map[corev1.ResourceName]uint64{}
	for zone := range m.zones {
		node := cadvisorapi.Node{Id: zone, Memory: uint64(m.memory) * gi}
		var ids []int
		for i := range m.cpus {
			id := zone*m.cpus + i
			ids = append(ids, id)
			if m.threads && i%2 == 1 {
				node.Cores[i/2].Threads = append(node.Cores[i/2].Threads, id)
				continue
			}
			node.Cores = append(node.Cores, cadvisorapi.Core{Id: i, Threads: []int{id}, SocketID: zone})
		}
		distances := map[int]int64{}
		for other := range m.zones {
			distances[other] = 20
			node.Distances = append(node.Distances, 20)
		}
		node.Distances[zone], distances[zone] = 10, 10
		info.Topology = append(info.Topology, node)
		info.MemoryCapacity += node.Memory
		k.numa = append(k.numa, topology.NUMANode{Number: zone, CPUs: cpuset.New(ids...), Memory: m.memory * gi, Distances: distances})
		reserved[zone] = map[corev1.ResourceName]uint64{corev1.ResourceMemory: gi}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	k.manager, err = topologymanager.NewManager(logger, info.Topology, m.policy, m.scope, nil)
	must(err)
	cpus, err := cputopology.Discover(logger, info)
	must(err)
	var ids []int
	for id := range m.reserved {
		ids = append(ids, id)
	}
	k.cpu, err = cpumanager.NewStaticPolicy(logger, cpus, m.reserved, cpuset.New(ids...), k.manager, nil)
	must(err)
	k.cpus = cpustate.NewMemoryState(logger)
	must(k.cpu.Start(logger, k.cpus))
	k.manager.AddHintProvider(logger, cpuHints{k})
	if m.static {
		k.mem, err = memorymanager.NewPolicyStatic(logger, info, reserved, k.manager)
		must(err)
		k.memory = memorystate.NewMemoryState(logger)
		must(k.mem.Start(logger, k.memory))
		k.manager.AddHintProvider(logger, memoryHints{k})
	}
	return k
}

type cpuHints struct{ *kubelet }

func (h cpuHints) GetTopologyHints(logger klog.Logger, pod *corev1.Pod, c *corev1.Container, o lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	return h.cpu.GetTopologyHints(logger, h.cpus, pod, c, o)
}

func (h cpuHints) GetPodTopologyHints(logger klog.Logger, pod *corev1.Pod, o lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	return h.cpu.GetPodTopologyHints(logger, h.cpus, pod, o)
}

func (h cpuHints) AllocatePod(logger klog.Logger, pod *corev1.Pod, o lifecycle.Operation) error {
	return h.cpu.AllocatePod(logger, h.cpus, pod, o)
}

func (h cpuHints) Allocate(ctx context.Context, pod *corev1.Pod, c *corev1.Container, o lifecycle.Operation) error {
	return h.cpu.Allocate(klog.FromContext(ctx), h.cpus, pod, c, o)
}

type memoryHints struct{ *kubelet }

func (h memoryHints) GetTopologyHints(logger klog.Logger, pod *corev1.Pod, c *corev1.Container, o lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	return h.mem.GetTopologyHints(logger, h.memory, pod, c, o)
}

func (h memoryHints) GetPodTopologyHints(logger klog.Logger, pod *corev1.Pod, o lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	return h.mem.GetPodTopologyHints(logger, h.memory, pod, o)
}

func (h memoryHints) AllocatePod(logger klog.Logger, pod *corev1.Pod, o lifecycle.Operation) error {
	return h.mem.AllocatePod(logger, h.memory, pod, o)
}

func (h memoryHints) Allocate(ctx context.Context, pod *corev1.Pod, c *corev1.Container, o lifecycle.Operation) error {
	return h.mem.Allocate(ctx, h.memory, pod, c, o)
}

// admit returns why the kubelet refuses a pod, or nothing. As in pkg/kubelet/allocation, what a refused pod has got is taken back.
func (k *kubelet) admit(ctx context.Context, pod *corev1.Pod) string {
	result := k.manager.Admit(ctx, &lifecycle.PodAdmitAttributes{Pod: pod, Operation: lifecycle.AddOperation})
	if !result.Admit {
		k.free(pod)
		return result.Reason + ": " + result.Message
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		k.manager.AddContainer(klog.Background(), pod, &c, string(pod.UID)+c.Name)
	}
	k.pods[string(pod.UID)] = pod
	return ""
}

// end takes back what a pod has, when it has ended.
func (k *kubelet) end(pod *corev1.Pod) {
	k.free(pod)
	delete(k.pods, string(pod.UID))
}

// restart returns the kubelet that comes next: it knows by checkpoints what containers have, and admits all pods again
// (pkg/kubelet/kubelet.go, HandlePodAdditions). Those that it refuses end.
func (k *kubelet) restart(t *testing.T, now time.Time, pods []*corev1.Pod) (next *kubelet, refused []*corev1.Pod) {
	t.Helper()
	next = newKubelet(t, k.machine)
	next.cpus, next.memory, next.pods, next.started = k.cpus, k.memory, k.pods, now
	for _, pod := range pods {
		if next.admit(t.Context(), pod) != "" {
			delete(next.pods, string(pod.UID))
			refused = append(refused, pod)
		}
	}
	return next, refused
}

func (k *kubelet) free(pod *corev1.Pod) {
	logger := klog.Background()
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		_ = k.cpu.RemoveContainer(logger, k.cpus, string(pod.UID), c.Name)
		if k.static {
			k.mem.RemoveContainer(logger, k.memory, string(pod.UID), c.Name)
		}
		_ = k.manager.RemoveContainer(logger, string(pod.UID)+c.Name)
	}
}

// observe is what the exporter reads of the kubelet: podresources, sysfs and configz.
func (k *kubelet) observe() numaresources.Observed {
	memory := "None"
	o := numaresources.Observed{Started: k.started, Nodes: k.numa, Allocatable: &podresourcesv1.AllocatableResourcesResponse{CpuIds: numbers(k.cpu.GetAllocatableCPUs(k.cpus))}}
	if k.static {
		memory = "Static"
		for _, block := range k.mem.GetAllocatableMemory(k.memory) {
			o.Allocatable.Memory = append(o.Allocatable.Memory, memoryOf(block))
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(k.pods)) {
		pod := k.pods[uid]
		of := &podresourcesv1.PodResources{Namespace: pod.Namespace, Name: pod.Name}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			isInit := slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name && i.RestartPolicy == nil })
			if isInit {
				continue // podresources leaves out init containers that are not restartable
			}
			one := &podresourcesv1.ContainerResources{Name: c.Name}
			if set, ok := k.cpus.GetCPUSet(uid, c.Name); ok {
				one.CpuIds = numbers(set)
			}
			if k.static {
				for _, block := range k.memory.GetMemoryBlocks(uid, c.Name) {
					one.Memory = append(one.Memory, memoryOf(block))
				}
			}
			of.Containers = append(of.Containers, one)
		}
		o.Pods = append(o.Pods, of)
	}
	o.Kubelet = numaresources.Kubelet{TopologyManagerPolicy: k.policy, TopologyManagerScope: k.scope, CPUManagerPolicy: "static", MemoryManagerPolicy: memory}
	return o
}

func numbers(set cpuset.CPUSet) (ids []int64) {
	for _, id := range set.List() {
		ids = append(ids, int64(id))
	}
	return ids
}

func memoryOf(block memorystate.Block) *podresourcesv1.ContainerMemory {
	m := &podresourcesv1.ContainerMemory{MemoryType: string(block.Type), Size: block.Size, Topology: &podresourcesv1.TopologyInfo{}}
	for _, id := range block.NUMAAffinity {
		m.Topology.Nodes = append(m.Topology.Nodes, &podresourcesv1.NUMANode{ID: int64(id)})
	}
	return m
}
