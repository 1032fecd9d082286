// SPDX-License-Identifier: Apache-2.0

package alignment

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// maxSteps is how many steps are taken to find out in which zones pods may be.
const maxSteps = 20_000

// CheckWithout is Check for a node that some of its pods leave. The report shows these and those that stay, but not in which zones they
// are. So there must be room wherever they may be by what is used of each zone. A lack with [Unreported] means that this is not certain.
func (n Node) CheckWithout(need Need, others Others, staying, leaving []Need) *Lack {
	lack := n.Check(need, others)
	if lack == nil || lack.Reason == TooLarge || len(leaving) == 0 {
		return lack
	}
	type placed struct {
		amounts Amounts
		leaves  bool
	}
	var items []placed
	for i, one := range slices.Concat(leaving, staying) {
		if n.Spans(one) {
			return &Lack{Reason: Unreported}
		}
		for _, item := range one.Items {
			items = append(items, placed{item.shown(), i < len(leaving)})
		}
	}
	slices.SortStableFunc(items, func(a, b placed) int {
		return int(b.amounts[corev1.ResourceCPU] - a.amounts[corev1.ResourceCPU])
	})
	used, freed := make([]Amounts, len(n.Zones)), make([]Amounts, len(n.Zones))
	for i, z := range n.Zones {
		used[i], freed[i] = Amounts{}, Amounts{}
		for name, allocatable := range z.Allocatable {
			used[i][name] = allocatable - z.Available[name]
		}
	}
	steps, ways := 0, 0
	checked := map[string]bool{}
	lack = nil
	move := func(amounts Amounts, from, to Amounts) {
		for name, amount := range amounts {
			from[name] -= amount
			to[name] += amount
		}
	}
	var place func(at int) bool
	place = func(at int) bool {
		if steps++; steps > maxSteps {
			lack = &Lack{Reason: Unreported}
			return false
		}
		if at == len(items) {
			ways++
			key := fmt.Sprint(freed)
			if checked[key] {
				return true
			}
			checked[key] = true
			after := n
			after.Zones = slices.Clone(n.Zones)
			for i := range after.Zones {
				z := &after.Zones[i]
				z.Available = sum([]Amounts{z.Available, freed[i]})
			}
			lack = after.Check(need, others)
			return lack == nil
		}
		item := items[at]
		for i := range n.Zones {
			if !fits(item.amounts, used[i]) {
				continue
			}
			to := Amounts{}
			if item.leaves {
				to = freed[i]
			}
			move(item.amounts, used[i], to)
			ok := place(at + 1)
			move(item.amounts, to, used[i])
			if !ok {
				return false
			}
		}
		return true
	}
	if place(0); lack == nil && ways == 0 {
		return &Lack{Reason: Unreported} // the report shows less than these pods have
	}
	return lack
}
