// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/rollout"
)

// phases are how rollout calls what the annotation says.
var phases = map[nodestatus.State]rollout.Phase{
	nodestatus.Requested: rollout.Requested,
	nodestatus.Running:   rollout.Running,
	nodestatus.Complete:  rollout.Succeeded,
	nodestatus.Failed:    rollout.Failed,
}

// readOperation returns the operation of a node. A request that was not taken up is none yet, and
// neither is what cannot be read.
func readOperation(node *corev1.Node) rollout.Operation {
	s, _, err := nodestatus.ReadStatus(node.Annotations)
	if err != nil || s.ID == "" {
		return rollout.Operation{}
	}
	return rollout.Operation{ID: s.ID, Phase: phases[s.State], Since: s.Since, Message: s.Message, Overdue: s.Overdue}
}

// writeOperation writes how far the operation of a node is. What was asked for stays as it is.
func writeOperation(node *corev1.Node, op rollout.Operation) {
	s, is := statusOf(node, op.ID)
	if !is {
		return // rollout has compared the id, so there is nothing of this operation
	}
	s.Message, s.Since, s.Overdue = op.Message, op.Since, op.Overdue
	switch op.Phase {
	case rollout.Requested:
		s.State = nodestatus.Requested
	case rollout.Running:
		s.State, s.Job = nodestatus.Running, jobName(node.Name, op.ID)
	case rollout.Succeeded:
		s.State = nodestatus.Complete
	default: // a message says that it was rolled back
		s.State = nodestatus.Failed
	}
	node.Annotations[nodestatus.StatusAnnotation] = s.String()
}

// reportedNodes is a rollout.Store that also writes Events.
type reportedNodes struct {
	rollout.Nodes
	recorder events.EventRecorder
}

// Update implements rollout.Store.
func (n reportedNodes) Update(ctx context.Context, name string, change func(*rollout.State) error) error {
	var before, after rollout.Operation
	err := n.Nodes.Update(ctx, name, func(s *rollout.State) error {
		before = s.Operation
		err := change(s)
		after = s.Operation
		return err
	})
	if err == nil && before != after {
		n.report(name, after)
	}
	return err
}

func (n reportedNodes) report(name string, op rollout.Operation) {
	kind, reason := corev1.EventTypeNormal, "CPUPolicy"+string(op.Phase)
	if op.Phase.Ended() && op.Phase != rollout.Succeeded {
		kind = corev1.EventTypeWarning
	}
	text := cmp.Or(op.Message, "operation "+op.ID)
	if op.Overdue {
		text += "; " + nodestatus.StaysClaimed
	}
	// An Event on a Node has the name of the Node as its UID, as the kubelet writes it.
	node := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
	n.recorder.Eventf(node, nil, kind, reason, "SwitchCPUPolicy", "%s", text)
}

// resultOf makes of what an agent reported what rollout knows.
func resultOf(r operation.Result) rollout.Result {
	text := r.Message
	if r.KubeletError != "" {
		text = fmt.Sprintf("%s; the kubelet: %s", text, r.KubeletError)
	}
	switch r.Outcome {
	case operation.Succeeded:
		return rollout.Result{Seen: rollout.Over, Phase: rollout.Succeeded, Message: r.Message}
	case operation.RolledBack:
		status := nodestatus.Status{}.RolledBack(r.Policy, fmt.Sprintf("step %s: %s", r.Step, text))
		return rollout.Result{Seen: rollout.Over, Phase: rollout.RolledBack, Message: status.Message}
	case operation.Failed:
		if r.Unchanged() {
			return rollout.Result{Seen: rollout.Over, Phase: rollout.Failed, Message: "nothing was changed: " + text}
		}
	}
	return rollout.Result{Seen: rollout.Over, Phase: rollout.Failed,
		Message: fmt.Sprintf("step %s: %s; configuration and checkpoint are as they were, but the kubelet was not healthy in time", r.Step, text)}
}

// clock returns the time in whole seconds, as annotations have it.
func clock() time.Time { return time.Now().UTC().Truncate(time.Second) }
