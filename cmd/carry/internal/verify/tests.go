// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gotest.tools/gotestsum/testjson"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// upstreamTests runs upstream's own tests of packages, and returns how many have
// passed. What fails is run again by itself: some of upstream's tests fail now and
// then. What fails again is run without the series, which says whose failure it is.
func upstreamTests(ctx context.Context, t *tree.Tree, packages []string, v *Result, flags ...string) (passed int, err error) {
	ledger, err := series.Ledger(t.Project, filepath.Join(project.ReleasesDir, t.Release, project.FailingName))
	if err != nil {
		return 0, err
	}
	t.Say("running upstream's tests of %d packages", len(packages))
	report, err := goTest(ctx, t, t.Dir, packages, flags...)
	if err != nil {
		return 0, err
	}
	if err := report.writeJUnit(junitPath(t, "upstream")); err != nil {
		return 0, err
	}
	for _, line := range ledger {
		name, reason, _ := strings.Cut(line.Reason, " ")
		test := line.Name + " " + name
		if report.tests[test] != testjson.ActionFail {
			t.Say("%s is in the ledger, but did not fail; remove it from there", test)
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
		return 0, fmt.Errorf("upstream's tests fail only with the series: %s", strings.Join(our, ", "))
	}
	previews, err := t.Project.Previews()
	if err != nil {
		return 0, err
	}
	if slices.Contains(previews, t.Release) {
		t.Say("not counted, since they fail without the series, too: %s", strings.Join(theirs, ", "))
		v.NotCounted = append(v.NotCounted, theirs...)
		return passed, nil
	}
	return 0, fmt.Errorf("upstream's tests fail, without the series too: %s; name them in build/releases/%s/failing, one a line: package, test, reason", strings.Join(theirs, ", "), t.Release)
}

// runAgain runs the failed tests of a report by themselves, in the same or another tree.
func runAgain(ctx context.Context, t *tree.Tree, dir string, report testReport) (testReport, error) {
	all := testReport{tests: map[string]testjson.Action{}, output: map[string]string{}}
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

// junitPath returns where the report of some tests of a release is, for programs that read JUnit's XML.
func junitPath(t *tree.Tree, tests string) string {
	return filepath.Join(filepath.Dir(t.Dir), "junit-"+tests+".xml")
}

// goTest runs tests of packages. That a test fails is not an error of it.
func goTest(ctx context.Context, t *tree.Tree, dir string, packages []string, flags ...string) (testReport, error) {
	env, err := build.Env(ctx, t)
	if err != nil {
		return testReport{}, err
	}
	// Upstream's tests leave sockets behind, whose paths must be short.
	temporary, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return testReport{}, err
	}
	defer os.RemoveAll(temporary)
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json", "-vet=off", "-timeout=20m"}, build.Flags, flags, packages)...)
	cmd.Dir, cmd.Env = dir, append(env, "TMPDIR="+temporary, "KUBE_CACHE_MUTATION_DETECTOR=true", "KUBE_PANIC_WATCH_DECODE_ERROR=true")
	return readTests(ctx, cmd, t.Say)
}
