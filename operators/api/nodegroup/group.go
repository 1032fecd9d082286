// SPDX-License-Identifier: Apache-2.0

package nodegroup

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Group is nodes that belong together: those that it names, and those whose labels match.
type Group struct {
	Name     string
	nodes    []string
	selector labels.Selector
}

// NewGroup returns a group. An empty selector selects all nodes, and nil none, as everywhere in
// Kubernetes.
func NewGroup(name string, nodes []string, selector *metav1.LabelSelector) (Group, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return Group{}, fmt.Errorf("node group %s: selector %s: %w", name, metav1.FormatLabelSelector(selector), err)
	}
	return Group{name, nodes, s}, nil
}

// Has reports whether the group names or selects a node. Others may do so, too.
func (g Group) Has(node *corev1.Node) bool {
	return slices.Contains(g.nodes, node.Name) || g.selector.Matches(labels.Set(node.Labels))
}

// Conflict is a node that more than one group has. It belongs to none of them.
type Conflict struct {
	Node string
	// Groups has the names in alphabetical order.
	Groups []string
}

func (c Conflict) Error() string {
	return fmt.Sprintf("node %s is in the node groups %s, and may be in one: until that is changed it is in none", c.Node, strings.Join(c.Groups, " and "))
}

// Members returns the names of each group's nodes, and the nodes that belong to no group since several
// have them. Nodes and conflicts come in alphabetical order.
func Members(groups []Group, nodes []corev1.Node) (members map[string][]string, conflicts []Conflict) {
	members = map[string][]string{}
	for i := range nodes {
		var names []string
		for _, g := range groups {
			if g.Has(&nodes[i]) {
				names = append(names, g.Name)
			}
		}
		slices.Sort(names)
		switch len(names) {
		case 0:
		case 1:
			members[names[0]] = append(members[names[0]], nodes[i].Name)
		default:
			conflicts = append(conflicts, Conflict{nodes[i].Name, names})
		}
	}
	for _, names := range members {
		slices.Sort(names)
	}
	slices.SortFunc(conflicts, func(a, b Conflict) int { return strings.Compare(a.Node, b.Node) })
	return members, conflicts
}
