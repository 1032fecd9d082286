// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"workload.openshift.io/operators/api/nodegroup"
)

// Phase is how far an operation is.
type Phase string

const (
	Requested  Phase = "Requested"
	Running    Phase = "Running"
	Succeeded  Phase = "Succeeded"
	Failed     Phase = "Failed"
	RolledBack Phase = "RolledBack"
)

// Ended reports whether an operation stays in a phase.
func (p Phase) Ended() bool { return p == Succeeded || p == Failed || p == RolledBack }

// Operation is something that is to be done to a node, once. The zero value means that nothing is.
type Operation struct {
	// ID is the operation's alone, for all time. Without one nothing begins.
	ID    string
	Phase Phase
	// Since is when the phase was reached.
	Since   time.Time
	Message string
	// Overdue means that it has ended by the time limit, and that it is not known yet whether something of it runs.
	// Until then the node stays claimed.
	Overdue bool
}

// State is what is stored of a node: the operation that was last asked for, and the claim. Both are
// in one object, so that one resource version covers them.
type State struct {
	Operation Operation
	Claim     nodegroup.Claim
	// Cordoned means that the node is unschedulable, by anyone.
	Cordoned bool
}

// owns reports whether the claim is that of a companion's operation.
func (s State) owns(owner, id string) bool { return s.Claim.Owner == owner && s.Claim.Operation == id }

// Lock is a lock that an operation needs before it begins, and how many operations may hold it.
type Lock struct {
	Name string
	Max  int
}

// Limit returns how many of a group's nodes may be under way: a number, or a percentage of the
// nodes, rounded up. It is at least one, since a group with none would never be done; pause it
// instead.
func Limit(limit intstr.IntOrString, nodes int) (int, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, nodes, true)
	if err != nil {
		return 0, fmt.Errorf("limit %q is neither a number nor a percentage: %w", limit.String(), err)
	}
	return max(1, n), nil
}

// Seen is what can be told of an operation on its node.
type Seen int

const (
	// Unknown: nothing. It may be under way.
	Unknown Seen = iota
	// Absent: it was not started, or nothing has come of that.
	Absent
	// UnderWay: it has begun and not ended.
	UnderWay
	// Over: it has ended, and nothing of it acts on the node any more.
	Over
)

// Result is what was observed of an operation, and never what was ordered. Phase and Message are how
// it has ended, if it is Over; otherwise Message may say why it has not.
type Result struct {
	Seen    Seen
	Phase   Phase
	Message string
}

// Node is what a look has shown of a node.
type Node struct {
	Name string
	State
	// Locks are those that its operation needs.
	Locks []Lock
	// Refused says which precondition a requested operation fails: it ends, and the next request may
	// find another situation. Waits says why it does not begin yet. Empty means that there is no such
	// reason.
	Refused, Waits string
	// DespiteCordon means that a person asked for this very node: then its cordon is no reason to wait.
	DespiteCordon bool
	// Result is of the operation that Watched returns.
	Result Result
}

// Watched returns the id of the operation that acts on the node, or may do so, for a companion: that
// of its claim, whatever was asked for since. Empty means that there is none.
func (n Node) Watched(owner string) string {
	switch {
	case n.Claim.Owner == owner:
		return n.Claim.Operation
	case n.Operation.Phase == Running:
		return n.Operation.ID // somebody removed its claim
	}
	return ""
}

// Look is what there is to decide about.
type Look struct {
	Now time.Time
	// Owner is the companion whose operations these are.
	Owner string
	// TimeLimit is how long an operation may be Running.
	TimeLimit time.Duration
	Nodes     []Node
	// Holders are who holds which lock.
	Holders map[string]nodegroup.Holders
}

// Kind is what an action does.
type Kind string

const (
	// Begin: take the locks and the claim, be Running, and start.
	Begin Kind = "Begin"
	// End: write how the operation has ended.
	End Kind = "End"
	// Release: finish the operation, and release the claim.
	Release Kind = "Release"
	// Unlock: release a lock.
	Unlock Kind = "Unlock"
)

// Action is a step of one operation.
type Action struct {
	Kind            Kind
	Node, Operation string
	From            Phase  // Begin, End: the phase that the look has shown
	Locks           []Lock // Begin
	DespiteCordon   bool   // Begin
	To              Phase  // End
	Message         string // End
	Overdue         bool   // End: by the time limit
	Lock            string // Unlock
}

// Plan decides what to do next, at most one action for each node and lock holder, and when to look
// again at the latest if nothing else happens; the zero time means that there is no such time. It
// changes nothing.
//
//   - A claim whose operation is not the node's any more, or has ended, is released once nothing of
//     that operation can act on the node. A newer operation waits for that. The message of what has ended by
//     the time limit first gets what became of it.
//   - What runs is ended by what was observed of it, or by the time limit. In the second case the
//     claim stays until it is known that nothing runs.
//   - What runs and was not started is started again, and what lost its claim takes it again.
//   - What is requested fails if a precondition does, and begins if nobody else claims the node, nobody
//     has cordoned it, and the locks have room: what was asked for first comes first. One that waits
//     keeps the locks that it has; all take them in the same order.
//   - A lock is released once its holder's claim is, and if the holder never got one.
func Plan(look Look) (actions []Action, again time.Time) {
	room := func(lock Lock) int { return lock.Max - len(look.Holders[lock.Name]) }
	taken := map[string]int{}
	for _, n := range byAge(look.Nodes) {
		op, now := n.Operation, look.Now
		act := func(a Action) { a.Node = n.Name; actions = append(actions, a) }
		begin := func() {
			act(Action{Kind: Begin, Operation: op.ID, From: op.Phase, Locks: n.Locks, DespiteCordon: n.DespiteCordon})
		}
		end := func(to Phase, message string) {
			act(Action{Kind: End, Operation: op.ID, From: op.Phase, To: to, Message: message})
		}
		claimed, unclaimed := n.Claim.Owner == look.Owner, n.Claim == (nodegroup.Claim{})
		switch {
		case claimed && (n.Claim.Operation != op.ID || op.Phase.Ended()):
			if n.Result.Seen != Absent && n.Result.Seen != Over {
				break
			}
			if op.Overdue && n.Claim.Operation == op.ID {
				end(op.Phase, op.Message+"; then: "+cmp.Or(n.Result.Message, string(n.Result.Phase), "nothing of it runs"))
			} else {
				act(Action{Kind: Release, Operation: n.Claim.Operation})
			}
		case op.ID == "" || op.Phase.Ended():
		case op.Phase == Running:
			deadline := op.Since.Add(look.TimeLimit)
			switch {
			case n.Result.Seen == Over:
				end(n.Result.Phase, n.Result.Message)
			case !now.Before(deadline):
				message := fmt.Sprintf("no result after %s", look.TimeLimit)
				if n.Result.Message != "" {
					message += ": " + n.Result.Message
				}
				act(Action{Kind: End, Operation: op.ID, From: op.Phase, To: Failed, Message: message, Overdue: true})
			case unclaimed || claimed && n.Result.Seen == Absent:
				begin()
				fallthrough
			default:
				if again.IsZero() || deadline.Before(again) {
					again = deadline
				}
			}
		case n.Refused != "":
			end(Failed, n.Refused)
		case n.Waits != "" || !claimed && (!unclaimed || n.Cordoned && !n.DespiteCordon):
		default:
			needs := slices.DeleteFunc(slices.Clone(n.Locks), func(l Lock) bool { return look.Holders[l.Name].Has(look.Owner, op.ID) })
			if slices.ContainsFunc(needs, func(l Lock) bool { return taken[l.Name] >= room(l) }) {
				continue
			}
			for _, l := range needs {
				taken[l.Name]++
			}
			begin()
		}
	}
	return append(actions, orphans(look)...), again
}

// byAge returns the nodes in the order in which something was asked for.
func byAge(nodes []Node) []Node {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int {
		return cmp.Or(a.Operation.Since.Compare(b.Operation.Since), strings.Compare(a.Name, b.Name))
	})
	return nodes
}

// orphans returns what to do about locks whose holder needs them no more.
func orphans(look Look) (actions []Action) {
	states := map[string]State{}
	for _, n := range look.Nodes {
		states[n.Name] = n.State
	}
	for _, name := range slices.Sorted(maps.Keys(look.Holders)) {
		for _, h := range look.Holders[name] {
			if !h.OwnedBy(look.Owner) {
				continue // another companion's; they share the control plane's lock
			}
			if s := states[h.Node]; !needsLock(s, look.Owner, h.Operation) {
				actions = append(actions, Action{Kind: Unlock, Node: h.Node, Operation: h.Operation, Lock: name})
			}
		}
	}
	return actions
}

// needsLock reports whether an operation needs the locks that it has: it has the claim on its node, or
// it is what was asked for there and has not ended.
func needsLock(s State, owner, id string) bool {
	return s.owns(owner, id) || s.Operation.ID == id && !s.Operation.Phase.Ended()
}
