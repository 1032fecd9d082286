package verify

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/process"
)

// testReport is what a run of go test says.
type testReport struct {
	passed int
	// tests maps "package Test" of top-level tests, and "package " of whole packages
	// which fail without one, to "pass", "fail" or "skip"; output is what they printed.
	tests  map[string]string
	output map[string]*strings.Builder
}

func (r testReport) failed() []string {
	var failed []string
	for _, test := range slices.Sorted(maps.Keys(r.tests)) {
		if r.tests[test] == "fail" {
			failed = append(failed, test)
		}
	}
	return failed
}

// mostOutput of a failed test is shown, its end.
const mostOutput = 8 << 10

func (r testReport) print(tests []string) {
	for _, test := range tests {
		if out := r.output[test]; out != nil {
			text := out.String()
			if len(text) > mostOutput {
				text = "...\n" + text[len(text)-mostOutput:]
			}
			fmt.Fprintf(os.Stderr, "--- %s\n%s\n", test, text)
		}
	}
}

// readTests runs a go test -json, and shows each package that is done. That a test fails
// is no error of it.
func readTests(ctx context.Context, cmd *exec.Cmd, say func(format string, args ...any)) (testReport, error) {
	report := testReport{tests: map[string]string{}, output: map[string]*strings.Builder{}}
	process.Group(cmd)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return report, err
	}
	if err := cmd.Start(); err != nil {
		return report, err
	}
	// other is what belongs to no test.
	var other strings.Builder
	running := map[string]struct{}{}
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		var event struct {
			Action, Package, ImportPath, Test, Output string
			Elapsed                                   float64
		}
		if err := json.Unmarshal(scanner.Bytes(), &event); err != nil {
			other.WriteString(scanner.Text() + "\n")
			continue
		}
		top, _, sub := strings.Cut(event.Test, "/")
		key := cmp.Or(event.Package, event.ImportPath) + " " + top
		switch event.Action {
		case "run":
			running[key] = struct{}{}
		case "output", "build-output":
			if report.output[key] == nil {
				report.output[key] = &strings.Builder{}
			}
			report.output[key].WriteString(event.Output)
			if event.Action == "build-output" {
				other.WriteString(event.Output)
			}
		case "pass", "fail", "skip":
			if sub {
				continue
			}
			if event.Test == "" {
				say("%s %s in %.0f s", event.Action, event.Package, event.Elapsed)
				// A package fails with its tests, or by itself: it did not compile, or its process
				// ended, and tests that come later have not run.
				own := func(test string) bool { return strings.HasPrefix(test, key) }
				ended := false
				for test, out := range report.output {
					// What a test printed in which the process ended says why.
					if _, unfinished := running[test]; test != key && own(test) && (unfinished || strings.Contains("\n"+out.String(), "\npanic: ")) {
						ended = true
						if report.output[key] != nil {
							report.output[key].WriteString(out.String())
						}
					}
				}
				if event.Action == "fail" && (ended || !slices.ContainsFunc(report.failed(), own)) {
					report.tests[key] = "fail"
				}
				continue
			}
			delete(running, key)
			report.tests[key] = event.Action
			if event.Action == "pass" {
				report.passed++
			}
		}
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return report, ctx.Err()
	}
	if err != nil && len(report.failed()) == 0 {
		os.Stderr.WriteString(other.String())
		return report, fmt.Errorf("go test: %w: %s", err, git.FirstLine(cmp.Or(stderr.String(), other.String())))
	}
	if failed := report.failed(); len(failed) > 0 && other.Len() > 0 {
		os.Stderr.WriteString(other.String())
	}
	return report, scanner.Err()
}
