package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// checkout is a project with a tree of one small upstream file, made as
// materialise would but for the download.
type checkout struct {
	*testing.T
	project project.Checkout
	tree    *tree
}

const release = "v1.37.0"

func newCheckout(t *testing.T) checkout {
	t.Helper()
	dir := t.TempDir()
	p := project.Checkout{Dir: dir}
	c := checkout{t, p, treeOf(p, release)}
	c.write("go.mod", "module "+project.RootModule+"\n")
	c.write("build/releases/"+release+"/go.mod", "module m\n\ngo 1.26.0\n\nrequire "+project.UpstreamModule+" "+release+"\n")
	c.write("build/releases/"+release+"/go.sum", project.UpstreamModule+" "+release+" h1:x=\n")
	c.write("staging/src/"+project.CoreModule+"/doc.go", "package partition\n")
	c.write("staging/src/"+project.CoreModule+"/go.mod", "module "+project.CoreModule+"\n\ngo 1.26.0\n")
	c.write("patches/series", "# The order.\n")
	root := "_output/" + release + "/kubernetes/"
	c.write(root+"pkg/a.go", numbered20("a"))
	c.write(root+"pkg/b.go", numbered20("b"))
	c.write(root+"go.work", "go 1.26.0\n\nuse .\n")
	c.write(root+"go.work.sum", "x\n")
	c.write(root+"go.mod", "module "+project.UpstreamModule+"\n")
	c.git("init", "-q", "-b", "carry", ".")
	c.git("add", "--all")
	id := c.git("write-tree")
	released := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	commit, err := c.tree.git().CommitTree(t.Context(), git.Commit{Tree: id, Message: "upstream\n", By: project.Identity, Authored: released, Committed: released})
	c.must(err)
	c.git("reset", "-q", "--hard", commit)
	want, err := pins.Read(p, release)
	c.must(err)
	c.must(c.tree.save(state{Pins: pinsKey(want), Released: released, Upstream: commit, Head: commit}))
	return c
}

func numbered20(name string) string {
	var text strings.Builder
	for i := range 20 {
		text.WriteString(name + string(rune('a'+i)) + "\n")
	}
	return text.String()
}

func (c checkout) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c checkout) write(path, content string) {
	c.Helper()
	path = c.project.Path(path)
	c.must(os.MkdirAll(filepath.Dir(path), 0o755))
	c.must(os.WriteFile(path, []byte(content), 0o644))
}

func (c checkout) read(path string) string {
	c.Helper()
	data, err := os.ReadFile(c.project.Path(path))
	c.must(err)
	return string(data)
}

func (c checkout) git(args ...string) string {
	c.Helper()
	out, err := c.tree.git().With("GIT_AUTHOR_NAME=dev", "GIT_AUTHOR_EMAIL=d@e", "GIT_COMMITTER_NAME=dev", "GIT_COMMITTER_EMAIL=d@e").Run(context.Background(), args...)
	c.must(err)
	return out
}

// edit replaces a line of an upstream file in the tree.
func (c checkout) edit(file, line, by string) {
	c.Helper()
	path := "_output/" + release + "/kubernetes/pkg/" + file
	c.write(path, strings.Replace(c.read(path), line+"\n", by+"\n", 1))
}

// hook commits a change as a developer would.
func (c checkout) hook(file, line, by, subject string) {
	c.Helper()
	c.edit(file, line, by)
	c.git("commit", "-q", "-a", "-m", subject+"\n\nWhy.\n\nUpstream-Status: Pending [x]\nTests: T\nDrop-When: never\n")
}

// withTwoHooks has exported two patches.
func withTwoHooks(t *testing.T) checkout {
	c := newCheckout(t)
	c.must(c.tree.update(t.Context()))
	c.hook("a.go", "ac", "ac\nmanaged.A()", "kubelet: call A")
	c.hook("b.go", "bc", "bc\nmanaged.B()", "kubelet: call B")
	c.must(c.tree.export(t.Context()))
	return c
}

func TestExportAndTreeAreInverse(t *testing.T) {
	c := withTwoHooks(t)
	if got, want := c.read("patches/series"), "# The order.\nkubelet-call-a.patch\nkubelet-call-b.patch\n"; got != want {
		t.Errorf("the order is %q, want %q", got, want)
	}
	first, head := c.read("patches/kubelet-call-a.patch"), c.git("rev-parse", "HEAD")
	c.must(c.tree.update(t.Context()))
	c.must(c.tree.export(t.Context()))
	if c.read("patches/kubelet-call-a.patch") != first || c.git("rev-parse", "HEAD") != head {
		t.Error("a second export differs from the first")
	}
	// The same patches on a new tree give the same commits.
	again := newCheckout(t)
	for _, name := range []string{"series", "kubelet-call-a.patch", "kubelet-call-b.patch"} {
		again.write("patches/"+name, c.read("patches/"+name))
	}
	again.must(again.tree.update(t.Context()))
	if got := again.git("rev-parse", "HEAD"); got != head {
		t.Errorf("another checkout has the commit %s, want %s", got, head)
	}
	if findings := lintPatch(mustParse(t, "patches/kubelet-call-a.patch", first)); len(findings) > 0 {
		t.Errorf("lint finds %v", findings)
	}
}

func TestOnlyAChangedPatchIsAppliedAgain(t *testing.T) {
	c := withTwoHooks(t)
	s, err := c.tree.load()
	c.must(err)
	before := s.Applied
	c.write("patches/kubelet-call-b.patch", strings.ReplaceAll(c.read("patches/kubelet-call-b.patch"), "managed.B()", "managed.C()"))
	c.must(c.tree.update(t.Context()))
	if s, err = c.tree.load(); err != nil || s.Applied[0] != before[0] || s.Applied[1] == before[1] {
		t.Errorf("applied %v, was %v (%v)", s.Applied, before, err)
	}
	if got := c.read("_output/" + release + "/kubernetes/pkg/b.go"); !strings.Contains(got, "managed.C()") {
		t.Errorf("the tree has %q", got)
	}
}

func TestWorkInTheTreeIsNeverThrownAway(t *testing.T) {
	c := withTwoHooks(t)
	c.edit("a.go", "ad", "my work")
	// Nothing is to be done: work is welcome.
	c.must(c.tree.update(t.Context()))
	c.write("patches/series", "kubelet-call-a.patch\n")
	expectError(t, c.tree.update(t.Context()), "uncommitted work", "pkg/a.go", "git stash", "reset --hard")
	expectError(t, c.tree.export(t.Context()), "uncommitted work")
	if !strings.Contains(c.read("_output/"+release+"/kubernetes/pkg/a.go"), "my work") {
		t.Fatal("the work is gone")
	}
	c.git("commit", "-q", "-a", "-m", "my commit")
	expectError(t, c.tree.update(t.Context()), "has commits that patches/ has not", "carry export", "reset --keep")
}

func TestAPatchThatDoesNotApplyIsLeftToBeResolved(t *testing.T) {
	c := withTwoHooks(t)
	c.write("patches/kubelet-call-a.patch", strings.ReplaceAll(c.read("patches/kubelet-call-a.patch"), " ad\n", " not there\n"))
	err := c.tree.update(t.Context())
	expectError(t, err, "patches/kubelet-call-a.patch does not apply", "pkg/a.go:1:", "+managed.A()", "--continue", "--abort")
	expectError(t, c.tree.update(t.Context()), "waits")
	expectError(t, c.tree.export(t.Context()), "waits")
	c.must(c.tree.abort(t.Context()))
	if dirty, err := c.tree.dirty(t.Context()); err != nil || dirty != "" {
		t.Errorf("after --abort the tree has %q (%v)", dirty, err)
	}

	expectError(t, c.tree.update(t.Context()), "does not apply")
	c.write("_output/"+release+"/kubernetes/pkg/a.go", strings.Replace(numbered20("a"), "ac\n", "ac\nmanaged.Resolved()\n", 1))
	_ = os.Remove(c.project.Path("_output", release, "kubernetes", "pkg", "a.go.rej"))
	expectError(t, c.tree.resume(t.Context()), "git add")
	c.git("add", "pkg/a.go")
	c.must(c.tree.resume(t.Context()))
	c.must(c.tree.export(t.Context()))
	if got := c.read("patches/kubelet-call-a.patch"); !strings.Contains(got, "+managed.Resolved()") {
		t.Errorf("the exported patch is %s", got)
	}
	if got := c.read("_output/" + release + "/kubernetes/pkg/b.go"); !strings.Contains(got, "managed.B()") {
		t.Error("the second patch is not applied")
	}
}

func TestExportLosesNothingThatTheTreeNeverHad(t *testing.T) {
	c := withTwoHooks(t)
	edited := strings.ReplaceAll(c.read("patches/kubelet-call-b.patch"), "Why.", "Why, in other words.")
	c.write("patches/kubelet-call-b.patch", edited)
	expectError(t, c.tree.export(t.Context()), "patches/kubelet-call-b.patch is not what the tree was made from", "cherry-pick")
	if c.read("patches/kubelet-call-b.patch") != edited {
		t.Fatal("the edit is gone")
	}
	c.must(c.tree.update(t.Context()))
	c.must(c.tree.export(t.Context()))

	// A patch that does not apply must not be exported as one that is gone.
	c.write("patches/kubelet-call-b.patch", strings.ReplaceAll(edited, " bd\n", " not there\n"))
	expectError(t, c.tree.update(t.Context()), "does not apply")
	c.must(c.tree.abort(t.Context()))
	expectError(t, c.tree.export(t.Context()), "is not what the tree was made from")
}

func TestExportRefusesWhatIsNoPatch(t *testing.T) {
	c := withTwoHooks(t)
	head := c.git("rev-parse", "HEAD")
	for name, test := range map[string]struct {
		commit func()
		want   string
	}{
		"an empty commit": {func() { c.git("commit", "-q", "--allow-empty", "-m", "nothing") }, "it is empty"},
		"a message that ends early": {func() {
			c.edit("a.go", "ah", "ah\nmanaged.H()")
			c.git("commit", "-q", "-a", "-m", "subject\n\na\n---\nb")
		}, "a line ---"},
		"a merge": {func() {
			c.git("checkout", "-q", "-b", "side", "HEAD~1")
			c.edit("a.go", "ah", "ah\nmanaged.H()")
			c.git("commit", "-q", "-a", "-m", "side")
			c.git("checkout", "-q", "carry")
			c.git("merge", "-q", "--no-edit", "side")
		}, "is a merge"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.read("patches/series")
			test.commit()
			expectError(t, c.tree.export(t.Context()), test.want)
			c.git("reset", "-q", "--hard", head)
			if c.read("patches/series") != before {
				t.Error("patches/series was written")
			}
		})
	}
}

func TestContinueWithoutAResolutionIsRefused(t *testing.T) {
	c := withTwoHooks(t)
	c.write("patches/kubelet-call-a.patch", strings.ReplaceAll(c.read("patches/kubelet-call-a.patch"), " ad\n", " not there\n"))
	expectError(t, c.tree.update(t.Context()), "does not apply")
	c.git("reset", "-q", "--hard")
	c.git("clean", "-q", "-f", "-d")
	expectError(t, c.tree.resume(t.Context()), "nothing is staged")
}

func TestAnInterruptedSwitchIsFinished(t *testing.T) {
	c := withTwoHooks(t)
	s, err := c.tree.load()
	c.must(err)
	// As if killed between two files of the switch back to no patches.
	target := s.Workspace
	s.Switching = target
	c.must(c.tree.save(s))
	c.git("checkout", "-q", target, "--", "pkg/a.go")
	c.write("_output/"+release+"/kubernetes/.git/index.lock", "")
	c.must(c.tree.update(t.Context()))
	if dirty, err := c.tree.dirty(t.Context()); err != nil || dirty != "" {
		t.Errorf("the tree has %q (%v)", dirty, err)
	}
	if got := c.read("_output/" + release + "/kubernetes/pkg/a.go"); !strings.Contains(got, "managed.A()") {
		t.Error("the series is not applied")
	}

	s, err = c.tree.load()
	c.must(err)
	s.Switching = s.Workspace
	c.must(c.tree.save(s))
	c.edit("a.go", "af", "my work")
	expectError(t, c.tree.update(t.Context()), "pkg/a.go was changed")
}

func TestUnknownReleasesAndMissingSums(t *testing.T) {
	c := newCheckout(t)
	_, _, err := c.project.Release([]string{"v9.9.9"})
	expectError(t, err, `unknown release "v9.9.9"; known are v1.37.0`)
	if got, rest, err := c.project.Release([]string{"kubelet"}); got != release || len(rest) != 1 || err != nil {
		t.Errorf("got %s, %v, %v", got, rest, err)
	}
	c.write("build/releases/"+release+"/go.sum", "")
	_, err = pins.Read(c.project, release)
	expectError(t, err, "go.sum does not pin k8s.io/kubernetes@v1.37.0")
}

func TestLintFindsWhatBreaksTheRules(t *testing.T) {
	const good = `From: x <x@y>
Date: Thu, 1 Jan 2026 00:00:00 +0000
Subject: [PATCH] kubelet: call A

Why.

Upstream-Status: Pending [x]
Tests: T
Drop-When: never
---
diff --git a/pkg/a.go b/pkg/a.go
index 1..2 100644
--- a/pkg/a.go
+++ b/pkg/a.go
@@ -1,3 +1,4 @@
 a
+	managed.A()
 b
`
	if findings := lintPatch(mustParse(t, "patches/a.patch", good)); len(findings) > 0 {
		t.Fatalf("the good patch has %v", findings)
	}
	for name, test := range map[string]struct{ old, new, want string }{
		"no reason":           {"Why.\n\n", "", "patches/a.patch:3: the message does not say why"},
		"no status":           {"Upstream-Status: Pending [x]\n", "", "has no Upstream-Status"},
		"a status unknown":    {"Pending [x]", "Maybe", `patches/a.patch:7: Upstream-Status is "Maybe"`},
		"no tests":            {"Tests: T\n", "", "has no Tests"},
		"no end":              {"Drop-When: never\n", "", "has no Drop-When"},
		"a long subject":      {"call A", strings.Repeat("call A ", 20), "the subject has"},
		"logic":               {"managed.A()", "for range managed.A() {", `patches/a.patch:17: pkg/a.go: "for range managed.A() {" is logic`},
		"a condition":         {"managed.A()", "if x { managed.A() }", "is logic"},
		"no call of ours":     {"managed.A()", "somethingElse()", "patches/a.patch:15: pkg/a.go: the hunk does not call"},
		"a test":              {"pkg/a.go", "pkg/a_test.go", "is an upstream test"},
		"generated code":      {"pkg/a.go", "pkg/zz_generated.a.go", "is generated"},
		"go.mod":              {"pkg/a.go", "go.mod", "is Go's bookkeeping"},
		"a new file":          {"index 1..2 100644", "new file mode 100644", "changes the content of files and nothing else"},
		"a changed signature": {"+	managed.A()\n", "-func f() {\n+func f(managed int) {\n", "the signature of an upstream function changes"},
		"too many lines":      {"+	managed.A()\n", strings.Repeat("+	managed.A()\n", 9), "9 lines are added"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []string
			for _, f := range lintPatch(mustParse(t, "patches/a.patch", strings.ReplaceAll(good, test.old, test.new))) {
				all = append(all, f.String())
			}
			if found := strings.Join(all, "\n"); !strings.Contains(found, test.want) {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}

func TestLintFolder(t *testing.T) {
	c := withTwoHooks(t)
	c.write("patches/series", "kubelet-call-a.patch\nmissing.patch\n")
	c.write("patches/0001-x.patch", "")
	findings, err := lintFolder(c.project)
	c.must(err)
	text := ""
	for _, f := range findings {
		text += f.String() + "\n"
	}
	for _, want := range []string{"patches/kubelet-call-b.patch:1: patches/series does not list it", "patches/0001-x.patch:1: has a number", "patches/series:2: missing.patch does not exist"} {
		if !strings.Contains(text, want) {
			t.Errorf("findings are\n%swant %q", text, want)
		}
	}
}

func mustParse(t *testing.T, path, text string) patch.Patch {
	t.Helper()
	p, err := patch.Parse(path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func expectError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q, want %q in it", err, part)
		}
	}
}
