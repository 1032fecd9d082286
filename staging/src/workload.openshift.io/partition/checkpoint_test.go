/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package partition

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// The kubelet's tests have more rows, with upstream's state; see managed.StartPolicy.
func TestDeriveKeepsWhatIsHeldExclusively(t *testing.T) {
	online := cpuset.New(0, 1, 2, 3)
	for name, test := range map[string]struct {
		pooled, reserved cpuset.CPUSet
		noFile           bool
		held             cpuset.CPUSet
		runs             bool
		want             string
		// wantTaken is a part of the error; dropped, offline, reserved and untenable say what
		// else is found.
		wantTaken                         string
		dropped, offline, kept, untenable bool
	}{
		"the pool and the exclusive CPU are not shared": {pooled: cpuset.New(0), held: cpuset.New(3), runs: true, want: "1-2"},
		"a pool that runs into the exclusive CPU":       {pooled: cpuset.New(0, 3), held: cpuset.New(3), runs: true, wantTaken: "container c of pod n/p exclusively holds CPU 3"},
		"and the pod has ended":                         {pooled: cpuset.New(0, 3), held: cpuset.New(3), want: "1-2", dropped: true},
		"a reserved CPU in no pool":                     {pooled: cpuset.New(0), reserved: cpuset.New(3), held: cpuset.New(3), want: "1-2", kept: true, untenable: true},
		"a CPU that is offline":                         {pooled: cpuset.New(0), held: cpuset.New(4), runs: true, want: "1-3", offline: true, untenable: true},
		"nothing is left to share":                      {pooled: cpuset.New(0), held: cpuset.New(1, 2, 3), runs: true, want: "", untenable: true},
		"without a file a reserved CPU that has ended":  {noFile: true, reserved: cpuset.New(0), held: cpuset.New(0), want: "1-3", dropped: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := Checkpoint{Shared: online, Assignments: []Assignment{{Pod: "uid", Container: "c", CPUs: test.held}}}
			derived, err := before.Derive(Derivation{Online: online, Reserved: test.reserved.Union(test.pooled), Pooled: test.pooled, File: !test.noFile, Strict: true, MayRun: func(pod string) bool {
				if pod != "uid" {
					t.Errorf("asked about the pod %s", pod)
				}
				return test.runs
			}})
			var taken *TakenError
			if errors.As(err, &taken) != (test.wantTaken != "") {
				t.Fatalf("the error is %v, want one with %q", err, test.wantTaken)
			}
			if taken != nil {
				if message := taken.Message("n/p"); !strings.HasPrefix(message, test.wantTaken) || !strings.Contains(taken.Error(), "of pod uid") {
					t.Errorf("the message is %q, and the error %q", message, taken)
				}
				return
			}
			if got := derived.Shared.String(); got != test.want {
				t.Errorf("the shared CPUs are %q, want %q", got, test.want)
			}
			if len(derived.Dropped) > 0 != test.dropped || len(derived.Offline) > 0 != test.offline || len(derived.Reserved) > 0 != test.kept || derived.Untenable != test.untenable {
				t.Errorf("found %+v", derived)
			}
		})
	}
}

func TestHolderIsAContainerOrAPod(t *testing.T) {
	all := []Assignment{{Pod: "b"}, {Pod: "a", Container: "d"}, {Pod: "a", Container: "c"}}
	SortAssignments(all)
	for i, want := range []string{"container c of pod a", "container d of pod a", "pod b"} {
		if got := all[i].Holder(all[i].Pod); got != want {
			t.Errorf("number %d is %q, want %q", i, got, want)
		}
	}
}

func TestPoolsDivideAHost(t *testing.T) {
	online := cpuset.New(0, 1, 2, 3)
	pools := Pools{"management": cpuset.New(0), "infra": cpuset.New()}
	if pools.HoldEvery(online) || !(Pools{"management": online}).HoldEvery(online) || (Pools{}).HoldEvery(cpuset.New()) {
		t.Error("it is wrong which pools hold every CPU")
	}
	if unconfined := (Pools{"management": online}).Unconfined(); len(unconfined) != 1 || !unconfined.Union().IsEmpty() {
		t.Errorf("unconfined pools are %v", unconfined)
	}
	d := pools.Divide(online, cpuset.New(3), cpuset.New(0, 1))
	if d.Others.String() != "1-3" || d.Ordinary.String() != "1-2" || d.Fallback.String() != "1" {
		t.Errorf("the host is divided into %+v", d)
	}
	if got := pools.Divide(online, cpuset.New(), cpuset.New(0)).Fallback.String(); got != "3" {
		t.Errorf("without a reserved CPU in no pool the fallback is %s, want 3", got)
	}
	if got := pools.Divide(online, online, cpuset.New(0)).Ordinary.String(); got != "1-3" {
		t.Errorf("where every CPU is isolated, ordinary pods have %s, want 1-3", got)
	}
	for _, test := range []struct{ has, exclusive, want string }{
		{"2", "2-3", "2"}, {"0,2", "2-3", "2"}, {"2-3", "2-3", "1"}, {"", "2-3", "1"}, {"", "1-3", "1"},
	} {
		has, _ := cpuset.Parse(test.has)
		exclusive, _ := cpuset.Parse(test.exclusive)
		if got := d.Unshared(has, exclusive).String(); got != test.want {
			t.Errorf("a container that had %q next to the exclusive %q gets %q, want %q", test.has, test.exclusive, got, test.want)
		}
	}
}
