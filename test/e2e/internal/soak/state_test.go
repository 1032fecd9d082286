// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestStateOutlivesAnInterruption(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "soak")
	s, err := Load(dir, Setup{Seed: 42, Content: "abc", CPUs: 2})
	if err != nil {
		t.Fatal(err)
	}
	s.Parts, s.Next, s.Elapsed, s.Pods = 1, 3, time.Hour, 120
	s.Events["kill etcd"]++
	s.Samples = samplesOf(1, 0, 0)
	s.Findings = []Finding{{Round: 2, Text: "it leaked"}}
	if err := s.Save(dir); err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{0, 42} {
		again, err := Load(dir, Setup{Seed: seed, Content: "abc", CPUs: 2})
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("with the seed %d it is read as\n%+v (%v), and was\n%+v", seed, again, err, s)
		}
	}
	report := s.Report()
	for _, want := range []string{"seed 42, content abc, 2 CPUs: 3 rounds in 1.00 hours", "1 times kill etcd", "make soak SEED=42 ROUND=2", "it leaked", "kubelet, heap"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report is\n%s\nwant that it has %q", report, want)
		}
	}
}

func TestTheHeapIsKeptAsItWasOnceCachesHadFilledAndAtTheEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "soak")
	s := &State{}
	samples := samplesOf(2, 0, 0)
	samples = append(samples, Sample{Process: "kubelet", Lifetime: "short", Round: 99})
	for _, sample := range samples {
		if err := s.Add(dir, sample, fmt.Append(nil, sample.Round)); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(s.Samples, samples) {
		t.Errorf("the samples are %v, want %v", s.Samples, samples)
	}
	command := strings.Fields(CompareHeaps(dir, "kubelet"))
	for i, want := range []int{EpochLength + warmUp, 2*EpochLength - Disturbed} {
		path := command[len(command)-2+i]
		if profile, err := os.ReadFile(path); string(profile) != fmt.Sprint(want) {
			t.Errorf("%s is of round %s (%v), want %d", path, profile, err, want)
		}
	}
}

func TestAPartOfAnotherSetupIsRefused(t *testing.T) {
	dir := t.TempDir()
	setup := Setup{Seed: 1, Content: "abc", CPUs: 2}
	if err := (&State{Setup: setup}).Save(dir); err != nil {
		t.Fatal(err)
	}
	for want, other := range map[string]Setup{
		"state.json: field Seed is 1, and the seed of this part is 2; ":                {2, "abc", 2},
		`state.json: field Content is "abc", and this part is made of "abd"; `:         {1, "abd", 2},
		"state.json: field CPUs is 2, and this host has 8; go on with the same, or be": {0, "abc", 8},
	} {
		if s, err := Load(dir, other); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "SOAK_STATE=") {
			t.Errorf("with %+v, the state is read as %+v with the error %v, want one with %q", other, s, err, want)
		}
	}
	// One of an earlier build of this project has neither.
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(`{"Seed": 1, "Next": 7}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, setup); err == nil || !strings.Contains(err.Error(), `field Content is ""`) {
		t.Errorf("a state without a content gives the error %v", err)
	}
}

func TestABrokenStateIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, Setup{Seed: 1}); err == nil || !strings.Contains(err.Error(), "state.json: ") {
		t.Errorf("a broken state gives the error %v", err)
	}
}

func TestAnInterruptedRoundIsNotKept(t *testing.T) {
	setup := Setup{Seed: 1, Content: "abc", CPUs: 2}
	for name, test := range map[string]struct {
		failed bool
		ending string
		// next and findings are those of the state that is left.
		next, findings int
	}{
		"a round that passes":                             {false, "", 4, 0},
		"a round that fails":                              {true, "", 4, 1},
		"a round that passes while the process is ended":  {false, "interrupted by terminated", 4, 0},
		"a round that fails because the process is ended": {true, "interrupted by terminated", 3, 0},
	} {
		dir := t.TempDir()
		if err := (&State{Setup: setup, Next: 3, Pods: 10}).Save(dir); err != nil {
			t.Fatal(err)
		}
		s, err := Load(dir, setup)
		if err != nil {
			t.Fatal(err)
		}
		s.Pods += 5
		err = s.EndRound(dir, time.Minute, test.failed, []string{"connection refused"}, test.ending)
		if kept := err == nil; kept != (test.next == 4) {
			t.Errorf("%s: the error is %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "interrupted by terminated: round 3 counts for nothing") {
			t.Errorf("%s: the error is %v", name, err)
		}
		left, err := Load(dir, setup)
		if err != nil {
			t.Fatal(err)
		}
		if left.Next != test.next || len(left.Findings) != test.findings || left.Pods != 10+5*(test.next-3) {
			t.Errorf("%s: the next part begins with round %d, %d pods and the findings %v; want round %d and %d findings",
				name, left.Next, left.Pods, left.Findings, test.next, test.findings)
		}
	}
}
