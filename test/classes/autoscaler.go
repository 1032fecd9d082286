// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"workload.openshift.io/operators/workloadclasses"
)

// autoscaler is a model of the cluster autoscaler with its default flags; its module cannot be imported.
// Names in comments are its flags.
type autoscaler struct {
	// removes is off where something else gives nodes back.
	removes bool
	// raised is when it scaled up last, and unneeded since when it could do without a node.
	raised   time.Duration
	unneeded map[string]time.Duration
}

const (
	scanInterval  = 10 * time.Second // scan-interval
	unneededTime  = 10 * time.Minute // scale-down-unneeded-time
	delayAfterAdd = 10 * time.Minute // scale-down-delay-after-add
	mostAtOnce    = 10               // max-scale-down-parallelism
	utilization   = 0.5              // scale-down-utilization-threshold
)

// keeps returns why the autoscaler does not drain a node, as far as its pods say; empty if it may.
func keeps(node *corev1.Node, pods []*corev1.Pod, budgets []policyv1.PodDisruptionBudget) string {
	if node.Annotations[workloadclasses.ScaleDownDisabledAnnotation] == "true" {
		return "scale-down is disabled"
	}
	var cpu, memory int64
	for _, pod := range pods {
		c, m := asks(pod)
		cpu, memory = cpu+c, memory+m
	}
	// A node whose pods are all gone is always below.
	if max(float64(cpu)/float64(node.Status.Allocatable.Cpu().MilliValue()), float64(memory)/float64(node.Status.Allocatable.Memory().Value()>>20)) >= utilization {
		return "utilization"
	}
	for _, pod := range pods {
		owner := metav1.GetControllerOf(pod)
		switch value := pod.Annotations[workloadclasses.SafeToEvictAnnotation]; {
		case value == "false":
			return "not safe to evict"
		case owner != nil && owner.Kind == "DaemonSet", pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
			continue
		case owner == nil && value != "true":
			return "not replicated"
		}
		for _, budget := range budgets {
			selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
			if err == nil && budget.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) && budget.Status.DisruptionsAllowed == 0 {
				return "not enough pod disruption budget"
			}
		}
	}
	return ""
}

// look is one loop of the autoscaler: it raises the set for pods that fit nowhere, and else removes
// nodes.
func (a *autoscaler) look(w *world) {
	if a.raise(w) {
		a.raised = w.now
	}
	if !a.removes {
		return
	}
	removable := 0
	for _, h := range slices.Clone(w.hosts) {
		if h.node == nil || keeps(h.node, h.pods(), nil) != "" || !w.elsewhere(h) {
			delete(a.unneeded, h.name)
			continue
		}
		if _, ok := a.unneeded[h.name]; !ok {
			a.unneeded[h.name] = w.now
		}
		if w.now-a.unneeded[h.name] < unneededTime || w.now-a.raised < delayAfterAdd || removable >= mostAtOnce || len(w.hosts) <= 1 {
			continue
		}
		removable++
		w.remove(h)
	}
}

// raise adds as many nodes as pods need that wait and fit nowhere, first fit by decreasing size. Nodes
// that come are counted.
func (a *autoscaler) raise(w *world) bool {
	type room struct {
		name        string
		cpu, memory int64
	}
	var rooms []room
	for _, h := range w.hosts {
		if h.node == nil {
			rooms = append(rooms, room{h.name, w.trace.cpu, w.trace.memory})
		} else if !blocked(h.node) {
			rooms = append(rooms, room{h.name, w.trace.cpu - h.cpu, w.trace.memory - h.memory})
		}
	}
	var waiting []*task
	for _, t := range w.pending {
		if t.tries > 0 {
			waiting = append(waiting, t)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *task) int { return cmp.Compare(b.cpu, a.cpu) })
	added := false
	for _, t := range waiting {
		i := slices.IndexFunc(rooms, func(r room) bool { return r.cpu >= t.cpu && r.memory >= t.memory && r.name != t.notOn() })
		if i < 0 {
			if len(w.hosts) >= w.trace.most {
				continue
			}
			added = true
			h := w.add(w.now + w.trace.boot)
			rooms = append(rooms, room{h.name, w.trace.cpu, w.trace.memory})
			i = len(rooms) - 1
		}
		rooms[i].cpu, rooms[i].memory = rooms[i].cpu-t.cpu, rooms[i].memory-t.memory
	}
	return added
}

// blocked reports whether no pod of the trace can land on a node.
func blocked(node *corev1.Node) bool {
	return node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == workloadclasses.BlockTaint || t.Key == workloadclasses.EvictTaint
	})
}
