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

package controller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
