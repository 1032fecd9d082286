// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/txtar"

	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

// workspace is a tree in small: upstream's module with a hooked package and a staging
// module, and ours. Body is an error that is in a body of the staging module.
const workspace = `
-- go.work --
go 1.24.0

use (
	.
	./staging
	./ours
)
-- go.mod --
module example.org/upstream

go 1.24.0
-- kubelet/kubelet.go --
package kubelet

import (
	"example.org/ours/managed"
	"example.org/staging/dep"
)

type Kubelet struct{}

func (k *Kubelet) reconcile() {}

func (k *Kubelet) Start() {
	managed.Move(k.reconcile)
	_ = dep.Name("a") + dep.Map("b") + dep.Box[string]{}.Get()
}
-- kubelet/kubelet_test.go --
package kubelet

import "testing"

func TestReconcile(t *testing.T) { new(Kubelet).reconcile() }
-- staging/go.mod --
module example.org/staging

go 1.24.0
-- staging/dep/dep.go --
package dep

import (
	"fmt"
	"strings"
)

type Box[T any] struct{ value T }

func (b Box[T]) Get() T { return b.value }

func Map[T any](t T) T { return t }

func Name(name string) string { return strings.ToUpper(name) }

func Body() { fmt.Println(isNotThere) }

func init() { fmt.Println(Body) }
-- ours/go.mod --
module example.org/ours

go 1.24.0
-- ours/managed/managed.go --
package managed

func Move(step func()) { step() }
`

func TestMutantsAreFound(t *testing.T) {
	t.Setenv("GOWORK", "off") // as in a shell that must not use the go.work of a directory above
	for name, test := range map[string]struct {
		file, old, new string
		// want are the beginnings of the first problems.
		want []string
	}{
		"what is right, but for a body that is not looked at": {},
		"a hooked method is renamed": {
			"kubelet/kubelet.go", "func (k *Kubelet) reconcile()", "func (k *Kubelet) reconcileAll()",
			[]string{"kubelet/kubelet.go:13: k.reconcile undefined", "kubelet/kubelet_test.go:5: new(Kubelet).reconcile undefined"},
		},
		"a function of ours is renamed": {
			"ours/managed/managed.go", "func Move(", "func MoveAll(",
			[]string{"kubelet/kubelet.go:13: undefined: managed.Move"},
		},
		"a body of ours is wrong": {
			"ours/managed/managed.go", "step() }", "step(1) }",
			[]string{"ours/managed/managed.go:3: too many arguments in call to step"},
		},
		"a signature changes whose body is not looked at": {
			"staging/dep/dep.go", "func Name(name string)", "func Name(name string, more bool)",
			[]string{"kubelet/kubelet.go:14: not enough arguments in call to dep.Name"},
		},
		"a generic signature changes": {
			"staging/dep/dep.go", "func Map[T any](t T) T", "func Map[T ~int](t T) T",
			[]string{"kubelet/kubelet.go:14: string does not satisfy ~int"},
		},
		"a declaration is wrong": {
			"staging/dep/dep.go", "func Body() {", "func Body(x isNotThere) {",
			[]string{"staging/dep/dep.go:16: undefined: isNotThere"},
		},
		"an import is not used": {
			"kubelet/kubelet.go", "import (", "import (\n\t\"os\"",
			[]string{`kubelet/kubelet.go:4: "os" imported and not used`},
		},
		"a package is gone": {
			"kubelet/kubelet.go", "staging/dep", "staging/gone",
			[]string{"kubelet/kubelet.go:5: "},
		},
		"a file cannot be parsed": {
			"staging/dep/dep.go", "func Body() {", "func Body( {",
			[]string{"staging/dep/dep.go:16: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range txtar.Parse([]byte(workspace)).Files {
				content := string(file.Data)
				if file.Name == test.file {
					if content = strings.Replace(content, test.old, test.new, 1); content == string(file.Data) {
						t.Fatalf("%s has no %q", file.Name, test.old)
					}
				}
				write(t, filepath.Join(dir, file.Name), content)
			}
			result, err := Packages(t.Context(), Source{Dir: dir}, "./kubelet", "example.org/ours/managed")
			if err != nil {
				t.Fatal(err)
			}
			if result.Packages < 5 {
				t.Errorf("only %d packages are checked", result.Packages)
			}
			var all []string
			for _, p := range result.Problems {
				all = append(all, strings.TrimPrefix(p.String(), dir+"/"))
			}
			for i, want := range test.want {
				if i >= len(all) || !strings.HasPrefix(all[i], want) {
					t.Fatalf("the problems are\n%s\nwant\n%s", strings.Join(all, "\n"), strings.Join(test.want, "\n"))
				}
			}
			if len(test.want) == 0 && len(all) > 0 {
				t.Errorf("the problems are\n%s", strings.Join(all, "\n"))
			}
		})
	}
}

func TestWhatUsesAMissingModuleIsToldApart(t *testing.T) {
	t.Setenv("GOWORK", "off")
	more := `
-- gone/go.mod --
module example.org/gone

go 1.24.0
-- kubelet/network.go --
package kubelet

import "example.org/gone/iptables"

func Rules() *iptables.Rules { return iptables.New() }
-- staging/dep/wrapped.go --
package dep

import "example.org/gone"

type Wrapped struct{ gone.Context }
-- kubelet/wrapped.go --
package kubelet

import "example.org/staging/dep"

func Cancel(w dep.Wrapped) { w.Cancel() }
-- kubelet/app/app.go --
package app

import (
	"example.org/staging/dep"
	"example.org/upstream/kubelet"
)

func Run(k *kubelet.Kubelet, b dep.Box[string]) string {
	k.Start()
	return b.Get()
}
`
	for name, test := range map[string]struct{ old, new, want string }{
		"only files that import it":  {},
		"a hooked method is renamed": {"func (k *Kubelet) reconcile()", "func (k *Kubelet) reconcileAll()", "kubelet/kubelet.go:13: k.reconcile undefined"},
		// Another file of that package imports the missing module.
		"a method that another package calls is renamed": {"func (k *Kubelet) Start()", "func (k *Kubelet) StartAll()", "kubelet/app/app.go:9: k.Start undefined"},
		"a package is gone": {"staging/dep\"", "staging/gone\"", ": cannot find module providing package example.org/staging/gone"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range txtar.Parse([]byte(strings.Replace(workspace, test.old, test.new, 1) + more)).Files {
				content := strings.Replace(string(file.Data), "\t./ours\n", "\t./ours\n\t./gone\n", 1)
				write(t, filepath.Join(dir, file.Name), content)
			}
			result, err := Packages(t.Context(), Source{Dir: dir, AllowMissing: true, Empty: []string{"example.org/gone"}}, "./kubelet/...", "example.org/ours/managed")
			if err != nil {
				t.Fatal(err)
			}
			if len(result.Missing) != 1 || result.Missing[0].Module != "example.org/gone" ||
				!slices.Equal(result.Missing[0].Files, []string{filepath.Join(dir, "kubelet/network.go"), filepath.Join(dir, "staging/dep/wrapped.go")}) {
				t.Errorf("not checked is %v", result.Missing)
			}
			found := func(p Problem) bool { return strings.Contains(p.String(), test.want) }
			if test.want == "" && len(result.Problems) > 0 || test.want != "" && !slices.ContainsFunc(result.Problems, found) {
				t.Errorf("the problems are %v, want %q", result.Problems, test.want)
			}

			// Of a known release, all of it is a problem.
			if result, err = Packages(t.Context(), Source{Dir: dir}, "./kubelet"); err != nil || len(result.Problems) == 0 || len(result.Missing) > 0 {
				t.Errorf("of a known release the problems are %v, and not checked is %v, %v", result.Problems, result.Missing, err)
			}
		})
	}
}

func TestARefusedModuleIsMissing(t *testing.T) {
	// What go list says of an import, at the package that has it.
	p := &packages.Package{PkgPath: "example.org/a", Name: "a", GoFiles: []string{"a.go"}, Errors: []packages.Error{{Kind: packages.ListError,
		Msg: "example.org/refused/v7@v7.0.1: reading https://proxy.example.org/refused/v7/@v/v7.0.1.zip: 403 Forbidden\n\tserver response: no"}}}
	nested := &packages.Package{PkgPath: "example.org/refused/v7/another/module", Name: "module", Module: &packages.Module{}}
	m := findMissing([]*packages.Package{p, nested}, nil)
	for path, want := range map[string]string{"example.org/refused/v7": "example.org/refused/v7", "example.org/refused/v7/typed": "example.org/refused/v7", "example.org/refused/v70": "", "example.org/a": "", nested.PkgPath: ""} {
		if got := m.of(path); got != want {
			t.Errorf("the missing module of %s is %q, want %q", path, got, want)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTheTypeCheckerIsNotOlderThanTheRelease(t *testing.T) {
	for _, test := range []struct {
		demanded, compiledWith string
		want                   error
	}{
		{"1.26.0", "go1.26.8", nil},
		{"1.26.9", "go1.26.8", nil}, // The language is the same.
		{"1.25.0", "go1.26.8", nil},
		{"1.27.0", "go1.26.8", ErrOlderGo},
		{"1.27.0", "go1.27rc1", nil},
		{"1.27.0", "devel go1.28-0123456789", nil},
	} {
		if err := understood(test.demanded, test.compiledWith); !errors.Is(err, test.want) {
			t.Errorf("of a release in %s, checked with %s: %v, want %v", test.demanded, test.compiledWith, err, test.want)
		}
	}
}

func TestReleaseNamesThePatchAndOurOwnFiles(t *testing.T) {
	c := treetest.New(t, map[string]string{
		"pkg/kubelet/kubelet.go":       "package kubelet\n\nimport _ \"fmt\"\n\nfunc Start() {\n}\n",
		"cmd/kubelet/kubelet.go":       "package main\n\nimport \"k8s.io/kubernetes/pkg/kubelet\"\n\nfunc main() { kubelet.Start() }\n",
		"cmd/kube-apiserver/server.go": "package main\n\nfunc main() {}\n",
	})
	c.Write("pkg/kubelet/managed/managed.go", "package managed\n\nfunc Start() {}\n")
	c.Must(c.Tree.Update(t.Context()))
	c.Edit("kubelet/kubelet.go", `import _ "fmt"`, "import _ \"fmt\"\nimport \"workload.openshift.io/kubernetes/pkg/kubelet/managed\"")
	c.Hook("kubelet/kubelet.go", "func Start() {", "func Start() {\n\tmanaged.Start()", "kubelet: start")
	c.Must(c.Tree.Export(t.Context()))
	expect := func(want ...string) {
		t.Helper()
		result, err := Release(t.Context(), c.Tree)
		c.Must(err)
		var all []string
		for _, p := range result.Problems {
			all = append(all, p.String())
		}
		if got := strings.Join(all, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("the problems are\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
	expect()
	c.Write("pkg/kubelet/managed/managed.go", "package managed\n\nfunc Begin() { undefined() }\n")
	expect("_output/v1.37.0/kubernetes/pkg/kubelet/kubelet.go:7: undefined: managed.Start (patches/kubelet-start.patch)",
		"pkg/kubelet/managed/managed.go:3: undefined: undefined")
	c.Write("pkg/kubelet/managed/managed.go", "package managed\n\nfunc Start() {}\n")
	c.Write("pkg/kubelet/managed/start_windows.go", "package managed\n\nvar started undefined\n")
	expect("pkg/kubelet/managed/start_windows.go:3: on Windows: undefined: undefined")
}
