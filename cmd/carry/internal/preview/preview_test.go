// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/rebase"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

const alpha = "v1.38.0-alpha.1"

var (
	// swapped needs a three-way merge, replaced is a conflict, and upstreamHasIt has the hook.
	swapped       = strings.Replace(treetest.Numbered("a"), "ab\n", "ab2\n", 1)
	replaced      = strings.Replace(treetest.Numbered("a"), "ac\nad\n", "new\n", 1)
	upstreamHasIt = strings.Replace(treetest.Numbered("a"), "ac\n", "ac\nmanaged.A()\n", 1)
)

// prepared is a checkout with two hooks, and a source that has a pre-release with this a.go.
func prepared(t *testing.T, a string) (treetest.Checkout, *treetest.Source, *tree.Tree) {
	t.Helper()
	c, s := treetest.WithTwoHooks(t), treetest.NewSource(t)
	s.Publish(alpha, map[string]string{"pkg/a.go": a})
	return c, s, tree.Of(c.Project, alpha)
}

// committable are the files of a checkout but for those in _output.
func committable(c treetest.Checkout) map[string]string {
	files := map[string]string{}
	for _, dir := range []string{"build", "patches"} {
		for _, pattern := range []string{"*", "*/*", "*/*/*"} {
			paths, err := filepath.Glob(c.Project.Path(dir, pattern))
			c.Must(err)
			for _, path := range paths {
				if data, err := os.ReadFile(path); err == nil {
					files[strings.TrimPrefix(path, c.Project.Dir+"/")] = string(data)
				}
			}
		}
	}
	return files
}

func TestAPreviewChangesNothingThatCanBeCommitted(t *testing.T) {
	for name, test := range map[string]struct {
		a    string
		want []string
	}{
		"all applies":             {treetest.Numbered("a"), nil},
		"a three-way merge":       {swapped, []string{"_output/v1.38.0-alpha.1/patches/kubelet-call-a.patch: needed here"}},
		"upstream has the change": {upstreamHasIt, []string{"kubelet-call-a.patch: upstream has it in v1.38.0-alpha.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, preview := prepared(t, test.a)
			before := committable(c)
			for range 2 { // Again, it has nothing to do.
				c.Must(Start(t.Context(), preview, ""))
				if after := committable(c); !maps.Equal(after, before) {
					t.Errorf("there are\n%v\nand were\n%v", after, before)
				}
				content := c.Read("_output/" + alpha + "/kubernetes/pkg/a.go")
				if strings.Count(content, "managed.A()") != 1 {
					t.Errorf("the tree has\n%s", content)
				}
				lines, err := Differences(preview)
				c.Must(err)
				if !slices.EqualFunc(lines, test.want, strings.HasPrefix) {
					t.Errorf("the differences are %q, want %q", lines, test.want)
				}
			}
			treetest.ExpectError(t, rebase.Start(t.Context(), preview, rebase.Options{}), "v1.38.0-alpha.1 is being previewed", "carry preview v1.38.0-alpha.1 --abort")
			// It is not a known release, but can be named.
			if known, err := c.Project.Releases(); err != nil || len(known) != 1 {
				t.Errorf("known are %v, %v", known, err)
			}
			if release, _, err := c.Project.Release([]string{alpha}); release != alpha || err != nil {
				t.Errorf("named, it is %q, %v", release, err)
			}
			c.Must(preview.CheckExport(t.Context()))
			c.Must(c.Tree.Update(t.Context()))
			c.Must(c.Tree.CheckExport(t.Context()))

			c.Must(Abort(preview))
			if _, err := os.Stat(c.Project.Path("_output", alpha)); !os.IsNotExist(err) {
				t.Errorf("after the abort _output/%s is there: %v", alpha, err)
			}
		})
	}
}

func TestAConflictIsResolvedAndKept(t *testing.T) {
	c, s, preview := prepared(t, replaced)
	err := Start(t.Context(), preview, "")
	treetest.ExpectError(t, err, "patches/kubelet-call-a.patch does not apply to v1.38.0-alpha.1", "pkg/a.go:", "<<<<<<<", "carry preview v1.38.0-alpha.1 --continue")
	treetest.ExpectError(t, Start(t.Context(), preview, ""), "unresolved conflict in", "carry preview v1.38.0-alpha.1 --continue")
	treetest.ExpectError(t, Continue(t.Context(), preview, ""), "not resolved")
	c.Write("_output/"+alpha+"/kubernetes/pkg/a.go", strings.Replace(replaced, "new\n", "new\nmanaged.A()\n", 1))
	_, err = preview.Git().Run(t.Context(), "add", "pkg/a.go")
	c.Must(err)
	before := committable(c)
	c.Must(Continue(t.Context(), preview, ""))
	if after := committable(c); !maps.Equal(after, before) {
		t.Errorf("there are\n%v\nand were\n%v", after, before)
	}
	c.Must(Start(t.Context(), preview, ""))

	c.Must(Keep(t.Context(), preview))
	if override := c.Read("patches/v1.38/kubelet-call-a.patch"); !strings.Contains(override, "+managed.A()\n") {
		t.Errorf("the override is\n%s", override)
	}
	treetest.ExpectError(t, Keep(t.Context(), preview), "nothing to keep")
	// The next pre-release takes it.
	s.Publish("v1.38.0-beta.0", map[string]string{"pkg/a.go": replaced})
	next := tree.Of(c.Project, "v1.38.0-beta.0")
	kept := committable(c)
	c.Must(Start(t.Context(), next, ""))
	if lines, err := Differences(next); err != nil || len(lines) > 0 {
		t.Errorf("the differences are %q, %v", lines, err)
	}
	if after := committable(c); !maps.Equal(after, kept) {
		t.Error("the next preview has changed patches/")
	}
}

func TestAPatchThatHasChangedIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct{ a, before, after, want string }{
		"an override":          {swapped, "kubelet-call-a.patch.before", "kubelet-call-a.patch", "Why, in other words."},
		"a patch upstream has": {upstreamHasIt, "dropped.before", "dropped", "kubelet-call-a.patch upstream has it"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, preview := prepared(t, test.a)
			c.Must(Start(t.Context(), preview, ""))
			c.Write("patches/kubelet-call-a.patch", strings.ReplaceAll(c.Read("patches/kubelet-call-a.patch"), "Why.", "Why, in other words."))
			c.Must(Start(t.Context(), preview, ""))
			if text := c.Read("_output/" + alpha + "/patches/" + test.after); !strings.Contains(text, test.want) {
				t.Errorf("%s is\n%s", test.after, text)
			}
			c.Read("_output/" + alpha + "/patches/" + test.before)
		})
	}
}

func TestAModuleThatCannotBeHadIsTakenFromAnOlderVersion(t *testing.T) {
	c, s, preview := prepared(t, treetest.Numbered("a"))
	s.Publish("v1.37.1", nil)
	s.Publish("v1.37.2", nil)
	s.Refuse("k8s.io/mount-utils", "v0.37.2")
	s.Refuse("k8s.io/mount-utils", "v0.38.0-alpha.1")
	s.Refuse("k8s.io/sample-controller", "v0.38.0-alpha.1")
	c.Must(Start(t.Context(), preview, ""))
	read, err := pins.Read(c.Project, alpha)
	c.Must(err)
	if got := read.Modules["k8s.io/mount-utils"]; got != "v0.37.1" {
		t.Errorf("k8s.io/mount-utils is of %q", got)
	}
	if got := read.Modules["k8s.io/sample-controller"]; got != "" {
		t.Errorf("k8s.io/sample-controller, which nothing needs, is of %q", got)
	}
	lines, err := Differences(preview)
	c.Must(err)
	if want := []string{"k8s.io/mount-utils is at v0.37.1, since it cannot be downloaded at v0.38.0-alpha.1"}; !slices.Equal(lines, want) {
		t.Errorf("the differences are %q, want %q", lines, want)
	}
}

func TestAModuleOfWhichThereIsNoVersionIsLeftOut(t *testing.T) {
	c, s, preview := prepared(t, treetest.Numbered("a"))
	s.Publish(alpha, map[string]string{
		"cmd/kubelet/mount.go":         "package main\n\nimport \"k8s.io/mount-utils\"\n\nvar _ = p.New()\n",
		"cmd/kubelet/kubelet.go":       "package main\n\nfunc main() {}\n",
		"cmd/kube-apiserver/server.go": "package main\n\nfunc main() {}\n",
	})
	s.Refuse("k8s.io/mount-utils", "v0.38.0-alpha.1")
	c.Must(Start(t.Context(), preview, ""))
	fit, err := Fits(t.Context(), preview)
	c.Must(err)
	// Upstream's other files are not Go in this test.
	if !fit.Checked || slices.ContainsFunc(fit.Problems, func(line string) bool { return strings.Contains(line, "cmd/") }) {
		t.Errorf("checked: %v; the problems are %q", fit.Checked, fit.Problems)
	}
	if len(fit.Missing) != 1 || fit.Missing[0].Module != "k8s.io/mount-utils" || !slices.Equal(fit.Missing[0].Files, []string{"_output/" + alpha + "/kubernetes/cmd/kubelet/mount.go"}) {
		t.Errorf("not checked is %v", fit.Missing)
	}
}

func TestPreviewRefusesMistakes(t *testing.T) {
	c, s, _ := prepared(t, treetest.Numbered("a"))
	treetest.ExpectError(t, Start(t.Context(), c.Tree, ""), "v1.37.0 is already known")
	s.Refuse("k8s.io/kubernetes", "v1.38.0-alpha.2")
	other := tree.Of(c.Project, "v1.38.0-alpha.2")
	err := other.Locked(t.Context(), func() error { return Start(t.Context(), other, "") })
	treetest.ExpectError(t, err, "v1.38.0-alpha.2 cannot be downloaded: k8s.io/kubernetes v1.38.0-alpha.2: 403 Forbidden")
	if _, err := os.Stat(c.Project.Path("_output", "v1.38.0-alpha.2")); !os.IsNotExist(err) {
		t.Errorf("_output/v1.38.0-alpha.2 is there: %v", err)
	}
}

func TestTheNewestPrereleaseIsOneThatCanBeHad(t *testing.T) {
	c, s := treetest.New(t), treetest.NewSource(t)
	s.Publish("v1.37.0-rc.1", nil)
	s.Publish("v1.37.0", nil)
	if newest, err := Newest(t.Context(), c.Project); newest != "" || err != nil {
		t.Errorf("the newest is %q, %v", newest, err)
	}
	s.Publish("v1.38.0-alpha.9", nil)
	s.Publish("v1.38.0-alpha.10", nil)
	s.Publish("v1.38.0-beta.0", nil)
	s.Forget("k8s.io/kubernetes", "v1.38.0-beta.0")
	// It has a new module, of which there is no older version either.
	s.Publish("v1.38.0-beta.1", map[string]string{"go.mod": "module k8s.io/kubernetes\n\ngo 1.24.0\n\nreplace k8s.io/new => ./staging/src/k8s.io/new\n"})
	if newest, err := Newest(t.Context(), c.Project); newest != "v1.38.0-alpha.10" || err != nil {
		t.Errorf("the newest is %q, %v", newest, err)
	}
	s.Refuse("k8s.io/mount-utils", "v0.38.0-alpha.10")
	if newest, err := Newest(t.Context(), c.Project); newest != "v1.38.0-alpha.10" || err != nil {
		t.Errorf("with a module of an older version, the newest is %q, %v", newest, err)
	}
}
