// SPDX-License-Identifier: Apache-2.0

package readmission

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"
)

// wholeCPUs returns how many exclusive CPUs the policy static gives to a container of the pod; 0 if
// the container shares. The pod must be Guaranteed, and the request a whole number
// (pkg/kubelet/cm/cpumanager/policy_static.go, guaranteedCPUs). A pod with pod-level resources, in
// place of its containers', gets none as long as the feature gate PodLevelResourceManagers is off,
// which it is by default.
func wholeCPUs(pod *v1.Pod, container *v1.Container) int {
	request := container.Resources.Requests.Cpu().MilliValue()
	if pod.Status.QOSClass != v1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(pod) || request%1000 != 0 {
		return 0
	}
	return int(request / 1000)
}

// containers returns those that the CPU manager looks at, in its order.
func containers(pod *v1.Pod) (list []*v1.Container, init int) {
	for i := range pod.Spec.InitContainers {
		list = append(list, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		list = append(list, &pod.Spec.Containers[i])
	}
	return list, len(pod.Spec.InitContainers)
}

func isSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// WholeCPUs returns how many exclusive CPUs the policy static gives to a pod at once; 0 if all its
// containers share (policy_static.go, podGuaranteedCPUs).
func WholeCPUs(pod *v1.Pod) int {
	list, init := containers(pod)
	starting, running := 0, 0
	for i, c := range list {
		n := wholeCPUs(pod, c)
		if i < init && !isSidecar(c) {
			starting = max(starting, running+n)
		} else {
			running += n
		}
	}
	return max(starting, running)
}

// staticPolicy repeats what upstream's policy static and topology manager do with pods that are
// admitted one after another (pkg/kubelet/cm/cpumanager/policy_static.go, cpu_assignment.go;
// pkg/kubelet/cm/topologymanager). They cannot be imported without the scheduler.
//
// Hints of the device and the memory manager are not known here, and options by which upstream
// chooses other CPUs, of the same number, are not repeated. Where these may change the outcome for a
// pod, it reports that this cannot be foreseen.
type staticPolicy struct {
	Kubelet
	cpus map[int]CPU
	// levels are the groups that upstream fills one after another: sockets, NUMA nodes, cores, CPUs.
	levels [levels]level
	// threads is the number of CPUs of a core.
	threads int
	// all are the CPUs of the host, free those that can be given to a container, and whole those of
	// them that share no core with a reserved one.
	all, free, whole cpuset.CPUSet
	// held are the containers that have CPUs already; without a name, whole pods.
	held map[holder]cpuset.CPUSet
	// guessed means that only the CPUs are known, and not where they are.
	guessed bool
	// bounded says why nothing is given to any container: the node says that it has more than a host can have, or than
	// can be looked at. Empty means that it does not.
	bounded string
	// manyNUMANodes means that there are more than are looked at.
	manyNUMANodes bool
	// reused means that containers got CPUs of their pods' init containers, if it was the same ones
	// that were chosen.
	reused bool
}

// holder is a container of the pod with a UID.
type holder struct{ pod, container string }

const levels = 4

// level is a way to group CPUs. The size of its smallest group is smallest.
type level struct {
	of       func(CPU) int
	members  map[int]cpuset.CPUSet
	smallest int
}

func newLevel(cpus []CPU, of func(CPU) int) level {
	ids := map[int][]int{}
	for _, c := range cpus {
		ids[of(c)] = append(ids[of(c)], c.ID)
	}
	l := level{of, map[int]cpuset.CPUSet{}, len(cpus)}
	for group, members := range ids {
		l.members[group], l.smallest = cpuset.New(members...), min(l.smallest, len(members))
	}
	return l
}

// maxNUMANodes is how many the topology manager has by default
// (pkg/kubelet/cm/topologymanager/policy_options.go, defaultMaxAllowableNUMANodes). It looks at all
// sets of them, and there are twice as many for each further one.
const maxNUMANodes = 8

// maxLooks bounds the work for a node, in containers times CPUs: all CPUs are sorted for each container. A kubelet writes its
// Node and mirror pods, so it may claim thousands of both, which would take minutes.
const maxLooks = 1 << 18

func newStaticPolicy(node *v1.Node, kubelet Kubelet, pods []candidate) *staticPolicy {
	p := &staticPolicy{Kubelet: kubelet, cpus: map[int]CPU{}, held: map[holder]cpuset.CPUSet{}}
	if p.guessed = len(kubelet.CPUs) == 0; p.guessed {
		ids := kubelet.Online.List()
		if len(ids) == 0 {
			cpus := Capacity(node)
			if cpus.Cmp(*node.Status.Capacity.Cpu()) != 0 {
				p.bounded = fmt.Sprintf("its node says that it has more than %d CPUs, which no host has", MaxCPUs)
			}
			for id := range int(cpus.Value()) {
				ids = append(ids, id)
			}
		}
		for _, id := range ids {
			p.CPUs = append(p.CPUs, CPU{ID: id, Core: id})
		}
	}
	all := []int{}
	p.CPUs = slices.Clone(p.CPUs)
	for i := range p.CPUs {
		c := &p.CPUs[i]
		if c.NUMANode < 0 || c.NUMANode >= 64 { // masks have no room for it
			c.NUMANode, p.manyNUMANodes = 0, true
		}
		p.cpus[c.ID] = *c
		all = append(all, c.ID)
	}
	sockets, numaNodes := newLevel(p.CPUs, func(c CPU) int { return c.Socket }), newLevel(p.CPUs, func(c CPU) int { return c.NUMANode })
	cores := newLevel(p.CPUs, func(c CPU) int { return c.Core })
	p.levels = [levels]level{sockets, numaNodes, cores, newLevel(p.CPUs, func(c CPU) int { return c.ID })}
	if len(sockets.members) >= len(numaNodes.members) {
		p.levels[0], p.levels[1] = numaNodes, sockets
	}
	if len(cores.members) > 0 {
		p.threads = len(p.CPUs) / len(cores.members)
	}
	p.manyNUMANodes = p.manyNUMANodes || len(numaNodes.members) > maxNUMANodes
	p.all = cpuset.New(all...)
	p.free = p.all
	reserved := p.ReservedCPUs.Intersection(p.all)
	if p.ReservedCPUs.IsEmpty() {
		// Upstream rounds up to whole CPUs.
		reserved = p.take(p.free, int((p.Reserved.MilliValue()+999)/1000))
	}
	var siblings []int
	for _, id := range reserved.UnsortedList() {
		siblings = append(siblings, cores.members[p.cpus[id].Core].UnsortedList()...)
	}
	p.whole = p.free.Difference(cpuset.New(siblings...))
	p.free = p.free.Difference(reserved)
	for _, a := range kubelet.Held {
		p.held[holder{a.Pod, a.Container}] = a.CPUs
		p.free, p.whole = p.free.Difference(a.CPUs), p.whole.Difference(a.CPUs)
	}
	lacking := 0
	for _, c := range pods {
		lacking += len(p.lacking(c.pod))
	}
	if p.bounded == "" && lacking*len(p.CPUs) > maxLooks {
		p.bounded = fmt.Sprintf("its node has %d CPUs, and %d containers that get some, which is too much to look at", len(p.CPUs), lacking)
	}
	return p
}

// take chooses n of the available CPUs (cpu_assignment.go, takeByTopologyNUMAPacked): it takes whole
// groups of the first level as long as they are available and not too large, then of the next. At
// each level groups come first in which least is available. It returns fewer if there are not
// enough.
func (p *staticPolicy) take(available cpuset.CPUSet, n int) cpuset.CPUSet {
	var taken []int
	for at, level := range p.levels {
		if level.smallest > n-len(taken) {
			continue
		}
		left := available.Difference(cpuset.New(taken...))
		ids := left.UnsortedList()
		// Of each CPU and level: how much of its group is left, and the group.
		order := make([][2 * levels]int, len(ids))
		for i, l := range p.levels {
			free := map[int]int{}
			for _, id := range ids {
				free[l.of(p.cpus[id])]++
			}
			for j, id := range ids {
				group := l.of(p.cpus[id])
				order[j][2*i], order[j][2*i+1] = free[group], group
			}
		}
		slices.SortFunc(order, func(a, b [2 * levels]int) int { return slices.Compare(a[:], b[:]) })
		seen := map[int]bool{}
		for _, places := range order {
			group := places[2*at+1]
			if seen[group] {
				continue
			}
			seen[group] = true
			if all := level.members[group]; all.Size() <= n-len(taken) && all.IsSubsetOf(left) {
				taken = append(taken, all.UnsortedList()...)
			}
		}
	}
	return cpuset.New(taken...)
}

// numaNodes returns the NUMA nodes of the CPUs as a mask.
func (p *staticPolicy) numaNodes(cpus cpuset.CPUSet) (mask uint64) {
	for _, id := range cpus.UnsortedList() {
		mask |= 1 << p.cpus[id].NUMANode
	}
	return mask
}

// within returns those of the CPUs that are on NUMA nodes of the mask.
func (p *staticPolicy) within(cpus cpuset.CPUSet, mask uint64) cpuset.CPUSet {
	var ids []int
	for _, id := range cpus.UnsortedList() {
		if mask&(1<<p.cpus[id].NUMANode) != 0 {
			ids = append(ids, id)
		}
	}
	return cpuset.New(ids...)
}

// perNUMANode returns how many of the CPUs are on each NUMA node.
func (p *staticPolicy) perNUMANode(cpus cpuset.CPUSet) (count [64]int) {
	for _, id := range cpus.UnsortedList() {
		count[p.cpus[id].NUMANode]++
	}
	return count
}

// sum returns how many CPUs are on NUMA nodes of the mask.
func sum(perNUMANode [64]int, mask uint64) (sum int) {
	for ; mask != 0; mask &= mask - 1 {
		sum += perNUMANode[bits.TrailingZeros64(mask)]
	}
	return sum
}

// hint returns the NUMA nodes from which n CPUs come first; false if the topology manager rejects the
// pod. reusable are CPUs that an init container of the pod has had. It is the smallest set of nodes
// that has enough, and the policies that reject pods accept only as many nodes as an empty host would
// need (policy_static.go, generateCPUTopologyHints; topologymanager/policy.go).
func (p *staticPolicy) hint(n int, reusable cpuset.CPUSet) (mask uint64, ok bool) {
	nodes := p.numaNodes(p.all)
	least := bits.OnesCount64(nodes)
	all, available, reused := p.perNUMANode(p.all), p.perNUMANode(p.free.Union(reusable)), p.numaNodes(reusable)
	var fits []uint64
	for mask := nodes; mask != 0; mask = (mask - 1) & nodes { // all subsets
		if sum(all, mask) >= n {
			least = min(least, bits.OnesCount64(mask))
		}
		if reused&^mask == 0 && sum(available, mask) >= n {
			fits = append(fits, mask)
		}
	}
	if len(fits) == 0 {
		return nodes, !p.aligns()
	}
	mask = slices.MinFunc(fits, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(bits.OnesCount64(a), bits.OnesCount64(b)), cmp.Compare(a, b))
	})
	preferred := bits.OnesCount64(mask) == least && (least == 1 || p.TopologyPolicy != "single-numa-node")
	return mask, preferred || !p.aligns()
}

// aligns reports whether the topology manager rejects pods.
func (p *staticPolicy) aligns() bool {
	return p.TopologyPolicy == "restricted" || p.TopologyPolicy == "single-numa-node"
}

// hinted reports whether the topology manager says where CPUs come from.
func (p *staticPolicy) hinted() bool {
	return !p.guessed && !p.manyNUMANodes && (p.aligns() || p.TopologyPolicy == "best-effort")
}

func (p *staticPolicy) option(name string) bool {
	on, _ := strconv.ParseBool(p.Options[name])
	return on
}

// holds returns the CPUs that a container has already; not found if it has none.
func (p *staticPolicy) holds(pod *v1.Pod, container string) (cpus cpuset.CPUSet, found bool) {
	cpus, found = p.held[holder{UID(pod), container}]
	return cpus, found
}

// lacking returns the containers of the pod that need CPUs and have none yet.
func (p *staticPolicy) lacking(pod *v1.Pod) []*v1.Container {
	if _, whole := p.holds(pod, ""); whole {
		return nil
	}
	list, _ := containers(pod)
	return slices.DeleteFunc(list, func(c *v1.Container) bool {
		_, held := p.holds(pod, c.Name)
		return held || wholeCPUs(pod, c) == 0
	})
}

// admit gives CPUs to the containers of a pod that have none yet. It returns nil if the pod may stay.
// Upstream keeps what the checkpoint has, whatever the settings are now.
func (p *staticPolicy) admit(pod *v1.Pod) *Rejection {
	if p.bounded != "" || len(p.lacking(pod)) == 0 {
		return nil
	}
	total := WholeCPUs(pod)
	reject := func(reason, format string, args ...any) *Rejection {
		return &Rejection{Pod: pod, Reason: reason, Text: fmt.Sprintf(format, args...)}
	}
	notAligned := func(n int) *Rejection {
		return reject(TopologyAffinityError, "asks for %d whole CPUs, but the topology policy %s finds no NUMA nodes for them", n, p.TopologyPolicy)
	}
	mask, ok := p.numaNodes(p.all), true
	if p.hinted() && p.TopologyScope == "pod" {
		if mask, ok = p.hint(total, cpuset.New()); !ok {
			return notAligned(total)
		}
	}
	reusable := cpuset.New()
	list, init := containers(pod)
	for i, c := range list {
		n := wholeCPUs(pod, c)
		if n == 0 {
			continue
		}
		again := i < init && !isSidecar(c) // what it has is used again by later containers of the pod
		if cpus, held := p.holds(pod, c.Name); held {
			if reusable = reusable.Difference(cpus); again {
				reusable = reusable.Union(cpus)
			}
			continue
		}
		if p.hinted() && p.TopologyScope != "pod" {
			if mask, ok = p.hint(n, reusable); !ok {
				return notAligned(n)
			}
		}
		if p.option("full-pcpus-only") && !p.guessed {
			if n%p.threads != 0 {
				return reject(SMTAlignmentError, "asks for %d whole CPUs in container %s, which is not a multiple of the %d of a core", n, c.Name, p.threads)
			}
			if left := p.whole.Size(); n > left {
				return reject(SMTAlignmentError, "asks for %d whole CPUs in container %s, but the free whole cores have only %d", n, c.Name, left)
			}
		}
		available := p.free.Union(reusable)
		if n > available.Size() {
			return reject(UnexpectedAdmissionError, "asks for %d whole CPUs in container %s, with only %d neither reserved nor given to older pods", n, c.Name, available.Size())
		}
		aligned := p.within(available, mask)
		taken := p.take(aligned, min(n, aligned.Size()))
		taken = taken.Union(p.take(available.Difference(taken), n-taken.Size()))
		p.free, p.whole = p.free.Difference(taken), p.whole.Difference(taken)
		if again {
			reusable, p.reused = reusable.Union(taken), true
		} else {
			reusable = reusable.Difference(taken)
		}
	}
	return nil
}

// unforeseeable says why a pod that is admitted here may be rejected all the same; it returns "" if
// there is no such reason.
func (p *staticPolicy) unforeseeable(pod *v1.Pod) string {
	if len(p.lacking(pod)) == 0 {
		return ""
	}
	if p.bounded != "" {
		return p.bounded
	}
	if p.guessed && p.option("full-pcpus-only") {
		return "which CPUs share a core is known on the node only, and full-pcpus-only is set"
	}
	if p.reused || p.TopologyPolicy == "restricted" {
		for _, option := range []string{"align-by-socket", "distribute-cpus-across-cores", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache"} {
			if p.option(option) {
				return fmt.Sprintf("which CPUs older containers get is not known, and %s is set", option)
			}
		}
	}
	if !p.aligns() {
		return ""
	}
	if p.guessed {
		return fmt.Sprintf("the NUMA nodes of the CPUs are known on the node only, and the topology policy is %s", p.TopologyPolicy)
	}
	if p.manyNUMANodes {
		return fmt.Sprintf("the host has more than %d NUMA nodes, and the topology policy is %s", maxNUMANodes, p.TopologyPolicy)
	}
	if on, _ := strconv.ParseBool(p.TopologyOptions["prefer-closest-numa-nodes"]); on && p.TopologyPolicy == "restricted" {
		return "the distances of NUMA nodes are not known, and prefer-closest-numa-nodes is set"
	}
	if strings.EqualFold(p.MemoryPolicy, "Static") {
		return fmt.Sprintf("the memory manager has a say under the topology policy %s", p.TopologyPolicy)
	}
	list, _ := containers(pod)
	for _, c := range list {
		for name := range c.Resources.Requests {
			if isExtended(name) {
				return fmt.Sprintf("its %s may be on another NUMA node under the topology policy %s", name, p.TopologyPolicy)
			}
		}
	}
	return ""
}
