// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

func tuned(name string, entries ...tunedv1.TunedRecommend) tunedv1.Tuned {
	return tunedv1.Tuned{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tunedv1.TunedSpec{Recommend: entries}}
}

func entry(profile string, priority int64, matches ...tunedv1.TunedMatch) tunedv1.TunedRecommend {
	return tunedv1.TunedRecommend{Profile: profile, Priority: priority, Match: matches}
}

func label(name string, below ...tunedv1.TunedMatch) tunedv1.TunedMatch {
	return tunedv1.TunedMatch{Label: name, Match: below}
}

func TestChoose(t *testing.T) {
	valued := tunedv1.TunedMatch{Label: "zone", Value: ptr.To("a")}
	pod := tunedv1.TunedMatch{Label: "app", Value: ptr.To("db"), Type: tunedv1.MatchPod}
	node := Node{Name: "n", Labels: map[string]string{"zone": "a", "fast": ""}, Pods: []map[string]string{{"app": "web"}, {"app": "db"}}}
	for name, test := range map[string]struct {
		tuneds []tunedv1.Tuned
		want   string
	}{
		"no Tuned":                                     {nil, "none"},
		"no entry that matches":                        {[]tunedv1.Tuned{tuned("a", entry("p", 1, label("slow")))}, "none"},
		"an entry without rules matches":               {[]tunedv1.Tuned{tuned("a", entry("p", 1))}, "p of a"},
		"the lower number wins":                        {[]tunedv1.Tuned{tuned("a", entry("p", 20)), tuned("b", entry("q", 10))}, "q of b"},
		"a higher one that does not match is passed":   {[]tunedv1.Tuned{tuned("a", entry("p", 20)), tuned("b", entry("q", 10, label("slow")))}, "p of a"},
		"the name of the Tuned decides":                {[]tunedv1.Tuned{tuned("b", entry("q", 10)), tuned("a", entry("p", 10))}, "p of a, not q"},
		"then the place":                               {[]tunedv1.Tuned{tuned("a", entry("q", 10), entry("p", 10))}, "q of a, not p"},
		"two that recommend the same are no tie":       {[]tunedv1.Tuned{tuned("a", entry("p", 10)), tuned("b", entry("p", 10))}, "p of a"},
		"a label with any value":                       {[]tunedv1.Tuned{tuned("a", entry("p", 1, label("zone")))}, "p of a"},
		"a label with its value":                       {[]tunedv1.Tuned{tuned("a", entry("p", 1, valued))}, "p of a"},
		"a label with another value":                   {[]tunedv1.Tuned{tuned("a", entry("p", 1, tunedv1.TunedMatch{Label: "zone", Value: ptr.To("b")}))}, "none"},
		"a label with an empty value":                  {[]tunedv1.Tuned{tuned("a", entry("p", 1, tunedv1.TunedMatch{Label: "zone", Value: ptr.To("")}))}, "none"},
		"either of two rules":                          {[]tunedv1.Tuned{tuned("a", entry("p", 1, label("slow"), valued))}, "p of a"},
		"a rule and one below it":                      {[]tunedv1.Tuned{tuned("a", entry("p", 1, label("fast", valued)))}, "p of a"},
		"a rule and none of those below it":            {[]tunedv1.Tuned{tuned("a", entry("p", 1, label("fast", label("slow"), label("slower"))))}, "none"},
		"a pod on the node":                            {[]tunedv1.Tuned{tuned("a", entry("p", 1, pod))}, "p of a"},
		"a label of the node is none of a pod":         {[]tunedv1.Tuned{tuned("a", entry("p", 1, tunedv1.TunedMatch{Label: "zone", Type: tunedv1.MatchPod}))}, "none"},
		"a label of a pod is none of the node":         {[]tunedv1.Tuned{tuned("a", entry("p", 1, label("app")))}, "none"},
		"a pod, and the node below it":                 {[]tunedv1.Tuned{tuned("a", entry("p", 1, tunedv1.TunedMatch{Label: "app", Type: tunedv1.MatchPod, Match: []tunedv1.TunedMatch{valued}}))}, "p of a"},
		"the default counts as any other":              {[]tunedv1.Tuned{*Default(), tuned("a", entry("p", 20))}, "p of a"},
		"the default for what no other entry matches":  {[]tunedv1.Tuned{*Default(), tuned("a", entry("p", 20, label("slow")))}, "openshift-node of default"},
		"an entry behind the default is never reached": {[]tunedv1.Tuned{*Default(), tuned("a", entry("p", 50))}, "openshift-node of default"},
	} {
		t.Run(name, func(t *testing.T) {
			choice, found := Choose(node, test.tuneds)
			got := fmt.Sprintf("%s of %s", choice.Profile, choice.Tuned)
			if choice.Tie != "" {
				got += ", not " + choice.Tie
			}
			if !found {
				got = "none"
			}
			if got != test.want {
				t.Errorf("the node gets %s, want %s", got, test.want)
			}
		})
	}
}

func TestTheDefaultHasAProfileForTheControlPlane(t *testing.T) {
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/infra"} {
		if choice, _ := Choose(Node{Labels: map[string]string{label: ""}}, []tunedv1.Tuned{*Default()}); choice.Profile != "openshift-control-plane" || choice.Priority != 30 {
			t.Errorf("a node with %s gets %+v", label, choice)
		}
	}
	if choice, _ := Choose(Node{}, []tunedv1.Tuned{*Default()}); choice.Profile != "openshift-node" || choice.Priority != 40 {
		t.Errorf("another node gets %+v", choice)
	}
}

func TestAChoiceIsDeferredAsItsTunedSays(t *testing.T) {
	a, b := tuned("a", entry("p", 20)), tuned("b", entry("q", 10))
	a.Annotations = map[string]string{tunedv1.DeferredAnnotation: tunedv1.DeferAlways}
	for want, tuneds := range map[string][]tunedv1.Tuned{"always": {a}, "": {a, b}} {
		if choice, _ := Choose(Node{}, tuneds); choice.Deferred != want {
			t.Errorf("the choice of %s is deferred %q, want %q", choice.Tuned, choice.Deferred, want)
		}
	}
}

func TestDeferred(t *testing.T) {
	for name, test := range map[string]struct {
		mode, before, after string
		want                bool
	}{
		"nothing is said":                         {"", "p", "p", false},
		"never":                                   {tunedv1.DeferNever, "p", "p", false},
		"always, another content":                 {tunedv1.DeferAlways, "p", "p", true},
		"always, another profile":                 {tunedv1.DeferAlways, "p", "q", true},
		"always, the first profile":               {tunedv1.DeferAlways, "", "q", true},
		"update, another content":                 {tunedv1.DeferUpdate, "p", "p", true},
		"update, another profile":                 {tunedv1.DeferUpdate, "p", "q", false},
		"update, the first profile":               {tunedv1.DeferUpdate, "", "q", false},
		"what a forged annotation says otherwise": {"Always", "p", "p", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Deferred(test.mode, test.before, test.after); got != test.want {
				t.Errorf("it waits: %t", got)
			}
		})
	}
}

func TestMatchesPods(t *testing.T) {
	pod := tunedv1.TunedMatch{Label: "app", Type: tunedv1.MatchPod}
	for name, test := range map[string]struct {
		entry tunedv1.TunedRecommend
		want  bool
	}{
		"no rule":             {entry("p", 1), false},
		"a rule about nodes":  {entry("p", 1, label("a", label("b"))), false},
		"a rule about pods":   {entry("p", 1, pod), true},
		"one below another's": {entry("p", 1, label("a", label("b", pod))), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MatchesPods([]tunedv1.Tuned{tuned("a"), tuned("b", test.entry)}); got != test.want {
				t.Errorf("it goes by pods: %t", got)
			}
		})
	}
}

func TestProfileOf(t *testing.T) {
	a, b := tuned("a"), tuned("b")
	a.Spec.Profile = []tunedv1.TunedProfile{{Name: "z", Data: "1"}, {Name: "m", Data: "2"}}
	b.Spec.Profile = []tunedv1.TunedProfile{{Name: "a", Data: "3"}, {Name: "m", Data: "2"}}
	choice := Choice{TunedRecommend: tunedv1.TunedRecommend{Profile: "m", Operand: tunedv1.OperandConfig{Debug: true, Verbosity: 2, TunedConfig: tunedv1.TunedConfig{ReapplySysctl: ptr.To(false)}}}}
	spec := ProfileOf(Node{ProviderID: "aws:///eu/i-1"}, choice, []tunedv1.Tuned{a, b})
	if got := fmt.Sprint(spec.Profile); got != "[{a 3} {m 2} {z 1}]" {
		t.Errorf("the profiles are %s", got)
	}
	if c := spec.Config; c.TunedProfile != "m" || !c.Debug || c.Verbosity != 2 || *c.TunedConfig.ReapplySysctl || c.ProviderName != "aws" {
		t.Errorf("the config is %+v", c)
	}
}

func TestFaultsOfAnOrdinaryCluster(t *testing.T) {
	profiles := func(name string, data ...string) tunedv1.Tuned {
		of := tuned(name, entry("p", 1))
		for i := 0; i < len(data); i += 2 {
			of.Spec.Profile = append(of.Spec.Profile, tunedv1.TunedProfile{Name: data[i], Data: data[i+1]})
		}
		return of
	}
	labelled := func(matches ...tunedv1.TunedMatch) tunedv1.Tuned {
		of := tuned("a", entry("p", 1, matches...))
		of.Spec.Recommend[0].MachineConfigLabels = map[string]string{"role": "worker"}
		return of
	}
	reported := profiles("a", "p", "1")
	reported.Status.Conditions = []metav1.Condition{{Type: tunedv1.ConditionValid}}
	unmanaged := profiles("a", "p", "1")
	unmanaged.Spec.ManagementState = tunedv1.Unmanaged
	for name, test := range map[string]struct {
		tuneds []tunedv1.Tuned
		want   []string // a Tuned and a part of its faults
	}{
		"no Tuned":                               {nil, nil},
		"one that was reported about":            {[]tunedv1.Tuned{reported}, nil},
		"one profile in two Tuneds":              {[]tunedv1.Tuned{profiles("a", "p", "1"), profiles("b", "p", "1", "q", "2")}, nil},
		"two profiles of one name":               {[]tunedv1.Tuned{profiles("a", "p", "1", "q", "1"), profiles("b", "p", "1", "q", "2"), profiles("c", "r", "3")}, []string{"a: the profile q differs between the Tuneds a and b", "b: the profile q differs"}},
		"two profiles of one name in one Tuned":  {[]tunedv1.Tuned{profiles("a", "p", "1", "p", "2")}, []string{"a: the profile p differs between the Tuneds a;"}},
		"a profile that would be another file":   {[]tunedv1.Tuned{profiles("a", "../p", "1")}, []string{`a: spec.profile[0].name: Invalid value: "../p"`}},
		"MachineConfigPools in place of a match": {[]tunedv1.Tuned{labelled()}, []string{"a: spec.recommend[0].machineConfigLabels: Invalid value"}},
		"MachineConfigPools and a match":         {[]tunedv1.Tuned{labelled(label("fast"))}, nil},
		"a state that only the default can have": {[]tunedv1.Tuned{unmanaged}, []string{`a: spec.managementState: Unsupported value: "Unmanaged"`}},
	} {
		t.Run(name, func(t *testing.T) {
			faults := Faults(test.tuneds)
			if len(faults) != len(test.want) {
				t.Errorf("the faults are %v, want %q", faults, test.want)
			}
			for _, want := range test.want {
				name, text, _ := strings.Cut(want, ": ")
				if got := strings.Join(faults[name], "; "); !strings.Contains(got, text) {
					t.Errorf("the faults of %s are %q, want %q", name, got, text)
				}
			}
		})
	}
}

func TestIgnoredLabels(t *testing.T) {
	a := tuned("a", entry("p", 1))
	b := tuned("b", tunedv1.TunedRecommend{Profile: "p", MachineConfigLabels: map[string]string{"role": "worker"}})
	if got := IgnoredLabels([]tunedv1.Tuned{a, b}); fmt.Sprint(got) != "[b]" {
		t.Errorf("machineConfigLabels are in %v", got)
	}
}
