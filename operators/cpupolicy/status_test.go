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

package cpupolicy

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseStatus(t *testing.T) {
	at := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name, value string
		want        Status
		err         []string
	}{
		{"the documented example", `{"status":"complete","policy":"none"}`, Status{State: Complete, Policy: None}, nil},
		{"keys in another order, and white space", "{\n \"policy\": \"static\", \"status\": \"requested\" }", Status{State: Requested, Policy: Static}, nil},
		{"all keys", `{"status":"running","policy":"static","id":"a1","job":"switch-a1","allowEvicted":true,"message":"m","since":"2026-11-23T11:00:00+01:00","group":"g","generation":2,"begun":true}`,
			Status{State: Running, Policy: Static, ID: "a1", Job: "switch-a1", AllowEvicted: true, Message: "m", Since: at, Group: "g", Generation: 2, Begun: true}, nil},
		{"unknown further keys", `{"status":"failed","policy":"none","colour":{"a":[1]}}`, Status{State: Failed, Policy: None}, nil},
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
		{"the documented keys alone", Status{State: Complete, Policy: None}, `{"status":"complete","policy":"none"}`},
		{"all keys, the time in seconds", Status{State: Running, Policy: Static, ID: "a1", Job: "switch-a1", AllowEvicted: true, Message: "a < b", Since: time.Date(2026, 11, 23, 11, 0, 0, 5, time.FixedZone("", 3600)), Group: "g", Generation: 2, Begun: true},
			`{"status":"running","policy":"static","id":"a1","job":"switch-a1","allowEvicted":true,"message":"a < b","since":"2026-11-23T10:00:00Z","group":"g","generation":2,"begun":true}`},
		{"rolled back", Status{State: Running, Policy: Static, ID: "a1"}.RolledBack(None, "kubelet exited: no reservation"),
			`{"status":"failed","policy":"static","id":"a1","message":"rolled back, the policy in force is none: kubelet exited: no reservation"}`},
		{"a long message", Status{State: Failed, Policy: Static, Message: strings.Repeat("ä", 4000)},
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
		{"ours counts beside the shipped one", `{"status":"failed","policy":"static"}`, `{"status":"success","policy":"none"}`, Status{State: Failed, Policy: Static}, true, nil},
		{"ours counts even if it cannot be parsed", `{`, `{"status":"success","policy":"none"}`, Status{}, true, []string{StatusAnnotation, "{"}},
		{"the shipped success is complete", "", `{"policy":"static","status":"success","jobName":"update-cpu-manager-node1-x"}`, Status{State: Complete, Policy: Static, Job: "update-cpu-manager-node1-x"}, true, nil},
		{"the shipped failed stays failed", "", `{"policy":"static","status":"failed"}`, Status{State: Failed, Policy: Static}, true, nil},
		{"what was requested of the shipped system starts nothing", "", `{"policy":"static","status":"requested"}`,
			Status{State: Failed, Policy: Static, Message: "was requested under the annotation " + ShippedAnnotation + ", whose controller no longer runs"}, true, nil},
		{"what was running there has failed", "", `{"policy":"none","status":"running"}`,
			Status{State: Failed, Policy: None, Message: "was running under the annotation " + ShippedAnnotation + ", whose controller no longer runs"}, true, nil},
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

func TestCheckWrite(t *testing.T) {
	const (
		absent   = ""
		broken   = `{"status":"comp`
		request  = `{"status":"requested","policy":"static"}`
		other    = `{"status":"requested","policy":"none"}`
		taken    = `{"status":"requested","policy":"static","id":"a1"}`
		running  = `{"status":"running","policy":"static","id":"a1","job":"switch-a1"}`
		complete = `{"status":"complete","policy":"static","id":"a1"}`
		warned   = `{"status":"complete","policy":"static","id":"a1","message":"label"}`
		failed   = `{"status":"failed","policy":"static","id":"a1","message":"why"}`
		newer    = `{"status":"running","policy":"none","id":"b2"}`
		samePlan = `{"status":"running","policy":"static","id":"b2"}`
		plain    = `{"status":"running","policy":"static"}`

		evicting       = `{"status":"requested","policy":"static","allowEvicted":true}`
		evictingTaken  = `{"status":"requested","policy":"static","id":"a1","allowEvicted":true}`
		evictingFailed = `{"status":"failed","policy":"static","id":"a1","allowEvicted":true}`
	)
	for _, test := range []struct {
		name          string
		by            Writer
		before, after string
		err           []string
	}{
		{"a user asks", User, absent, request, nil},
		{"a user asks, and lets pods end", User, absent, evicting, nil},
		{"a user lets pods end after all", User, request, evicting, []string{"policy static is requested"}},
		{"a user gives an id, and lets pods end", User, absent, evictingTaken, []string{`id "a1"`}},
		{"a user asks again after success", User, complete, other, nil},
		{"a user asks again after failure", User, failed, request, nil},
		{"a user corrects what cannot be parsed", User, broken, request, nil},
		{"a user removes what cannot be parsed", User, broken, absent, nil},
		{"a user leaves what cannot be parsed", User, broken, broken, nil},
		{"a user leaves what only the controller writes", User, running, running, nil},
		{"a user writes what cannot be parsed", User, absent, broken, []string{StatusAnnotation, `comp`}},
		{"a user forges success", User, request, complete, []string{`status "complete"`}},
		{"a user forges running", User, absent, running, []string{`status "running"`}},
		{"a user gives an id", User, absent, taken, []string{`id "a1"`}},
		{"a user gives a message", User, absent, `{"status":"requested","policy":"none","message":"x"}`, []string{`message "x"`}},
		{"a user asks twice at once", User, request, other, []string{"policy static is requested"}},
		{"a user asks while one is taken up", User, taken, request, []string{"policy static is requested", `"a1"`}},
		{"a user asks while one runs", User, running, other, []string{"policy static is running", `"a1"`}},
		{"a user withdraws a request", User, request, absent, nil},
		{"a user cannot withdraw what is taken up", User, taken, absent, []string{`"a1"`}},
		{"a user cannot remove what runs", User, running, absent, []string{`"a1"`}},
		{"a user removes what has ended", User, failed, absent, nil},

		{"the controller takes a request up", Controller, request, taken, nil},
		{"the controller takes up a request that lets pods end", Controller, evicting, evictingTaken, nil},
		{"the controller takes it up, and does not let pods end", Controller, evicting, taken, nil},
		{"the controller lets pods end where nobody asked for it", Controller, request, evictingTaken, []string{"allowEvicted true", `"a1"`}},
		{"the controller lets pods end later", Controller, running, evictingFailed, []string{"allowEvicted true", `"a1"`}},
		{"an old operation that lets pods end finds a newer one", Controller, newer, evictingFailed, []string{`id "a1"`, `id "b2"`}},
		{"the controller refuses a request", Controller, request, `{"status":"failed","policy":"static","message":"no"}`, nil},
		{"the controller takes up another policy than was asked for", Controller, other, taken, []string{`"static"`, `"none"`}},
		{"the controller starts before there is an id", Controller, request, running, []string{"no id"}},
		{"the controller starts", Controller, taken, running, nil},
		{"the controller starts again after a restart", Controller, running, running, nil},
		{"the controller ends", Controller, running, complete, nil},
		{"the controller refuses what it took up", Controller, taken, failed, nil},
		{"the controller ends what never ran", Controller, taken, complete, []string{`"complete"`, `"requested"`}},
		{"the controller adds a warning", Controller, complete, warned, nil},
		{"the controller changes its mind", Controller, complete, failed, []string{`"failed"`, `"complete"`}},
		{"the controller goes back", Controller, running, taken, []string{`"requested"`, `"running"`}},
		{"an old operation ends after a newer one began", Controller, newer, complete, []string{`id "a1"`, `id "b2"`}},
		{"an old operation of the same policy ends after a newer one began", Controller, samePlan, complete, []string{`id "a1"`, `id "b2"`}},
		{"an old operation ends after a newer one was asked for", Controller, other, complete, []string{`"complete"`}},
		{"an old operation of the same policy ends after a newer one was asked for", Controller, request, complete, []string{`"complete"`}},
		{"an old operation fails after a newer one of the same policy was asked for", Controller, request, failed, []string{`"failed"`, `"a1"`}},
		{"the controller asks for a group", Controller, complete, `{"status":"requested","policy":"none","id":"c3"}`, nil},
		{"the controller asks for a group while one runs", Controller, running, `{"status":"requested","policy":"none","id":"c3"}`, []string{`"c3"`, `"a1"`}},
		{"the controller corrects what cannot be parsed", Controller, broken, failed, nil},
		{"the controller ends what runs without id", Controller, plain, `{"status":"failed","policy":"static"}`, nil},
		{"the controller removes it", Controller, running, absent, nil},
		{"the controller writes what cannot be parsed", Controller, absent, broken, []string{StatusAnnotation}},
	} {
		t.Run(test.name, func(t *testing.T) {
			annotations := func(value string) map[string]string {
				if value == absent {
					return map[string]string{"other": "1"}
				}
				return map[string]string{StatusAnnotation: value}
			}
			checkError(t, CheckWrite(annotations(test.before), annotations(test.after), test.by), test.err)
		})
	}
	var superseded *SupersededError
	if err := CheckWrite(map[string]string{StatusAnnotation: newer}, map[string]string{StatusAnnotation: complete}, Controller); !errors.As(err, &superseded) || superseded.Has.ID != "b2" {
		t.Errorf("got %v, want a SupersededError that names b2", err)
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
