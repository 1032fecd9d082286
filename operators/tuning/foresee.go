// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"fmt"
	"slices"

	"workload.openshift.io/operators/api/nodepool/v1beta1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/performance"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Standing is what the management cluster has of a pool before a change.
type Standing struct {
	// Generated is what the companion has made for the pool, and Parts the content of the ConfigMaps that it names, by name.
	Generated v1beta1.Generated
	Parts     map[string]string
	// AtOnce is how many nodes the pool's provider boots or replaces at once, at least one.
	AtOnce int
	// Replace is true if it replaces nodes: the upgrade type of the NodePool.
	Replace bool
}

// Boots says which nodes of a pool a change boots, or replaces.
type Boots struct {
	// Replaced is true if new machines take the nodes' places, which boot with all of it at once. Then no node reboots.
	Replaced bool `json:"replaced,omitempty"`
	// Nodes are those that boot or are replaced, each once, in the order in which the provider takes them, and together those that it
	// takes at once. It is empty if it takes none.
	Nodes [][]string `json:"nodes,omitempty"`
	// Reasons say why: arguments that come or go, ConfigMaps that change.
	Reasons []string `json:"reasons,omitempty"`
	// Unknown are arguments that nodes compute. If they compute other values than before, the pool's nodes boot for that, too, at the
	// same time as for the rest.
	Unknown []string `json:"unknown,omitempty"`
}

// Foresee says which of a pool's nodes boot if it gets these Tuneds, without the default, and this PerformanceProfile, whose Tuned is
// not among them; nil is none.
func Foresee(pool string, before Standing, tuneds []tunedv1.Tuned, p *performance.Rendered, nodes []string) (b Boots, err error) {
	if p != nil {
		if tuneds, err = WithPerformance(tuneds, *p); err != nil {
			return b, err
		}
	}
	requested := RequestedBy(PoolSpec(PoolProfile(tuneds), tuneds))
	arguments, complete := requested.Literal()
	stands := before.Generated
	if !complete {
		for _, t := range requested.templates {
			if t.computed {
				b.Unknown = append(b.Unknown, t.text)
			}
		}
		if len(b.Unknown) == 0 {
			b.Unknown = []string{"those of the profile " + requested.profile}
		}
		// What is computed may be what it was. All that is literal must be there.
		arguments = foretold(requested, stands.Arguments)
	}
	for _, argument := range arguments {
		if !slices.Contains(stands.Arguments, argument) {
			b.Reasons = append(b.Reasons, "kernel argument "+argument+" comes")
		}
	}
	for _, argument := range stands.Arguments {
		if !slices.Contains(arguments, argument) {
			b.Reasons = append(b.Reasons, "kernel argument "+argument+" goes")
		}
	}
	if len(b.Reasons) == 0 && !slices.Equal(arguments, stands.Arguments) {
		b.Reasons = append(b.Reasons, "kernel arguments are in another order")
	}
	parts, err := Parts(pool, Settled{Arguments: arguments}, p)
	if err != nil {
		return b, err
	}
	after := map[string]string{}
	for _, part := range parts {
		after[part.Name] = part.Data[v1beta1.ConfigKey]
	}
	for _, name := range sets.List(sets.KeySet(before.Parts).Union(sets.KeySet(after))) {
		if name == v1beta1.MachineConfigMapName(pool) && len(b.Reasons) > 0 {
			continue // it has the arguments
		}
		switch was, is := before.Parts[name], after[name]; {
		case was == is:
		case was == "":
			b.Reasons = append(b.Reasons, fmt.Sprintf("ConfigMap %s comes", name))
		case is == "":
			b.Reasons = append(b.Reasons, fmt.Sprintf("ConfigMap %s goes", name))
		default:
			b.Reasons = append(b.Reasons, fmt.Sprintf("ConfigMap %s changes", name))
		}
	}
	if len(b.Reasons) == 0 {
		return b, nil
	}
	b.Replaced = before.Replace
	nodes = slices.Sorted(slices.Values(nodes))
	for group := range slices.Chunk(nodes, max(1, before.AtOnce)) {
		b.Nodes = append(b.Nodes, group)
	}
	return b, nil
}

// foretold returns the arguments that a pool gets if nodes compute what they did before. It leaves out a computed one that was not there
// before.
func foretold(requested Requested, before []string) (arguments []string) {
	used := map[int]bool{}
	for _, t := range requested.templates {
		if !t.computed {
			arguments = append(arguments, t.text)
			continue
		}
		for i, argument := range before {
			if !used[i] && t.pattern.MatchString(argument) {
				used[i] = true
				arguments = append(arguments, argument)
				break
			}
		}
	}
	return arguments
}
