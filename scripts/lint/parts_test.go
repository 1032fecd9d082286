// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runOfVM is how scripts/parts and the Makefile select tests of test/e2e/vm. make halves the dollar.
var runOfVM = regexp.MustCompile(`(?:"e2e-vm", "E2E_RUN=|-run=')(\^Test[^'"]*?)\$\$['"]`)

// A new test of VMs is in a part of make test-all, or in a separate target.
func TestEachTestOfVMsIsRunByATarget(t *testing.T) {
	var selected []*regexp.Regexp
	for _, name := range []string{"scripts/parts/parts.go", "Makefile"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range runOfVM.FindAllStringSubmatch(string(text), -1) {
			expression, err := regexp.Compile(found[1] + "$")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			selected = append(selected, expression)
		}
	}
	used := make([]bool, len(selected))
	files, err := filepath.Glob(filepath.Join(root, "test/e2e/vm/*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are the files %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(string(text), -1) {
			run := false
			for i, expression := range selected {
				if expression.MatchString(found[1]) {
					run, used[i] = true, true
				}
			}
			if !run {
				t.Errorf("%s: neither scripts/parts nor the Makefile runs %s", strings.TrimPrefix(file, root+"/"), found[1])
			}
		}
	}
	for i, expression := range selected {
		if !used[i] {
			t.Errorf("no test of test/e2e/vm matches %s", expression)
		}
	}
}

// What skips itself on a host of two CPUs, or without systemd, is in the suite that runs in VMs.
func TestWhatAHostLacksRunsInVMs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "test/e2e/*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are the files %v, %v", files, err)
	}
	suites := regexp.MustCompile(`^\t+in\(t[,)]`)
	lacks, found := regexp.MustCompile(`\bneedsCPUs\(t, \d|\bconfig[.]Supervisor != host[.]Systemd|!config[.]Dedicated\b`), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in := ""
		for number, line := range strings.Split(string(text), "\n") {
			if suites.MatchString(line) {
				in = line
			}
			if !lacks.MatchString(line) {
				continue
			}
			found++
			// A table names its suites in rows.
			if !regexp.MustCompile(`\bvm\b|[.]suites[.]{3}`).MatchString(in) {
				t.Errorf("%s:%d needs what a host may lack, and is not in the suite vm, but in %q", strings.TrimPrefix(file, root+"/"), number+1, strings.TrimSpace(in))
			}
		}
	}
	if found < 10 {
		t.Errorf("%d tests need what a host may lack", found)
	}
}

// make test-all forgets nothing that it should: no test of a node reads a page that scripts/parts says is
// irrelevant to them.
func TestTestsOfNodesReadNoIrrelevantPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "scripts/parts/content.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)^\t\tpages = `(docs/user/.*)`$").FindStringSubmatch(string(text))
	if found == nil {
		t.Fatal("scripts/parts has no list of pages")
	}
	irrelevant, pages := regexp.MustCompile("^"+found[1]), 0
	all, err := filepath.Glob(filepath.Join(root, "docs/user/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]string{}
	for _, pattern := range []string{"test/e2e/*_test.go", "test/e2e/vm/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: the files are %v, %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range regexp.MustCompile(`"(?:[^"\s]*/)?([a-z-]+[.]md)"`).FindAllStringSubmatch(string(text), -1) {
				read[name[1]] = file
			}
		}
	}
	for _, page := range all {
		name := filepath.Base(page)
		if !irrelevant.MatchString("docs/user/" + name) {
			continue
		}
		pages++
		if file := read[name]; file != "" {
			t.Errorf("%s reads %s, which scripts/parts takes for irrelevant", file, name)
		}
	}
	if pages < 10 || len(read) < 6 {
		t.Errorf("%d pages are irrelevant, and tests read %v", pages, read)
	}
}
