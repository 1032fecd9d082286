// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

func TestSelectorName(t *testing.T) {
	worker := &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	name := func(of string, selector *metav1.LabelSelector) string {
		name, err := SelectorName(of, selector)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	// It is the name of objects, so it must not change.
	if got := name("nodes", worker); got != "729bcb5f" {
		t.Errorf("the name is %s", got)
	}
	both := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1", "b": "2"}}
	written := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "b", Operator: "In", Values: []string{"2"}}, {Key: "a", Operator: "In", Values: []string{"1"}}}}
	if name("nodes", both) != name("nodes", both.DeepCopy()) {
		t.Error("one selector has two names")
	}
	if name("nodes", worker) == name("pools", worker) || name("nodes", worker) == name("nodes", written) {
		t.Error("two groups have one name")
	}
	if _, err := SelectorName("nodes", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}); err == nil {
		t.Error("an operator that does not exist is accepted")
	}
}

// TestAffinity compares the affinity with upstream's own reading of it.
func TestAffinity(t *testing.T) {
	for name, test := range map[string]struct {
		selectors []*metav1.LabelSelector
		without   []string
		labels    map[string]string
		want      bool
	}{
		"the enhancement's example of an ordinary cluster": {
			selectors: []*metav1.LabelSelector{{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}},
			labels:    map[string]string{"node-role.kubernetes.io/worker": ""}, want: true,
		},
		"the enhancement's example of a hosted cluster": {
			selectors: []*metav1.LabelSelector{{MatchLabels: map[string]string{"hypershift.openshift.io/nodePool": "hostedcluster02"}}},
			labels:    map[string]string{"hypershift.openshift.io/nodePool": "hostedcluster02"}, want: true,
		},
		"another pool": {
			selectors: []*metav1.LabelSelector{{MatchLabels: map[string]string{"hypershift.openshift.io/nodePool": "hostedcluster02"}}},
			labels:    map[string]string{"hypershift.openshift.io/nodePool": "hostedcluster03"},
		},
		"an empty selector selects all nodes": {selectors: []*metav1.LabelSelector{{}}, want: true},
		"no selector selects none":            {},
		"one of two selectors":                {selectors: []*metav1.LabelSelector{{MatchLabels: map[string]string{"a": "1"}}, {MatchLabels: map[string]string{"a": "2"}}}, labels: map[string]string{"a": "2"}, want: true},
		"an expression": {
			selectors: []*metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "NotIn", Values: []string{"1"}}, {Key: "b", Operator: "DoesNotExist"}}}},
			labels:    map[string]string{"a": "2"}, want: true,
		},
		"a node that another group has, too": {selectors: []*metav1.LabelSelector{{}}, without: []string{"m", "n"}},
		"other nodes that another group has": {selectors: []*metav1.LabelSelector{{}}, without: []string{"m", "o"}, want: true},
		"Windows":                            {selectors: []*metav1.LabelSelector{{}}, labels: map[string]string{corev1.LabelOSStable: "windows"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
			for key, value := range test.labels {
				node.Labels[key] = value
			}
			affinity, err := Affinity(test.selectors, test.without)
			if err != nil {
				t.Fatal(err)
			}
			selector, err := nodeaffinity.NewNodeSelector(affinity)
			if err != nil {
				t.Fatal(err)
			}
			if got := selector.Match(node); got != test.want {
				t.Errorf("the pods may run there: %t", got)
			}
			if got := Has(test.selectors, node); got != test.want && len(test.without) == 0 {
				t.Errorf("the group has the node: %t", got)
			}
		})
	}
}
