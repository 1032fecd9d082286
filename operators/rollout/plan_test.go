// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"workload.openshift.io/operators/api/nodegroup"
)

var start = time.Unix(1000, 0)

// planned returns a node of which op was asked a number of minutes ago.
func planned(name, op string, phase Phase, ago int, changes ...func(*Node)) Node {
	n := Node{Name: name, State: State{Operation: Operation{ID: op, Phase: phase, Since: start.Add(-time.Duration(ago) * time.Minute)}}}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func claimedBy(owner, operation string) func(*Node) {
	return func(n *Node) { n.Claim = nodegroup.Claim{Owner: owner, Operation: operation} }
}

func seen(result Result) func(*Node) { return func(n *Node) { n.Result = result } }

func needs(locks ...Lock) func(*Node) { return func(n *Node) { n.Locks = locks } }

func TestPlan(t *testing.T) {
	cordoned := func(n *Node) { n.Cordoned = true }
	late := func(n *Node) { n.Operation.Message, n.Operation.Overdue = "no result after 10m0s: why not", true }
	one := Lock{"g", 1}
	for _, test := range []struct {
		name    string
		nodes   []Node
		holders string // lock=operation@node, with blanks between
		want    []string
		again   int // minutes from now; 0 means no such time
	}{
		{name: "nothing was asked for", nodes: []Node{{Name: "a"}, planned("b", "", Requested, 0)}},
		{name: "something was", nodes: []Node{planned("a", "1", Requested, 0)}, want: []string{"Begin a 1 Requested"}},
		{name: "a precondition fails", nodes: []Node{planned("a", "1", Requested, 0, func(n *Node) { n.Refused = "no" })}, want: []string{"End a 1 Requested Failed no"}},
		{name: "paused", nodes: []Node{planned("a", "1", Requested, 0, func(n *Node) { n.Waits = "paused" })}},
		{name: "claimed by another companion", nodes: []Node{planned("a", "1", Requested, 0, claimedBy("other", "1"))}},
		{name: "cordoned by a person", nodes: []Node{planned("a", "1", Requested, 0, cordoned)}},
		{name: "cordoned by a person who asked for this node", nodes: []Node{planned("a", "1", Requested, 0, cordoned, func(n *Node) { n.DespiteCordon = true })}, want: []string{"Begin a 1 Requested"}},
		{name: "as many as the lock allows, the oldest first, by name if they are of the same age", nodes: []Node{
			planned("a", "1", Requested, 1, needs(Lock{"g", 2})), planned("d", "2", Requested, 5, needs(Lock{"g", 2})), planned("c", "3", Requested, 5, needs(Lock{"g", 2}))},
			want: []string{"Begin c 3 Requested", "Begin d 2 Requested"}},
		{name: "the lock is full", nodes: []Node{planned("a", "1", Requested, 1, needs(one)), planned("b", "2", Running, 1, claimedBy(owner, "2"))}, holders: "g=2@b", again: 9},
		{name: "one of two locks is full", nodes: []Node{planned("a", "1", Requested, 5, needs(one, Lock{"h", 1})), planned("c", "3", Requested, 1, needs(Lock{"h", 1})), planned("b", "2", Running, 1, claimedBy(owner, "2"))}, holders: "g=2@b",
			want: []string{"Begin c 3 Requested"}, again: 9},
		{name: "it has the lock already, and others wait", nodes: []Node{planned("a", "1", Requested, 1, needs(one)), planned("b", "2", Requested, 5, needs(one))}, holders: "g=1@a", want: []string{"Begin a 1 Requested"}},
		{name: "the limit has fallen", nodes: []Node{planned("a", "1", Running, 1, needs(one), claimedBy(owner, "1"), seen(Result{Seen: Absent})), planned("b", "2", Requested, 5, needs(one))}, holders: "g=1@a g=3@c",
			want: []string{"Begin a 1 Running", "Unlock c 3 g"}, again: 9},

		{name: "under way", nodes: []Node{planned("a", "1", Running, 4, claimedBy(owner, "1"), seen(Result{Seen: UnderWay}))}, again: 6},
		{name: "the first to run out of time", nodes: []Node{planned("a", "1", Running, 4, claimedBy(owner, "1"), seen(Result{Seen: UnderWay})), planned("b", "2", Running, 7, claimedBy(owner, "2"))}, again: 3},
		{name: "not started yet", nodes: []Node{planned("a", "1", Running, 4, claimedBy(owner, "1"), seen(Result{Seen: Absent}))}, want: []string{"Begin a 1 Running"}, again: 6},
		{name: "over", nodes: []Node{planned("a", "1", Running, 4, claimedBy(owner, "1"), seen(Result{Over, RolledBack, "why"}))}, want: []string{"End a 1 Running RolledBack why"}},
		{name: "over at the last moment", nodes: []Node{planned("a", "1", Running, 10, claimedBy(owner, "1"), seen(Result{Over, Succeeded, ""}))}, want: []string{"End a 1 Running Succeeded"}},
		{name: "out of time", nodes: []Node{planned("a", "1", Running, 10, claimedBy(owner, "1"), seen(Result{Seen: UnderWay}))}, want: []string{"End a 1 Running Failed no result after 10m0s (overdue)"}},
		{name: "out of time, and somebody says why", nodes: []Node{planned("a", "1", Running, 10, claimedBy(owner, "1"), seen(Result{Seen: Absent, Message: "why"}))}, want: []string{"End a 1 Running Failed no result after 10m0s: why (overdue)"}},
		{name: "a person removed the claim", nodes: []Node{planned("a", "1", Running, 4, seen(Result{Seen: UnderWay}))}, want: []string{"Begin a 1 Running"}, again: 6},
		{name: "and another companion has it", nodes: []Node{planned("a", "1", Running, 4, claimedBy("other", "x"), seen(Result{Seen: Absent}))}, again: 6},
		{name: "and it is over", nodes: []Node{planned("a", "1", Running, 4, claimedBy("other", "x"), seen(Result{Over, Failed, "why"}))}, want: []string{"End a 1 Running Failed why"}},

		{name: "ended", nodes: []Node{planned("a", "1", Failed, 4, claimedBy(owner, "1"), seen(Result{Over, Failed, ""}))}, holders: "g=1@a", want: []string{"Release a 1"}},
		{name: "ended, and nothing is left", nodes: []Node{planned("a", "1", Failed, 4, claimedBy(owner, "1"), seen(Result{Seen: Absent}))}, want: []string{"Release a 1"}},
		{name: "out of time, and it still runs", nodes: []Node{planned("a", "1", Failed, 4, claimedBy(owner, "1"), seen(Result{Seen: UnderWay}))}, holders: "g=1@a"},
		{name: "out of time, and nobody can tell", nodes: []Node{planned("a", "1", Failed, 4, claimedBy(owner, "1"))}},
		{name: "out of time, and over by now", nodes: []Node{planned("a", "1", Failed, 4, late, claimedBy(owner, "1"), seen(Result{Over, RolledBack, "why"}))}, want: []string{"End a 1 Failed Failed no result after 10m0s: why not; then: why"}},
		{name: "out of time, and a success by now", nodes: []Node{planned("a", "1", Failed, 4, late, claimedBy(owner, "1"), seen(Result{Over, Succeeded, ""}))}, want: []string{"End a 1 Failed Failed no result after 10m0s: why not; then: Succeeded"}},
		{name: "out of time, and nothing is left", nodes: []Node{planned("a", "1", Failed, 4, late, claimedBy(owner, "1"), seen(Result{Seen: Absent}))}, want: []string{"End a 1 Failed Failed no result after 10m0s: why not; then: nothing of it runs"}},
		{name: "out of time, and its end is written", nodes: []Node{planned("a", "1", Failed, 4, func(n *Node) { n.Operation.Message = "no result after 10m0s; then: why" }, claimedBy(owner, "1"), seen(Result{Over, RolledBack, "why"}))}, want: []string{"Release a 1"}},
		{name: "out of time, and replaced", nodes: []Node{planned("a", "2", Failed, 4, late, claimedBy(owner, "1"), seen(Result{Over, RolledBack, "why"}))}, want: []string{"Release a 1"}},
		{name: "ended and released", nodes: []Node{planned("a", "1", Succeeded, 4)}, holders: "g=1@a", want: []string{"Unlock a 1 g"}},
		{name: "replaced while it runs", nodes: []Node{planned("a", "2", Requested, 4, claimedBy(owner, "1"), seen(Result{Seen: UnderWay}))}, holders: "g=1@a"},
		{name: "replaced, and over", nodes: []Node{planned("a", "2", Requested, 4, claimedBy(owner, "1"), seen(Result{Over, Succeeded, ""}))}, want: []string{"Release a 1"}},
		{name: "its operation cannot be read", nodes: []Node{{Name: "a", State: State{Claim: nodegroup.Claim{Owner: owner, Operation: "1"}}, Result: Result{Seen: Absent}}}, want: []string{"Release a 1"}},
		{name: "the node is gone", holders: "g=1@a h=1@a", want: []string{"Unlock a 1 g", "Unlock a 1 h"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			look := Look{Now: start, Owner: owner, TimeLimit: timeLimit, Nodes: test.nodes, Holders: map[string]nodegroup.Holders{}}
			for _, held := range strings.Fields(test.holders) {
				lock, holder, _ := strings.Cut(held, "=")
				operation, node, _ := strings.Cut(holder, "@")
				look.Holders[lock] = append(look.Holders[lock], nodegroup.Holder{Owner: owner, Operation: operation, Node: node})
			}
			before := fmt.Sprintf("%+v", look)
			actions, again := Plan(look)
			var got []string
			for _, a := range actions {
				got = append(got, strings.Join(strings.Fields(fmt.Sprint(a.Kind, " ", a.Node, " ", a.Operation, " ", a.From, " ", a.To, " ", a.Message, " ", a.Lock, map[bool]string{true: " (overdue)"}[a.Overdue])), " "))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			want := time.Time{}
			if test.again > 0 {
				want = start.Add(time.Duration(test.again) * time.Minute)
			}
			if !again.Equal(want) {
				t.Errorf("look again at %s, want %s", again, want)
			}
			if after := fmt.Sprintf("%+v", look); after != before {
				t.Errorf("the look was changed from %s to %s", before, after)
			}
		})
	}
}

func TestLimit(t *testing.T) {
	for _, test := range []struct {
		limit string
		nodes int
		want  int
		err   string
	}{
		{"3", 10, 3, ""},
		{"0", 10, 1, ""},
		{"-2", 10, 1, ""},
		{"25%", 10, 3, ""},
		{"1%", 10, 1, ""},
		{"100%", 10, 10, ""},
		{"50%", 0, 1, ""},
		{"half", 10, 0, `"half"`},
		{"-%", 10, 0, `"-%"`},
	} {
		got, err := Limit(intstr.Parse(test.limit), test.nodes)
		if got != test.want || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("Limit(%s, %d) = %d, %v, want %d, %q", test.limit, test.nodes, got, err, test.want, test.err)
		}
	}
}
