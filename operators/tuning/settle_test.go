// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

var (
	histories = flag.Int("histories", 200, "how many histories TestHistoriesOfAPool runs")
	seed      = flag.Uint64("seed", 0, "the one history that TestHistoriesOfAPool tells; 0 means all, and none told")
)

func TestSettle(t *testing.T) {
	requested := RequestedBy(specOf("p", "[bootloader]\ncmdline=a=1 b=${f:exec:x}\n"))
	plain := RequestedBy(specOf("p", "[bootloader]\ncmdline=a=1\n"))
	none := RequestedBy(specOf("p", "[sysctl]\nx=1\n"))
	says := func(node, arguments string) Report { return Report{Node: node, Arguments: strings.Fields(arguments)} }
	waits := func(node string) Report { return Report{Node: node, Waits: "it is late"} }
	refused := func(node string) Report {
		return Report{Node: node, Refused: []Refusal{{"init=/bin/sh", "no such key"}}}
	}
	stands := func(input, arguments string, computed bool) *Settled {
		return &Settled{Input: input, Computed: computed, Arguments: strings.Fields(arguments)}
	}
	const old, now = "old", "now"
	for name, test := range map[string]struct {
		requested Requested
		reports   []Report
		stands    *Settled
		approved  string
		want      *Settled
		agreement Agreement
		message   string
		outdated  string
	}{
		"all nodes agree":                                 {requested: requested, reports: []Report{says("n1", "a=1 b=2"), says("n2", "a=1 b=2")}, want: stands(now, "a=1 b=2", true), agreement: Agreed},
		"a node is late":                                  {requested: requested, reports: []Report{says("n1", "a=1 b=2"), waits("n2")}, stands: stands(old, "a=1", true), want: stands(old, "a=1", true), agreement: WaitingForNodes, message: "node n2: it is late"},
		"nodes disagree":                                  {requested: requested, reports: []Report{says("n1", "a=1 b=2"), says("n2", "a=1 b=3")}, want: nil, agreement: NodesDisagree, message: "node n2 computes a=1 b=3, and others compute a=1 b=2"},
		"nodes disagree about the order":                  {requested: requested, reports: []Report{says("n1", "a=1 b=2"), says("n2", "b=2 a=1")}, want: nil, agreement: NodesDisagree},
		"a node reports what is refused":                  {requested: requested, reports: []Report{says("n1", "a=1 b=2"), refused("n2")}, stands: stands(old, "a=1", true), want: stands(old, "a=1", true), agreement: ArgumentsRefused, message: "node n2: init=/bin/sh: no such key"},
		"no node, and all is literal":                     {requested: plain, want: stands(now, "a=1", true), agreement: Agreed},
		"no node, and some is computed":                   {requested: requested, want: stands(now, "a=1", false), agreement: NotComputed},
		"no node any more":                                {requested: requested, stands: stands(now, "a=1 b=2", true), want: stands(now, "a=1 b=2", true), agreement: Agreed},
		"the first node computes what was missing":        {requested: requested, reports: []Report{says("n1", "a=1 b=2")}, stands: stands(now, "a=1", false), want: stands(now, "a=1 b=2", true), agreement: Agreed},
		"the first node computes nothing new":             {requested: requested, reports: []Report{says("n1", "a=1")}, stands: stands(now, "a=1", false), want: stands(now, "a=1", true), agreement: Agreed},
		"a node that joins":                               {requested: requested, reports: []Report{says("n1", "a=1 b=2"), waits("n2")}, stands: stands(now, "a=1 b=2", true), want: stands(now, "a=1 b=2", true), agreement: Agreed},
		"a node that joins and computes others":           {requested: requested, reports: []Report{says("n1", "a=1 b=2"), says("n2", "a=1 b=3")}, stands: stands(now, "a=1 b=2", true), want: stands(now, "a=1 b=2", true), agreement: NodesDisagree},
		"an upgrade whose nodes compute others":           {requested: requested, reports: []Report{says("n1", "a=1 b=3")}, stands: stands(now, "a=1 b=2", true), want: stands(now, "a=1 b=2", true), agreement: Agreed, outdated: "a=1 b=3", message: "compute a=1 b=3 now, and boot with a=1 b=2"},
		"and a person applies it":                         {requested: requested, reports: []Report{says("n1", "a=1 b=3")}, stands: stands(now, "a=1 b=2", true), approved: ArgumentsHash([]string{"a=1", "b=3"}), want: stands(now, "a=1 b=3", true), agreement: Agreed},
		"and a person applied what nodes computed before": {requested: requested, reports: []Report{says("n1", "a=1 b=4")}, stands: stands(now, "a=1 b=2", true), approved: ArgumentsHash([]string{"a=1", "b=3"}), want: stands(now, "a=1 b=2", true), agreement: Agreed, outdated: "a=1 b=4"},
		"an upgrade and a change together":                {requested: requested, reports: []Report{says("n1", "a=1 b=3")}, stands: stands(old, "a=1 b=2", true), want: stands(now, "a=1 b=3", true), agreement: Agreed},
		"nothing is wanted any more":                      {requested: none, reports: []Report{says("n1", "")}, stands: stands(old, "a=1", true), want: stands(now, "", true), agreement: Agreed},
	} {
		t.Run(name, func(t *testing.T) {
			s := Settle(now, test.requested, test.reports, test.stands, test.approved)
			if text := fmt.Sprint(s.Settled); (s.Settled == nil) != (test.want == nil) || s.Settled != nil && text != fmt.Sprint(test.want) {
				t.Errorf("it has %+v, want %+v", s.Settled, test.want)
			}
			if s.Agreement != test.agreement || !strings.Contains(s.Message, test.message) || strings.Join(s.Outdated, " ") != test.outdated {
				t.Errorf("got %s, %q, outdated %q; want %s, %q, %q", s.Agreement, s.Message, s.Outdated, test.agreement, test.message, test.outdated)
			}
		})
	}
}

// Each other message is written to the management cluster twice.
func TestReportsOfManyNodesAreFewMessages(t *testing.T) {
	const nodes = 200
	reports := make([]Report, nodes)
	for i := range reports {
		reports[i] = Report{Node: fmt.Sprintf("n%d", i), Waits: "it is late"}
	}
	messages := map[string]bool{}
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(nodes) {
		messages[Settle("now", Requested{}, reports, nil, "").Message] = true
		reports[i].Waits = ""
	}
	if len(messages) > nodes/5 {
		t.Errorf("there are %d", len(messages))
	}
	t.Logf("there are %d", len(messages))
}

func TestPoolProfile(t *testing.T) {
	entry := func(profile string, priority int64, labels ...string) tunedv1.TunedRecommend {
		r := tunedv1.TunedRecommend{Profile: profile, Priority: priority}
		for _, label := range labels {
			r.Match = append(r.Match, tunedv1.TunedMatch{Label: label})
		}
		return r
	}
	for name, test := range map[string]struct {
		entries []tunedv1.TunedRecommend
		want    string
	}{
		"none":                                   {nil, ""},
		"the best without match":                 {[]tunedv1.TunedRecommend{entry("a", 30), entry("b", 20)}, "b"},
		"an entry with match gives none":         {[]tunedv1.TunedRecommend{entry("a", 30), entry("b", 20, "x")}, "a"},
		"entries with match alone give none":     {[]tunedv1.TunedRecommend{entry("b", 20, "x")}, ""},
		"one that the default wins over is none": {[]tunedv1.TunedRecommend{entry("a", 50)}, ""},
		"of one priority the first entry is it":  {[]tunedv1.TunedRecommend{entry("z", 20), entry("a", 20)}, "z"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := PoolProfile([]tunedv1.Tuned{{Spec: tunedv1.TunedSpec{Recommend: test.entries}}}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// story is a pool of which the configuration changes at any time, whose nodes come, go, report late, are upgraded one by one or
// compromised; what stands is all that is remembered.
type story struct {
	*rand.Rand
	input, wants int // the configuration, and what it makes nodes compute
	nodes        map[string]*storyNode
	version      int
	stands       *Settled
	outdated     []string
	approved     string
	// changes are those of the arguments for one input, and allowed how many there may be.
	changes, allowed int
	made             int
}

type storyNode struct {
	version, seen int // of the operand, and the input that it reports about
	compromised   bool
}

func (s *story) requested() Requested {
	return RequestedBy(specOf("p", fmt.Sprintf("[bootloader]\ncmdline=want=%d cpus=${f:exec:x}\n", s.wants)))
}

func (s *story) reports() (reports []Report) {
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range s.nodes {
			if !yield(name) {
				return
			}
		}
	}) {
		node := s.nodes[name]
		report := Report{Node: name}
		switch {
		case node.version != s.version:
			report.Waits = "another operand"
		case node.seen != s.input:
			report.Waits = "not applied"
		default:
			line := fmt.Sprintf("want=%d cpus=%d", s.wants, node.version)
			if node.compromised {
				line += " init=/bin/sh"
			}
			report.Arguments, report.Refused = s.requested().Accept(line)
		}
		reports = append(reports, report)
	}
	return reports
}

func (s *story) look() error {
	before := s.stands
	got := Settle(fmt.Sprint(s.input), s.requested(), s.reports(), s.stands, s.approved)
	s.stands, s.outdated, s.approved = got.Settled, got.Outdated, got.Approved
	if s.stands == nil {
		return nil
	}
	if slices.Contains(s.stands.Arguments, "init=/bin/sh") {
		return fmt.Errorf("the pool has %q", s.stands.Arguments)
	}
	if before != nil && before.Input == s.stands.Input && !slices.Equal(before.Arguments, s.stands.Arguments) {
		s.changes++
		if !before.Computed {
			s.allowed++ // B8: one further rollout
		}
	}
	if s.changes > s.allowed {
		return fmt.Errorf("%q became %q for the same input", before.Arguments, s.stands.Arguments)
	}
	return nil
}

func (s *story) step() string {
	var names []string
	for name := range s.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	some := func() *storyNode {
		if len(names) == 0 {
			return &storyNode{}
		}
		return s.nodes[names[s.IntN(len(names))]]
	}
	switch s.IntN(9) {
	case 0:
		s.input++ // a sysctl
		s.changes, s.allowed = 0, 0
		return "another sysctl"
	case 1:
		s.input, s.wants = s.input+1, s.wants+1
		s.changes, s.allowed = 0, 0
		return "another argument"
	case 2:
		s.made++
		s.nodes[fmt.Sprintf("n%d", s.made)] = &storyNode{version: s.version}
		return "a node joins"
	case 3:
		if len(names) > 0 {
			delete(s.nodes, names[s.IntN(len(names))])
		}
		return "a node goes"
	case 4:
		s.version = s.IntN(4)
		return "an upgrade, or a return to an older version"
	case 5:
		some().version = s.version
		return "a node has the new operand"
	case 6:
		node := some()
		node.compromised = !node.compromised
		return "a node is compromised, or not any more"
	case 7:
		if s.outdated != nil {
			s.approved = ArgumentsHash(s.outdated)
			s.allowed++
		}
		return "a person applies what is outdated"
	}
	some().seen = s.input
	return "a node reports"
}

func runStory(seed uint64, tell func(string, ...any)) error {
	s := &story{Rand: rand.New(rand.NewPCG(seed, 1)), nodes: map[string]*storyNode{}}
	for range 150 {
		what := s.step()
		err := s.look()
		tell("%s: %+v", what, s.stands)
		if err != nil {
			return err
		}
	}
	// At last all nodes are well, and report.
	for _, node := range s.nodes {
		*node = storyNode{version: s.version, seen: s.input}
	}
	if err := s.look(); err != nil {
		return err
	}
	if s.stands.Input != fmt.Sprint(s.input) || !slices.Contains(s.stands.Arguments, fmt.Sprintf("want=%d", s.wants)) {
		return fmt.Errorf("at the end the pool has %+v, for input %d that wants %d", s.stands, s.input, s.wants)
	}
	return nil
}

// For one configuration a pool's arguments change only where nobody had computed them, or a person asks for it.
func TestHistoriesOfAPool(t *testing.T) {
	if *seed != 0 {
		if err := runStory(*seed, t.Logf); err != nil {
			t.Error(err)
		}
		return
	}
	for i := range *histories {
		if err := runStory(uint64(i+1), func(string, ...any) {}); err != nil {
			t.Fatalf("%v; -args -seed=%d tells how it came to that", err, i+1)
		}
	}
}
