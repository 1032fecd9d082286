// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// suite is a selection of the tests. Each test names its suites in its first statement. Without the
// flag -suite all tests run.
type suite string

const (
	// core has the tests that say most. They need neither unpatched nor older binaries.
	core suite = "core"
	// vm has the tests of a node that also run in a virtual machine: those of what depends on systemd, on
	// the version of cgroups, or on the number of CPUs. What the kubelet computes and reports does not.
	vm suite = "vm"
	// vmCore has the tests of vm that need what only a virtual machine has, such as more CPUs.
	vmCore suite = "vm-core"
	// long has the tests that a short run (go test -short) leaves out: those that take long, and
	// those that need unpatched binaries or kwok, which take long to build.
	long suite = "long"
)

// mark is what a test says of itself in its first statement: a suite, or a need.
type mark interface{ isMark() }

func (suite) isMark() {}
func (need) isMark()  {}
func (maybe) isMark() {}

// in names the suites of a test or subtest, and what it needs. It skips the test unless one of the suites is to
// run, or if a need was not built.
func in(t *testing.T, marks ...mark) {
	t.Helper()
	if testing.Short() && slices.Contains(marks, mark(long)) {
		t.Skip("a short run leaves it out")
	}
	if runSuite != "" && !slices.Contains(marks, mark(suite(runSuite))) {
		t.Skipf("not in the suite %s", runSuite)
	}
	declareNeeds(t, marks)
	t.Cleanup(func() {
		if shared != nil {
			reportFaults(t, shared)
		}
	})
}

func TestEveryTestNamesItsSuites(t *testing.T) {
	in(t)
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(function.Name.Name, "Test") || function.Name.Name == "TestMain" {
				continue
			}
			if !startsWithIn(function.Body) {
				t.Errorf("%s: %s does not begin with in(t, ...), which names its suites", file.Name(), function.Name.Name)
			}
		}
	}
}

func startsWithIn(body *ast.BlockStmt) bool {
	if len(body.List) == 0 {
		return false
	}
	statement, ok := body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "in"
}
