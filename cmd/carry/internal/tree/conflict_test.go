// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

func TestAPatchThatDoesNotApplyIsLeftToBeResolved(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	c.Write("patches/kubelet-call-a.patch", strings.ReplaceAll(c.Read("patches/kubelet-call-a.patch"), " ad\n", " not there\n"))
	err := c.Tree.Update(t.Context())
	treetest.ExpectError(t, err, "patches/kubelet-call-a.patch does not apply", "pkg/a.go:1:", "+managed.A()", "--continue", "--abort")
	treetest.ExpectError(t, c.Tree.Update(t.Context()), "unresolved conflict in")
	treetest.ExpectError(t, c.Tree.Export(t.Context()), "unresolved conflict in")
	c.Must(c.Tree.Abort(t.Context()))
	if dirty, err := c.Tree.Dirty(t.Context()); err != nil || dirty != "" {
		t.Errorf("after --abort the tree has %q (%v)", dirty, err)
	}

	treetest.ExpectError(t, c.Tree.Update(t.Context()), "does not apply")
	c.Write(treetest.Root+"pkg/a.go", strings.Replace(treetest.Numbered("a"), "ac\n", "ac\nmanaged.Resolved()\n", 1))
	_ = os.Remove(c.Project.Path(treetest.Root, "pkg", "a.go.rej"))
	treetest.ExpectError(t, c.Tree.Resume(t.Context()), "git add")
	c.Git("add", "pkg/a.go")
	c.Must(c.Tree.Resume(t.Context()))
	pinned := project.ReleasesDir + "/" + c.Tree.Release + "/go.mod"
	pins := c.Read(pinned)
	c.Write(pinned, pins+"\n// Another commit has pinned something else.\n")
	treetest.ExpectError(t, c.Tree.Update(t.Context()), "your resolution of patches/kubelet-call-a.patch", "carry export")
	c.Write(pinned, pins)
	c.Must(c.Tree.Export(t.Context()))
	if got := c.Read("patches/kubelet-call-a.patch"); !strings.Contains(got, "+managed.Resolved()") {
		t.Errorf("the exported patch is %s", got)
	}
	if got := c.Read(treetest.Root + "pkg/b.go"); !strings.Contains(got, "managed.B()") {
		t.Error("the second patch is not applied")
	}
}

func TestAPatchOfAFileThatIsGoneIsNotTakenByHalves(t *testing.T) {
	c := treetest.New(t)
	c.Must(c.Tree.Update(t.Context()))
	c.Edit("a.go", "ac", "ac\nmanaged.A()")
	c.Hook("b.go", "bc", "bc\nmanaged.B()", "kubelet: call both")
	c.Must(c.Tree.Export(t.Context()))
	older := c.AddRelease("v1.36.4", map[string]string{"pkg/a.go": treetest.Numbered("a"), "pkg/moved/b.go": treetest.Numbered("b")})
	treetest.ExpectError(t, older.Update(t.Context()), "patches/kubelet-call-both.patch does not apply to v1.36.4", "pkg/b.go is not in v1.36.4", "+managed.B()")
	git := func(args ...string) {
		_, err := older.Git().Run(t.Context(), args...)
		c.Must(err)
	}
	git("add", "--update")
	treetest.ExpectError(t, older.Resume(t.Context()), "pkg/b.go.rej", "remove it")
	c.Write("_output/v1.36.4/kubernetes/pkg/moved/b.go", strings.Replace(treetest.Numbered("b"), "bc\n", "bc\nmanaged.B()\n", 1))
	git("clean", "-q", "-f", "-d")
	git("add", "--update")
	c.Must(older.Resume(t.Context()))
}

func TestContinueWithoutAResolutionIsRefused(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	c.Write("patches/kubelet-call-a.patch", strings.ReplaceAll(c.Read("patches/kubelet-call-a.patch"), " ad\n", " not there\n"))
	treetest.ExpectError(t, c.Tree.Update(t.Context()), "does not apply")
	c.Git("reset", "-q", "--hard")
	c.Git("clean", "-q", "-f", "-d")
	treetest.ExpectError(t, c.Tree.Resume(t.Context()), "nothing is staged")
}

func TestAResolutionIsNotOfAnotherPatch(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	const file = "patches/kubelet-call-a.patch"
	fits := c.Read(file)
	c.Write(file, strings.ReplaceAll(fits, " ad\n", " not there\n"))
	treetest.ExpectError(t, c.Tree.Update(t.Context()), "does not apply")
	_ = os.Remove(c.Project.Path(treetest.Root, "pkg", "a.go.rej"))
	c.Edit("a.go", "ac", "ac\nmanaged.Resolved()")
	c.Git("add", "pkg/a.go")
	c.Write(file, strings.ReplaceAll(fits, "managed.A()", "managed.Pulled()"))
	treetest.ExpectError(t, c.Tree.Resume(t.Context()), file+" has changed since", "--abort")
	c.Must(c.Tree.Abort(t.Context()))
	c.Must(c.Tree.Update(t.Context()))
	if got := c.Read(treetest.Root + "pkg/a.go"); !strings.Contains(got, "managed.Pulled()") {
		t.Errorf("the tree has\n%s", got)
	}
}

func TestAHunkMustFitOnceAndIntoItsDeclaration(t *testing.T) {
	c := treetest.New(t)
	c.Must(c.Tree.Update(t.Context()))
	c.Git("rm", "-q", "pkg/b.go")
	c.Write(treetest.Root+"pkg/a.go", "func one() {\n\tx\n\ty\n}\n\nfunc two() {\n\tz\n}\n")
	c.Git("commit", "-q", "-a", "-m", "x")
	head := c.Git("rev-parse", "HEAD")
	for name, test := range map[string]struct{ hunk, want string }{
		"fits":                {"@@ -2,1 +2,2 @@ func one(more int) {\n+\tmanaged.A()\n \tx\n", ""},
		"another declaration": {"@@ -7,1 +7,2 @@ func one() {\n+\tmanaged.A()\n \tz\n", `stands in "one", but fits into pkg/a.go of v1.37.0, line 7, in "two"`},
		"two places":          {"@@ -4,1 +4,2 @@ func one() {\n+\tmanaged.A()\n }\n", "fits into 2 places of pkg/a.go"},
	} {
		p, err := patch.Parse("patches/p.patch", []byte("Subject: [PATCH] s\n\nw\n---\ndiff --git a/pkg/a.go b/pkg/a.go\n--- a/pkg/a.go\n+++ b/pkg/a.go\n"+test.hunk))
		c.Must(err)
		if _, err := c.Tree.Apply(t.Context(), p, head, time.Now()); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
