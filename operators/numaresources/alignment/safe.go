// SPDX-License-Identifier: Apache-2.0

package alignment

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// safe reports whether an item of one zone finds a zone, wherever the rest goes. The kubelet looks at pods in an order that nobody
// knows, a pod goes to the lowest zone that has room, and pods that end make room at any time, so the rest may be anywhere. But what
// is in one zone is not in another: to leave no room, the rest must fill all zones, each up to less than the item needs.
//
// That question is a covering of bins. It is answered by bounds that err to the safe side, and are exact where all are alike.
func (n Node) safe(need Need, item Item, rest []Item) bool {
	if len(need.Starts) > 0 {
		return n.safeEverywhere(need, item, rest)
	}
	var zones []Zone
	for _, z := range n.Zones {
		if fits(item.Amounts, z.Available) {
			zones = append(zones, z)
		}
	}
	all := together(item, rest)
	if slices.ContainsFunc(zones, func(z Zone) bool { return fits(all, z.Available) }) {
		return true
	}
	if n.shares(item) {
		return false
	}
	return !manyEnough(item, zones, rest) || !largeEnough(item, zones, rest)
}

// safeEverywhere is safe for a pod whose init containers decide on the zone of the others: each zone in which the first can ever be has
// room for all.
func (n Node) safeEverywhere(need Need, item Item, rest []Item) bool {
	first := need.Starts[0].Amounts
	for _, start := range need.Starts[1:] {
		if !alike(first, start.Amounts) {
			return false
		}
	}
	all := together(item, rest)
	for _, z := range n.Zones {
		if fits(first, z.Allocatable) && !fits(all, z.Available) {
			return false
		}
	}
	return true
}

// together is what an item needs, and all that the rest may have.
func together(item Item, rest []Item) Amounts {
	list := []Amounts{item.Amounts}
	for _, other := range rest {
		list = append(list, other.held())
	}
	return sum(list)
}

// alike reports whether two ask for the same resources.
func alike(a, b Amounts) bool {
	for name := range a {
		if _, ok := b[name]; !ok {
			return false
		}
	}
	return len(a) == len(b)
}

func fits(amounts, in Amounts) bool {
	for name, amount := range amounts {
		if in[name] < amount {
			return false
		}
	}
	return true
}

func sum(list []Amounts) Amounts {
	total := Amounts{}
	for _, amounts := range list {
		for name, amount := range amounts {
			total[name] += amount
		}
	}
	return total
}

// shares reports whether a device that an item needs may be in several zones: then what is in one is in another, too. The report
// does not say so, and all devices are taken for such that are in more than one zone.
func (n Node) shares(item Item) bool {
	for name := range item.Amounts {
		if name == corev1.ResourceCPU || isMemory(name) {
			continue
		}
		zones := 0
		for _, z := range n.Zones {
			if z.Capacity[name] > 0 {
				zones++
			}
		}
		if zones > 1 {
			return true
		}
	}
	return false
}

// blocks is how much of each resource others must take of a zone so that an item no longer fits there.
func blocks(item Item, z Zone) Amounts {
	need := Amounts{}
	for name, amount := range item.Amounts {
		need[name] = z.Available[name] - amount + 1
	}
	return need
}

// manyEnough reports whether there are as many others as it takes at least to leave no room in any of the zones.
func manyEnough(item Item, zones []Zone, rest []Item) bool {
	needed := 0
	for _, z := range zones {
		fewest := math.MaxInt32
		for name, amount := range blocks(item, z) {
			var sizes []int64
			for _, other := range rest {
				if fits(other.Amounts, z.Allocatable) {
					sizes = append(sizes, other.held()[name])
				}
			}
			slices.Sort(sizes)
			count := 0
			for _, size := range slices.Backward(sizes) {
				if amount <= 0 {
					break
				}
				amount -= size
				count++
			}
			if amount <= 0 {
				fewest = min(fewest, count)
			}
		}
		needed += fewest
	}
	return len(rest) >= needed
}

// largeEnough reports whether the others are as large together as it takes at least to leave no room in any of the zones. Each may
// be in one zone only. The zones have weights: alike, or by how much of CPUs it takes.
func largeEnough(item Item, zones []Zone, rest []Item) bool {
	for _, weight := range []func(Zone) float64{
		func(Zone) float64 { return 1 },
		func(z Zone) float64 { return float64(max(blocks(item, z)[corev1.ResourceCPU], 1)) },
	} {
		var needed, there float64
		for _, z := range zones {
			needed += weight(z)
		}
		for _, other := range rest {
			most, held := 0.0, other.held()
			for _, z := range zones {
				if !fits(other.Amounts, z.Allocatable) {
					continue
				}
				share := 0.0
				for name, amount := range blocks(item, z) {
					share = max(share, float64(held[name])/float64(amount))
				}
				most = max(most, weight(z)*min(share, 1))
			}
			there += most
		}
		if there < needed-1e-9*needed {
			return false
		}
	}
	return true
}
