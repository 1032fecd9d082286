// SPDX-License-Identifier: Apache-2.0

//go:build !v1.33

// Package framework has the names of the scheduler's framework that the plugin uses. Kubernetes v1.34 and v1.35 moved them to another package. A build
// for an older release has the tag of its minor version, such as v1.34, and finds them where that has them.
package framework

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-scheduler/framework"
)

// What v1.34 moved.
type (
	ClusterEvent         = framework.ClusterEvent
	ClusterEventWithHint = framework.ClusterEventWithHint
	Code                 = framework.Code
	CycleState           = framework.CycleState
	NodeInfo             = framework.NodeInfo
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
func Generation(node NodeInfo) int64 { return node.GetGeneration() }

// Pods are those on a node.
func Pods(node NodeInfo) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for _, info := range node.GetPods() {
			if !yield(info.GetPod()) {
				return
			}
		}
	}
}
