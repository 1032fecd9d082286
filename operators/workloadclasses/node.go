// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	kjson "sigs.k8s.io/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/api/untrusted"
)

// Record is the value of StateAnnotation: what was decided about a node, and since when. A cordon on
// a node with the state NoSchedule is ours. The zero value is as None.
type Record struct {
	State State `json:"state"`
	// Since is when the node got this state, in seconds.
	Since time.Time `json:"since"`
}

func (r Record) avoided() bool { return r.rank() > 0 }

// rank is higher the more pods avoid the node.
func (r Record) rank() int {
	return max(0, slices.Index([]State{None, PreferNoSchedule, NoSchedule}, r.State))
}

// String returns the value of the annotation.
func (r Record) String() string {
	r.Since = r.Since.UTC().Truncate(time.Second)
	return encode(r)
}

// encode returns JSON in one line. The values of this package can all be encoded.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// decode reads JSON of at most 4 KiB, in which no key may occur twice.
func decode(value string, into any) error {
	if len(value) > 4<<10 {
		return fmt.Errorf("%d bytes, and at most 4096 are read", len(value))
	}
	strict, err := kjson.UnmarshalStrict([]byte(value), into, kjson.DisallowDuplicateFields)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	return err
}

func checkTime(t time.Time) error {
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		return fmt.Errorf("the time %s is out of range", t)
	}
	return nil
}

// RecordOf returns what stands on a node. The kubelet writes its own Node, so a value that cannot be
// read is an error, and the node is left alone.
func RecordOf(node *corev1.Node) (Record, error) {
	value, ok := node.Annotations[StateAnnotation]
	if !ok {
		return Record{}, nil
	}
	var r Record
	err := decode(value, &r)
	if err == nil {
		err = checkTime(r.Since)
	}
	if err == nil && !slices.Contains([]State{None, PreferNoSchedule, NoSchedule}, r.State) {
		err = fmt.Errorf("there is no state %q", r.State)
	}
	if err != nil {
		return Record{}, fmt.Errorf("node %s, annotation %s: %q: %w", node.Name, StateAnnotation, untrusted.Abbreviate(value, 100), err)
	}
	if r.State == NoSchedule && !node.Spec.Unschedulable && !hasTaint(node, BlockTaint) {
		return Record{}, nil // a person uncordoned it
	}
	return r, nil
}

// CordonedByOthers reports whether a node has a cordon that is not ours.
func CordonedByOthers(node *corev1.Node, record Record) bool {
	return node.Spec.Unschedulable && record.State != NoSchedule
}

// kept reports whether a person marked a node to be kept.
func kept(node *corev1.Node) bool {
	_, annotation := node.Annotations[KeepAnnotation]
	_, label := node.Labels[KeepAnnotation]
	return annotation || label
}

// Write brings a decision onto a node, and nothing else. It never touches keys of others, nor a
// cordon of others: the caller leaves such nodes out.
func Write(node *corev1.Node, d Decision, precluded bool, class string, now time.Time, policy Policy) {
	before, err := RecordOf(node)
	if err != nil || CordonedByOthers(node, before) {
		return
	}
	// A state that is cleared while a person has uncordoned begins again.
	after := before
	if cmpState(before.State) != d.State {
		after = Record{State: d.State, Since: now}
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	switch freed := before.State == None && now.Sub(before.Since) < policy.Period; {
	case d.State == None && !freed:
		delete(node.Annotations, StateAnnotation)
	case d.State != None:
		node.Annotations[StateAnnotation] = after.String()
	}
	node.Annotations[ScaleDownDisabledAnnotation] = "true"
	if precluded {
		node.Annotations[PrecludeAnnotation] = class
	} else {
		delete(node.Annotations, PrecludeAnnotation)
	}
	blocked := d.State == NoSchedule && now.Sub(after.Since) >= policy.MaxCordon
	if before.State == NoSchedule || d.State == NoSchedule {
		node.Spec.Unschedulable = d.State == NoSchedule && !blocked
	}
	setTaint(node, AvoidTaint, corev1.TaintEffectPreferNoSchedule, d.State == PreferNoSchedule)
	setTaint(node, BlockTaint, corev1.TaintEffectNoSchedule, blocked)
}

func cmpState(s State) State {
	if s == "" {
		return None
	}
	return s
}

// Tolerates reports whether a pod may stay on a node that is given back.
func Tolerates(pod *corev1.Pod) bool {
	taint := &corev1.Taint{Key: EvictTaint, Effect: corev1.TaintEffectNoExecute}
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), taint, false) })
}

// Begin writes an operation to a node, with the taint that keeps DaemonSets from it. The claim is the
// caller's. The node is cordoned, even if BlockTaint has taken the place of that: the cluster autoscaler keeps its
// template of new nodes from one that is not, and that would have the taint for good (autoscaler,
// cluster-autoscaler/processors/nodeinfosprovider).
func Begin(node *corev1.Node, o Operation) {
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, OperationAnnotation, o.String())
	setTaint(node, EvictTaint, corev1.TaintEffectNoExecute, true)
	node.Spec.Unschedulable = true
}

// Free removes an operation and all that keeps pods away from a node. For a period it is not avoided
// again.
func Free(node *corev1.Node, now time.Time) {
	Clear(node)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, StateAnnotation, Record{None, now}.String())
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, ScaleDownDisabledAnnotation, "true")
}

// Clear removes what this companion wrote to a node, such as one that left its class.
func Clear(node *corev1.Node) {
	record, err := RecordOf(node)
	if err == nil && record.State == NoSchedule {
		node.Spec.Unschedulable = false
	}
	for _, key := range []string{StateAnnotation, PrecludeAnnotation, OperationAnnotation, ScaleDownDisabledAnnotation} {
		delete(node.Annotations, key)
	}
	for _, key := range []string{AvoidTaint, BlockTaint, EvictTaint} {
		setTaint(node, key, "", false)
	}
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// setTaint makes a node have a taint of a key, or none. The order of others stays.
func setTaint(node *corev1.Node, key string, effect corev1.TaintEffect, want bool) {
	if want && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect }) {
		return
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	if len(node.Spec.Taints) == 0 {
		node.Spec.Taints = nil
	}
	if want {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

// EndedPodAge is how long an ended pod holds its node: somebody may still read its log.
const EndedPodAge = 5 * time.Minute

// Holds reports whether a pod keeps its node from being given back: all do, but those of DaemonSets,
// mirrors of static pods, ended ones after a while, and those that say that they may be evicted.
func Holds(pod *corev1.Pod, now time.Time) bool {
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok || OfDaemonSet(pod) || pod.Annotations[SafeToEvictAnnotation] == "true" {
		return false
	}
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return true
	}
	return len(pod.Finalizers) > 0 || now.Sub(endOf(pod)) < EndedPodAge
}

// OfDaemonSet reports whether a DaemonSet owns a pod.
func OfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// endOf returns when a pod has ended, as far as its status says so: else when it was created.
func endOf(pod *corev1.Pod) time.Time {
	end := pod.CreationTimestamp.Time
	for _, status := range pod.Status.ContainerStatuses {
		if t := status.State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.LastTransitionTime.After(end) {
			end = condition.LastTransitionTime.Time
		}
	}
	return end
}

// MaxWait is how long a pod that waits keeps nodes from being avoided. One that waits longer waits for
// something else than these nodes, such as a volume: else anybody could keep all nodes by one pod.
const MaxWait = 15 * time.Minute

// Unschedulable reports whether a scheduler found no node for a pod, within MaxWait.
func Unschedulable(pod *corev1.Pod, now time.Time) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return false
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable &&
			now.Sub(c.LastTransitionTime.Time) < MaxWait
	})
}

// UsedCPU returns what pods ask for that have not ended, in millicores.
func UsedCPU(pods []corev1.Pod) (millicores int64) {
	for i := range pods {
		if phase := pods[i].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			asked := resourcehelper.PodRequests(&pods[i], resourcehelper.PodResourcesOptions{})
			millicores += asked.Cpu().MilliValue()
		}
	}
	return millicores
}

// Alike is the same for pods of which Fits says the same everywhere.
func Alike(pod *corev1.Pod) string {
	return encode(struct {
		Selector    map[string]string
		Affinity    *corev1.Affinity
		Tolerations []corev1.Toleration
		Requests    corev1.ResourceList
	}{pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})})
}

// Fits reports whether a pod could run on a node if the node were in state None: its selector, its
// tolerations, and what it asks for beside the pods that are there.
func Fits(pod *corev1.Pod, node *corev1.Node, there []corev1.Pod) bool {
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !matches {
		return false
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if slices.Contains([]string{AvoidTaint, BlockTaint, EvictTaint, corev1.TaintNodeUnschedulable}, taint.Key) || taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), taint, false) }) {
			return false
		}
	}
	free := node.Status.Allocatable.DeepCopy()
	pods := 1
	for i := range there {
		if there[i].Status.Phase == corev1.PodSucceeded || there[i].Status.Phase == corev1.PodFailed {
			continue
		}
		pods++
		for name, asked := range resourcehelper.PodRequests(&there[i], resourcehelper.PodResourcesOptions{}) {
			left := free[name]
			left.Sub(asked)
			free[name] = left
		}
	}
	if most, ok := node.Status.Allocatable[corev1.ResourcePods]; ok && int64(pods) > most.Value() {
		return false
	}
	for name, asked := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if left := free[name]; !asked.IsZero() && left.Cmp(asked) < 0 {
			return false
		}
	}
	return true
}
