// SPDX-License-Identifier: Apache-2.0

package nodejob

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestOnlyProgramsThatRanOnTheNodeAreHeard(t *testing.T) {
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
		pod("n1", "agent", nil), // it still runs
		pod("n1", "agent", said("second")),
		pod("n1", "agent", &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: "failed to create containerd task"}),
		pod("n1", "agent", &corev1.ContainerStateTerminated{Reason: "ContainerCannotRun", ExitCode: 128, Message: "no such file"}),
		pod("n2", "agent", said("of another node")),
		pod("n1", "injected", said("of another container")),
		pod("n1", "agent", &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: "part"}),
		pod("n1", "agent", said("first")),
		pod("n1", "agent", said("")),
	}
	for partial, want := range map[bool][]string{false: {"second", "first"}, true: {"second", "part", "first"}} {
		if got := (Jobs{Container: "agent"}).Messages(pods, "n1", partial); !slices.Equal(got, want) {
			t.Errorf("partial %t: messages are %q, want %q", partial, got, want)
		}
	}
}
