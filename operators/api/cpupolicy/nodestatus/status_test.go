// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"strings"
	"testing"
	"time"

	"workload.openshift.io/operators/api/cpupolicy/operation"
)

func TestParseStatus(t *testing.T) {
	at := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name, value string
		want        Status
		err         []string
	}{
		{"the documented example", `{"status":"complete","policy":"none"}`, Status{State: Complete, Policy: operation.None}, nil},
		{"keys in another order, and white space", "{\n \"policy\": \"static\", \"status\": \"requested\" }", Status{State: Requested, Policy: operation.Static}, nil},
		{"all keys", `{"status":"running","policy":"static","id":"a1","job":"switch-a1","allowEvicted":true,"message":"m","since":"2026-11-23T11:00:00+01:00","group":"g","groupUID":"u","generation":2,"begun":true}`,
			Status{State: Running, Policy: operation.Static, ID: "a1", Job: "switch-a1", AllowEvicted: true, Message: "m", Since: at, Group: "g", GroupUID: "u", Generation: 2, Begun: true}, nil},
		{"unknown further keys", `{"status":"failed","policy":"none","colour":{"a":[1]}}`, Status{State: Failed, Policy: operation.None}, nil},
		{"the shipped system's success", `{"status":"success","policy":"none"}`, Status{}, []string{`status "success"`}},
		{"an unknown status", `{"status":"done","policy":"none"}`, Status{}, []string{`status "done"`, `"requested"`}},
		{"no status", `{"policy":"none"}`, Status{}, []string{`status ""`}},
		{"an unknown policy", `{"status":"requested","policy":"Static"}`, Status{}, []string{`policy "Static"`, `"static"`}},
		{"a key in another case", `{"Status":"requested","policy":"static"}`, Status{}, []string{`status ""`}},
		{"a key twice", `{"status":"complete","policy":"none","policy":"static"}`, Status{}, []string{"policy", "duplicate"}},
		{"a text that stands for true", `{"status":"requested","policy":"static","allowEvicted":"true"}`, Status{}, []string{"allowEvicted"}},
		{"a number", `{"status":1,"policy":"none"}`, Status{}, []string{"status"}},
		{"no object", `"static"`, Status{}, []string{`\"static\"`, `{"status":"requested","policy":"static"}`}},
		{"null", `null`, Status{}, []string{`status ""`}},
		{"nothing", ``, Status{}, []string{`""`}},
		{"two objects", `{"status":"complete","policy":"none"}{}`, Status{}, []string{"complete"}},
		{"an id that is no name", `{"status":"requested","policy":"none","id":"../x"}`, Status{}, []string{`id "../x"`}},
		{"a job that is no name", `{"status":"requested","policy":"none","job":"A"}`, Status{}, []string{`job "A"`}},
		{"a time that is none", `{"status":"requested","policy":"none","since":"yesterday"}`, Status{}, []string{"yesterday"}},
		{"a time that cannot be written", `{"status":"requested","policy":"none","since":"9999-12-31T23:59:59-01:00"}`, Status{}, []string{"since"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseStatus(test.value)
			checkError(t, err, test.err)
			got.Since = got.Since.UTC()
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// checkError checks that an error has all of the parts; that there is none, if parts is nil.
func checkError(t *testing.T, err error, parts []string) {
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

func TestStatusString(t *testing.T) {
	for _, test := range []struct {
		name   string
		status Status
		want   string
	}{
		{"the documented keys alone", Status{State: Complete, Policy: operation.None}, `{"status":"complete","policy":"none"}`},
		{"all keys, the time in seconds", Status{State: Running, Policy: operation.Static, ID: "a1", Job: "switch-a1", AllowEvicted: true, Message: "a < b", Since: time.Date(2026, 11, 23, 11, 0, 0, 5, time.FixedZone("", 3600)), Group: "g", GroupUID: "u", Generation: 2, Begun: true},
			`{"status":"running","policy":"static","id":"a1","job":"switch-a1","allowEvicted":true,"message":"a < b","since":"2026-11-23T10:00:00Z","group":"g","groupUID":"u","generation":2,"begun":true}`},
		{"rolled back", Status{State: Running, Policy: operation.Static, ID: "a1"}.RolledBack(operation.None, "kubelet exited: no reservation"),
			`{"status":"failed","policy":"static","id":"a1","message":"rolled back, the policy in force is none: kubelet exited: no reservation"}`},
		{"a long message", Status{State: Failed, Policy: operation.Static, Message: strings.Repeat("ä", 4000)},
			`{"status":"failed","policy":"static","message":"` + strings.Repeat("ä", 510) + `…"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.status.String(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestReadStatus(t *testing.T) {
	for _, test := range []struct {
		name          string
		ours, shipped string
		want          Status
		found         bool
		err           []string
	}{
		{name: "no annotation"},
		{"ours counts beside the shipped one", `{"status":"failed","policy":"static"}`, `{"status":"success","policy":"none"}`, Status{State: Failed, Policy: operation.Static}, true, nil},
		{"ours counts even if it cannot be parsed", `{`, `{"status":"success","policy":"none"}`, Status{}, true, []string{StatusAnnotation, "{"}},
		{"the shipped success is complete", "", `{"policy":"static","status":"success","jobName":"update-cpu-manager-node1-x"}`, Status{State: Complete, Policy: operation.Static, Job: "update-cpu-manager-node1-x"}, true, nil},
		{"the shipped failed stays failed", "", `{"policy":"static","status":"failed"}`, Status{State: Failed, Policy: operation.Static}, true, nil},
		{"what was requested of the shipped system starts nothing", "", `{"policy":"static","status":"requested"}`,
			Status{State: Failed, Policy: operation.Static, Message: "was requested under the annotation " + ShippedAnnotation + ", whose controller no longer runs"}, true, nil},
		{"what was running there has failed", "", `{"policy":"none","status":"running"}`,
			Status{State: Failed, Policy: operation.None, Message: "was running under the annotation " + ShippedAnnotation + ", whose controller no longer runs"}, true, nil},
		{"a shipped value that cannot be parsed", "", `{"policy":"none","status":"gone"}`, Status{}, true, []string{ShippedAnnotation, `"gone"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			annotations := map[string]string{}
			if test.ours != "" {
				annotations[StatusAnnotation] = test.ours
			}
			if test.shipped != "" {
				annotations[ShippedAnnotation] = test.shipped
			}
			got, found, err := ReadStatus(annotations)
			checkError(t, err, test.err)
			if got != test.want || found != test.found {
				t.Errorf("got %+v, %v, want %+v, %v", got, found, test.want, test.found)
			}
		})
	}
}

func FuzzParseStatus(f *testing.F) {
	for _, seed := range []string{
		`{"status":"complete","policy":"none"}`,
		`{"status":"running","policy":"static","id":"a1","job":"switch-a1","message":"m","since":"2026-11-23T11:00:00+01:00"}`,
		`{"status":"failed","policy":"none","allowEvicted":true,"colour":{"a":[1]},"since":"9999-12-31T23:59:59-01:00"}`,
		`{"Status":"requested"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		s, err := ParseStatus(value)
		if err != nil {
			return
		}
		written := s.String()
		again, err := ParseStatus(written)
		if err != nil {
			t.Fatalf("%q became %q: %v", value, written, err)
		}
		if again.String() != written {
			t.Errorf("%q became %q, then %q", value, written, again.String())
		}
		if again.State != s.State || again.Policy != s.Policy || again.ID != s.ID || again.Job != s.Job || again.AllowEvicted != s.AllowEvicted {
			t.Errorf("%q became %+v", value, again)
		}
	})
}
