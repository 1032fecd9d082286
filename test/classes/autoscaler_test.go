// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/workloadclasses"
)

// What the model of the autoscaler keeps a node for (autoscaler, cluster-autoscaler/FAQ.md).
func TestWhatKeepsANode(t *testing.T) {
	pod := func(cpu string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", Labels: map[string]string{"app": "a"}, Annotations: map[string]string{}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	owned := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: new(true)}} }
	}
	safe := func(value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[workloadclasses.SafeToEvictAnnotation] = value }
	}
	budget := func(allowed int32) []policyv1.PodDisruptionBudget {
		return []policyv1.PodDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
		}}
	}
	for name, test := range map[string]struct {
		pods     []*corev1.Pod
		budgets  []policyv1.PodDisruptionBudget
		disabled bool
		want     string
	}{
		"no pod":                                {},
		"a pod without an owner":                {pods: []*corev1.Pod{pod("100m", nil)}, want: "not replicated"},
		"such a pod that is safe to evict":      {pods: []*corev1.Pod{pod("100m", safe("true"))}},
		"a pod of a ReplicaSet":                 {pods: []*corev1.Pod{pod("100m", owned("ReplicaSet"))}},
		"such pods on half of the node":         {pods: []*corev1.Pod{pod("2", owned("ReplicaSet"))}, want: "utilization"},
		"one whose budget allows no disruption": {pods: []*corev1.Pod{pod("100m", owned("ReplicaSet"))}, budgets: budget(0), want: "not enough pod disruption budget"},
		"one whose budget allows one":           {pods: []*corev1.Pod{pod("100m", owned("ReplicaSet"))}, budgets: budget(1)},
		"a pod of a DaemonSet":                  {pods: []*corev1.Pod{pod("100m", owned("DaemonSet"))}},
		"a pod that must not be evicted":        {pods: []*corev1.Pod{pod("100m", safe("false"))}, want: "not safe to evict"},
		"a node of workload classes":            {disabled: true, want: "scale-down is disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}},
				Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi")}},
			}
			if test.disabled {
				node.Annotations[workloadclasses.ScaleDownDisabledAnnotation] = "true"
			}
			if got := keeps(node, test.pods, test.budgets); got != test.want {
				t.Errorf("kept for %q, want %q", got, test.want)
			}
		})
	}
}
