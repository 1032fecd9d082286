// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/jstemmer/go-junit-report/v2/gtr"
	"github.com/jstemmer/go-junit-report/v2/junit"
	"gotest.tools/gotestsum/testjson"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/process"
)

// testReport is what a run of go test says.
type testReport struct {
	passed int
	// tests maps "package Test" of top-level tests, and "package " of whole packages
	// which fail without one, to what became of them; output is what those that failed printed.
	tests  map[string]testjson.Action
	output map[string]string
	// packages are all of it, subtests included.
	packages []gtr.Package
}

func (r testReport) failed() []string {
	var failed []string
	for _, test := range slices.Sorted(maps.Keys(r.tests)) {
		if r.tests[test] == testjson.ActionFail {
			failed = append(failed, test)
		}
	}
	return failed
}

// mostOutput of a failed test is shown, its end.
const mostOutput = 8 << 10

func (r testReport) print(tests []string) {
	for _, test := range tests {
		if text := r.output[test]; text != "" {
			if len(text) > mostOutput {
				text = "...\n" + text[len(text)-mostOutput:]
			}
			fmt.Fprintf(os.Stderr, "--- %s\n%s\n", test, text)
		}
	}
}

// writeJUnit writes the report for programs that read JUnit's XML.
func (r testReport) writeJUnit(path string) error {
	var text bytes.Buffer
	suites := junit.CreateFromReport(gtr.Report{Packages: r.packages}, "")
	if err := suites.WriteXML(&text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return disk.Write(path, text.Bytes())
}

// readTests runs a go test -json, and shows each package that is done. That a test fails
// is not an error of it.
func readTests(ctx context.Context, cmd *exec.Cmd, say func(format string, args ...any)) (testReport, error) {
	process.Group(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return testReport{}, err
	}
	if err := cmd.Start(); err != nil {
		return testReport{}, err
	}
	f := &follower{say: say}
	run, scanErr := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: out, Handler: f, IgnoreNonJSONOutputLines: true})
	if scanErr != nil {
		_ = cmd.Cancel() // its output is not read
	}
	err = cmd.Wait()
	report := newReport(run)
	if ctx.Err() != nil {
		return report, ctx.Err()
	}
	if scanErr != nil {
		return report, scanErr
	}
	failed := report.failed()
	if err != nil && len(failed) == 0 {
		os.Stderr.WriteString(f.other.String())
		return report, fmt.Errorf("go test: %w: %s", err, git.FirstLine(cmp.Or(stderr.String(), f.other.String())))
	}
	if len(failed) > 0 {
		os.Stderr.WriteString(f.other.String())
	}
	return report, nil
}

// follower follows a run of go test.
type follower struct {
	say func(format string, args ...any)
	// other is what belongs to no test: what the compiler says, for example.
	other strings.Builder
}

// Event is that of [testjson.EventHandler].
func (f *follower) Event(event testjson.TestEvent, _ *testjson.Execution) error {
	switch {
	case event.Action == testjson.ActionBuild:
		f.other.WriteString(event.Output)
	case event.PackageEvent() && event.Action.IsTerminal():
		f.say("%s %s in %.0f s", event.Action, event.Package, event.Elapsed)
	}
	return nil
}

// Err is that of [testjson.EventHandler].
func (f *follower) Err(line string) error {
	f.other.WriteString(line + "\n")
	return nil
}

// newReport returns what a run says.
func newReport(run *testjson.Execution) testReport {
	report := testReport{tests: map[string]testjson.Action{}, output: map[string]string{}}
	for _, name := range run.Packages() {
		if name == "" { // that of compilers
			continue
		}
		pkg := run.Package(name)
		// A package fails with its tests, or by itself: it did not compile, or its process
		// ended, and tests that come later have not run. Which test it was says what it printed.
		key := func(test testjson.TestCase) string { return name + " " + test.Test.Name() }
		for _, test := range topLevel(pkg.Passed) {
			report.tests[key(test)] = testjson.ActionPass
			report.passed++
		}
		for _, test := range topLevel(pkg.Skipped) {
			report.tests[key(test)] = testjson.ActionSkip
		}
		alone, last := pkg.TestMainFailed(), ""
		for _, test := range topLevel(pkg.Failed) {
			text, unfinished := output(pkg, test), test.Elapsed < 0
			if unfinished || strings.Contains("\n"+text, "\npanic: ") {
				alone, last = true, last+text
			}
			if !unfinished {
				report.tests[key(test)], report.output[key(test)] = testjson.ActionFail, text
			}
		}
		alone = alone && pkg.Result() == testjson.ActionFail // a test may print what looks like a panic
		if alone {
			report.tests[name+" "] = testjson.ActionFail
			report.output[name+" "] = own(pkg, 0) + last
		}
		report.packages = append(report.packages, describe(name, pkg, alone))
	}
	return report
}

// topLevel returns tests without their subtests.
func topLevel(tests []testjson.TestCase) []testjson.TestCase {
	return slices.DeleteFunc(slices.Clone(tests), func(test testjson.TestCase) bool { return test.Test.IsSubTest() })
}

// output returns what a test printed, and what those of its subtests did that failed.
func output(pkg *testjson.Package, test testjson.TestCase) string {
	text, below := own(pkg, test.ID), false
	for _, sub := range pkg.Failed {
		if strings.HasPrefix(sub.Test.Name(), test.Test.Name()+"/") {
			text, below = text+own(pkg, sub.ID), true
		}
	}
	if !below {
		return strings.Join(pkg.OutputLines(test), "")
	}
	return text
}

// own returns what a test printed apart from its subtests, or, for 0, the package apart from its tests.
func own(pkg *testjson.Package, id int) string {
	var text strings.Builder
	_ = pkg.WriteOutputTo(&text, id) // a strings.Builder takes everything
	return text.String()
}

// describe returns a package as JUnit's XML has it. alone means that it failed by itself.
func describe(name string, pkg *testjson.Package, alone bool) gtr.Package {
	described := gtr.Package{Name: name, Timestamp: pkg.Start, Duration: pkg.Elapsed()}
	results := map[gtr.Result][]testjson.TestCase{gtr.Pass: pkg.Passed, gtr.Fail: pkg.Failed, gtr.Skip: pkg.Skipped}
	for _, result := range []gtr.Result{gtr.Pass, gtr.Fail, gtr.Skip} {
		for _, test := range results[result] {
			one := gtr.Test{Name: test.Test.Name(), Duration: test.Elapsed, Result: result}
			if test.Elapsed < 0 {
				one.Duration, one.Result = 0, gtr.Unknown
			}
			if result != gtr.Pass {
				one.Output = trimmed(pkg.OutputLines(test))
			}
			described.Tests = append(described.Tests, one)
		}
	}
	if alone {
		described.RunError.Name = name
		described.Output = trimmed([]string{own(pkg, 0)})
	}
	return described
}

// trimmed returns lines without the ends of lines.
func trimmed(lines []string) []string {
	return strings.Split(strings.TrimSuffix(strings.Join(lines, ""), "\n"), "\n")
}
