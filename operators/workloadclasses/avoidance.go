// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// State is how new pods avoid a node. Its values are those of openshift/ci-tools.
type State string

// States. On the node they are nothing, the taint AvoidTaint, and a cordon (BlockTaint after
// Policy.MaxCordon).
const (
	None             State = "None"
	PreferNoSchedule State = "PreferNoSchedule"
	NoSchedule       State = "NoSchedule"
)

// Policy is how a class treats its nodes.
type Policy struct {
	// SharePercent of a class's nodes, rounded up, are in a state other than None.
	SharePercent int
	// Minimum is how many nodes stay without a cordon.
	Minimum int
	// Period is the time between two evaluations. A node is given back if it was cordoned at
	// least as long ago, so that the scheduler has seen the cordon.
	Period time.Duration
	// MaxCordon is how long a node stays cordoned; afterwards BlockTaint does the same.
	MaxCordon time.Duration
	// MinNodeAge is how old a node must be before it is cordoned: pods wait for a new one.
	MinNodeAge time.Duration
	// RoomPercent, if it is not zero, has further nodes avoided, as PreferNoSchedule alone: all without
	// which the others have that much room for new pods, as a share of what pods ask for on all nodes of
	// the class. So pods fill nodes, also with a scheduler that spreads them.
	RoomPercent int
	// PackOnly never cordons: no API of machines is configured, so that no node can be given back.
	PackOnly bool
}

// DefaultPolicy has the numbers of openshift/ci-tools.
func DefaultPolicy() Policy {
	return Policy{SharePercent: 25, Minimum: 1, Period: time.Minute, MaxCordon: 8 * time.Minute, MinNodeAge: 15 * time.Minute}
}

// Share returns how many of n nodes are in a state other than None.
func (p Policy) Share(n int) int {
	return int(math.Ceil(float64(n*p.SharePercent) / 100))
}

// NodeView is what the avoidance of a node depends on.
type NodeView struct {
	Name    string
	Created time.Time
	// Record is what was decided before; the zero value is as None.
	Record Record
	// Held says why nothing is done to the node, such as a person's cordon; empty if it may be.
	Held string
	// Leaving means that an operation gives the node back.
	Leaving bool
	// Pods is how many pods hold the node.
	Pods int
	// Used and Free are what its pods ask for, and what is left, in millicores. They are for
	// Policy.RoomPercent alone.
	Used, Free int64
	// Demanded means that a pod is Unschedulable which would fit on the node.
	Demanded bool
}

// Evaluation is what Evaluate decides about a class.
type Evaluation struct {
	// Decisions has one for each node, in the order of their names.
	Decisions []Decision
	// Precluded is the node on which no new pod of the class may land; empty for none. It is the first
	// that is avoided and not cordoned: pods keep their affinity for good, and would not come back to a
	// cordoned node that is freed for them.
	Precluded string
}

// Decision is what is wanted of a node.
type Decision struct {
	Name  string
	State State
	// GiveBack means that the node may be given back: cordoned for a period, and empty.
	GiveBack bool
	// Why says in one sentence why the node is not given back; empty if it is, or may be soon.
	Why string
}

// Evaluate decides about the nodes of a class: which ones new pods avoid, and which are given back.
// The order of its input has no meaning. waiting means that a pod of the class is Unschedulable,
// wherever it would fit; then none is precluded.
//
// Of n nodes, Share(n) are in a state other than None, those that are leaving counted, and only these
// are cordoned. So a class loses at most a share of its nodes at a time. Policy.RoomPercent may have more
// in state PreferNoSchedule, on which pods still land when the others are full.
func Evaluate(nodes []NodeView, waiting bool, now time.Time, policy Policy) Evaluation {
	ordered := slices.Clone(nodes)
	young := func(n *NodeView) bool { return now.Sub(n.Created) < policy.MinNodeAge }
	slices.SortFunc(ordered, func(a, b NodeView) int {
		return cmp.Or(
			compareBool(b.Leaving, a.Leaving),
			compareBool(young(&a), young(&b)),
			cmp.Compare(a.weight(), b.weight()),
			cmp.Compare(b.Record.rank(), a.Record.rank()),
			a.Created.Compare(b.Created),
			cmp.Compare(a.Name, b.Name),
		)
	})
	left := policy.Share(len(nodes))
	staying := len(nodes)
	for i := range nodes {
		if nodes[i].Leaving {
			left--
			staying--
		}
	}
	roomy := policy.beyond(ordered)
	usable := 0
	var evaluation Evaluation
	first := ""
	for i := range ordered {
		n := &ordered[i]
		d := Decision{Name: n.Name, State: None}
		switch {
		case n.Leaving:
			d.State = NoSchedule
		case n.Held != "":
			d.Why = n.Held
		case n.Record.State == None && now.Sub(n.Record.Since) < policy.Period:
			d.Why = "it was freed a moment ago"
			usable++
		case n.Demanded:
			d.Why = "a pod that waits would fit on it"
			usable++
		case left <= 0 && roomy[n.Name]:
			usable++
			d.State = PreferNoSchedule
			d.Why = "as many nodes as may be are emptied already"
			if n.Pods > 0 {
				d.Why = "pods run on it"
			}
		case left <= 0:
			d.Why = "as many nodes as may be are avoided already"
			if n.Pods > 0 {
				d.Why = "pods run on it, and as many nodes as may be are avoided already"
			}
			usable++
		default:
			left--
			usable++
			d.State = PreferNoSchedule
			switch {
			case n.Pods > 0:
				d.Why = "pods run on it"
			case policy.PackOnly:
				d.Why = "no API of machines is configured"
			case young(n):
				d.Why = "it is too young"
			case staying <= policy.Minimum:
				d.Why = "the class has no more nodes than its minimum"
			default:
				staying--
				usable--
				d.State = NoSchedule
				d.GiveBack = n.Record.State == NoSchedule && now.Sub(n.Record.Since) >= policy.Period
			}
		}
		if d.State == PreferNoSchedule {
			first = cmp.Or(first, n.Name)
		}
		evaluation.Decisions = append(evaluation.Decisions, d)
	}
	slices.SortFunc(evaluation.Decisions, func(a, b Decision) int { return cmp.Compare(a.Name, b.Name) })
	// Another node must take the pods.
	if !waiting && usable > 1 {
		evaluation.Precluded = first
	}
	return evaluation
}

// beyond returns the nodes without which the others have room enough; those come last in the order.
func (p Policy) beyond(ordered []NodeView) map[string]bool {
	if p.RoomPercent == 0 {
		return nil
	}
	var used, room int64
	for i := range ordered {
		used += ordered[i].Used
	}
	nodes := map[string]bool{}
	for _, n := range slices.Backward(ordered) {
		if n.Held != "" || n.Leaving {
			continue
		}
		if room > 0 && room*100 >= int64(p.RoomPercent)*used {
			nodes[n.Name] = true
			continue
		}
		room += n.Free
	}
	return nodes
}

// weight is what orders nodes: empty ones first, then those with fewer pods. One that is avoided
// already keeps its place unless another has fewer by two, so that nodes do not alternate.
func (n *NodeView) weight() int {
	if n.Pods > 0 && n.Record.avoided() {
		return max(1, n.Pods-1)
	}
	return n.Pods
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
