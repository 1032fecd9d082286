// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/cpupolicy/agentpod"
)

func TestOnlyAgentsThatRanOnTheNodeAreHeard(t *testing.T) {
	pod := func(node, container string, end *corev1.ContainerStateTerminated) corev1.Pod {
		return corev1.Pod{
			Spec:   corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Terminated: end}}}},
		}
	}
	said := func(text string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{Reason: "Completed", Message: text}
	}
	pods := []corev1.Pod{
		pod("n1", agentpod.Container, nil), // it still runs
		pod("n1", agentpod.Container, said("second")),
		pod("n1", agentpod.Container, &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: "failed to create containerd task"}),
		pod("n1", agentpod.Container, &corev1.ContainerStateTerminated{Reason: "ContainerCannotRun", ExitCode: 128, Message: "no such file"}),
		pod("n2", agentpod.Container, said("of another node")),
		pod("n1", "injected", said("of another container")),
		pod("n1", agentpod.Container, &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: "part"}),
		pod("n1", agentpod.Container, said("first")),
		pod("n1", agentpod.Container, said("")),
	}
	for partial, want := range map[bool][]string{false: {"second", "first"}, true: {"second", "part", "first"}} {
		if got := messages(pods, "n1", partial); !slices.Equal(got, want) {
			t.Errorf("partial %t: messages are %q, want %q", partial, got, want)
		}
	}
}

func TestWhatWasObservedIsReadStrictly(t *testing.T) {
	for _, test := range []struct {
		name, value string
		read        bool
	}{
		{"as the controller writes it", `{"policy":"none","kubelet":{"reserved":"500m"},"at":"2026-11-23T10:00:00Z","bootID":"b","for":"boot"}`, true},
		{"a number that takes minutes to read", `{"policy":"none","kubelet":{"reserved":"1e-9999999"},"at":"2026-11-23T10:00:00Z"}`, false},
		{"the same behind an escape", `{"policy":"none","kubelet":{"reserved":"\u0031e-9999999"},"at":"2026-11-23T10:00:00Z"}`, false},
		{"an unknown key", `{"policy":"none","at":"2026-11-23T10:00:00Z","x":1}`, false},
		{"a policy twice", `{"policy":"none","policy":"static","at":"2026-11-23T10:00:00Z"}`, false},
		{"more than an observation can be", `{"policy":"none","refused":{"none":"` + strings.Repeat("x", nodestatus.MaxObserved) + `"}}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodestatus.ObservedAnnotation: test.value}}}
			begun := time.Now()
			if seen := nodestatus.ObservedOf(node); (seen != nil) != test.read {
				t.Errorf("it is read as %+v", seen)
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
