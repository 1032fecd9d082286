// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"workload.openshift.io/operators/api/untrusted"
)

// Phase is where the operation that gives a node back stands.
type Phase string

// Phases. Each is written to the node before anything of it is done.
const (
	// Draining: the node has the claim and the taint EvictTaint; DaemonSets' pods leave.
	Draining Phase = "Draining"
	// Removing: the Machine gets its marks, and then its set one replica less.
	Removing Phase = "Removing"
	// Returning: the marks are taken back, and then the node is freed.
	Returning Phase = "Returning"
)

// Operation gives one node back. It stands on the node, and with its marks on the Machine. The
// kubelet can write its own Node: what decides about other objects is read from the Machine, whose
// status names the node.
type Operation struct {
	// ID is a DNS label that is never used again.
	ID    string    `json:"id"`
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"`
	// Machine and UID are the node's; Set is what has the replicas. Both are in one namespace.
	Machine types.NamespacedName `json:"machine,omitzero"`
	UID     types.UID            `json:"uid,omitempty"`
	Set     string               `json:"set,omitempty"`
	// Replicas and Generation are those of the set before it is changed, from the phase Removing
	// on. They tell after a restart whether it was: each change of its spec raises the generation
	// by one.
	Replicas   int32 `json:"replicas,omitempty"`
	Generation int64 `json:"generation,omitempty"`
	// Reason says why the phase is Returning.
	Reason string `json:"reason,omitempty"`
}

// String returns the value of the annotation.
func (o Operation) String() string {
	o.Since = o.Since.UTC().Truncate(time.Second)
	return encode(o)
}

// ParseOperation reads a value of OperationAnnotation.
func ParseOperation(value string) (Operation, error) {
	var o Operation
	err := decode(value, &o)
	if err == nil {
		err = checkTime(o.Since)
	}
	if err == nil && !slices.Contains([]Phase{Draining, Removing, Returning}, o.Phase) {
		err = fmt.Errorf("there is no phase %q", o.Phase)
	}
	if err == nil && validation.IsDNS1123Label(o.ID) != nil {
		err = fmt.Errorf("the id %q is no DNS label", o.ID)
	}
	if err != nil {
		return Operation{}, fmt.Errorf("annotation %s: %q: %w", OperationAnnotation, untrusted.Abbreviate(value, 100), err)
	}
	return o, nil
}

// Machine is what an operation sees of a Machine.
type Machine struct {
	Name types.NamespacedName
	UID  types.UID
	// Node is the name of its node in its status; empty while it has none.
	Node string
	// Set is the set that has its replicas; empty if it has none, or more than one.
	Set string
	// Operation is the id of the operation whose marks it has; empty for none.
	Operation string
	// Marked means that it has a mark for deletion, ours or another's.
	Marked bool
	// Deleting means that somebody has deleted it.
	Deleting bool
	// Running means that it has a node and no error.
	Running bool
	// Coming means that it has no node yet, and no error.
	Coming bool
}

// Set is what an operation sees of a set of Machines, as a MachineSet or a MachineDeployment.
type Set struct {
	Name       string
	Replicas   int32
	Generation int64
	// ResourceVersion is the precondition of a change.
	ResourceVersion string
	// Settled means that its controller has seen this generation, and has as many Machines as it
	// wants.
	Settled bool
	// Minimum is that of its autoscaler; nil if it has none.
	Minimum *int32
	// Obstacle says why its size must not be changed now, such as a rollout.
	Obstacle Obstacle
}

// Obstacle is why a node is not given back now. The zero value is none.
type Obstacle struct {
	Code ObstacleCode
	// Why is a sentence.
	Why string
}

// ObstacleCode is the value of a metric's label.
type ObstacleCode string

// Codes of obstacles. The first ones are of the node and its pods, then of its Machine and of its set.
const (
	NodeHeld          ObstacleCode = "NodeHeld"
	Uncordoned        ObstacleCode = "Uncordoned"
	PodWaits          ObstacleCode = "PodWaits"
	PodCame           ObstacleCode = "PodCame"
	NoMachine         ObstacleCode = "NoMachine"
	MachineDeleting   ObstacleCode = "MachineDeleting"
	MarkedByOthers    ObstacleCode = "MarkedByOthers"
	NoSet             ObstacleCode = "NoSet"
	NoAutoscaler      ObstacleCode = "NoAutoscaler"
	AtMinimum         ObstacleCode = "AtMinimum"
	MinimumUnreadable ObstacleCode = "MinimumUnreadable"
	ScaleUp           ObstacleCode = "ScaleUp"
	MachineNotRunning ObstacleCode = "MachineNotRunning"
	Rollout           ObstacleCode = "Rollout"
	SetPaused         ObstacleCode = "SetPaused"
	SetDeleting       ObstacleCode = "SetDeleting"
	OtherAPI          ObstacleCode = "OtherAPI"
)

// ObstacleCodes are all of them.
var ObstacleCodes = []ObstacleCode{
	NodeHeld, Uncordoned, PodWaits, PodCame, NoMachine, MachineDeleting, MarkedByOthers, NoSet, NoAutoscaler, AtMinimum,
	MinimumUnreadable, ScaleUp, MachineNotRunning, Rollout, SetPaused, SetDeleting, OtherAPI,
}

// Situation is what Step decides upon. All of it is read from the API after the operation was, and the
// Machine after the set: where a settled set has kept the Machine, it has deleted another.
type Situation struct {
	// Held says why nothing may be done to the node, such as a keep mark; empty if it may be.
	Held string
	// Cordoned means that the node is cordoned by us, or has BlockTaint.
	Cordoned bool
	// Pod is a pod that holds the node, empty for none.
	Pod string
	// Demanded means that a pod is Unschedulable which would fit on the node.
	Demanded bool
	// Leave is how many DaemonSets' pods are to be evicted and still there.
	Leave int
	// Machine is that of the node, and Set that of the Machine. Nil if there is none any more.
	Machine *Machine
	Set     *Set
	// Turn is the operation that may change the set now: one at a time does.
	Turn bool
}

// ActionKind is one write, or none.
type ActionKind string

// Kinds of actions.
const (
	// Wait writes nothing.
	Wait ActionKind = "Wait"
	// Evict evicts the DaemonSets' pods that do not tolerate EvictTaint.
	Evict ActionKind = "Evict"
	// Persist writes Action.Operation to the node.
	Persist ActionKind = "Persist"
	// Mark writes the marks and the operation to the Machine.
	Mark ActionKind = "Mark"
	// Scale writes one replica less, if the set has still its resource version.
	Scale ActionKind = "Scale"
	// Unmark removes both from the Machine.
	Unmark ActionKind = "Unmark"
	// Release removes operation, taint and claim from the node.
	Release ActionKind = "Release"
)

// Action is the next step of an operation.
type Action struct {
	Kind ActionKind
	// Operation is what Persist writes.
	Operation Operation
	// Why says what is waited for.
	Why string
}

// Timing is how long steps may take.
type Timing struct {
	// Grace is how long DaemonSets' pods have to leave.
	Grace time.Duration
	// Patience is how long Draining may last until the node is freed.
	Patience time.Duration
}

// DefaultTiming has the design's numbers.
func DefaultTiming() Timing { return Timing{Grace: 40 * time.Second, Patience: 5 * time.Minute} }

// Step returns the next step of an operation. The caller does this one write, and then
// reads and asks again; the process may end before or after each.
//
// The set loses one replica only while generation and replicas are those that the operation has
// recorded, and the write has the resource version as a precondition. So one operation removes at
// most one replica, and one that cannot tell whether it did, removes none.
func Step(o Operation, s Situation, now time.Time, timing Timing) Action {
	switch o.Phase {
	case Draining:
		if obstacle := s.Obstacle(o); obstacle.Code != "" {
			return giveUp(o, obstacle.Why)
		}
		if since := now.Sub(o.Since); since < timing.Grace {
			return Action{Kind: Evict, Why: "DaemonSets' pods leave"}
		} else if since > timing.Patience {
			return giveUp(o, "it took too long to begin")
		}
		if s.Leave > 0 {
			return Action{Kind: Evict, Why: "DaemonSets' pods leave"}
		}
		if !s.Turn || !s.Set.Settled {
			return Action{Kind: Wait, Why: fmt.Sprintf("set %s changes its size", s.Set.Name)}
		}
		o.Phase, o.Machine, o.UID, o.Set = Removing, s.Machine.Name, s.Machine.UID, s.Set.Name
		o.Replicas, o.Generation = s.Set.Replicas, s.Set.Generation
		return Action{Kind: Persist, Operation: o}
	case Removing:
		if s.Machine == nil || s.Machine.UID != o.UID || s.Machine.Deleting {
			return Action{Kind: Wait, Why: "its Machine is being deleted"}
		}
		if s.Set == nil {
			return giveUp(o, "its set is not there any more")
		}
		switch scaled := s.Set.Generation - o.Generation; {
		case scaled == 0 && s.Set.Replicas == o.Replicas:
			if obstacle := s.Obstacle(o); obstacle.Code != "" {
				return giveUp(o, obstacle.Why)
			}
			if s.Machine.Operation != o.ID {
				return Action{Kind: Mark}
			}
			return Action{Kind: Scale}
		case scaled == 1 && s.Set.Replicas == o.Replicas-1:
			// By us, or by somebody who wanted the same.
			if s.Machine.Operation == o.ID && s.Set.Settled {
				return giveUp(o, fmt.Sprintf("set %s deleted another Machine", s.Set.Name))
			}
			if s.Machine.Operation == o.ID {
				return Action{Kind: Wait, Why: fmt.Sprintf("set %s deletes its Machine", s.Set.Name)}
			}
			return giveUp(o, fmt.Sprintf("somebody else changed the size of set %s", s.Set.Name))
		}
		// Until its controller has seen the newest size, it may still delete this Machine.
		if !s.Set.Settled {
			return Action{Kind: Wait, Why: fmt.Sprintf("set %s changes its size", s.Set.Name)}
		}
		return giveUp(o, fmt.Sprintf("somebody else changed set %s", s.Set.Name))
	case Returning:
		if s.Machine != nil && s.Machine.Operation == o.ID && !s.Machine.Deleting {
			return Action{Kind: Unmark}
		}
		return Action{Kind: Release}
	}
	return Action{Kind: Wait}
}

func giveUp(o Operation, why string) Action {
	o.Phase, o.Reason = Returning, why
	return Action{Kind: Persist, Operation: o}
}

// Obstacle returns why a node must not be given back now by an operation.
func (s *Situation) Obstacle(o Operation) Obstacle {
	switch {
	case s.Held != "":
		return Obstacle{NodeHeld, s.Held}
	case !s.Cordoned:
		return Obstacle{Uncordoned, "somebody uncordoned it"}
	case s.Demanded:
		return Obstacle{PodWaits, "a pod that waits would fit on it"}
	case s.Pod != "":
		return Obstacle{PodCame, fmt.Sprintf("pod %s came", s.Pod)}
	case s.Machine == nil:
		return Obstacle{NoMachine, "it has no Machine"}
	case s.Machine.Deleting:
		return Obstacle{MachineDeleting, "its Machine is being deleted"}
	case s.Machine.Marked && s.Machine.Operation != o.ID:
		return Obstacle{MarkedByOthers, "somebody else marked its Machine for deletion"}
	case s.Set == nil:
		return Obstacle{NoSet, "its Machine is of no set, or of more than one"}
	case s.Set.Minimum == nil:
		return Obstacle{NoAutoscaler, fmt.Sprintf("set %s has no autoscaler, which would scale it up again", s.Set.Name)}
	case s.Set.Replicas <= *s.Set.Minimum:
		return Obstacle{AtMinimum, fmt.Sprintf("set %s is at or below its minimum of %d", s.Set.Name, *s.Set.Minimum)}
	}
	return s.Set.Obstacle
}
