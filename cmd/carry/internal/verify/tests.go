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
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// upstreamTests runs upstream's own tests of packages, and returns how many have
// passed. What fails is run once more by itself: some of upstream's tests fail now and
// then. What fails again is run without the series, which says whose failure it is.
func upstreamTests(ctx context.Context, t *tree.Tree, packages []string, v *Result) (passed int, err error) {
	ledger, err := series.Ledger(t.Project, filepath.Join(project.ReleasesDir, t.Release, project.FailingName))
	if err != nil {
		return 0, err
	}
	t.Say("running upstream's tests of %d packages", len(packages))
	report, err := goTest(ctx, t, t.Dir, packages)
	if err != nil {
		return 0, err
	}
	for _, line := range ledger {
		name, reason, _ := strings.Cut(line.Reason, " ")
		test := line.Name + " " + name
		if report.tests[test] != "fail" {
			t.Say("%s is in the ledger, and did not fail; take it out", test)
			continue
		}
		t.Say("not counted: %s (%s)", test, reason)
		v.NotCounted = append(v.NotCounted, test)
		delete(report.tests, test)
	}
	passed = report.passed
	failed := report.failed()
	if len(failed) == 0 {
		return passed, nil
	}
	again, err := runAgain(ctx, t, t.Dir, report)
	if err != nil {
		return 0, err
	}
	still := again.failed()
	for _, test := range failed {
		if !slices.Contains(still, test) {
			t.Say("passed when run by itself: %s", test)
			v.Flaked = append(v.Flaked, test)
			passed++
		}
	}
	if len(still) == 0 {
		return passed, nil
	}
	again.print(still)
	from, err := build.Upstream(ctx, t)
	if err != nil {
		return 0, err
	}
	t.Say("running them without the series")
	without, err := runAgain(ctx, t, from.Dir, again)
	if err != nil {
		return 0, err
	}
	var theirs, our []string
	for _, test := range still {
		if slices.Contains(without.failed(), test) {
			theirs = append(theirs, test)
		} else {
			our = append(our, test)
		}
	}
	if len(our) > 0 {
		return 0, fmt.Errorf("upstream's tests fail with the series, and not without it: %s", strings.Join(our, ", "))
	}
	return 0, fmt.Errorf("upstream's tests fail, without the series too: %s; name them in build/releases/%s/failing, one a line: package, test, reason", strings.Join(theirs, ", "), t.Release)
}

// runAgain runs the failed tests of a report by themselves, in the same or another tree.
func runAgain(ctx context.Context, t *tree.Tree, dir string, report testReport) (testReport, error) {
	all := testReport{tests: map[string]string{}, output: map[string]*strings.Builder{}}
	byPackage := map[string][]string{}
	for _, test := range report.failed() {
		pkg, name, _ := strings.Cut(test, " ")
		byPackage[pkg] = append(byPackage[pkg], regexp.QuoteMeta(name))
	}
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		flags := []string{"-count=1"}
		if names := byPackage[pkg]; names[0] != "" {
			flags = append(flags, "-run=^("+strings.Join(names, "|")+")$")
		}
		one, err := goTest(ctx, t, dir, []string{pkg}, flags...)
		if err != nil {
			return all, err
		}
		maps.Copy(all.tests, one.tests)
		maps.Copy(all.output, one.output)
	}
	return all, nil
}

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

// goTest runs tests of packages. That a test fails is no error of it.
func goTest(ctx context.Context, t *tree.Tree, dir string, packages []string, flags ...string) (testReport, error) {
	report := testReport{tests: map[string]string{}, output: map[string]*strings.Builder{}}
	env, err := build.Env(ctx, t)
	if err != nil {
		return report, err
	}
	// Upstream's tests leave sockets behind, whose paths must be short.
	temporary, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return report, err
	}
	defer os.RemoveAll(temporary)
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json", "-vet=off", "-timeout=20m"}, build.Flags, flags, packages)...)
	cmd.Dir, cmd.Env = dir, append(env, "TMPDIR="+temporary, "KUBE_CACHE_MUTATION_DETECTOR=true", "KUBE_PANIC_WATCH_DECODE_ERROR=true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return report, err
	}
	if err := cmd.Start(); err != nil {
		return report, err
	}
	var other strings.Builder
	running := map[string]bool{}
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
			running[key] = !sub
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
				t.Say("%s %s in %.0f s", event.Action, event.Package, event.Elapsed)
				// A package fails with its tests, or by itself: it did not compile, or its process
				// ended, and tests that come later have not run.
				own := func(test string) bool { return strings.HasPrefix(test, key) }
				ended := slices.ContainsFunc(slices.Collect(maps.Keys(running)), own)
				for test, out := range report.output {
					ended = ended || own(test) && strings.Contains("\n"+out.String(), "\npanic: ")
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
