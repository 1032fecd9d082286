// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func TestShare(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 2: 1, 4: 1, 5: 2, 8: 2, 80: 20, 81: 21} {
		if got := DefaultPolicy().Share(n); got != want {
			t.Errorf("of %d nodes %d, want %d", n, got, want)
		}
	}
}

// nodeRow reads "name pods [state minutes] [word...]": words are young, held, leaving, demanded.
func nodeRow(t *testing.T, text string) NodeView {
	t.Helper()
	fields := strings.Fields(text)
	n := NodeView{Name: fields[0], Created: now.Add(-time.Hour)}
	if _, err := fmt.Sscan(fields[1], &n.Pods); err != nil {
		t.Fatal(err)
	}
	for i := 2; i < len(fields); i++ {
		switch fields[i] {
		case "young":
			n.Created = now.Add(-14 * time.Minute)
		case "held":
			n.Held = "a person cordoned it"
		case "leaving":
			n.Leaving = true
		case "demanded":
			n.Demanded = true
		default:
			minutes := 0
			if _, err := fmt.Sscan(fields[i+1], &minutes); err != nil {
				t.Fatal(err)
			}
			n.Record = Record{State: State(fields[i]), Since: now.Add(-time.Duration(minutes) * time.Minute)}
			i++
		}
	}
	return n
}

func TestEvaluate(t *testing.T) {
	for name, test := range map[string]struct {
		nodes   []string
		minimum int // 1 if not set
		pack    bool
		waiting bool
		// want has the nodes in a state other than None: P, N, or G for one that is given back;
		// and "!" after the one that is precluded.
		want string
	}{
		"a class without nodes":                                  {nil, 0, false, false, ""},
		"the only node is avoided, and not precluded":            {[]string{"a 3"}, 0, false, false, "a:P"},
		"the only node is never cordoned":                        {[]string{"a 0"}, 0, false, false, "a:P"},
		"the node with fewer pods is avoided":                    {[]string{"a 3", "b 2"}, 0, false, false, "b:P!"},
		"of eight nodes two are avoided":                         {[]string{"a 9", "b 8", "c 7", "d 6", "e 5", "f 4", "g 3", "h 2"}, 0, false, false, "g:P h:P!"},
		"of equal ones those that come first in the alphabet":    {[]string{"d 1", "c 1", "b 1", "a 1", "e 1"}, 0, false, false, "a:P! b:P"},
		"an empty node is cordoned":                              {[]string{"a 0", "b 2"}, 0, false, false, "a:N"},
		"one that was cordoned just now is not given back":       {[]string{"a 0 NoSchedule 0", "b 2"}, 0, false, false, "a:N"},
		"one that was cordoned a minute ago is given back":       {[]string{"a 0 NoSchedule 1", "b 2"}, 0, false, false, "a:G"},
		"one that was only avoided is cordoned first":            {[]string{"a 0 PreferNoSchedule 9", "b 2"}, 0, false, false, "a:N"},
		"one that got a pod all the same is avoided again":       {[]string{"a 1 NoSchedule 9", "b 2"}, 0, false, false, "a:P!"},
		"empty nodes beyond the share stay as they are":          {[]string{"a 0", "b 0", "c 0", "d 0"}, 0, false, false, "a:N"},
		"those that are leaving are counted":                     {[]string{"a 0 leaving", "b 0", "c 2", "d 2"}, 0, false, false, "a:N"},
		"the minimum stays":                                      {[]string{"a 0", "b 0", "c 0", "d 0", "e 0"}, 4, false, false, "a:N b:P!"},
		"those that are leaving are not of the minimum":          {[]string{"a 0 leaving", "b 0", "c 0", "d 0", "e 0"}, 4, false, false, "a:N b:P!"},
		"a node that a person cordoned is never touched":         {[]string{"a 0 held", "b 1", "c 2"}, 0, false, false, "b:P!"},
		"a held node takes no pods, so nothing is precluded":     {[]string{"a 5 held", "b 1"}, 0, false, false, "b:P"},
		"a young node comes last":                                {[]string{"a 0 young", "b 9"}, 0, false, false, "b:P!"},
		"a young node is not cordoned":                           {[]string{"a 0 young", "b 0 young"}, 0, false, false, "a:P!"},
		"without anybody to give nodes to they are only packed":  {[]string{"a 0 NoSchedule 9", "b 9"}, 0, true, false, "a:P!"},
		"a node that was freed a moment ago is left":             {[]string{"a 0 None 0", "b 9"}, 0, false, false, "b:P!"},
		"one that was freed a minute ago is not":                 {[]string{"a 0 None 1", "b 9"}, 0, false, false, "a:N"},
		"pods that wait get the nodes on which they would fit":   {[]string{"a 0 NoSchedule 9 demanded", "b 1 PreferNoSchedule 9 demanded", "c 5", "d 5", "e 5"}, 0, false, true, "c:P d:P"},
		"pods that fit nowhere leave states, and no preclusion":  {[]string{"a 0 NoSchedule 9", "b 5"}, 0, false, true, "a:G"},
		"an avoided node keeps its place beside one pod fewer":   {[]string{"a 5 PreferNoSchedule 3", "b 4", "c 9"}, 0, false, false, "a:P!"},
		"an avoided node loses its place to two pods fewer":      {[]string{"a 5 PreferNoSchedule 3", "b 3", "c 9"}, 0, false, false, "b:P!"},
		"an empty node comes before an avoided one with one pod": {[]string{"a 1 PreferNoSchedule 3", "b 0", "c 9"}, 0, false, false, "b:N"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := DefaultPolicy()
			if test.minimum > 0 {
				policy.Minimum = test.minimum
			}
			policy.PackOnly = test.pack
			var nodes []NodeView
			for _, row := range test.nodes {
				nodes = append(nodes, nodeRow(t, row))
			}
			evaluation := Evaluate(nodes, test.waiting, now, policy)
			var got []string
			for _, d := range evaluation.Decisions {
				if d.State == None {
					continue
				}
				letter := string(d.State[:1])
				if d.GiveBack {
					letter = "G"
				}
				if d.Name == evaluation.Precluded {
					letter += "!"
				}
				got = append(got, d.Name+":"+letter)
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("got %q, want %q: %+v", text, test.want, evaluation)
			}
			slices.Reverse(nodes)
			if again := Evaluate(nodes, test.waiting, now, policy); !reflect.DeepEqual(again, evaluation) {
				t.Errorf("in another order: %+v", again)
			}
		})
	}
}

// With room wanted, all but the fullest nodes are avoided; no more of them are cordoned.
func TestRoom(t *testing.T) {
	for name, test := range map[string]struct {
		room  int
		nodes []string // name, pods, free of four; a pod uses one
		want  string
	}{
		"without it a quarter is avoided":                       {0, []string{"a 1", "b 2", "c 3", "d 3"}, "a:P!"},
		"the fullest nodes stay that have the room":             {20, []string{"a 1", "b 2", "c 3", "d 3"}, "a:P! b:P"},
		"with more room more nodes stay":                        {30, []string{"a 1", "b 2", "c 3", "d 3"}, "a:P!"},
		"a node that is full gives no room":                     {10, []string{"a 1", "b 4", "c 4", "d 4"}, "a:P!"},
		"nodes that are avoided for room alone stay uncordoned": {10, []string{"a 0", "b 0", "c 0", "d 3"}, "a:N b:P! c:P"},
		"a class without pods keeps a node":                     {20, []string{"a 0", "b 0"}, "a:N"},
		"a held node gives none":                                {20, []string{"a 1", "b 3", "c 3 held"}, "a:P! "},
	} {
		policy := DefaultPolicy()
		policy.RoomPercent = test.room
		var nodes []NodeView
		for _, row := range test.nodes {
			n := nodeRow(t, row)
			n.Used, n.Free = int64(n.Pods)*1000, int64(4-n.Pods)*1000
			nodes = append(nodes, n)
		}
		evaluation := Evaluate(nodes, false, now, policy)
		var got []string
		for _, d := range evaluation.Decisions {
			if d.State != None {
				letter := string(d.State[:1])
				if d.Name == evaluation.Precluded {
					letter += "!"
				}
				got = append(got, d.Name+":"+letter)
			}
		}
		if text := strings.Join(got, " "); text != strings.TrimSpace(test.want) {
			t.Errorf("%s: got %q, want %q", name, text, test.want)
		}
	}
}

// What holds for any class, in seeded histories: pods come and go, and each decision is carried out.
func TestEvaluateKeepsItsPromises(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 67))
		policy := DefaultPolicy()
		policy.Minimum, policy.RoomPercent = random.IntN(4), random.IntN(2)*20
		nodes := make([]NodeView, 1+random.IntN(30))
		for i := range nodes {
			nodes[i] = NodeView{Name: fmt.Sprintf("n%02d", i), Created: now.Add(-time.Duration(random.IntN(60)) * time.Minute), Pods: random.IntN(4)}
			if random.IntN(10) == 0 {
				nodes[i].Held = "kept"
			}
		}
		for step := range 40 {
			at := now.Add(time.Duration(step) * time.Minute)
			waiting := random.IntN(8) == 0
			for i := range nodes {
				nodes[i].Used, nodes[i].Free = int64(nodes[i].Pods)*1000, int64(max(0, 8-nodes[i].Pods))*1000
				nodes[i].Demanded = waiting && nodes[i].Held == "" && !nodes[i].Leaving
			}
			fail := func(format string, arguments ...any) {
				t.Helper()
				t.Errorf("seed %d, step %d: %s", seed, step, fmt.Sprintf(format, arguments...))
			}
			evaluation := Evaluate(nodes, waiting, at, policy)
			if again := Evaluate(nodes, waiting, at, policy); !reflect.DeepEqual(evaluation, again) {
				fail("the same input gives another output")
			}
			avoided, open := 0, 0
			for i, d := range evaluation.Decisions { // nodes are in this order, too
				n := &nodes[i]
				if d.State != None && n.Held == "" && (policy.RoomPercent == 0 || d.State == NoSchedule) {
					avoided++
				}
				switch {
				case n.Held != "" && d.State != None:
					fail("node %s is held, and %s", n.Name, d.State)
				case n.Demanded && d.State != None:
					fail("pods wait, and node %s is %s", n.Name, d.State)
				case d.State == NoSchedule && n.Pods > 0:
					fail("node %s with pods is cordoned", n.Name)
				case d.GiveBack && (n.Record.State != NoSchedule || at.Sub(n.Record.Since) < policy.Period):
					fail("node %s is given back at once", n.Name)
				}
				if d.State != NoSchedule {
					open++
				}
			}
			leaving := 0
			for i := range nodes {
				if nodes[i].Leaving {
					leaving++
				}
			}
			if most := policy.Share(len(nodes)); avoided > max(most, leaving) {
				fail("%d of %d nodes are avoided", avoided, len(nodes))
			}
			if open < min(policy.Minimum, len(nodes)-leaving) {
				fail("%d nodes are open, and the minimum is %d", open, policy.Minimum)
			}
			before := states(nodes)
			for i, d := range evaluation.Decisions {
				if nodes[i].Held == "" && cmpState(nodes[i].Record.State) != d.State {
					nodes[i].Record = Record{d.State, at}
				}
			}
			// Under a load that stays, nothing changes any more but empty nodes.
			if next := Evaluate(nodes, waiting, at, policy); !waiting {
				for i, d := range next.Decisions {
					if nodes[i].Held == "" && cmpState(nodes[i].Record.State) != d.State {
						fail("node %s alternates: %v, then %s", d.Name, before, d.State)
					}
				}
			}
			nodes = slices.DeleteFunc(nodes, func(n NodeView) bool { return n.Leaving && random.IntN(2) == 0 })
			for i := range nodes {
				if j := slices.IndexFunc(evaluation.Decisions, func(d Decision) bool { return d.Name == nodes[i].Name }); evaluation.Decisions[j].GiveBack {
					nodes[i].Leaving = true
				}
				if !nodes[i].Leaving && cmpState(nodes[i].Record.State) != NoSchedule {
					nodes[i].Pods = max(0, nodes[i].Pods+random.IntN(3)-1)
				}
			}
		}
	}
}

func states(nodes []NodeView) (text []string) {
	for i := range nodes {
		text = append(text, nodes[i].Name+":"+string(cmpState(nodes[i].Record.State)))
	}
	return text
}
