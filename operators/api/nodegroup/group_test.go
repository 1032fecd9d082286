// SPDX-License-Identifier: Apache-2.0

package nodegroup

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(name string, labels ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		n.Labels[key] = value
	}
	return n
}

// group returns a group that selects by labels, or has one node if the selector is @ and its name.
func group(t *testing.T, name, selector string) Group {
	t.Helper()
	var nodes []string
	var s *metav1.LabelSelector
	if node, named := strings.CutPrefix(selector, "@"); named {
		nodes = []string{node}
	} else {
		s = parse(t, selector)
	}
	g, err := NewGroup(name, nodes, s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func parse(t *testing.T, selector string) *metav1.LabelSelector {
	t.Helper()
	s, err := metav1.ParseToLabelSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMembers(t *testing.T) {
	for _, test := range []struct {
		name      string
		groups    map[string]string
		nodes     []corev1.Node
		members   map[string][]string
		conflicts []Conflict
	}{
		{"each node in one group", map[string]string{"a": "x=1", "b": "x=2"}, []corev1.Node{node("n2", "x=1"), node("n1", "x=1"), node("n3", "x=2"), node("n4")},
			map[string][]string{"a": {"n1", "n2"}, "b": {"n3"}}, nil},
		{"a node in two groups is in none", map[string]string{"b": "x=1", "a": "y=1"}, []corev1.Node{node("n2", "x=1", "y=1"), node("n1", "x=1", "y=1"), node("n3", "x=1")},
			map[string][]string{"b": {"n3"}}, []Conflict{{"n1", []string{"a", "b"}}, {"n2", []string{"a", "b"}}}},
		{"an empty selector selects all", map[string]string{"a": ""}, []corev1.Node{node("n1")}, map[string][]string{"a": {"n1"}}, nil},
		{"a group that names its nodes", map[string]string{"a": "@n1", "b": "@gone"}, []corev1.Node{node("n1"), node("n2")}, map[string][]string{"a": {"n1"}}, nil},
		{"named by one and selected by another", map[string]string{"a": "@n1", "b": "x=1"}, []corev1.Node{node("n1", "x=1"), node("n2", "x=1")},
			map[string][]string{"b": {"n2"}}, []Conflict{{"n1", []string{"a", "b"}}}},
		{"no group", nil, []corev1.Node{node("n1")}, map[string][]string{}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var groups []Group
			for name, selector := range test.groups {
				groups = append(groups, group(t, name, selector))
			}
			members, conflicts := Members(groups, test.nodes)
			if !reflect.DeepEqual(members, test.members) || !reflect.DeepEqual(conflicts, test.conflicts) {
				t.Errorf("got %v and %v, want %v and %v", members, conflicts, test.members, test.conflicts)
			}
		})
	}
	text := Conflict{"n1", []string{"a", "b"}}.Error()
	for _, part := range []string{"node n1", "a and b"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

func TestNewGroup(t *testing.T) {
	none, err := NewGroup("a", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if members, _ := Members([]Group{none}, []corev1.Node{node("n1")}); len(members) != 0 {
		t.Errorf("no selector selects %v", members)
	}
	_, err = NewGroup("a", nil, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Like", Values: []string{"v"}}}})
	if err == nil || !strings.Contains(err.Error(), "node group a") || !strings.Contains(err.Error(), "Like") {
		t.Errorf("got error %v, want one with the group and the operator", err)
	}
}
