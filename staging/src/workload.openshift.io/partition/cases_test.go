/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package partition_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"
)

// expectCase checks what was decided about a pod, and what became of it.
func expectCase(t *testing.T, want partitiontest.Want, d partition.Decision, got, before *v1.Pod) {
	t.Helper()
	if d.Outcome != want.Outcome || d.Reason != want.Reason {
		t.Errorf("decided %q because of %q, want %q because of %q", d.Outcome, d.Reason, want.Outcome, want.Reason)
	}
	if want.Pod == nil {
		want = partitiontest.Want{Pod: before}
		delete(got.Annotations, partition.WarningAnnotation)
	}
	if difference := want.Diff(got); difference != "" {
		t.Error(difference)
	}
	if workloadType, is := partition.PartitionedType(got); want.Pod != before && is != (want.Outcome == partition.Partitioned) {
		t.Errorf("PartitionedType returns %q, %v", workloadType, is)
	}
}

func TestPodsBecomeWhatTheCasesSay(t *testing.T) {
	reasons := map[partition.Reason]bool{
		// These depend on more than the pod and its namespace.
		partition.ReasonNodeDoesNotCount:       true,
		partition.ReasonNamespaceConstrainsCPU: true,
		partition.ReasonDecidedAgainst:         true,
		partition.ReasonChangedLater:           true,
	}
	names := map[string]bool{}
	for _, c := range partitiontest.Cases() {
		reasons[c.Want.Reason] = true
		if names[c.Name] {
			t.Errorf("two cases are called %q", c.Name)
		}
		names[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			got := c.Pod.DeepCopy()
			// As the plugin does in its first run, and as the kubelet does.
			delete(got.Annotations, partition.WarningAnnotation)
			policy := partition.Policy{Gate: partitiontest.Gate(c.Namespace)}
			expectCase(t, c.Want, partition.Mutate(partition.V1(got), policy), got, c.Pod)
			if c.Want.Outcome != partition.Refused && !partition.Settled(partition.V1(got)) {
				t.Error("it is not settled")
			}
			again := got.DeepCopy()
			partition.Mutate(partition.V1(again), policy)
			if !equality.Semantic.DeepEqual(again, got) {
				t.Errorf("a second run makes of it %v", again)
			}
		})
		t.Run(c.Name+", as a static pod", func(t *testing.T) {
			want, ok := c.OfStaticPod()
			if !ok {
				t.Skip("it is about a namespace")
			}
			got := c.Pod.DeepCopy()
			delete(got.Annotations, partition.WarningAnnotation)
			expectCase(t, want, partition.Mutate(partition.V1(got), partition.Policy{Gate: partitiontest.StaticGate, NeverRefuse: true}), got, c.Pod)
		})
	}
	for _, rule := range partition.Rules() {
		if !reasons[rule.Reason] {
			t.Errorf("no case has the reason %s", rule.Reason)
		}
	}
}
