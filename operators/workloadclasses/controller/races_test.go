// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/workloadclasses"
)

// annotate changes an annotation of a Machine.
func (w *world) annotate(machine, key, value string) {
	w.t.Helper()
	list := w.list("Machine")
	object := &list[slices.IndexFunc(list, func(m unstructured.Unstructured) bool { return m.GetName() == machine })]
	if err := w.Client.Patch(w.t.Context(), object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, value))); err != nil {
		w.t.Fatal(err)
	}
}

// What happens while a node is given back: then no Machine goes, and the node is as before.
func TestWhatEndsAnOperation(t *testing.T) {
	const size = 4
	w := newWorld(t, size, 1)
	clock := time.Hour
	for name, test := range map[string]struct {
		before  string
		happens func(victim, other string)
		undo    func(victim, other string)
		// size is how many Machines there are at the end.
		size int
	}{
		"the autoscaler raises the set before the mark": {
			marks, func(string, string) { w.scale(size + 1) }, func(string, string) { w.scale(size) }, size + 1,
		},
		"the autoscaler raises the set before its size is written": {
			scales, func(string, string) { w.scale(size + 1) }, func(string, string) { w.scale(size) }, size + 1,
		},
		"a pod lands before the claim": {
			claims, func(victim, _ string) { w.occupy() }, nil, size,
		},
		"a pod lands before the mark": {
			marks, func(victim, _ string) { w.occupy() }, nil, size,
		},
		"somebody else marks another Machine": {
			marks, func(_, other string) { w.annotate(other, "machine.openshift.io/delete-machine", `"mine"`) },
			func(_, other string) { w.annotate(other, "machine.openshift.io/delete-machine", "null") }, size,
		},
		"a person keeps the node": {
			marks, func(victim, _ string) { w.keep(victim, `""`) }, func(victim, _ string) { w.keep(victim, "null") }, size,
		},
		"a person uncordons the node": {
			records, func(victim, _ string) {
				w.patchNode(victim, `{"spec":{"unschedulable":null}}`)
			}, nil, size,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.eventually(func() error {
				if n := len(w.running()); n != size {
					return fmt.Errorf("%d Machines run", n)
				}
				return nil
			})
			victim, other := w.running()[0], w.running()[1]
			clock += time.Hour
			w.occupy()
			l := w.live(&clock, 0)
			for range 10 { // what the row before has left
				l.look(t, time.Minute)
			}
			w.end(func(pod *corev1.Pod) bool { return pod.Spec.NodeName != victim })
			l.before = map[string]func(){test.before: func() { test.happens(victim, other) }}
			released := false
			for range 40 {
				l.look(t, 30*time.Second)
				time.Sleep(50 * time.Millisecond)
				node := w.nodes()[victim]
				if len(l.before) == 0 && node.Annotations[workloadclasses.OperationAnnotation] == "" && node.Annotations[nodegroup.ClaimAnnotation] == "" && !hasTaint(node, workloadclasses.EvictTaint) {
					released = true
					break
				}
			}
			node := w.nodes()[victim]
			if !released {
				t.Errorf("%d writes, and what happens is still to come: %v; node %s has annotations %v and taints %v", l.writes, len(l.before) > 0, victim, node.Annotations, node.Spec.Taints)
			}
			w.eventually(func() error {
				if n := len(w.running()); n != test.size || !slices.Contains(w.running(), victim) {
					return fmt.Errorf("of %d Machines there run %v, and %s was to stay", test.size, w.running(), victim)
				}
				return nil
			})
			for _, machine := range w.list("Machine") {
				if machine.GetAnnotations()[workloadclasses.OperationAnnotation] != "" || machine.GetName() == victim && machine.GetAnnotations()["machine.openshift.io/delete-machine"] != "" {
					t.Errorf("Machine %s is left marked: %v", machine.GetName(), machine.GetAnnotations())
				}
			}
			if test.undo != nil {
				test.undo(victim, other)
			}
			w.occupy()
		})
	}
}

func (w *world) patchNode(name, patch string) {
	w.t.Helper()
	if err := w.Client.Patch(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) keep(name, value string) {
	w.t.Helper()
	w.patchNode(name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, workloadclasses.KeepAnnotation, value))
}

// Pods of DaemonSets leave before the Machine goes, and those that tolerate everything stay to the end.
func TestDaemonSetsLeaveFirst(t *testing.T) {
	const size = 3
	w := newWorld(t, size, 1)
	clock := time.Hour
	victim := w.running()[0]
	w.occupy(victim)
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs", UID: "a", Controller: new(true)}
	daemon := func(name string, tolerations ...corev1.Toleration) *corev1.Pod {
		pod := w.pod(name, "10m")
		pod.OwnerReferences, pod.Spec.NodeName, pod.Spec.Tolerations = []metav1.OwnerReference{owner}, victim, tolerations
		if err := w.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	leaves, stays := daemon("leaves"), daemon("stays", corev1.Toleration{Operator: corev1.TolerationOpExists})
	l := w.live(&clock, 0)
	evicted := false
	for range 60 {
		l.look(t, 10*time.Second)
		pod := &corev1.Pod{}
		err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(leaves), pod)
		if err == nil && pod.DeletionTimestamp != nil {
			evicted = true
			if w.replicas() != size {
				t.Fatal("the set was changed before the pod has left")
			}
			if err := w.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil { // as the kubelet does
				t.Fatal(err)
			}
		}
		if w.replicas() < size {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if !evicted || w.replicas() != size-1 {
		t.Errorf("the pod was evicted: %v; the set has %d replicas", evicted, w.replicas())
	}
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(stays), &corev1.Pod{}); err != nil {
		t.Errorf("the pod that tolerates everything: %v", err)
	}
}

// A kubelet can write any operation to its own Node. One that is not that of its Machine keeps no other node.
func TestAnOperationOfAnotherMachineKeepsNoNode(t *testing.T) {
	const size = 3
	w := newWorld(t, size, 1)
	victim := w.running()[0]
	w.occupy(victim)
	set := w.list("MachineSet")[0].GetName()
	forged := workloadclasses.Operation{ID: "forged", Phase: workloadclasses.Removing, Since: time.Now(), Set: set, UID: "forged"}
	rogue := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "rogue", Labels: map[string]string{workloadclasses.ClassLabel: "builds"}, Annotations: map[string]string{workloadclasses.OperationAnnotation: forged.String()},
	}}
	if err := w.Client.Create(t.Context(), rogue); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), rogue) })
	clock := time.Hour
	l := w.live(&clock, 0)
	for range 60 {
		if l.look(t, 10*time.Second); w.replicas() < size {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("set %s keeps its %d replicas: node %s has %v", set, w.replicas(), victim, w.nodes()[victim].Annotations)
}
