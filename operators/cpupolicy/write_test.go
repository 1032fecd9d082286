// SPDX-License-Identifier: Apache-2.0

package cpupolicy

import (
	"errors"
	"strings"
	"testing"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
)

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
		{"a user writes what cannot be parsed", User, absent, broken, []string{nodestatus.StatusAnnotation, `comp`}},
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
		{"the controller writes what cannot be parsed", Controller, absent, broken, []string{nodestatus.StatusAnnotation}},
	} {
		t.Run(test.name, func(t *testing.T) {
			annotations := func(value string) map[string]string {
				if value == absent {
					return map[string]string{"other": "1"}
				}
				return map[string]string{nodestatus.StatusAnnotation: value}
			}
			checkError(t, CheckWrite(annotations(test.before), annotations(test.after), test.by), test.err)
		})
	}
	var superseded *SupersededError
	if err := CheckWrite(map[string]string{nodestatus.StatusAnnotation: newer}, map[string]string{nodestatus.StatusAnnotation: complete}, Controller); !errors.As(err, &superseded) || superseded.Has.ID != "b2" {
		t.Errorf("got %v, want a SupersededError that names b2", err)
	}
}

// checkError checks that an error has all these texts, and that there is none if there are none.
func checkError(t *testing.T, err error, texts []string) {
	t.Helper()
	if (err == nil) != (len(texts) == 0) {
		t.Fatalf("the error is %v, want %q", err, texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %q, want %q", err, text)
		}
	}
}
