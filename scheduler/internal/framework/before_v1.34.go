// SPDX-License-Identifier: Apache-2.0

//go:build v1.33

package framework

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// What v1.34 moved, where it was before. Two of the types were structures.
type (
	ClusterEvent         = framework.ClusterEvent
	ClusterEventWithHint = framework.ClusterEventWithHint
	Code                 = framework.Code
	CycleState           = *framework.CycleState
	NodeInfo             = *framework.NodeInfo
	QueueingHint         = framework.QueueingHint
	StateData            = framework.StateData
	Status               = framework.Status
)

const (
	Add                          = framework.Add
	Node                         = framework.Node
	Update                       = framework.Update
	Queue                        = framework.Queue
	QueueSkip                    = framework.QueueSkip
	Skip                         = framework.Skip
	Success                      = framework.Success
	Unschedulable                = framework.Unschedulable
	UnschedulableAndUnresolvable = framework.UnschedulableAndUnresolvable
)

var (
	AsStatus  = framework.AsStatus
	NewStatus = framework.NewStatus
)

// Generation changes whenever the pods of a node do.
func Generation(node NodeInfo) int64 { return node.Generation }

// Pods are those on a node.
func Pods(node NodeInfo) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for _, info := range node.Pods {
			if !yield(info.Pod) {
				return
			}
		}
	}
}
