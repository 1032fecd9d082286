// SPDX-License-Identifier: Apache-2.0

// Package alignment says whether a kubelet's topology manager will admit a pod: which of a pod's containers are placed as one, what
// each needs of a NUMA node, and whether that is there whatever else happens on the node until the kubelet has decided.
//
// The rules are upstream's: pkg/kubelet/cm/topologymanager (policy.go, scope_container.go, scope_pod.go), and the hints of the static
// policies of the CPU manager and the memory manager, and of the device manager (topology_hints.go). It knows no client.
package alignment

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/numaresources"
)

// Amounts has whole CPUs, bytes or devices by resource.
type Amounts map[corev1.ResourceName]int64

// Zone is a NUMA node. Capacity is what the hardware has, Allocatable what the kubelet gives to pods, and Available what none has
// got.
type Zone struct {
	Name                             string
	Capacity, Allocatable, Available Amounts
}

// Node is what a NodeResourceTopology says of a node.
type Node struct {
	// Policy is that of the topology manager, and PodScope whether its scope is pod.
	Policy   string
	PodScope bool
	// Zones are the node's, by number.
	Zones []Zone
	// given are the resources that the kubelet gives by zones.
	given map[corev1.ResourceName]bool
	// started is when the kubelet started; zero if that is not known.
	started time.Time
}

// The policies of the topology manager under which a kubelet refuses pods.
const (
	PolicyRestricted     = "restricted"
	PolicySingleNUMANode = "single-numa-node"
	policyBestEffort     = "best-effort"
	policyNone           = "none"
)

// maxZones is how many zones are looked at where a kubelet refuses pods. Its topology manager starts with eight at most
// (pkg/kubelet/cm/topologymanager/policy_options.go), unless its policy is none, or it is told to take more.
const maxZones = 16

// Read reads a NodeResourceTopology. An error says why it cannot be relied upon.
func Read(topology *v1alpha2.NodeResourceTopology) (Node, error) {
	kubelet, known := numaresources.KubeletOf(topology.Attributes)
	if !known {
		return Node{}, fmt.Errorf("it is not known how the kubelet runs: %s", cmp.Or(untrusted.Abbreviate(string(kubelet.Unknown), 100), "the report has no policy"))
	}
	node := Node{Policy: kubelet.TopologyManagerPolicy, PodScope: kubelet.TopologyManagerScope == "pod", given: map[corev1.ResourceName]bool{}, started: numaresources.StartedOf(topology.Attributes)}
	for _, zone := range topology.Zones {
		if zone.Type != numaresources.ZoneType {
			continue
		}
		z := Zone{untrusted.Abbreviate(zone.Name, 100), Amounts{}, Amounts{}, Amounts{}}
		for _, r := range zone.Resources {
			name := corev1.ResourceName(r.Name)
			for into, q := range map[*Amounts]resource.Quantity{&z.Capacity: r.Capacity, &z.Allocatable: r.Allocatable, &z.Available: r.Available} {
				// Value would compute 10 to the power of the exponent.
				amount, ok := q.AsInt64()
				if !ok {
					return Node{}, fmt.Errorf("zone %s of the report has an amount of %s that is no whole number of 64 bits", z.Name, untrusted.Abbreviate(r.Name, 100))
				}
				(*into)[name] = amount
			}
			node.given[name] = true
		}
		node.Zones = append(node.Zones, z)
	}
	if node.Refuses() && len(node.Zones) > maxZones {
		return Node{}, fmt.Errorf("the report has %d zones, at most %d are looked at", len(node.Zones), maxZones)
	}
	return node, nil
}

// Refuses reports whether the kubelet refuses pods that it cannot align. Under best-effort and none its topology manager does not, but
// its memory manager, if the policy of that is Static, refuses a pod whose memory would then be where it may not be
// (pkg/kubelet/cm/memorymanager/policy_static.go, Allocate).
func (n Node) Refuses() bool {
	return n.Policy == PolicyRestricted || n.Policy == PolicySingleNUMANode || n.given[corev1.ResourceMemory]
}

// isMemory reports whether a resource is the memory manager's.
func isMemory(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// Item is what the kubelet places as one: a container, or with scope pod a pod.
type Item struct {
	// Container is empty for a pod.
	Container string
	Amounts   Amounts
	// Held are the CPUs that it may have besides: an init container's, since the kubelet may give others to those that come after it
	// (policy_static.go, allocateCPUs).
	Held int64
	// Hidden is what of all that no report shows: what init containers have that no later container gets. The kubelet takes back
	// CPUs and devices when the pod ends, and memory when the next container starts.
	Hidden Amounts
}

// held is what others must do without.
func (i Item) held() Amounts {
	if i.Held == 0 {
		return i.Amounts
	}
	return sum([]Amounts{i.Amounts, {corev1.ResourceCPU: i.Held}})
}

// shown is what a report shows of it.
func (i Item) shown() Amounts {
	if len(i.Hidden) == 0 {
		return i.held()
	}
	amounts := maps.Clone(i.held())
	for name, amount := range i.Hidden {
		amounts[name] -= amount
	}
	return amounts
}

// Need is what a pod needs of the zones of one node. The zero value needs nothing.
type Need struct {
	Items []Item
	// Starts are init containers that end before others start. Those get what they had, so the zone of the first decides on that
	// of the others. Nobody knows which that will be.
	Starts []Item
	// Again is what each init container that ends may get again when the kubelet restarts: memory.
	Again []Item
}

// Any reports whether there is anything to align.
func (n Need) Any() bool { return len(n.Items) > 0 }

// Equal reports whether another need is the same.
func (n Need) Equal(other Need) bool {
	same := func(a, b Item) bool {
		return a.Container == b.Container && a.Held == b.Held && maps.Equal(a.Amounts, b.Amounts) && maps.Equal(a.Hidden, b.Hidden)
	}
	return slices.EqualFunc(n.Items, other.Items, same) && slices.EqualFunc(n.Starts, other.Starts, same) && slices.EqualFunc(n.Again, other.Again, same)
}

// mostHidden is how many items there are of what one pod has hidden in several zones.
const mostHidden = 1024

// Hidden is what no report shows of a pod that the kubelet has admitted. started is whether a container has started that is no init
// container, and last when the last such container did, or else the pod. A kubelet that starts later admits the pod again: its
// memory manager knows nothing of init containers that have ended, and takes back what they then get when another container starts
// (kubernetes/kubernetes issue 123971).
func (n Node) Hidden(need Need, started bool, last time.Time) (list []Item) {
	if !n.started.IsZero() && !last.After(n.started) {
		list = slices.Clone(need.Again)
	}
	for _, item := range need.Items {
		hidden := Amounts{}
		for name, amount := range item.Hidden {
			switch {
			case started && isMemory(name):
			case !isMemory(name) && n.Spans(need):
				list = append(list, slices.Repeat([]Item{{Amounts: Amounts{name: 1}}}, int(min(amount, mostHidden)))...)
			default:
				hidden[name] = amount
			}
		}
		if len(hidden) > 0 {
			list = append(list, Item{Amounts: hidden})
		}
	}
	return list
}

// Needed returns what a pod needs of the zones of this node.
func (n Node) Needed(pod *corev1.Pod) Need {
	guaranteed := pod.Status.QOSClass == corev1.PodQOSGuaranteed
	var need Need
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		item := Item{Container: c.Name, Amounts: n.aligned(guaranteed, c.Resources.Requests)}
		switch {
		case len(item.Amounts) == 0:
		case isSidecar(c):
			need.Items = append(need.Items, item)
		default:
			need.Starts = append(need.Starts, item)
		}
	}
	need.Again = memoryOf(need.Starts)
	if n.PodScope {
		item := n.peak(pod, guaranteed)
		if resourcehelper.IsPodLevelResourcesSet(pod) {
			// A kubelet aligns them only with the feature gate PodLevelResourceManagers. Room for them does no harm without it.
			maps.Copy(item.Amounts, n.aligned(guaranteed, pod.Spec.Resources.Requests))
			item.Held = 0
			maps.DeleteFunc(item.Hidden, func(name corev1.ResourceName, _ int64) bool { return !isDevice(name) })
		}
		if len(item.Amounts) > 0 {
			return Need{Items: []Item{item}, Again: need.Again}
		}
		return Need{}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if amounts := n.aligned(guaranteed, c.Resources.Requests); len(amounts) > 0 {
			need.Items = append(need.Items, Item{Container: c.Name, Amounts: amounts})
		}
	}
	if len(need.Starts) > 0 {
		need.Items = []Item{n.peak(pod, guaranteed)}
	}
	return need
}

// aligned returns what is aligned of what a container, or a pod, asks for: whole CPUs and memory of Guaranteed pods, and devices.
func (n Node) aligned(guaranteed bool, requests corev1.ResourceList) Amounts {
	amounts := Amounts{}
	for name, q := range requests {
		if q.IsZero() || !n.given[name] {
			continue
		}
		switch {
		case name == corev1.ResourceCPU:
			if guaranteed && q.MilliValue()%1000 == 0 {
				amounts[name] = q.Value()
			}
		case isMemory(name):
			if guaranteed {
				amounts[name] = q.Value()
			}
		default:
			amounts[name] = q.Value()
		}
	}
	return amounts
}

// peak is the most that is aligned of a pod's containers at one time. A container whose CPUs are no whole number shares, so it
// counts nothing of these (policy_static.go, podGuaranteedCPUs).
func (n Node) peak(pod *corev1.Pod, guaranteed bool) Item {
	running, most := Amounts{}, Amounts{}
	var starts []start
	onlyCPUs := true
	aligned := func(c *corev1.Container, ends bool) Amounts {
		amounts := n.aligned(guaranteed, c.Resources.Requests)
		for name, amount := range amounts {
			if name == corev1.ResourceCPU {
				starts = append(starts, start{amount, ends})
			} else {
				onlyCPUs = false
			}
			if !ends {
				running[name] += amount
			}
		}
		return amounts
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		ends := !isSidecar(c)
		for name, amount := range aligned(c, ends) {
			if ends {
				most[name] = max(most[name], running[name]+amount)
			}
		}
	}
	for i := range pod.Spec.Containers {
		aligned(&pod.Spec.Containers[i], false)
	}
	item := Item{Amounts: most, Hidden: Amounts{}}
	for name, amount := range running {
		most[name] = max(most[name], amount)
	}
	for name, amount := range most {
		if name == corev1.ResourceCPU {
			item.Held = max(0, running[name]+kept(starts, n.Policy != policyBestEffort || n.PodScope || onlyCPUs)-amount)
			amount += item.Held
		}
		if amount > running[name] {
			item.Hidden[name] = amount - running[name]
		}
	}
	return item
}

// start is that of a container with CPUs for itself, which ends before others start or does not.
type start struct {
	cpus int64
	ends bool
}

// kept returns how many CPUs of containers that end no later one gets, at most. The kubelet gives each the CPUs that suit it best, of
// those that are free or are such a container's. So containers that ask for as many, one after another, have the same: if they are
// in the same zones, since best-effort may have other resources decide on these.
func kept(starts []start, same bool) (sum int64) {
	var ended []int64
	for _, s := range append(starts, start{}) {
		switch {
		case !s.ends:
			for _, cpus := range ended {
				if !same || cpus != s.cpus {
					sum += cpus
				}
			}
			ended = nil
		case !same || !slices.Contains(ended, s.cpus):
			ended = append(ended, s.cpus)
		}
	}
	return sum
}

// Asked says what a pod asks for: pods of the same text need the same of every node.
func Asked(pod *corev1.Pod) string {
	text := []byte(pod.Status.QOSClass)
	add := func(kind byte, name string, requests corev1.ResourceList) {
		text = strconv.AppendQuote(append(text, ' ', kind), name)
		for _, resource := range slices.Sorted(maps.Keys(requests)) {
			q := requests[resource]
			text = strconv.AppendQuote(append(text, ' '), string(resource))
			text = append(append(text, '='), q.String()...)
		}
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		add('p', "", pod.Spec.Resources.Requests)
	}
	add('o', "", pod.Spec.Overhead)
	for i := range pod.Spec.InitContainers {
		c, kind := &pod.Spec.InitContainers[i], byte('i')
		if isSidecar(c) {
			kind = 's'
		}
		add(kind, c.Name, c.Resources.Requests)
	}
	for i := range pod.Spec.Containers {
		add('c', pod.Spec.Containers[i].Name, pod.Spec.Containers[i].Resources.Requests)
	}
	return string(text)
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// MayNeed reports whether a pod may need alignment, on a node of which nothing is known: exclusive CPUs, huge pages or devices.
func MayNeed(pod *corev1.Pod) bool {
	return asksFor(pod, func(name corev1.ResourceName, q resource.Quantity) bool {
		if isDevice(name) {
			return true
		}
		return pod.Status.QOSClass == corev1.PodQOSGuaranteed &&
			(name == corev1.ResourceCPU && q.MilliValue()%1000 == 0 || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix))
	})
}

// AsksForDevice reports whether a pod may get a device, whether the kubelet gives that by zones or not.
func AsksForDevice(pod *corev1.Pod) bool {
	return asksFor(pod, func(name corev1.ResourceName, _ resource.Quantity) bool { return isDevice(name) })
}

// asksFor reports whether a pod or one of its containers asks for any of such a resource.
func asksFor(pod *corev1.Pod, such func(corev1.ResourceName, resource.Quantity) bool) bool {
	asks := func(requests corev1.ResourceList) bool {
		for name, q := range requests {
			if !q.IsZero() && such(name, q) {
				return true
			}
		}
		return false
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) && asks(pod.Spec.Resources.Requests) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool { return asks(c.Resources.Requests) })
}

// isDevice reports whether a resource may be that of a device plugin. The cores of a workload type are not.
func isDevice(name corev1.ResourceName) bool {
	domain, _, extended := strings.Cut(string(name), "/")
	return extended && !strings.HasSuffix(domain, "workload.openshift.io") && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// Lack says why a node has no room for a pod.
type Lack struct {
	// Reason says what kind of lack it is.
	Reason Reason
	// Container is the one that finds no zone; empty for a pod as a whole.
	Container string
	// Zone is the one that lacks least, Resource what it lacks, and Missing how much of it. With [TooLarge], Zone is empty and
	// Missing is what all zones together lack, or zero.
	Zone     string
	Resource corev1.ResourceName
	Missing  int64
}

// Reason is a kind of lack.
type Reason string

// The reasons of a lack.
const (
	// NoZone: it fits into no zone now.
	NoZone Reason = "NoZone"
	// TooLarge: it fits into no zone of this node even if that is empty.
	TooLarge Reason = "TooLarge"
	// Unreported: it may not fit, depending on which zones others have got that the node has not reported yet.
	Unreported Reason = "Unreported"
	// Kept: it may not fit, depending on which zones init containers of others have got, which no report shows.
	Kept Reason = "Kept"
	// Spanning: it needs several zones, or another pod there has several, and that cannot be foreseen.
	Spanning Reason = "Spanning"
)

func (l *Lack) String() string {
	who := "the pod"
	if l.Container != "" {
		who = fmt.Sprintf("container %q", l.Container)
	}
	switch l.Reason {
	case Unreported:
		return who + " may find no zone, since the node has not reported yet what other pods have got"
	case Kept:
		return who + " may find no zone, since init containers of other pods keep what they had, which no report shows"
	case Spanning:
		return who + " needs several zones, or shares them with a pod that does, which cannot be foreseen"
	case TooLarge:
		return fmt.Sprintf("%s is larger than every zone: the largest lacks %s of %s", who, l.Amount(), l.Resource)
	}
	return fmt.Sprintf("%s fits into no zone: %s lacks %s of %s", who, l.Zone, l.Amount(), l.Resource)
}

// Amount is Missing as a quantity.
func (l *Lack) Amount() string {
	if isMemory(l.Resource) {
		return resource.NewQuantity(l.Missing, resource.BinarySI).String()
	}
	return resource.NewQuantity(l.Missing, resource.DecimalSI).String()
}

// Others are pods on the node besides the one that is asked about.
type Others struct {
	// Unreported are those that the node's report does not show yet. They may get any zone, in any order.
	Unreported []Need
	// Hidden is what no report shows of the others, in whichever zones it is.
	Hidden []Item
	// Spanning is whether a pod that the report shows has memory of several zones.
	Spanning bool
}

// lack is that of a pod which may find no zone.
func (o Others) lack() *Lack {
	if len(o.Unreported) == 0 {
		return &Lack{Reason: Kept}
	}
	return &Lack{Reason: Unreported}
}

// Check returns nil if the kubelet will admit the pod, and all unreported ones, in whatever order it looks at them, and
// whichever other pods end meanwhile.
func (n Node) Check(need Need, others Others) *Lack {
	if !n.Refuses() || n.Policy == policyNone {
		if lack := n.total(need, others); lack != nil {
			return lack
		}
		need = need.memory()
		others.Unreported = slices.Clone(others.Unreported)
		for i := range others.Unreported {
			others.Unreported[i] = others.Unreported[i].memory()
		}
		others.Hidden = memoryOf(others.Hidden)
	}
	if !n.Refuses() || !need.Any() {
		return nil
	}
	// By itself.
	spans := false
	for _, item := range slices.Concat(need.Items, need.Starts) {
		size, lack := n.size(item)
		if lack != nil {
			return lack
		}
		spans = spans || size > 1
		if lack := n.now(item, size); lack != nil {
			return lack
		}
	}
	if others.Spanning && slices.ContainsFunc(need.Items, func(i Item) bool { return hasMemory(i.Amounts) }) {
		return &Lack{Reason: Spanning}
	}
	if spans {
		return n.spanning(need, others)
	}
	if len(others.Unreported) == 0 && len(others.Hidden) == 0 && len(need.Items) == 1 && len(need.Starts) == 0 {
		return nil
	}
	// Among others: each of all must find its place, wherever the rest goes.
	needs := append(slices.Clone(others.Unreported), need)
	for i, one := range needs {
		if n.Spans(one) {
			return others.lack()
		}
		for j, item := range one.Items {
			rest := slices.Clone(others.Hidden)
			for k, other := range needs {
				for l, of := range other.Items {
					if k != i || l != j {
						rest = append(rest, of)
					}
				}
			}
			if !n.safe(one, item, rest) {
				if len(others.Unreported) == 0 && len(others.Hidden) == 0 {
					return n.together(one, item)
				}
				return others.lack()
			}
		}
	}
	return nil
}

// memory is what is left of a need where the kubelet aligns memory alone.
func (n Need) memory() Need { return Need{Items: memoryOf(n.Items), Starts: memoryOf(n.Starts)} }

func memoryOf(items []Item) (list []Item) {
	for _, item := range items {
		amounts := maps.Clone(item.Amounts)
		maps.DeleteFunc(amounts, func(name corev1.ResourceName, _ int64) bool { return !isMemory(name) })
		if len(amounts) > 0 {
			list = append(list, Item{Container: item.Container, Amounts: amounts})
		}
	}
	return list
}

// total checks that a node has as many CPUs for itself as a pod needs, in whichever zones. The scheduler counts what init containers
// ask for only as far as it is more than what the rest does, and they may have more.
func (n Node) total(need Need, others Others) *Lack {
	free, all, asked := int64(0), int64(0), int64(0)
	for _, z := range n.Zones {
		free += z.Available[corev1.ResourceCPU]
	}
	cpus := func(one Need) (amount, held int64) {
		for _, item := range one.Items {
			amount += item.Amounts[corev1.ResourceCPU]
			held += item.held()[corev1.ResourceCPU]
		}
		return amount, held
	}
	needs := append(slices.Clone(others.Unreported), need)
	for _, one := range needs {
		_, held := cpus(one)
		all += held
	}
	_, hidden := cpus(Need{Items: others.Hidden})
	all += hidden
	if asked, _ = cpus(need); asked == 0 {
		return nil
	}
	if asked <= free {
		for _, one := range needs {
			if amount, held := cpus(one); all-held+amount > free {
				return others.lack()
			}
		}
		return nil
	}
	lack := n.least(Amounts{corev1.ResourceCPU: asked})
	if lack == nil {
		return nil // one zone has all of it
	}
	lack.Missing = asked - free
	return lack
}

// together says of a pod whose containers fit each by itself, and not all in whatever order, what a zone lacks for all of them.
func (n Node) together(need Need, item Item) *Lack {
	all := Amounts{}
	for _, i := range need.Items {
		for name, amount := range i.Amounts {
			all[name] += amount
		}
	}
	lack := n.least(all)
	if lack == nil { // every zone must have room for an init container's pod
		lack = n.most(all)
	}
	lack.Container = item.Container
	return lack
}

func hasMemory(a Amounts) bool {
	for name := range a {
		if isMemory(name) {
			return true
		}
	}
	return false
}

// Spans reports whether any of it needs more than one zone, where the kubelet refuses pods.
func (n Node) Spans(need Need) bool {
	return n.Refuses() && slices.ContainsFunc(slices.Concat(need.Items, need.Starts), func(item Item) bool {
		size, lack := n.size(item)
		return lack == nil && size > 1
	})
}

// SpansMemory reports whether a pod has got, or gets, memory of several zones. The kubelet gives no memory of such zones to pods of
// one zone, and the report does not say which zones these are (pkg/kubelet/cm/memorymanager/policy_static.go, calculateHints).
func (n Node) SpansMemory(need Need) bool {
	return n.Spans(need) && slices.ContainsFunc(need.Items, func(i Item) bool { return hasMemory(i.Amounts) })
}

// size returns how many zones an item must have: the least that could have it if they were empty. The kubelet prefers as few as that
// for each resource alone, for memory and huge pages together, and refuses an item whose resources differ.
func (n Node) size(item Item) (int, *Lack) {
	size := 0
	for name := range item.Amounts {
		of := Amounts{name: item.Amounts[name]}
		total := func(z Zone, name corev1.ResourceName) int64 { return z.Capacity[name] }
		if isMemory(name) {
			of = Amounts{}
			for other, amount := range item.Amounts {
				if isMemory(other) {
					of[other] = amount
				}
			}
			total = func(z Zone, name corev1.ResourceName) int64 { return z.Allocatable[name] }
		}
		k := n.fewest(of, total)
		if k > 1 && n.Policy == PolicySingleNUMANode || k == 0 || size != 0 && k != size {
			lack := n.most(item.Amounts)
			lack.Reason, lack.Container, lack.Zone = TooLarge, item.Container, ""
			return 0, lack
		}
		size = k
	}
	return size, nil
}

// fewest returns the size of the smallest set of zones that has the amounts, or 0 if there is none.
func (n Node) fewest(amounts Amounts, of func(Zone, corev1.ResourceName) int64) int {
	for k := 1; k <= len(n.Zones); k++ {
		if n.set(k, amounts, of) {
			return k
		}
	}
	return 0
}

// set reports whether k zones together have the amounts.
func (n Node) set(k int, amounts Amounts, of func(Zone, corev1.ResourceName) int64) bool {
	for mask := uint32(1); mask < 1<<len(n.Zones); mask++ {
		if bits.OnesCount32(mask) != k {
			continue
		}
		enough := true
		for name, amount := range amounts {
			var sum int64
			for i, z := range n.Zones {
				if mask&(1<<i) != 0 {
					sum += of(z, name)
				}
			}
			enough = enough && sum >= amount
		}
		if enough {
			return true
		}
	}
	return false
}

func available(z Zone, name corev1.ResourceName) int64 { return z.Available[name] }

// now returns what is missing for an item by itself.
func (n Node) now(item Item, size int) *Lack {
	if n.set(size, item.Amounts, available) {
		return nil
	}
	lack := n.least(item.Amounts)
	if lack == nil { // one zone would do, and it needs several
		lack = &Lack{Reason: Spanning}
	}
	lack.Container = item.Container
	if size == 1 && lack.Reason == NoZone && !n.set(1, item.Amounts, func(z Zone, name corev1.ResourceName) int64 { return z.Allocatable[name] }) {
		lack.Reason = TooLarge
	}
	return lack
}

// lacks returns which resource a zone lacks most of, as a share of what is asked, and how much.
func lacks(z Zone, amounts Amounts) (name corev1.ResourceName, missing int64, share float64) {
	for _, r := range slices.Sorted(maps.Keys(amounts)) {
		m := amounts[r] - z.Available[r]
		if s := float64(m) / float64(amounts[r]); m > 0 && s > share {
			name, missing, share = r, m, s
		}
	}
	return name, missing, share
}

// least returns what the zone lacks that lacks least, or nil if one lacks nothing; most does so of the zone that lacks most.
func (n Node) least(amounts Amounts) *Lack {
	var found *Lack
	least := math.Inf(1)
	for _, z := range n.Zones {
		name, missing, share := lacks(z, amounts)
		if missing == 0 {
			return nil
		}
		if share < least {
			least, found = share, &Lack{Reason: NoZone, Zone: z.Name, Resource: name, Missing: missing}
		}
	}
	return found
}

func (n Node) most(amounts Amounts) *Lack {
	found := &Lack{Reason: NoZone}
	most := 0.0
	for _, z := range n.Zones {
		if name, missing, share := lacks(z, amounts); share > most {
			most, found = share, &Lack{Reason: NoZone, Zone: z.Name, Resource: name, Missing: missing}
		}
	}
	return found
}

// spanning checks a pod that needs several zones. It gets them where nobody else is: which zones it will have cannot be foreseen.
func (n Node) spanning(need Need, others Others) *Lack {
	if len(need.Items) > 1 || len(need.Starts) > 0 {
		return &Lack{Reason: Spanning, Container: need.Items[0].Container}
	}
	if len(others.Unreported) > 0 || len(others.Hidden) > 0 {
		return others.lack()
	}
	if hasMemory(need.Items[0].Amounts) {
		for _, z := range n.Zones {
			for name, allocatable := range z.Allocatable {
				if isMemory(name) && z.Available[name] < allocatable {
					return &Lack{Reason: NoZone, Zone: z.Name, Resource: name, Missing: allocatable - z.Available[name]}
				}
			}
		}
	}
	return nil
}
