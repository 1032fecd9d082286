// SPDX-License-Identifier: Apache-2.0

package readmission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// mismatch is the rejection of a pod that no longer goes with its Node; nil if it does. Like upstream it
// names node affinity before taints, the Node's name aside, and leaves taints of a static pod alone.
// Tolerations with the operators Lt and Gt count, which only kubelets with the feature gate
// TaintTolerationComparisonOperators understand.
func mismatch(pod *v1.Pod, node *v1.Node) *Rejection {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil {
		return &Rejection{Pod: pod, Reason: NodeAffinity, Text: fmt.Sprintf("has a required node affinity that cannot be read: %v", err)}
	}
	if !matches {
		return &Rejection{Pod: pod, Reason: NodeAffinity, Text: unmet(pod, node)}
	}
	if IsStatic(pod) {
		return nil
	}
	noExecute := func(taint *v1.Taint) bool { return taint.Effect == v1.TaintEffectNoExecute }
	if taint, found := corev1.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, pod.Spec.Tolerations, noExecute, true); found {
		return &Rejection{Pod: pod, Reason: TaintToleration, Text: "does not tolerate the taint " + taint.ToString()}
	}
	return nil
}

// Mismatches says of each pod that the Node lacks what it requires, or has a taint that it does not
// tolerate, by the pod's UID in the API: "namespace/name requires ...".
func Mismatches(node *v1.Node, pods []v1.Pod) map[string]string {
	texts := map[string]string{}
	for i := range pods {
		if r := mismatch(&pods[i], node); r != nil {
			texts[string(pods[i].UID)] = fmt.Sprintf("%s/%s %s", pods[i].Namespace, pods[i].Name, r.Text)
		}
	}
	return texts
}

// Matches reports whether a Node has what the nodeSelector and the required node affinity of a pod ask for.
func Matches(pod *v1.Pod, node *v1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && matches
}

// HasRequirements reports whether a pod has a nodeSelector or a required node affinity.
func HasRequirements(pod *v1.Pod) bool {
	return len(pod.Spec.NodeSelector) > 0 || len(terms(pod)) > 0
}

// terms are those of the pod's required node affinity, of which one must hold.
func terms(pod *v1.Pod) []v1.NodeSelectorTerm {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}

// mostTerms is how many of a pod's terms are named.
const mostTerms = 3

// unmet says what a pod requires that the Node lacks, and what the Node has in its place.
func unmet(pod *v1.Pod, node *v1.Node) string {
	var keys []string
	holds := func(term v1.NodeSelectorTerm) bool {
		selector, err := nodeaffinity.NewNodeSelector(&v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}})
		return err == nil && selector.Match(node)
	}
	// failing returns those of the requirements that do not hold.
	failing := func(requirements []v1.NodeSelectorRequirement) (texts []string) {
		for _, r := range requirements {
			if !holds(v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{r}}) {
				texts, keys = append(texts, requirement(r)), append(keys, r.Key)
			}
		}
		return texts
	}
	var selected []v1.NodeSelectorRequirement
	for key, value := range pod.Spec.NodeSelector {
		selected = append(selected, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{value}})
	}
	slices.SortFunc(selected, func(a, b v1.NodeSelectorRequirement) int { return strings.Compare(a.Key, b.Key) })
	missing := failing(selected)
	var alternatives []string
	affinity := terms(pod)
	if slices.ContainsFunc(affinity, holds) {
		affinity = nil // the nodeSelector alone does not hold
	}
	for i, term := range affinity {
		if i == mostTerms {
			alternatives = append(alternatives, fmt.Sprintf("one of %d more terms", len(affinity)-i))
			break
		}
		texts := failing(term.MatchExpressions)
		for _, field := range term.MatchFields {
			if !holds(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{field}}) {
				texts = append(texts, requirement(field))
			}
		}
		if len(texts) == 0 {
			texts = []string{"an empty term, which no node satisfies"}
		}
		alternatives = append(alternatives, strings.Join(texts, " and "))
	}
	if len(alternatives) > 0 {
		missing = append(missing, strings.Join(alternatives, ", or "))
	}
	var has []string
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if value, ok := node.Labels[key]; ok {
			has = append(has, key+"="+value)
		} else {
			has = append(has, "no label "+key)
		}
	}
	text := "requires of its node " + strings.Join(missing, " and ")
	if len(has) > 0 {
		text += ", which has " + strings.Join(has, ", ")
	}
	return text
}

// requirement prints a requirement.
func requirement(r v1.NodeSelectorRequirement) string {
	values := strings.Join(r.Values, ", ")
	switch {
	case r.Operator == v1.NodeSelectorOpIn && len(r.Values) == 1:
		return r.Key + "=" + values
	case r.Operator == v1.NodeSelectorOpIn:
		return fmt.Sprintf("%s in (%s)", r.Key, values)
	case r.Operator == v1.NodeSelectorOpNotIn:
		return fmt.Sprintf("%s not in (%s)", r.Key, values)
	case r.Operator == v1.NodeSelectorOpExists:
		return "the label " + r.Key
	case r.Operator == v1.NodeSelectorOpDoesNotExist:
		return "no label " + r.Key
	case r.Operator == v1.NodeSelectorOpGt:
		return r.Key + ">" + values
	case r.Operator == v1.NodeSelectorOpLt:
		return r.Key + "<" + values
	}
	return fmt.Sprintf("%s %s (%s)", r.Key, r.Operator, values)
}
