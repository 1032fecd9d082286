package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
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
	// vmEightCPUs has the tests of vm that need eight CPUs. All others also run in a smaller VM, which
	// is faster where it is emulated.
	vmEightCPUs suite = "vm-eight-cpus"
	// long has the tests that a short run (go test -short) leaves out: those that take long, and
	// those that need unpatched binaries or kwok, which take long to build.
	long suite = "long"
)

// in names the suites of a test or subtest, and skips it unless one of them is to run.
func in(t *testing.T, suites ...suite) {
	t.Helper()
	if testing.Short() && slices.Contains(suites, long) {
		t.Skip("a short run leaves it out")
	}
	if runSuite != "" && !slices.Contains(suites, suite(runSuite)) {
		t.Skipf("not in the suite %s", runSuite)
	}
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
			in := startsWithIn(function.Body)
			switch {
			case in == nil:
				t.Errorf("%s: %s does not begin with in(t, ...), which names its suites", file.Name(), function.Name.Name)
			case needsEightCPUs(function.Body) && !slices.ContainsFunc(in.Args, func(argument ast.Expr) bool { return isNamed(argument, "vmEightCPUs") }):
				t.Errorf("%s: %s needs eight CPUs, and is not in the suite %s", file.Name(), function.Name.Name, vmEightCPUs)
			}
		}
	}
}

// startsWithIn returns the call of in that a test begins with, or nil.
func startsWithIn(body *ast.BlockStmt) *ast.CallExpr {
	if len(body.List) == 0 {
		return nil
	}
	statement, ok := body.List[0].(*ast.ExprStmt)
	if !ok {
		return nil
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok || !isNamed(call.Fun, "in") {
		return nil
	}
	return call
}

// needsEightCPUs returns whether a test, but not only one of its subtests, is skipped on fewer.
func needsEightCPUs(body *ast.BlockStmt) bool {
	return slices.ContainsFunc(body.List, func(statement ast.Stmt) bool {
		expression, ok := statement.(*ast.ExprStmt)
		if !ok {
			return false
		}
		call, ok := expression.X.(*ast.CallExpr)
		if !ok || !isNamed(call.Fun, "needsCPUs") {
			return false
		}
		literal, ok := call.Args[1].(*ast.BasicLit)
		if !ok {
			return false
		}
		count, err := strconv.Atoi(literal.Value)
		return err == nil && count > 4
	})
}

func isNamed(expression ast.Expr, name string) bool {
	identifier, ok := expression.(*ast.Ident)
	return ok && identifier.Name == name
}
