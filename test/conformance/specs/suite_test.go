// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cluster/poll"
)

const things = "[sig-test] Things (all of them) should "

// compiled compiles internal/suite, and returns it as a suite whose logs are in a directory of the
// test. marks has a file for each spec that has run, with a byte for each time.
func compiled(t *testing.T) (suite *Suite, marks string) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "suite.test")
	if output, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "./internal/suite").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, output)
	}
	marks = filepath.Join(dir, "marks")
	if err := os.Mkdir(marks, 0o755); err != nil {
		t.Fatal(err)
	}
	return &Suite{Program: &Local{Binary: binary}, Args: []string{"-marks=" + marks}, Logs: filepath.Join(dir, "logs")}, marks
}

// times returns how often a spec has run.
func times(t *testing.T, marks, name string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(marks, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(data)
}

func TestSpecsRunOnceAndGoOnAfterAnInterrupt(t *testing.T) {
	suite, marks := compiled(t)
	all, err := suite.List(t.Context(), `\[Conformance\]`, "")
	if err != nil {
		t.Fatal(err)
	}
	want := []Spec{
		{things + "pass [Conformance]", false}, {things + "pass [Conformance] too", false}, {things + "fail [Conformance]", false}, {things + "skip itself [Conformance]", false},
		{things + "crash [Conformance]", false}, {things + "wait [Conformance]", false}, {things + "run alone [Serial] [Conformance]", true},
	}
	if !slices.Equal(all, want) {
		t.Fatalf("the specs are %v, want %v", all, want)
	}
	if some, err := suite.List(t.Context(), `\[Conformance\]`, "pass|crash|wait"); err != nil || !slices.Equal(some, []Spec{want[2], want[3], want[6]}) {
		t.Errorf("without those that pass, crash or wait, the specs are %v (%v)", some, err)
	}
	file := filepath.Join(t.TempDir(), "results.json")
	results, err := Open(file, "these programs")
	if err != nil {
		t.Fatal(err)
	}

	var failures []string
	last := 0
	look := func(done, of int, failed []Spec) {
		last = done
		if of != len(all) {
			t.Errorf("progress speaks of %d specs, want %d", of, len(all))
		}
		for _, spec := range failed {
			failures = append(failures, spec.Name)
		}
	}

	// While one waits, the run is interrupted.
	forever := filepath.Join(marks, "forever")
	if err := os.WriteFile(forever, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupted := make(chan error)
	go func() { interrupted <- suite.Run(ctx, all, 2, results, look) }()
	if err := poll.Until(t.Context(), 10*time.Millisecond, time.Minute, func(context.Context) error {
		if times(t, marks, "waits") == 0 {
			return errors.New("the spec does not wait yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	interrupt()
	if err := <-interrupted; !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted run ends with %v", err)
	}
	if err := os.Remove(forever); err != nil {
		t.Fatal(err)
	}

	// What has a result does not run again; what others share a process with a crash does.
	if results, err = Open(file, "these programs"); err != nil {
		t.Fatal(err)
	}
	before := len(results.Specs)
	if before == len(all) {
		t.Fatalf("there are %d results after the interrupt", before)
	}
	if err := suite.Run(t.Context(), all, 2, results, look); err != nil {
		t.Fatal(err)
	}
	if last < len(all)-1 { // the one without an end is noted after that
		t.Errorf("progress ended at %d specs", last)
	}
	passed, others := results.Count(all)
	if passed != 4 || len(others) != 3 || len(results.Missing(all)) != 0 {
		t.Errorf("%d passed, others are %v, and %v are missing", passed, others, results.Missing(all))
	}
	if !slices.Contains(failures, things+"fail [Conformance]") {
		t.Errorf("progress names %q", failures)
	}
	for name, why := range map[string]string{
		"fail [Conformance]":        "failed: it is broken",
		"skip itself [Conformance]": "skipped: there is no such thing here",
		"crash [Conformance]":       "failed: it did not run to its end: ",
	} {
		if got := results.Why(things + name); !strings.HasPrefix(got, why) {
			t.Errorf("%s: %q, want %q", name, got, why)
		}
	}
	if got := times(t, marks, "alone"); got != 1 {
		t.Errorf("the serial spec ran %d times", got)
	}
	if got := times(t, marks, "not-asked-for"); got != 0 {
		t.Errorf("a spec that the focus does not match ran %d times", got)
	}

	// The second time, nothing runs.
	ran := times(t, marks, "passes")
	if results, err = Open(file, "these programs"); err != nil {
		t.Fatal(err)
	}
	if err := suite.Run(t.Context(), all, 2, results, func(int, int, []Spec) { t.Error("a process has run") }); err != nil {
		t.Fatal(err)
	}
	if got := times(t, marks, "passes"); got != ran {
		t.Errorf("a spec with a result ran %d times, and then %d times", ran, got)
	}

	// But for what has not passed, if that is forgotten.
	if err := results.ForgetFailures(all[:3]); err != nil {
		t.Fatal(err)
	}
	failed := times(t, marks, "fails")
	if err := suite.Run(t.Context(), all, 2, results, look); err != nil {
		t.Fatal(err)
	}
	if got := times(t, marks, "fails"); got != failed+1 || times(t, marks, "passes") != ran {
		t.Errorf("the spec that failed ran %d times, and then %d times", failed, got)
	}

	junit := filepath.Join(t.TempDir(), "junit.xml")
	if err := results.WriteJUnit(all, junit, "conformance"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(junit)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"disabled,attr"`
	}
	if err := xml.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	if report.Tests != len(all) || report.Failures != 2 {
		t.Errorf("JUnit has %+v", report)
	}
}

func TestASuiteThatDoesNotStartIsNoFailureOfSpecs(t *testing.T) {
	results, err := Open(filepath.Join(t.TempDir(), "results.json"), "these programs")
	if err != nil {
		t.Fatal(err)
	}
	suite := &Suite{Program: &Local{Binary: "/bin/false"}, Logs: t.TempDir()}
	if err := suite.Run(t.Context(), []Spec{{"a", false}}, 1, results, func(int, int, []Spec) {}); err == nil || !strings.Contains(err.Error(), "/bin/false did not start") {
		t.Errorf("the error is %v", err)
	}
	if results.Has("a") {
		t.Error("the spec has a result")
	}
}

func TestASuiteIsSetUpAsOftenAsItSays(t *testing.T) {
	suite, marks := compiled(t)
	all := []Spec{{things + "pass [Conformance]", false}}
	for setUps, wantErr := range []string{0: "BeforeSuite failed", 1: "BeforeSuite failed", 2: ""} {
		if err := os.WriteFile(filepath.Join(marks, "not-set-up"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		results, err := Open(filepath.Join(t.TempDir(), "results.json"), "these programs")
		if err != nil {
			t.Fatal(err)
		}
		again := 0
		suite.SetUps, suite.Say = setUps, func(format string, args ...any) {
			again++
			if said := fmt.Sprintf(format, args...); !strings.Contains(said, "BeforeSuite failed") {
				t.Errorf("with %d, it says %q", setUps, said)
			}
		}
		err = suite.Run(t.Context(), all, 1, results, func(int, int, []Spec) {})
		if wantErr == "" && err != nil || wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)) {
			t.Errorf("with %d, the error is %v, want %q", setUps, err, wantErr)
		}
		if again != max(0, setUps-1) {
			t.Errorf("with %d, it was set up again %d times", setUps, again)
		}
		if has := results.Has(all[0].Name); has != (wantErr == "") {
			t.Errorf("with %d, the spec has a result: %t", setUps, has)
		}
	}
}

func TestOneProcessAtATimeRunsSerialSpecsAndOthers(t *testing.T) {
	suite, _ := compiled(t)
	all := []Spec{{things + "run alone [Serial] [Conformance]", true}, {things + "pass [Conformance]", false}}
	for parallel, want := range []int{0: 1, 1: 1, 2: 2} {
		results, err := Open(filepath.Join(t.TempDir(), "results.json"), "these programs")
		if err != nil {
			t.Fatal(err)
		}
		processes := 0
		if err := suite.Run(t.Context(), all, parallel, results, func(int, int, []Spec) { processes++ }); err != nil {
			t.Fatal(err)
		}
		if passed, others := results.Count(all); processes != want || passed != len(all) {
			t.Errorf("with %d at a time, %d processes ran, want %d; %v did not pass", parallel, processes, want, others)
		}
	}
}

func TestResultsOfOtherProgramsAreOfNoUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	results, err := Open(file, "these programs")
	if err != nil {
		t.Fatal(err)
	}
	if err := results.add(passing("a")); err != nil {
		t.Fatal(err)
	}
	for subject, has := range map[string]bool{"these programs": true, "others": false} {
		again, err := Open(file, subject)
		if err != nil {
			t.Fatal(err)
		}
		if again.Has("a") != has {
			t.Errorf("of %s there is a result: %t, want %t", subject, !has, has)
		}
	}
	if err := os.WriteFile(file, []byte(`{"subject": `), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, "these programs"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that was cut off gives %v, want an error that names it", err)
	}
}

func TestAFocusThatIsNoExpressionIsRefused(t *testing.T) {
	if _, err := (&Suite{}).List(t.Context(), "[Conformance", ""); err == nil || !strings.Contains(err.Error(), `focus "[Conformance" is not a regular expression`) {
		t.Errorf("the error is %v", err)
	}
	if _, err := (&Suite{}).List(t.Context(), "", "(Serial"); err == nil || !strings.Contains(err.Error(), `skip "(Serial" is not a regular expression`) {
		t.Errorf("the error is %v", err)
	}
}
