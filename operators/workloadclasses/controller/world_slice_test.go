// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/workloadclasses"
)

// A wave comes, a few pods stay, and one node is given back: the webhook, the scheduler and the MachineSet's
// controller are the real ones.
func TestAWaveAndItsEnd(t *testing.T) {
	w := newWorld(t, 8, 1)
	w.start(func(s *Settings) { s.MinNodeAge.Duration = 20 * time.Second }) // the wave comes first

	pods := w.wave("wave", 32, "600m")
	for _, pod := range pods {
		node, ok := w.nodes()[pod.Spec.NodeName]
		if !ok || pod.Labels["ci-workload"] != "tests" || pod.Labels["ci-workload-namespace"] != "ci-op-x" ||
			pod.Spec.RuntimeClassName == nil || *pod.Spec.RuntimeClassName != "ci-scheduler-runtime-tests" ||
			pod.Spec.Overhead.Cpu().String() != "300m" || pod.Spec.Overhead.Memory().String() != "600Mi" {
			t.Fatalf("pod %s on node %s has labels %v, RuntimeClass %v and overhead %v", pod.Name, node.Name, pod.Labels, pod.Spec.RuntimeClassName, pod.Spec.Overhead)
		}
	}
	t.Log("(c) 32 pods of ci-op-x have class, RuntimeClass and its overhead, and nodes of the class")

	// Each node keeps two pods.
	kept := map[string]int{}
	w.end(func(pod *corev1.Pod) bool {
		kept[pod.Spec.NodeName]++
		return kept[pod.Spec.NodeName] <= 2
	})
	precluded := ""
	w.eventually(func() error {
		avoided := 0
		precluded = ""
		for name, node := range w.nodes() {
			if hasTaint(node, workloadclasses.AvoidTaint) {
				avoided++
			}
			if node.Spec.Unschedulable {
				return fmt.Errorf("node %s is cordoned", name)
			}
			if node.Annotations[workloadclasses.PrecludeAnnotation] != "" {
				precluded = name
			}
		}
		if avoided != 2 || !hasTaint(w.nodes()[precluded], workloadclasses.AvoidTaint) {
			return fmt.Errorf("%d nodes are avoided, and %q is precluded", avoided, precluded)
		}
		return nil
	})
	time.Sleep(time.Second) // the webhook's cache is later than this read
	for _, pod := range w.wave("trickle", 20, "100m") {
		if pod.Spec.NodeName == precluded {
			t.Errorf("pod %s landed on the precluded node", pod.Name)
		}
	}
	avoided := 0
	for _, node := range w.nodes() {
		if hasTaint(node, workloadclasses.AvoidTaint) {
			avoided++
		}
	}
	if avoided != 2 {
		t.Errorf("%d of 8 nodes are avoided", avoided)
	}
	t.Logf("(d) 2 of 8 nodes are avoided, %s is precluded, and none of 20 pods landed there", precluded)

	// So that the Machine can be looked at while it goes.
	for _, machine := range w.list("Machine") {
		finalizers := append(machine.GetFinalizers(), "example.com/looks")
		machine.SetFinalizers(finalizers)
		if err := w.Client.Update(t.Context(), &machine); err != nil {
			t.Fatal(err)
		}
	}
	w.end(func(pod *corev1.Pod) bool { return pod.Spec.NodeName != precluded })
	emptied := time.Now()
	w.eventually(func() error {
		if node := w.nodes()[precluded]; !node.Spec.Unschedulable {
			return fmt.Errorf("node %s is not cordoned", precluded)
		}
		return nil
	})
	if n := w.replicas(); n != 8 {
		t.Errorf("at the first evaluation the set has %d replicas", n)
	}
	cordoned := time.Since(emptied)
	w.eventually(func() error {
		for _, machine := range w.list("Machine") {
			if machine.GetName() != precluded {
				continue
			}
			for _, key := range []string{"machine.openshift.io/delete-machine", "machine.openshift.io/cluster-api-delete-machine"} {
				if machine.GetAnnotations()[key] == "" {
					return fmt.Errorf("Machine %s has no value of %s", precluded, key)
				}
			}
			if machine.GetDeletionTimestamp() != nil {
				return nil
			}
		}
		return fmt.Errorf("Machine %s is not deleted", precluded)
	})
	took := time.Since(emptied)
	testenv.Always(t, 5*time.Second, func() error {
		if n := w.replicas(); n != 7 {
			return fmt.Errorf("the set has %d replicas", n)
		}
		if names := w.running(); len(names) != 7 || slices.Contains(names, precluded) {
			return fmt.Errorf("of 8 Machines there still run %v, and %s was empty", names, precluded)
		}
		return nil
	})
	w.letGo("example.com/looks")
	w.eventually(func() error {
		if _, ok := w.nodes()[precluded]; ok {
			return fmt.Errorf("node %s is still there", precluded)
		}
		return nil
	})
	t.Logf("(e) cordoned after %s, its Machine deleted by its set's controller after %s, both marks with a value, 7 replicas", cordoned.Round(time.Millisecond), took.Round(time.Millisecond))
}
