// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"
)

var testTerms = terms{names: []string{"a.b.svc", "127.0.0.1"}, validity: 100 * time.Hour, renewBefore: 30 * time.Hour, overlap: time.Hour}

func freshPair(t *testing.T) *pair {
	t.Helper()
	fresh, err := newPair(testTerms.names, testTerms.validity)
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

func TestWhatIsToBeDoneFollowsFromSecretAndTime(t *testing.T) {
	first, second := freshPair(t), freshPair(t)
	var none state
	current := none.apply(stepIssue, first)
	announced := current.apply(stepAnnounce, second)
	promoted := announced.apply(stepPromote, nil)
	renewed := promoted.apply(stepForget, nil)
	others := testTerms
	others.names = []string{"c.d.svc"}
	for name, test := range map[string]struct {
		state state
		terms terms
		// age is that of the pairs.
		age, settled time.Duration
		want         step
		// wait is about how long there is nothing to do.
		wait time.Duration
	}{
		"an empty Secret":                           {none, testTerms, 0, 0, stepIssue, 0},
		"a fresh certificate":                       {current, testTerms, 0, 0, stepNone, 70 * time.Hour},
		"one that ends soon":                        {current, testTerms, 70 * time.Hour, 0, stepAnnounce, 0},
		"one that has ended":                        {current, testTerms, 101 * time.Hour, 0, stepIssue, 0},
		"one for other names":                       {current, others, 0, time.Hour, stepIssue, 0},
		"announced, not everywhere":                 {announced, testTerms, 70 * time.Hour, 0, stepNone, time.Hour},
		"announced, for half the overlap":           {announced, testTerms, 70 * time.Hour, time.Hour / 2, stepNone, time.Hour / 2},
		"announced, for the overlap":                {announced, testTerms, 70 * time.Hour, time.Hour, stepPromote, 0},
		"promoted, not everywhere":                  {promoted, testTerms, time.Hour, 0, stepNone, time.Hour},
		"promoted, for the overlap":                 {promoted, testTerms, time.Hour, time.Hour, stepForget, 0},
		"promoted late, so that the next ends soon": {promoted, testTerms, 71 * time.Hour, time.Hour, stepAnnounce, 0},
		"renewed": {renewed, testTerms, 0, time.Hour, stepNone, 70 * time.Hour},
		"both have ended, the configurations are off": {announced, testTerms, 101 * time.Hour, 0, stepIssue, 0},
	} {
		t.Run(name, func(t *testing.T) {
			do, wait := test.state.decide(test.terms, time.Now().Add(test.age), test.settled)
			if do != test.want || (wait-test.wait).Abs() > time.Minute {
				t.Errorf("it is %s after %s, want %s after %s", do, wait, test.want, test.wait)
			}
		})
	}
}

// TestNoStepServesWhatWasNotTrusted goes through a life with two renewals, and compares what is
// served after each step with what was trusted before it.
func TestNoStepServesWhatWasNotTrusted(t *testing.T) {
	s := state{}.apply(stepIssue, freshPair(t))
	now := time.Now()
	for renewals := 0; renewals < 2; {
		do, wait := s.decide(testTerms, now, testTerms.overlap)
		now = now.Add(wait)
		var fresh *pair
		if do == stepAnnounce {
			fresh = freshPair(t)
			// It is made now, and not when the test began.
			now = time.Now()
		}
		next := s.apply(do, fresh)
		if !s.trusts(next.current) {
			t.Fatalf("%s serves what was not trusted before", do)
		}
		if !next.trusts(s.current) && do != stepForget {
			t.Fatalf("%s drops the CA of what was served before", do)
		}
		if do == stepForget {
			renewals++
		}
		s = next
	}
}

func TestASecretIsReadAsItWasWritten(t *testing.T) {
	announced := state{}.apply(stepIssue, freshPair(t)).apply(stepAnnounce, freshPair(t))
	data := announced.data()
	read, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(read.data(), data, bytes.Equal) {
		t.Errorf("it is written as\n%s\nand read as\n%s", data, read.data())
	}
}

func TestWhatSomebodyDidToTheSecret(t *testing.T) {
	announced := state{}.apply(stepIssue, freshPair(t)).apply(stepAnnounce, freshPair(t))
	for name, test := range map[string]struct {
		change func(map[string][]byte)
		want   step
		// err is part of what the log says.
		err string
	}{
		"the key is gone":              {func(data map[string][]byte) { delete(data, privateKey) }, stepPromote, "tls.crt and tls.key"},
		"the certificate is no PEM":    {func(data map[string][]byte) { data[certKey] = []byte("no") }, stepPromote, "tls.crt and tls.key"},
		"the next key is another's":    {func(data map[string][]byte) { data[nextKeyKey] = data[privateKey] }, stepNone, "next.crt and next.key"},
		"the CAs are no PEM":           {func(data map[string][]byte) { data[bundleKey] = []byte("no") }, stepNone, "ca.crt"},
		"all is gone":                  {func(data map[string][]byte) { clear(data) }, stepIssue, ""},
		"the CAs are gone":             {func(data map[string][]byte) { delete(data, bundleKey) }, stepNone, ""},
		"the next certificate is gone": {func(data map[string][]byte) { delete(data, nextCertKey) }, stepNone, "next.crt and next.key"},
	} {
		t.Run(name, func(t *testing.T) {
			data := announced.data()
			test.change(data)
			s, err := parse(data)
			switch {
			case err == nil && test.err != "", err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)):
				t.Errorf("the error is %v, want one of %q", err, test.err)
			}
			if do, _ := s.decide(testTerms, time.Now(), 0); do != test.want {
				t.Errorf("it is %s, want %s", do, test.want)
			}
			if s.current != nil && !s.trusts(s.current) {
				t.Error("what is served is not trusted")
			}
		})
	}
}
