// SPDX-License-Identifier: Apache-2.0

package nodegroup

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

var at = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

func checkError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if (err != nil) != (parts != nil) {
		t.Fatalf("got error %v, want one with %q", err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}

func TestClaim(t *testing.T) {
	n := node("n1")
	want := Claim{"cpupolicy", "a1", at.Add(time.Nanosecond).In(time.FixedZone("", 3600))}
	Put(&n, want)
	const text = `{"owner":"cpupolicy","operation":"a1","since":"2026-11-23T10:00:00Z"}`
	if got := n.Annotations[ClaimAnnotation]; got != text {
		t.Errorf("got  %s\nwant %s", got, text)
	}
	got, err := ClaimOf(&n)
	if err != nil || got != (Claim{"cpupolicy", "a1", at}) {
		t.Errorf("got %v, %v", got, err)
	}
	Put(&n, Claim{})
	if _, has := n.Annotations[ClaimAnnotation]; has {
		t.Error("the annotation stayed")
	}
	if got, err := ClaimOf(&n); err != nil || got != (Claim{}) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestClaimThatCannotBeRead(t *testing.T) {
	for value, parts := range map[string][]string{
		``:                              {`""`},
		`{}`:                            {"{}", "lacks"},
		`{"owner":"a"}`:                 {`{\"owner\":\"a\"}`},
		`{"owner":"a","Operation":"b"}`: {"lacks"},
		`{"owner":"a","owner":"b"}`:     {"duplicate"},
		`{"owner":"a","operation":7}`:   {"operation"},
		`{"owner":"a","operation":"b","since":"x"}`:                         {"x"},
		`{"owner":"a","operation":"b","since":"9999-12-31T23:59:59-01:00"}`: {"range"},
	} {
		n := node("n1")
		n.Annotations = map[string]string{ClaimAnnotation: value}
		_, err := ClaimOf(&n)
		checkError(t, err, append(parts, "node n1", ClaimAnnotation)...)
	}
	if _, err := ParseClaim(`{"owner":"a","operation":"b","since":"2026-11-23T10:00:00Z","more":1}`); err != nil {
		t.Errorf("an unknown further key: %v", err)
	}
}

func TestClaimCheck(t *testing.T) {
	ours := Claim{"cpupolicy", "a1", at}
	for _, test := range []struct {
		name              string
		held              Claim
		cordoned, despite bool
		err               []string
	}{
		{name: "a free node"},
		{name: "claimed by this operation before", held: Claim{"cpupolicy", "a1", at.Add(-time.Hour)}, cordoned: true},
		{name: "claimed by another operation", held: Claim{"cpupolicy", "b2", at}, err: []string{"node n1", "cpupolicy", "b2", "2026-11-23T10:00:00Z"}},
		{name: "claimed by another companion with an id of the same name", held: Claim{"tuning", "a1", at}, err: []string{"tuning"}},
		{name: "claimed by another long ago", held: Claim{"tuning", "b2", at.AddDate(-1, 0, 0)}, err: []string{"tuning"}},
		{name: "cordoned by a person", cordoned: true, err: []string{"node n1", "cordoned"}},
		{name: "cordoned by a person who asked for it", cordoned: true, despite: true},
		{name: "claimed by another, and a person asked for it", held: Claim{"tuning", "b2", at}, despite: true, err: []string{"tuning"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkError(t, ours.Check("n1", test.held, test.cordoned, test.despite), test.err...)
		})
	}
	var held *HeldError
	if err := ours.Check("n1", Claim{"tuning", "b2", at}, false, false); !errors.As(err, &held) || held.By.Owner != "tuning" {
		t.Errorf("got %v, want a HeldError", err)
	}
	var cordoned *CordonedError
	if err := ours.Check("n1", Claim{}, true, false); !errors.As(err, &cordoned) {
		t.Errorf("got %v, want a CordonedError", err)
	}
}

func TestHolders(t *testing.T) {
	a, b := Holder{"cpupolicy", "a1", "n1", at}, Holder{"cpupolicy", "b2", "n2", at}
	one, err := Holders(nil).Add(a, 1)
	checkError(t, err)
	again, err := one.Add(a, 1)
	checkError(t, err)
	if len(again) != 1 {
		t.Errorf("twice: %v", again)
	}
	same, err := one.Add(b, 1)
	checkError(t, err, "operation a1 of cpupolicy on node n1", "at most 1")
	var full *FullError
	if !errors.As(err, &full) || full.Max != 1 || len(same) != 1 {
		t.Errorf("got %v and %v, want a FullError", same, err)
	}
	both, err := one.Add(b, 2)
	checkError(t, err)
	if _, err := both.Add(b, 1); err != nil {
		t.Errorf("b2 lost the lock when the limit fell: %v", err)
	}
	if left := both.Remove("cpupolicy", "a1"); len(left) != 1 || !left.Has("cpupolicy", "b2") || left.Has("cpupolicy", "a1") || !both.Has("cpupolicy", "a1") {
		t.Errorf("after a1: %v, %v", left, both)
	}
	if left := both.Remove("cpupolicy", "c3"); len(left) != 2 {
		t.Errorf("after nobody: %v", left)
	}
	if left := both.Remove("tuning", "a1"); len(left) != 2 || both.Has("tuning", "a1") {
		t.Errorf("the operation a1 of another companion holds it, too: %v", left)
	}
	if _, err := one.Add(Holder{"tuning", "a1", "n2", at}, 1); err == nil {
		t.Error("the operation a1 of another companion takes a lock that is held")
	}
	if old := (Holders{{Operation: "a1", Node: "n1"}}); !old.Has("cpupolicy", "a1") || len(old.Remove("cpupolicy", "a1")) > 0 {
		t.Error("a holder of an older release, without an owner, is nobody's")
	}

	lease := &coordinationv1.Lease{}
	PutHolders(lease, both)
	const text = `[{"owner":"cpupolicy","operation":"a1","node":"n1","since":"2026-11-23T10:00:00Z"},{"owner":"cpupolicy","operation":"b2","node":"n2","since":"2026-11-23T10:00:00Z"}]`
	if got := lease.Annotations[HoldersAnnotation]; got != text || *lease.Spec.HolderIdentity != "a1,b2" {
		t.Errorf("got  %s, %s\nwant %s", got, *lease.Spec.HolderIdentity, text)
	}
	if got, err := HoldersOf(lease); err != nil || len(got) != 2 || got[1] != b {
		t.Errorf("got %v, %v", got, err)
	}
	PutHolders(lease, nil)
	if got, err := HoldersOf(lease); err != nil || got != nil || lease.Spec.HolderIdentity != nil {
		t.Errorf("got %v, %v, %v", got, err, lease.Spec.HolderIdentity)
	}
}

func TestHoldersThatCannotBeRead(t *testing.T) {
	for value, part := range map[string]string{
		``:   `""`,
		`{}`: "no list",
		`[{"operation":"a","node":"n","since":"9999-12-31T23:59:59-01:00"}]`: "range",
	} {
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name = "ns", "lock"
		lease.Annotations = map[string]string{HoldersAnnotation: value}
		_, err := HoldersOf(lease)
		checkError(t, err, "lease ns/lock", HoldersAnnotation, part)
	}
}

func TestWhoHasNoNameHoldsNothing(t *testing.T) {
	for _, nobody := range []Holder{{}, {Operation: "a"}, {Node: "n"}} {
		if h, err := (Holders{}).Add(nobody, 1); err == nil || len(h) > 0 {
			t.Errorf("%+v is added: %v", nobody, h)
		}
		stored := Holders{nobody, {Operation: "b", Node: "n"}}.String()
		if h, err := ParseHolders(stored); err != nil || len(h) != 1 || !h.Has("any", "b") {
			t.Errorf("%s has the holders %v: %v", stored, h, err)
		}
	}
}

func FuzzParseClaim(f *testing.F) {
	f.Add(`{"owner":"cpupolicy","operation":"a1","since":"2026-11-23T11:00:00+01:00"}`)
	f.Add(`{"owner":"a","operation":"b","since":"9999-12-31T23:59:59-01:00","x":{}}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, value string) {
		c, err := ParseClaim(value)
		if err != nil {
			return
		}
		again, err := ParseClaim(c.String())
		if err != nil || again.Owner != c.Owner || again.Operation != c.Operation || again.String() != c.String() {
			t.Errorf("%q became %q, then %q (%v)", value, c.String(), again.String(), err)
		}
	})
}

func FuzzParseHolders(f *testing.F) {
	f.Add(`[{"operation":"a1","node":"n1","since":"2026-11-23T10:00:00Z"},{"operation":"b2","node":"n2","since":"0000-01-01T00:00:00+01:00"}]`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, value string) {
		h, err := ParseHolders(value)
		if err != nil {
			return
		}
		again, err := ParseHolders(h.String())
		if err != nil || len(again) != len(h) || again.String() != h.String() {
			t.Errorf("%q became %q, then %q (%v)", value, h.String(), again.String(), err)
		}
	})
}
