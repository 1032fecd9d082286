// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

func requestOf(id string, policy operation.Policy) operation.Request {
	return operation.Request{ID: id, Policy: policy, Driver: operation.DriverCommand, Limits: operation.Limits{
		Total: metav1.Duration{Duration: 120 * time.Second}, RollBack: metav1.Duration{Duration: 60 * time.Second},
	}}
}

func TestCommandsSwitchAKubelet(t *testing.T) {
	h := newTestHost(t)
	h.useCommands()
	var results []*operation.Result
	for i, policy := range []operation.Policy{operation.Static, operation.None} {
		request := requestOf(fmt.Sprintf("op-%d", i), policy)
		result, err := h.open().Run(quiet(t), request, h.program())
		if err != nil {
			t.Fatal(err)
		}
		if result.ID != request.ID || result.Outcome != operation.Succeeded || result.Policy != policy {
			t.Errorf("the result is %+v, want %s", result, policy)
		}
		if got := h.read(testDropIn); got != kubeletDropIn(policy) {
			t.Errorf("the drop-in is %q", got)
		}
		if got := h.read(testState); !strings.Contains(got, string(policy)) {
			t.Errorf("the checkpoint is %q", got)
		}
		again, err := h.open().Run(quiet(t), request, h.program())
		if err != nil || *again != *result {
			t.Errorf("the same request, repeated, has the result %+v (%v), want %+v", again, err, result)
		}
		results = append(results, result)
	}
	before := h.read(testState)
	again, err := h.open().Run(quiet(t), requestOf("op-0", operation.Static), h.program())
	if err != nil || *again != *results[0] || h.read(testState) != before {
		t.Errorf("the first request, repeated, has the result %+v (%v) and leads to the checkpoint %q, want %+v and %q", again, err, h.read(testState), results[0], before)
	}
	observed, err := h.open().Observe(quiet(t), operation.DriverCommand, Configz{})
	if err != nil {
		t.Fatal(err)
	}
	if observed.Policy != operation.None || observed.Operation != "op-1" || observed.Result.Outcome != operation.Succeeded || len(observed.Refused) != 1 || !strings.Contains(observed.Refused[operation.None].String(), "already") {
		t.Errorf("what is observed is %+v", observed)
	}
}

func TestAKubeletThatEndsUnderTheNewPolicyIsRolledBack(t *testing.T) {
	h := newTestHost(t)
	h.write(testConfigDir+"/10-broken.conf", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nbroken: static\n")
	h.useCommands()
	before := h.read(testState)
	// A slow host may not start a kubelet in the time in which a quick one has long ended.
	for i, limit := range []time.Duration{2 * time.Second, 10 * time.Second, 40 * time.Second} {
		request := requestOf(fmt.Sprintf("op-%d", i), operation.Static)
		request.Limits.Total.Duration = request.Limits.RollBack.Duration + limit
		result, err := h.open().Run(quiet(t), request, h.program())
		if err != nil {
			t.Fatal(err)
		}
		if result.Outcome != operation.RolledBack || result.Policy != operation.None {
			t.Errorf("the result is %+v", result)
		}
		if h.read(testDropIn) != "" || h.read(testState) != before {
			t.Errorf("the drop-in is %q and the checkpoint %q, want them unchanged", h.read(testDropIn), h.read(testState))
		}
		if result.Step == "healthy" && strings.Contains(result.KubeletError, "broken under the policy static") {
			return
		}
	}
	t.Error("no result has the kubelet's own error")
}

// TestAKilledAgentIsResumed kills real processes at instants that the seed decides, while real files
// change, and lets others go on.
func TestAKilledAgentIsResumed(t *testing.T) {
	h := newTestHost(t)
	h.useCommands()
	random := rand.New(rand.NewPCG(3, 1))
	policy, kills := operation.None, 0
	for i := range 6 {
		want := operation.Static
		if policy == operation.Static {
			want = operation.None
		}
		request := requestOf(fmt.Sprintf("op-%d", i), want)
		encoded, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		for attempt, ended := 0, false; !ended; attempt++ {
			agent := exec.Command(h.program())
			agent.Env = append(os.Environ(), rootOfHost+"="+h.root, agentRole+"="+string(encoded))
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			if attempt < 2 {
				kill := time.AfterFunc(time.Duration(random.IntN(300))*time.Millisecond, func() { _ = agent.Process.Kill() })
				defer kill.Stop()
			}
			if ended = agent.Wait() == nil; !ended {
				kills++
			}
			if kills > 2*(i+1) {
				t.Fatal("the agent ends by itself without a result")
			}
		}
		j, err := load(h.open().disk)
		if err != nil || j == nil || j.Result == nil || j.Request.ID != request.ID {
			t.Fatalf("the journal is %+v, %v", j, err)
		}
		if j.Result.Outcome == operation.Succeeded {
			policy = want
		} else if j.Result.Outcome != operation.RolledBack {
			t.Errorf("the result is %+v", j.Result)
		}
		dropIn := h.read(testDropIn)
		if got := h.read(testState); !strings.Contains(got, string(policy)) || (dropIn != kubeletDropIn(policy) && (dropIn != "" || policy != operation.None)) {
			t.Errorf("after %+v, the checkpoint is %q and the drop-in %q", j.Result, got, dropIn)
		}
		driver, err := h.open().commandDriver()
		if err != nil {
			t.Fatal(err)
		}
		h.waitHealthy(driver)
	}
	if kills == 0 {
		t.Error("the agent was never killed; the instants do not fit")
	}
}

// What a command starts may inherit its output, and write to it at any time.
func TestACommandMayStartAKubeletThatInheritsItsOutput(t *testing.T) {
	h := newTestHost(t)
	wrote := h.at("wrote")
	h.write(SettingsFile, fmt.Sprintf("command: {start: [/bin/sh, -c, '(sleep 0.5; echo a line of the log >&2; touch %s) &'], stop: [b], isActive: [c], dropInDirectory: /x}", wrote))
	driver, err := h.open().commandDriver()
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.waitFor("what the command has started to outlive its first line", func() bool {
		_, err := os.Stat(wrote)
		return err == nil
	})
}

func TestARequestThatCannotBeginIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testHost)
		want    string
	}{
		"no settings":                {func(*testHost) {}, "/etc/partition-agent/cpu-policy.yaml: command is missing"},
		"settings without a command": {func(h *testHost) { h.write(SettingsFile, "command: {start: [a], stop: [b]}") }, "command.isActive is missing"},
		"a kubelet that does not run": {func(h *testHost) {
			h.write(SettingsFile, "command: {start: [a], stop: [b], isActive: ['false'], dropInDirectory: /x}")
		}, "the kubelet does not run"},
		"a directory that others can write": {func(h *testHost) {
			if err := os.Mkdir(h.at(Directory), 0o700); err != nil {
				h.t.Fatal(err)
			}
			if err := os.Chmod(h.at(Directory), 0o777); err != nil {
				h.t.Fatal(err)
			}
		}, "/var/lib/partition-agent has mode 0777"},
		"a directory that is a link": {func(h *testHost) {
			if err := os.Symlink("/tmp", h.at(Directory)); err != nil {
				h.t.Fatal(err)
			}
		}, "/var/lib/partition-agent is L"},
		"another request with its id": {func(h *testHost) {
			if err := h.open().makeDirectory(); err != nil {
				h.t.Fatal(err)
			}
			if err := store(h.open().disk, Journal{Request: requestOf("op", operation.None), Step: Report}); err != nil {
				h.t.Fatal(err)
			}
		}, "operation op has another request"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t)
			test.prepare(h)
			result, err := h.open().Run(quiet(t), requestOf("op", operation.Static), h.program())
			if err != nil {
				t.Fatal(err)
			}
			if result.Outcome != operation.Failed || result.Step != operation.StepValidate || !strings.Contains(result.Message, test.want) {
				t.Errorf("the result is %+v, want %q", result, test.want)
			}
		})
	}
}

// A Job that is created again may have other limits than the first one, by a configuration that has
// changed. While the kubelet is down nobody may believe that nothing was changed.
func TestARequestOfWhatIsUnderWayIsNoRefusal(t *testing.T) {
	h := newTestHost(t)
	host := h.open()
	if err := host.makeDirectory(); err != nil {
		t.Fatal(err)
	}
	begun := requestOf("op", operation.Static)
	if err := store(host.disk, Journal{Request: begun, Step: Healthy, Plan: &Plan{}}); err != nil {
		t.Fatal(err)
	}
	again := begun
	again.Limits.Total.Duration = begun.Limits.WithDefaults().Total.Duration - time.Second
	if j, err := host.begin(t.Context(), again); err != nil || j.Step != Healthy || j.Request != begun {
		t.Errorf("it finds %+v (%v), want what is under way", j, err)
	}
	again.Policy = operation.None
	if result, err := host.Run(quiet(t), again, h.program()); err == nil || !strings.Contains(err.Error(), "operation op may be under way") {
		t.Errorf("the result is %+v (%v), want none", result, err)
	}
	h.write(journalFile, "{")
	if result, err := host.Run(quiet(t), begun, h.program()); err == nil || !strings.Contains(err.Error(), "may be under way") {
		t.Errorf("with a damaged journal the result is %+v (%v), want none", result, err)
	}
}

// The host unit may begin between the look at it and its stop.
func TestWhatHasBegunIsNotGivenUp(t *testing.T) {
	h := newTestHost(t)
	host := h.open()
	if err := host.makeDirectory(); err != nil {
		t.Fatal(err)
	}
	request := requestOf("op", operation.Static)
	result := operation.Result{ID: "op", Outcome: operation.Failed, Step: operation.StepValidate, Message: "why"}
	for name, test := range map[string]struct {
		now   Journal
		begun bool
	}{
		"it has not begun":       {Journal{Request: request, Step: Validate}, false},
		"it has begun":           {Journal{Request: request, Step: Stop, Plan: &Plan{}}, true},
		"it has ended by itself": {Journal{Request: request, Step: Validate, Result: &result}, true},
	} {
		if err := store(host.disk, test.now); err != nil {
			t.Fatal(err)
		}
		cleaned := false
		err := host.giveUp(t.Context(), &Journal{Request: request, Step: Validate}, errors.New("it does not run"), func(context.Context) error {
			cleaned = true
			return nil
		})
		now, loadErr := load(host.disk)
		if loadErr != nil {
			t.Fatal(loadErr)
		}
		if errors.Is(err, errBegun) != test.begun || cleaned == test.begun || now.Step != test.now.Step && test.begun || now.Result != nil && strings.Contains(now.Result.Message, "does not run") == test.begun {
			t.Errorf("%s: the error is %v, its host unit is removed %t, and the journal is %+v", name, err, cleaned, now)
		}
	}
}

func TestAnOperationThatHasBegunIsFinishedBeforeAnother(t *testing.T) {
	h := newTestHost(t)
	h.useCommands()
	host := h.open()
	if err := host.makeDirectory(); err != nil {
		t.Fatal(err)
	}
	// Its agent was killed once the kubelet had been told to stop.
	k, err := host.commandDriver()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := k.plan(quiet(t), operation.Static)
	if err != nil {
		t.Fatal(err)
	}
	old := Journal{Request: requestOf("old", operation.Static), Step: Stop, Plan: plan, Stopped: time.Now()}
	if err := store(host.disk, old); err != nil {
		t.Fatal(err)
	}
	result, err := host.Run(quiet(t), requestOf("new", operation.Static), h.program())
	if err != nil || result.ID != "new" || result.Outcome != operation.Succeeded {
		t.Errorf("the result is %+v, %v", result, err)
	}

	// One that has changed nothing is superseded.
	if err := store(host.disk, Journal{Request: requestOf("stale", operation.None), Step: Validate}); err != nil {
		t.Fatal(err)
	}
	result, err = host.Run(quiet(t), requestOf("newest", operation.Static), h.program())
	if err != nil || result.ID != "newest" || result.Step != operation.StepValidate || !strings.Contains(result.Message, "already") {
		t.Errorf("the result is %+v, %v", result, err)
	}
	result, err = host.Run(quiet(t), requestOf("stale", operation.None), h.program())
	if err != nil || result.ID != "stale" || result.Step != operation.StepValidate || !strings.Contains(result.Message, "superseded") {
		t.Errorf("once it is superseded, the result is %+v, %v", result, err)
	}
}

func TestAnOperationIsSettled(t *testing.T) {
	h := newTestHost(t)
	h.useCommands()
	host := h.open()
	driver, err := host.commandDriver()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := driver.plan(quiet(t), operation.Static)
	if err != nil {
		t.Fatal(err)
	}
	stopped := func(id string) *Journal {
		return &Journal{Request: requestOf(id, operation.Static), Step: Stop, Plan: plan, Stopped: time.Now()}
	}
	for _, test := range []struct {
		name    string
		journal *Journal
		outcome operation.Outcome
		message string
		other   bool // the journal is about another operation, which is left alone
	}{
		{"never heard of, on a host without a journal", nil, operation.Failed, "given up", false},
		{"never heard of, while another is under way", stopped("other"), operation.Failed, "given up", true},
		{"that has changed nothing", &Journal{Request: requestOf("op", operation.Static), Step: Validate}, operation.Failed, "given up", false},
		{"that has stopped the kubelet", stopped("op"), operation.RolledBack, interrupted, false},
		{"that has ended", &Journal{Request: requestOf("op", operation.Static), Step: Report, Result: &operation.Result{ID: "op", Outcome: operation.Succeeded, Step: "report"}}, operation.Succeeded, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := host.makeDirectory(); err != nil {
				t.Fatal(err)
			}
			if err := put(host.disk, journalFile, nil); err != nil {
				t.Fatal(err)
			}
			if test.journal != nil {
				if err := store(host.disk, *test.journal); err != nil {
					t.Fatal(err)
				}
			}
			result, err := host.Settle(quiet(t), "op", h.program())
			if err != nil || result.ID != "op" || result.Outcome != test.outcome || !strings.Contains(result.Message, test.message) {
				t.Fatalf("the result is %+v, %v", result, err)
			}
			settled := h.read(journalFile)
			if j, err := load(host.disk); err != nil || test.other && (j.Request.ID != "other" || j.Step != Stop || j.Result != nil) {
				t.Errorf("the journal is %+v, %v", j, err)
			}
			// Its pod comes late.
			late, err := host.Run(quiet(t), requestOf("op", operation.Static), h.program())
			if err != nil || *late != *result || h.read(journalFile) != settled || h.read(testDropIn) != "" {
				t.Errorf("a late pod has the result %+v, %v, and makes of the journal %s", late, err, h.read(journalFile))
			}
		})
	}
	if got := h.read(testState); !strings.Contains(got, string(operation.None)) {
		t.Errorf("the checkpoint is %s", got)
	}

	// Another process does a step, or stands still in the middle of one.
	unlock, err := host.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(quiet(t), 50*time.Millisecond)
	defer cancel()
	if result, err := host.Settle(ctx, "next", h.program()); !errors.Is(err, context.DeadlineExceeded) || result != nil {
		t.Errorf("while another process works on the host, the result is %+v, %v", result, err)
	}
}

func TestTheJournalRemembersTheLastOperations(t *testing.T) {
	h := newTestHost(t)
	host := h.open()
	if err := host.makeDirectory(); err != nil {
		t.Fatal(err)
	}
	// As it was written before there was more than one.
	h.write(journalFile, `{"request":{"id":"first","policy":"static","driver":"command"},"step":"report",`+
		`"failure":{"step":"validate","message":"no"},"result":{"id":"first","outcome":"failed","step":"validate","message":"no"}}`)
	j, err := load(host.disk)
	if err != nil {
		t.Fatal(err)
	}
	const all = mostEnded + 6
	id := func(i int) string { return fmt.Sprintf("op-%d", i) }
	for i := range all {
		j = j.next(requestOf(id(i), operation.Static))
		if first := j.result("first"); i < mostEnded && (first == nil || first.Message != "no") {
			t.Fatalf("after %d others the first one has the result %+v", i, first)
		}
		*j = j.failed(id(i)+strings.Repeat(" and on", 10_000), "")
	}
	if err := store(host.disk, *j.next(requestOf("last", operation.Static))); err != nil {
		t.Fatal(err)
	}
	before := h.read(journalFile)
	if len(before) > mostEnded*(mostText+100) {
		t.Errorf("the journal has %d bytes", len(before))
	}
	for i := all - mostEnded; i < all; i++ {
		result, err := host.Run(t.Context(), requestOf(id(i), operation.Static), h.program())
		if err != nil || result.ID != id(i) || !strings.HasPrefix(result.Message, id(i)+" and on") {
			t.Errorf("operation %d is remembered as %+v, %v", i, result, err)
		}
	}
	if after := h.read(journalFile); after != before {
		t.Errorf("the journal became %s", after)
	}
	if oldest := j.result(id(all - mostEnded - 2)); oldest != nil {
		t.Errorf("of more than %d, the oldest has the result %+v", mostEnded, oldest)
	}
}

func TestAnInterruptedAgentHasNoResult(t *testing.T) {
	h := newTestHost(t)
	h.useCommands()
	host := h.open()
	if err := host.makeDirectory(); err != nil {
		t.Fatal(err)
	}
	// Another process works on the host.
	unlock, err := host.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(quiet(t), 50*time.Millisecond)
	defer cancel()
	if result, err := host.Run(ctx, requestOf("op", operation.Static), h.program()); !errors.Is(err, context.DeadlineExceeded) || result != nil {
		t.Errorf("the result is %+v, %v", result, err)
	}
}

func TestTheRunningKubeletIsAsked(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/configz":
			fmt.Fprint(w, `{"kubeletconfig":{"cpuManagerPolicy":"static"}}`)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	defer server.Close()
	// Clients that refuse the certificate are part of the test.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate := func(server *httptest.Server) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	}
	token, authorities := file("token", "secret\n"), file("ca", certificate(server))
	for name, test := range map[string]struct {
		configz Configz
		want    operation.Policy
		err     string
	}{
		"a kubelet":                  {Configz{server.URL + "/configz", token, authorities}, operation.Static, ""},
		"an answer without a policy": {Configz{server.URL + "/other", token, authorities}, "", "has no kubeletconfig"},
		"another token":              {Configz{server.URL + "/configz", file("other", "x"), authorities}, "", "401"},
		"no token":                   {Configz{server.URL + "/configz", "/nowhere", authorities}, "", "/nowhere"},
		"no certificates":            {Configz{server.URL + "/configz", token, token}, "", "has no certificate"},
		"another certificate":        {Configz{strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/configz", token, authorities}, "", "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			policy, err := test.configz.ask(t.Context())
			if policy != test.want || (err == nil) != (test.err == "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
				t.Errorf("the policy is %q, %v, want %q and %q", policy, err, test.want, test.err)
			}
		})
	}
}
