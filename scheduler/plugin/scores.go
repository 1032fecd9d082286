// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strconv"
	"sync"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
)

// scores remembers the last score of each node: upstream formats each report for its log, whether that is written or not, and pods that
// come together are mostly alike.
type scores struct{ nodes sync.Map }

// remembered is the score of a node by a report, for pods that ask for the same.
type remembered struct {
	report *v1alpha2.NodeResourceTopology
	asks   string
	score  int64
}

func (s *scores) get(node string, report *v1alpha2.NodeResourceTopology, asks string) (int64, bool) {
	if found, ok := s.nodes.Load(node); ok && asks != "" {
		if r := found.(remembered); r.report == report && r.asks == asks {
			return r.score, true
		}
	}
	return 0, false
}

func (s *scores) set(node string, report *v1alpha2.NodeResourceTopology, asks string, score int64) {
	if asks != "" && report != nil {
		s.nodes.Store(node, remembered{report, asks, score})
	}
}

// asks says what a pod asks for, as far as scores depend on it. It is empty for a pod that asks for more than CPUs and memory.
func asks(pod *corev1.Pod) string {
	text := []byte(pod.Status.QOSClass)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			cpu, memory := c.Resources.Requests[corev1.ResourceCPU], c.Resources.Requests[corev1.ResourceMemory]
			if len(c.Resources.Requests) > 2 || len(c.Resources.Requests) == 2 && (cpu.IsZero() || memory.IsZero()) || c.RestartPolicy != nil {
				return ""
			}
			text = strconv.AppendInt(append(text, ' '), cpu.MilliValue(), 10)
			text = strconv.AppendInt(append(text, ' '), memory.Value(), 10)
		}
	}
	text = append(text, ' ')
	return string(strconv.AppendInt(text, int64(len(pod.Spec.InitContainers)), 10))
}
