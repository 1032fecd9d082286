// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// SelectorName returns the name of a group that a selector chooses: a hash of it (FNV-1a of 32 bits), whatever the order in
// which it was written. of says what the selector is for.
func SelectorName(of string, selector *metav1.LabelSelector) (string, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return "", err
	}
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s %s", of, s)
	return fmt.Sprintf("%08x", hash.Sum32()), nil
}

// Affinity returns the node affinity of a group's pods: the nodes that one of the selectors selects, without those that are
// named. Windows has no exporter. Without a selector it selects no node.
func Affinity(selectors []*metav1.LabelSelector, without []string) (*corev1.NodeSelector, error) {
	result := &corev1.NodeSelector{}
	for _, selector := range selectors {
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}}}
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{selector.MatchLabels[key]}})
		}
		for _, e := range selector.MatchExpressions {
			// The operators have the same names.
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: e.Values})
		}
		for _, node := range slices.Sorted(slices.Values(without)) {
			term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}})
		}
		result.NodeSelectorTerms = append(result.NodeSelectorTerms, term)
	}
	if len(result.NodeSelectorTerms) == 0 {
		result.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}} // an empty term selects nothing
	}
	return result, nil
}

// Has reports whether one of the selectors selects a node.
func Has(selectors []*metav1.LabelSelector, node *corev1.Node) bool {
	return slices.ContainsFunc(selectors, func(selector *metav1.LabelSelector) bool {
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && s.Matches(labels.Set(node.Labels)) && node.Labels[corev1.LabelOSStable] != "windows"
	})
}
