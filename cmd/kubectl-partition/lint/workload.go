// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	resourcehelper "k8s.io/component-helpers/resource"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/crio"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/simulate"
	"workload.openshift.io/partition"
)

// workload is a pod or a pod template that asks for a type.
type workload struct {
	*object
	// workloadType is the type, if the pods would be partitioned.
	workloadType string
	containers   []string
}

// workload lints a pod, or whatever has a pod template.
func (l *linter) workload(o *object) error {
	if !o.isWorkload() || l.isLintedElsewhere(o) {
		return nil
	}
	template, err := o.template()
	if err != nil {
		return err
	}
	l.report.Workloads++
	if l.wasSkipped(o) {
		return nil
	}
	if len(o.pods.metadata) > 1 && !o.pods.further {
		l.aboveTemplate(o)
	}
	stale := l.annotations(o, template)

	asks := targets(template.Annotations)
	if len(asks) > 0 {
		l.report.Asking++
	}
	at := o.pods.metadata
	switch {
	case len(asks) == 1:
		at = o.annotation(cmp.Or(stale, asks[0]))
		if l.Require != "" && l.requires(o) && asks[0] != partition.TargetAnnotation(l.Require) {
			l.find(o, targetMissing, Error, fmt.Sprintf("it must ask for the workload type %q, and asks for %q", l.Require, strings.TrimPrefix(asks[0], partition.TargetPrefix)), nil, at...)
		}
	case len(asks) == 0 && l.Require != "" && l.requires(o):
		// What would become of it then is worth knowing, too.
		target := partition.Target{Type: l.Require, Effect: partition.Preferred}
		metav1.SetMetaDataAnnotation(&template.ObjectMeta, partition.TargetAnnotation(l.Require), target.AnnotationValue())
		l.find(o, targetMissing, Error, fmt.Sprintf("it does not ask for the workload type %q; annotate its pods with %s", l.Require, partition.TargetAnnotation(l.Require)),
			[]change{{object: o, path: o.annotation(partition.TargetAnnotation(l.Require)), value: softValue}}, at...)
	}
	return l.decide(o, template, at)
}

// softValue is how people write the value of a target annotation.
const softValue = `{"effect": "PreferredDuringScheduling"}`

// targets returns the keys of the target annotations.
func targets(annotations map[string]string) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, partition.TargetPrefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// isLintedElsewhere reports whether the object that has made this one is linted in its place. Of a
// cluster all objects are; files may have pods without what has made them.
func (l *linter) isLintedElsewhere(o *object) bool {
	return IsOwned(&o.metadata) && (o.document.source.Name == "" || l.uids.Has(metav1.GetControllerOfNoCopy(&o.metadata).UID))
}

// IsOwned reports whether an object that lint knows has made this one.
func IsOwned(object metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return false
	}
	version, _ := schema.ParseGroupVersion(owner.APIVersion)
	return isWorkload(version.Group, owner.Kind)
}

// wasSkipped finds a pod of a cluster that carries the warning with which it was skipped: it
// no longer asks.
func (l *linter) wasSkipped(o *object) bool {
	warning, warned := o.metadata.Annotations[partition.WarningAnnotation]
	if !warned || o.Kind != "Pod" || o.document.source.Name != "" {
		return false
	}
	decision, ok := partition.ParseMessage(warning)
	if ok {
		l.report.Asking++
		l.find(o, string(decision.Reason), Warning, warning, nil)
	}
	return ok
}

// requires reports whether Options.Require goes for the object's namespace.
func (l *linter) requires(o *object) bool {
	return l.Selector == nil || l.Selector.Matches(labels.Set(l.of(o.Namespace).labels))
}

// isStatic reports whether a pod is a static one.
func (l *linter) isStatic(o *object) bool {
	return o.Kind == "Pod" && (l.StaticPods || simulate.IsStatic(&o.metadata, o.document.source.Name))
}

// aboveTemplate finds annotations on a workload that belong on its pods.
func (l *linter) aboveTemplate(o *object) {
	for _, key := range slices.Sorted(maps.Keys(o.metadata.Annotations)) {
		_, stale := staleType(key, o.metadata.Annotations[key])
		switch {
		case stale || strings.HasPrefix(key, partition.TargetPrefix):
			l.find(o, misplacedAnnotation, Warning, fmt.Sprintf("the annotation %s does nothing here; it belongs on the pod template, %s.annotations", key, strings.Join(o.pods.metadata, ".")), nil, annotationPath(key)...)
		case key == partition.AllowedAnnotation:
			l.find(o, misplacedAnnotation, Warning, fmt.Sprintf("the annotation %s does nothing here; it belongs on the namespace", key), nil, annotationPath(key)...)
		default:
			l.unknown(o, key, annotationPath(key))
		}
	}
}

// annotations finds annotations of a pod that do not mean what their author meant. One of an
// early draft counts as the target, from here on, if there is no other and its value is that
// of a target; then it returns its key.
func (l *linter) annotations(o *object, template *v1.PodTemplateSpec) (counts string) {
	fromFile := o.document.source.Name != ""
	several := targets(template.Annotations)
	for _, key := range slices.Sorted(maps.Keys(template.Annotations)) {
		at := o.annotation(key)
		workloadType, stale := staleType(key, template.Annotations[key])
		switch {
		case stale:
			target, fixes := partition.TargetAnnotation(workloadType), []change(nil)
			message := fmt.Sprintf("the annotation %s is of an early draft and does nothing; pods ask with %s", key, target)
			if _, errs := partition.ParseTarget(map[string]string{target: template.Annotations[key]}); len(errs) > 0 {
				message += "; its value has to change, too: " + errs[0].Detail
			} else if len(several) == 0 {
				fixes = []change{{object: o, path: at, key: target}}
				several, counts = []string{target}, key
				template.Annotations[target] = template.Annotations[key]
			}
			l.find(o, staleAnnotation, Error, message, fixes, at...)
		case key == partition.AllowedAnnotation:
			l.find(o, misplacedAnnotation, Warning, fmt.Sprintf("the annotation %s does nothing here; it belongs on the namespace", key), nil, at...)
		case fromFile && key == partition.WarningAnnotation:
			l.find(o, overwritten, Warning, fmt.Sprintf("the annotation %s will be removed: only admission writes it", key), nil, at...)
		default:
			l.unknown(o, key, at)
		}
	}
	return counts
}

// decide finds what would become of the pods.
func (l *linter) decide(o *object, template *v1.PodTemplateSpec, at []string) error {
	pod := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	n := l.of(o.Namespace)
	target, errs := partition.ParseTarget(pod.Annotations)
	asks := target.Type != "" && len(errs) == 0
	var result simulate.Result
	var err error
	static := l.isStatic(o)
	if static {
		result, err = simulate.StaticPod(pod, l.typesOf(pod))
		if asks {
			l.staticPod(o, pod, target, at)
		}
	} else {
		// What is wrong with the namespace must not hide what is wrong with the pod.
		unknown := n.Namespace
		unknown.Annotations = nil
		if result, err = simulate.Pod(pod, unknown, l.Types); asks {
			l.ofNamespace(o, n, target, at)
			if _, partitioned := partition.PartitionedType(pod); !partitioned && l.WithoutPlugin != "" {
				l.find(o, noPlugin, Warning, fmt.Sprintf("kube-apiserver %s has no admission plugin, so pods stay as they are", l.WithoutPlugin), nil, at...)
			}
		}
	}
	if err != nil {
		file, line := o.at()
		return Problem{File: file, Line: line, Message: fmt.Sprintf("%s: %v", o.Object, err)}
	}
	l.decided(o, pod, result, at)
	for _, annotation := range crio.Annotations(pod, result.Decision.Outcome == partition.Partitioned, "") {
		if annotation.Idle {
			l.find(o, idleForRuntime, Warning, fmt.Sprintf("the annotation %s %s", annotation.Key, annotation.Text), nil, o.annotation(annotation.Key)...)
		}
	}
	if asks {
		l.overwritten(o, pod, result)
	}
	if result.Decision.Outcome == partition.Partitioned {
		l.lost(o, pod, target)
		l.exceeds(o, result.Pod, target, at)
		w := &workload{object: o, workloadType: target.Type}
		for _, c := range pod.Spec.Containers {
			w.containers = append(w.containers, c.Name)
		}
		l.workloads[o.Object] = append(l.workloads[o.Object], w)
	}
	return nil
}

// typesOf returns the types that are active for a static pod. What a kubelet has partitioned,
// it has a pool for.
func (l *linter) typesOf(pod *v1.Pod) simulate.Types {
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	if _, partitioned := partition.PartitionedType(pod); mirror && partitioned {
		return partition.AnyType
	}
	if types, known := l.Nodes[pod.Spec.NodeName]; mirror && known {
		return types
	}
	return l.Types
}

// decided reports a pod that is not partitioned.
func (l *linter) decided(o *object, pod *v1.Pod, result simulate.Result, at []string) {
	decision := result.Decision
	if decision.Reason == partition.NoReason || len(result.Messages) == 0 {
		return
	}
	rule := string(decision.Reason)
	if decision.Reason == partition.ReasonInvalidTarget && len(targets(pod.Annotations)) > 1 {
		rule = severalTypes
	}
	l.find(o, rule, levelOf(decision), strings.Join(result.Messages, "; "), nil, at...)
}

func levelOf(decision partition.Decision) Level {
	if decision.Outcome == partition.Refused {
		return Error
	}
	return Warning
}

// ofNamespace reports a namespace that does not allow the type.
func (l *linter) ofNamespace(o *object, n *namespace, target partition.Target, at []string) {
	if n.object == nil {
		if o.Namespace != "" {
			l.report.UnknownNamespaces = append(l.report.UnknownNamespaces, o.Namespace)
		}
		return
	}
	decision := partition.Decision{Outcome: partition.Skipped, Target: target, Reason: partition.NamespaceReason(n.Annotations, target.Type)}
	if decision.Reason == partition.NoReason {
		return
	}
	if rule, _ := partition.RuleOf(decision.Reason); rule.Response(target.Effect).Refuses() {
		decision.Outcome = partition.Refused
	}
	var fixes []change
	// An annotation that lists other types is a decision against this one.
	if decision.Reason == partition.ReasonNamespaceNotAnnotated {
		fixes = []change{{object: n.object, path: annotationPath(partition.AllowedAnnotation), value: target.Type, list: true}}
	}
	message := decision.Message()
	if file, line := n.object.at(annotationPath(partition.AllowedAnnotation)...); file != "" {
		message = fmt.Sprintf("%s; namespace %q is at %s:%d", message, o.Namespace, file, line)
	}
	l.find(o, string(decision.Reason), levelOf(decision), message, fixes, at...)
}

// staticPod reports what is different for a static pod.
func (l *linter) staticPod(o *object, pod *v1.Pod, target partition.Target, at []string) {
	if target.Effect == partition.Required {
		l.find(o, staticPodHardEffect, Warning, fmt.Sprintf("a static pod is never refused, whatever its effect is: if it cannot be partitioned as %q, it runs as an ordinary pod", target.Type), nil, at...)
	}
}

// overwritten reports resources annotations that were written by hand. Those of a pod that
// was partitioned are as they were.
func (l *linter) overwritten(o *object, pod *v1.Pod, result simulate.Result) {
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if !strings.HasPrefix(key, partition.ResourcesPrefix) || result.Decision.Outcome == partition.Refused {
			continue
		}
		becomes, stays := result.Pod.Annotations[key]
		switch at := o.annotation(key); {
		case !stays:
			l.find(o, overwritten, Warning, fmt.Sprintf("the annotation %s will be removed", key), nil, at...)
		case becomes != pod.Annotations[key]:
			l.find(o, overwritten, Warning, fmt.Sprintf("the annotation %s will be %s instead of %s: a pod does not choose its own", key, becomes, abbreviate(pod.Annotations[key])), nil, at...)
		}
	}
}

// exceeds reports a pod that requests more than its pool has.
func (l *linter) exceeds(o *object, pod *v1.Pod, target partition.Target, at []string) {
	cpus, known := l.PoolCPUs[target.Type]
	cores := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceName(partition.CoresResource(target.Type))]
	if known && cores.Value() > int64(1000*cpus) {
		l.find(o, exceedsPool, Warning, fmt.Sprintf("its pods request %dm of type %q, and the pool has %d CPUs", cores.Value(), target.Type, cpus), nil, at...)
	}
}

// lost reports requests next to cores, which are ignored.
func (l *linter) lost(o *object, pod *v1.Pod, target partition.Target) {
	cores := v1.ResourceName(partition.CoresResource(target.Type))
	for _, of := range []struct {
		field      string
		containers []v1.Container
	}{{"initContainers", pod.Spec.InitContainers}, {"containers", pod.Spec.Containers}} {
		for i, c := range of.containers {
			for _, list := range []struct {
				field string
				v1.ResourceList
			}{{"requests", c.Resources.Requests}, {"limits", c.Resources.Limits}} {
				for _, name := range slices.Sorted(maps.Keys(list.ResourceList)) {
					quantity := list.ResourceList[name]
					_, isCores := partition.TypeOfCores(string(name))
					_, hasRequest := c.Resources.Requests[cores]
					_, hasLimit := c.Resources.Limits[cores]
					if quantity.IsZero() || name == cores || !(isCores || name == v1.ResourceCPU) || !(hasRequest || hasLimit) {
						continue
					}
					path := o.inTemplate("spec", of.field, fmt.Sprint(i), "resources", list.field, string(name))
					l.find(o, requestLost, Warning, fmt.Sprintf("container %q: %s.%s of %s will be lost, since the container has %s", c.Name, list.field, name, quantity.String(), cores), nil, path...)
				}
			}
		}
	}
}
