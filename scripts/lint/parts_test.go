package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runOfVM is how scripts/test.sh and the Makefile select tests of test/e2e/vm. make halves the dollar.
var runOfVM = regexp.MustCompile(`(?:e2e-vm 'E2E_RUN=|-run=')(\^Test[^']*?)\$\$'`)

// A new test of VMs is in a part of make test-all, or in a target of its own.
func TestEachTestOfVMsIsRunByATarget(t *testing.T) {
	var selected []*regexp.Regexp
	for _, name := range []string{"scripts/test.sh", "Makefile"} {
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
				t.Errorf("%s: neither scripts/test.sh nor the Makefile runs %s", strings.TrimPrefix(file, root+"/"), found[1])
			}
		}
	}
	for i, expression := range selected {
		if !used[i] {
			t.Errorf("no test of test/e2e/vm matches %s", expression)
		}
	}
}
