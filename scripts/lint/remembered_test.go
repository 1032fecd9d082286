// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// checkout is one of which make does nothing but what a test is about: make unit passes where PASSES is yes,
// whichever TESTS it is for.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"scripts/settings.sh", "scripts/tree-changes.sh", "scripts/why-no-node.sh"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(text))
	}
	write(t, filepath.Join(dir, "scripts/install-packages.sh"), "#!/bin/sh\nexit 1\n")
	write(t, filepath.Join(dir, "Makefile"), "export PASSES ?= yes\nTESTS ?= all\n.PHONY: unit\nunit:\n\t@test $$PASSES = yes # of $(TESTS)\n.DEFAULT:\n\t@true\n")
	write(t, filepath.Join(dir, ".gitignore"), "/_output/\n")
	write(t, filepath.Join(dir, "build/releases/v1.37.0/go.mod"), "")
	tree := filepath.Join(dir, "_output/v1.37.0/kubernetes")
	for _, name := range []string{"go.work.sum", "main.go"} {
		write(t, filepath.Join(tree, name), "")
	}
	write(t, filepath.Join(tree, ".go-version"), "1.26.10\n")
	write(t, filepath.Join(dir, "_output/v1.37.0/bin/SHA256SUMS"), "# v1.37.0+wp.1234567, built with go1.26.10 linux/amd64\n")
	for _, in := range []string{dir, tree} {
		git(t, in, "init", "--quiet")
		git(t, in, "add", ".")
		git(t, in, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=Begin")
	}
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

// program is scripts/parts, compiled once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "parts-")
	if err != nil {
		return "", err
	}
	remove = func() { os.RemoveAll(dir) }
	build := exec.Command("go", "build", "-o", dir, "./scripts/parts")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return filepath.Join(dir, "parts"), nil
})

// remove removes it.
var remove = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	remove()
	os.Exit(code)
}

// script runs scripts/parts for the unit tests, if at all, with separate caches. It returns what it prints.
func script(t *testing.T, dir, target string, env ...string) (says string, err error) {
	t.Helper()
	parts, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), parts, target, "v1.37.0", "v1.37.0")
	cmd.Dir = dir
	cmd.Env = append([]string{"PART=^unit tests$", "HOME=" + filepath.Join(dir, "_output"), "PATH=" + os.Getenv("PATH"), "XDG_CACHE_HOME=" + filepath.Join(dir, "_output")}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is script, and also returns what the results say of the release and of the content.
func run(t *testing.T, dir, target string, env ...string) (says, of string) {
	t.Helper()
	says, _ = script(t, dir, target, env...)
	results, err := os.ReadFile(filepath.Join(dir, "_output/results"))
	if err != nil {
		t.Fatalf("%v; it says\n%s", err, says)
	}
	line := regexp.MustCompile(`\tunit tests\t.*\t(v1\.37\.0\t[-0-9a-f]+)\n`).FindStringSubmatch(string(results))
	if line == nil {
		t.Fatalf("the results are\n%s", results)
	}
	return says, line[1]
}

// make release believes what scripts/parts remembers.
func TestAPartThatPassesIsRememberedIfItIsOfTheContent(t *testing.T) {
	const tree, sums = "_output/v1.37.0/kubernetes", "_output/v1.37.0/bin/SHA256SUMS"
	for _, test := range []struct {
		name       string
		env        []string
		change     string
		remembered bool
		want       string
	}{
		{"it passes", nil, "", true, "unit tests ok"},
		{"make is to name directories", []string{"MAKEFLAGS=w"}, "", true, "unit tests ok"},
		{"go has added to the tree's sums", nil, tree + "/go.work.sum", true, "unit tests ok"},
		{"the tree has a change", nil, tree + "/main.go", false, "unit tests is not remembered: " + tree + " has uncommitted changes"},
		{"the tree has a new file", nil, tree + "/new.go", false, "unit tests is not remembered: " + tree + " has uncommitted changes"},
		{"another Go compiles", []string{"FORCE_HOST_GO=y"}, "", false, "unit tests is not remembered: FORCE_HOST_GO selects"},
		{"the environment says for which CPUs", []string{"GOAMD64=v3"}, "", false, "unit tests is not remembered: GOAMD64 may change what is compiled"},
		{"the environment says whence go fetches", []string{"GOPROXY=off", "GOLANG_VERSION=1.26.8"}, "", true, "unit tests ok"},
		{"another Go has compiled", nil, sums, false, "unit tests is not remembered: " + sums + " names another Go than " + tree + "/.go-version"},
		{"it fails", []string{"PASSES=no"}, "", false, "unit tests FAILED"},
		{"it fails by a variable of make", []string{"MAKEFLAGS= -- PASSES=no"}, "", false, "unit tests FAILED"},
		{"it fails, and make is to ignore that", []string{"MAKEFLAGS=ik -- PASSES=no"}, "", false, "unit tests FAILED"},
		{"it fails, and make is to ignore that otherwise", []string{"PASSES=no", "GNUMAKEFLAGS=-i"}, "", false, "unit tests FAILED"},
		{"it fails, and make is to run nothing", []string{"PASSES=no", "MAKEFLAGS=n"}, "", false, "unit tests FAILED"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := checkout(t)
			if test.change != "" {
				write(t, filepath.Join(dir, test.change), "# v1.37.0+wp.1234567, built with go1.26.1 linux/amd64\n")
			}
			says, of := run(t, dir, "test", test.env...)
			if !strings.Contains(says, test.want) {
				t.Errorf("it says\n%s\nand not %q", says, test.want)
			}
			stamps, err := filepath.Glob(filepath.Join(dir, "_output/workload-partitioning/passed/*/unit-SHORT--short"))
			if err != nil || len(stamps) > 0 != test.remembered || (of == "v1.37.0\t-") == test.remembered {
				t.Errorf("it is remembered by %v (%v), and its result is of %q; it says\n%s", stamps, err, of, says)
			}
		})
	}
}

// A version has the result of the part that it must have passed, and not that of some of its tests.
func TestAResultIsOfWhatAVersionMustHavePassed(t *testing.T) {
	for _, test := range []struct {
		name string
		env  []string
		is   bool
	}{{"all tests", nil, true}, {"some tests", []string{"TESTS=some"}, false}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := checkout(t)
			_, of := run(t, dir, "test-all", test.env...)
			if parts, _ := run(t, dir, "test-all", "CONTENTS=1"); of == "v1.37.0\t-" || strings.Contains(parts, "unit tests\t"+of+"\n") != test.is {
				t.Errorf("the result is of %q, and the parts of a version are\n%s", of, parts)
			}
		})
	}
}

// What has passed on another host has passed, but for other files, too long ago, or if it fails here since.
func TestResultsOfOtherHostsCount(t *testing.T) {
	t.Parallel()
	there, here := checkout(t), checkout(t)
	_, of := run(t, there, "test-all")
	file := filepath.Join(there, "_output/results")
	missing := func(results string) string {
		t.Helper()
		says, err := script(t, here, "test-all", "MISSING=1", "RESULTS="+results)
		if err != nil {
			return err.Error() + ": " + says
		}
		if strings.Contains("\n"+says, "\nunit tests\n") {
			return "unit tests"
		}
		return ""
	}

	if got := missing(here + "/none"); !strings.Contains(got, "RESULTS names "+here+"/none, which cannot be read") {
		t.Errorf("without the file it says %q", got)
	}
	results, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content := strings.Split(of, "\t")[1]
	old := filepath.Join(there, "old")
	write(t, old, regexp.MustCompile(`(?m)^\d+`).ReplaceAllString(string(results), "2025"))
	failed := filepath.Join(there, "failed")
	write(t, failed, strings.ReplaceAll(string(results), "\tok\t", "\tFAILED\t"))
	other := filepath.Join(there, "other")
	write(t, other, strings.ReplaceAll(string(results), content, strings.Repeat("0", len(content))))
	if got := missing(old + " " + failed + " " + other); got != "unit tests" {
		t.Errorf("with results that are old, have failed or are of other files it says %q", got)
	}
	if got := missing(other + " " + file); got != "" {
		t.Errorf("with the results it says %q", got)
	}
	if got := missing(""); got != "" {
		t.Errorf("once they are believed it says %q", got)
	}

	// A version tells of a part by its line, so the line of what another checkout has stamped counts, too.
	log := filepath.Join(here, "_output/results")
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		missing(file)
	}
	if got, err := os.ReadFile(log); err != nil || strings.Count(string(got), "\tunit tests\tok\t") != 1 {
		t.Errorf("of what has a stamp, the results are %q (%v), and not the line of RESULTS, once", got, err)
	}

	if says, _ := run(t, here, "test-all", "PASSES=no", "FORCE=1"); !strings.Contains(says, "unit tests FAILED") {
		t.Errorf("it says\n%s", says)
	}
	if got := missing(file); got != "unit tests" {
		t.Errorf("after it has failed here, it says %q", got)
	}
}

// A run that is interrupted ends what it has started, and says so.
func TestAnInterruptedRunEndsItsParts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		dir := checkout(t)
		write(t, filepath.Join(dir, "Makefile"), ".PHONY: unit\nunit:\n\t@trap 'sleep 0.3; echo tidied >ended; exit 1' INT; touch begun; while :; do sleep 0.1; done\n.DEFAULT:\n\t@true\n")
		parts, err := program()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), parts, "test", "v1.37.0", "v1.37.0")
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "PART=^unit tests$"}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the unit tests do not begin")
			}
		}
		if err := cmd.Process.Signal(test.signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != test.code {
			t.Errorf("%v: it ended with %v, want code %d", test.signal, err, test.code)
		}
		if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
			t.Errorf("%v: it did not wait for what the tests tidy up: %v", test.signal, err)
		}
		if log, err := os.ReadFile(filepath.Join(dir, "_output/results")); err != nil || !strings.Contains(string(log), "\tunit tests\tended\t") {
			t.Errorf("%v: the results are %q (%v)", test.signal, log, err)
		}
	}
}

// The summary says first what failed, then what was skipped, in one screen.
func TestTheSummarySaysFirstWhatFailed(t *testing.T) {
	t.Parallel()
	says, err := script(t, checkout(t), "test", "PASSES=no", "PART=unit|lint|round|virtual machine")
	_, summary, found := strings.Cut(says, "\n=== make test of v1.37.0, in ")
	if err == nil || !found {
		t.Fatalf("%v, with\n%s", err, says)
	}
	lines := strings.Split(strings.TrimSpace(summary), "\n")[1:]
	if !strings.HasPrefix(lines[0], "FAILED   unit tests") || len(lines) > 40 {
		t.Errorf("the summary has %d lines, and is\n%s", len(lines), summary)
	}
	order := []string{"FAILED", "NOT RUN", "SKIPPED", "ok", "LEFT", "PART", "What"}
	last := 0
	for _, line := range lines {
		i := slices.IndexFunc(order, func(kind string) bool { return strings.HasPrefix(line, kind) })
		if i < last || len(line) > 160 {
			t.Errorf("the line %q is too long, or in the wrong place", line)
		}
		last = i
	}
}
