// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Reason is why a pod is left as it is; a label of metrics, too.
type Reason string

// Reasons. The empty one means that the pod gets a class.
const (
	NoRule            Reason = "NoRule"
	RuleWithoutClass  Reason = "RuleWithoutClass"
	OtherClass        Reason = "OtherClass"
	OtherRuntimeClass Reason = "OtherRuntimeClass"
	OtherOverhead     Reason = "OtherOverhead"
	OtherNodeSelector Reason = "OtherNodeSelector"
	BoundToNode       Reason = "BoundToNode"
	DaemonSetPod      Reason = "DaemonSet"
	MirrorPod         Reason = "MirrorPod"
)

// targetPrefix is that of the annotations of partitioned pods.
const targetPrefix = "target.workload.openshift.io/"

// Cluster is what the class of a pod depends on besides the rules.
type Cluster struct {
	// RuntimeClass returns the overhead of a RuntimeClass, and whether there is one of that name:
	// kube-apiserver refuses a pod that names one that is missing. Nil knows none.
	RuntimeClass func(name string) (overhead corev1.ResourceList, found bool)
	// Precluded returns the node of a class on which no new pod may land, empty for none. Nil
	// knows none.
	Precluded func(class string) string
}

// Outcome is what became of a pod.
type Outcome struct {
	// Rule is the name of the rule that matched; empty if none did, or none was asked.
	Rule string
	// Class is what the pod got; nil if it is left as it is, for Reason.
	Class  *Class
	Reason Reason
	// Warnings say what of the class the pod did not get, and why.
	Warnings []string
}

// Mutate gives a pod that is being created in a namespace its class. It never writes the overhead:
// upstream's RuntimeClass plugin does, after webhooks. A pod that it leaves as it is, is not changed.
// Applied to its own result it changes nothing.
func (c *Config) Mutate(pod *corev1.Pod, namespace string, cluster Cluster) Outcome {
	if reason := untouchable(pod); reason != "" {
		return Outcome{Reason: reason}
	}
	i := slices.IndexFunc(c.Rules, func(rule Rule) bool { return rule.Match.matches(pod, namespace) })
	// What the class wrote, such as requests, must not change the rule that is found next time.
	if name := pod.Annotations[RuleAnnotation]; name != "" && pod.Labels[ClassLabel] != "" {
		if before := slices.IndexFunc(c.Rules, func(rule Rule) bool { return rule.Name == name && rule.Class == pod.Labels[ClassLabel] }); before >= 0 {
			i = before
		}
	}
	if i < 0 {
		return Outcome{Reason: NoRule}
	}
	outcome := Outcome{Rule: c.Rules[i].Name}
	class := c.Class(c.Rules[i].Class)
	if class == nil {
		outcome.Reason = RuleWithoutClass
		return outcome
	}
	if outcome.Reason = class.conflict(pod, cluster); outcome.Reason != "" {
		return outcome
	}
	outcome.Class = class
	outcome.Warnings = class.apply(pod, namespace, outcome.Rule, cluster)
	return outcome
}

// Missed returns the class that a stored pod would have got if somebody had answered the webhook; nil if it
// has one, would have got none, or has ended.
func (c *Config) Missed(pod *corev1.Pod) *Class {
	if _, ok := pod.Labels[ClassLabel]; ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	asked := pod.DeepCopy()
	asked.Spec.NodeName = "" // it had none when it was created
	return c.Mutate(asked, pod.Namespace, Cluster{}).Class
}

// untouchable returns why no rule is asked about a pod.
func untouchable(pod *corev1.Pod) Reason {
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		return MirrorPod
	}
	if pod.Spec.NodeName != "" {
		return BoundToNode
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/") {
		return DaemonSetPod
	}
	return ""
}

// conflict returns why a pod keeps what it says about classes itself.
func (c *Class) conflict(pod *corev1.Pod, cluster Cluster) Reason {
	if has, ok := pod.Labels[ClassLabel]; ok && has != c.Name {
		return OtherClass
	}
	has := ""
	if pod.Spec.RuntimeClassName != nil {
		if has = *pod.Spec.RuntimeClassName; has != c.RuntimeClassName {
			return OtherRuntimeClass
		}
	}
	for key, value := range c.NodeSelector {
		// kube-apiserver refuses a pod whose selector is not that of its RuntimeClass.
		if has, ok := pod.Spec.NodeSelector[key]; ok && has != value {
			return OtherNodeSelector
		}
	}
	// Upstream's plugin wrote that of the RuntimeClass if the pod came with its name.
	if len(pod.Spec.Overhead) > 0 && (has == "" || !sameResources(pod.Spec.Overhead, cluster.overhead(has))) {
		return OtherOverhead
	}
	return ""
}

func (c Cluster) overhead(name string) corev1.ResourceList {
	if c.RuntimeClass == nil {
		return nil
	}
	overhead, _ := c.RuntimeClass(name)
	return overhead
}

func sameResources(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// apply writes the class into a pod.
func (c *Class) apply(pod *corev1.Pod, namespace, rule string, cluster Cluster) (warnings []string) {
	for key, value := range c.Labels {
		if _, ok := pod.Labels[key]; !ok {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
		}
	}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, ClassLabel, c.Name)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, NamespaceLabel, namespace)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, RuleAnnotation, rule)

	if c.RuntimeClassName != "" && pod.Spec.RuntimeClassName == nil {
		if problem := c.withoutRuntimeClass(pod, cluster); problem != "" {
			warnings = append(warnings, problem)
		} else {
			pod.Spec.RuntimeClassName = &c.RuntimeClassName
		}
	}
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = map[string]string{}
	}
	maps.Copy(pod.Spec.NodeSelector, c.NodeSelector)
	for _, toleration := range c.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(has corev1.Toleration) bool { return has.MatchToleration(&toleration) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, toleration)
		}
	}
	c.raiseRequests(pod)
	var added []corev1.Container
	for _, container := range c.InitContainers {
		if !hasContainer(pod, container.Name) {
			added = append(added, *container.DeepCopy())
		}
	}
	pod.Spec.InitContainers = append(added, pod.Spec.InitContainers...)
	if cluster.Precluded != nil {
		preclude(pod, cluster.Precluded(c.Name))
	}
	return warnings
}

// withoutRuntimeClass returns why a pod does not get the RuntimeClass of its class.
func (c *Class) withoutRuntimeClass(pod *corev1.Pod, cluster Cluster) string {
	if cluster.RuntimeClass == nil {
		return ""
	}
	overhead, found := cluster.RuntimeClass(c.RuntimeClassName)
	if !found {
		return fmt.Sprintf("there is no RuntimeClass %s of class %s; the pod runs without its overhead", c.RuntimeClassName, c.Name)
	}
	if _, ok := overhead[corev1.ResourceCPU]; ok && partitioned(pod) {
		return fmt.Sprintf("a partitioned pod gets no RuntimeClass with CPU overhead, and so not %s", c.RuntimeClassName)
	}
	return ""
}

// partitioned reports whether a pod asks for a management pool.
func partitioned(pod *corev1.Pod) bool {
	for key := range pod.Annotations {
		if strings.HasPrefix(key, targetPrefix) {
			return true
		}
	}
	return false
}

func hasContainer(pod *corev1.Pod, name string) bool {
	is := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.InitContainers, is) || slices.ContainsFunc(pod.Spec.Containers, is)
}

// raiseRequests brings containers up to the floors. Init containers stay as they are: they run one
// after another, and before. So do containers of a pod that asks for a resource as a whole, since kube-apiserver refuses it
// if they ask for more.
func (c *Class) raiseRequests(pod *corev1.Pod) {
	if partitioned(pod) {
		return // what it asks for is not what it says
	}
	floors := maps.Clone(c.RequestFloors)
	if whole := pod.Spec.Resources; whole != nil {
		maps.DeleteFunc(floors, func(name corev1.ResourceName, _ resource.Quantity) bool {
			_, asks := whole.Requests[name]
			_, limits := whole.Limits[name]
			return asks || limits
		})
	}
	for i := range pod.Spec.Containers {
		resources := &pod.Spec.Containers[i].Resources
		for _, name := range slices.Sorted(maps.Keys(floors)) {
			want := floors[name]
			limit, limited := resources.Limits[name]
			if limited && want.Cmp(limit) > 0 {
				want = limit
			}
			has, asked := resources.Requests[name]
			if !asked && limited {
				has = limit // kube-apiserver's default
			}
			if has.Cmp(want) >= 0 {
				continue
			}
			if resources.Requests == nil {
				resources.Requests = corev1.ResourceList{}
			}
			resources.Requests[name] = want.DeepCopy()
		}
	}
}

// preclude keeps a pod from a node: it joins each term of the node affinity, of which one must
// match. A pod that precludes one already keeps that.
func preclude(pod *corev1.Pod, node string) {
	node = cmp.Or(pod.Annotations[PrecludedAnnotation], node)
	if node == "" {
		return
	}
	requirement := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := pod.Spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{requirement}}}}
	}
	for i := range affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		term := &affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[i]
		if len(term.MatchExpressions) == 0 && len(term.MatchFields) == 0 {
			continue // it matches no node, and would then match all others
		}
		if !slices.ContainsFunc(term.MatchFields, func(has corev1.NodeSelectorRequirement) bool {
			return has.Key == requirement.Key && has.Operator == requirement.Operator && slices.Equal(has.Values, requirement.Values)
		}) {
			term.MatchFields = append(term.MatchFields, requirement)
		}
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, PrecludedAnnotation, node)
}

// matches reports whether a rule is for a pod.
func (m *Match) matches(pod *corev1.Pod, namespace string) bool {
	name := cmp.Or(pod.Name, pod.GenerateName)
	return (m.Namespaces == nil || slices.Contains(m.Namespaces, namespace)) &&
		anyOf(m.NamespacePrefixes, namespace, strings.HasPrefix) &&
		anyOf(m.NamePrefixes, name, strings.HasPrefix) &&
		anyOf(m.NameParts, name, strings.Contains) &&
		selects(m.Labels, pod.Labels) &&
		selects(m.Annotations, pod.Annotations) &&
		m.asksForEnough(pod)
}

func anyOf(list []string, text string, is func(text, entry string) bool) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(entry string) bool { return is(text, entry) })
}

// selects evaluates a selector. It takes values that are no values of labels, as annotations have.
func selects(selector *metav1.LabelSelector, has map[string]string) bool {
	if selector == nil {
		return true
	}
	for key, value := range selector.MatchLabels {
		if is, ok := has[key]; !ok || is != value {
			return false
		}
	}
	for _, expression := range selector.MatchExpressions {
		value, ok := has[expression.Key]
		in := ok && slices.Contains(expression.Values, value)
		switch expression.Operator {
		case metav1.LabelSelectorOpIn:
			ok = in
		case metav1.LabelSelectorOpNotIn:
			ok = !in
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !ok
		}
		if !ok {
			return false
		}
	}
	return true
}

func (m *Match) asksForEnough(pod *corev1.Pod) bool {
	if len(m.RequestsAtLeast) == 0 {
		return true
	}
	asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	for name, least := range m.RequestsAtLeast {
		if has := asked[name]; has.Cmp(least) < 0 {
			return false
		}
	}
	return true
}
