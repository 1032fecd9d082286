// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"regexp"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

func TestExportAndTreeAreInverse(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	if got, want := c.Read("patches/series"), "# The order.\nkubelet-call-a.patch\nkubelet-call-b.patch\n"; got != want {
		t.Errorf("the order is %q, want %q", got, want)
	}
	first, head := c.Read("patches/kubelet-call-a.patch"), c.Git("rev-parse", "HEAD")
	c.Must(c.Tree.Update(t.Context()))
	c.Must(c.Tree.Export(t.Context()))
	if c.Read("patches/kubelet-call-a.patch") != first || c.Git("rev-parse", "HEAD") != head {
		t.Error("a second export differs from the first")
	}
	// The same patches on a new tree give the same commits.
	again := treetest.New(t)
	for _, name := range []string{"series", "kubelet-call-a.patch", "kubelet-call-b.patch"} {
		again.Write("patches/"+name, c.Read("patches/"+name))
	}
	again.Must(again.Tree.Update(t.Context()))
	if got := again.Git("rev-parse", "HEAD"); got != head {
		t.Errorf("another checkout has the commit %s, want %s", got, head)
	}
}

func TestExportLosesNothingThatTheTreeNeverHad(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	edited := strings.ReplaceAll(c.Read("patches/kubelet-call-b.patch"), "Why.", "Why, in other words.")
	c.Write("patches/kubelet-call-b.patch", edited)
	treetest.ExpectError(t, c.Tree.Export(t.Context()), "patches/kubelet-call-b.patch differs from what the tree was made from", "cherry-pick")
	if c.Read("patches/kubelet-call-b.patch") != edited {
		t.Fatal("the edit is gone")
	}
	c.Must(c.Tree.Update(t.Context()))
	c.Must(c.Tree.Export(t.Context()))

	// A patch that does not apply must not be exported as one that is gone.
	c.Write("patches/kubelet-call-b.patch", strings.ReplaceAll(edited, " bd\n", " not there\n"))
	treetest.ExpectError(t, c.Tree.Update(t.Context()), "does not apply")
	c.Must(c.Tree.Abort(t.Context()))
	treetest.ExpectError(t, c.Tree.Export(t.Context()), "differs from what the tree was made from")
}

func TestExportRefusesWhatIsNoPatch(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	head := c.Git("rev-parse", "HEAD")
	for name, test := range map[string]struct {
		commit func()
		want   string
	}{
		"an empty commit": {func() { c.Git("commit", "-q", "--allow-empty", "-m", "nothing") }, "it is empty"},
		"a message that ends early": {func() {
			c.Edit("a.go", "ah", "ah\nmanaged.H()")
			c.Git("commit", "-q", "-a", "-m", "subject\n\na\n---\nb")
		}, "a line ---"},
		"a merge": {func() {
			c.Git("checkout", "-q", "-b", "side", "HEAD~1")
			c.Edit("a.go", "ah", "ah\nmanaged.H()")
			c.Git("commit", "-q", "-a", "-m", "side")
			c.Git("checkout", "-q", "carry")
			c.Git("merge", "-q", "--no-edit", "side")
		}, "is a merge"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.Read("patches/series")
			test.commit()
			treetest.ExpectError(t, c.Tree.Export(t.Context()), test.want)
			c.Git("reset", "-q", "--hard", head)
			if c.Read("patches/series") != before {
				t.Error("patches/series was written")
			}
		})
	}
}

// An override is made from what the patches before it leave, and they change.
func TestAStaleOverrideIsExportedAgain(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	older := c.AddRelease("v1.36.3", map[string]string{"pkg/a.go": treetest.Numbered("a"), "pkg/b.go": treetest.Numbered("b")})
	const override = "patches/v1.36/kubelet-call-a.patch"
	common := c.Read("patches/kubelet-call-a.patch")
	c.Write(override, regexp.MustCompile(`index [0-9a-f]{40}`).ReplaceAllString(common, "index "+strings.Repeat("0", 40)))
	c.Must(older.Update(t.Context()))
	treetest.ExpectError(t, older.CheckExport(t.Context()), override+" differs from line 12 on", "carry export v1.36.3")
	c.Must(older.Export(t.Context()))
	if got := c.Read(override); got != common {
		t.Errorf("the override is\n%s", got)
	}
	c.Must(older.CheckExport(t.Context()))
}

func TestCheckExportNamesWhatWouldChange(t *testing.T) {
	const a, b = "patches/kubelet-call-a.patch", "patches/kubelet-call-b.patch"
	for name, test := range map[string]struct {
		change func(c treetest.Checkout)
		want   []string
	}{
		"nothing":     {func(treetest.Checkout) {}, nil},
		"a new patch": {func(c treetest.Checkout) { c.Hook("a.go", "al", "al\nmanaged.L()", "kubelet: call L") }, []string{"patches/kubelet-call-l.patch is missing", "patches/series differs from line 4 on", "carry export v1.37.0"}},
		"an edited commit": {func(c treetest.Checkout) {
			c.Edit("b.go", "managed.B()", "managed.C()")
			c.Git("commit", "-q", "-a", "--amend", "--no-edit")
		}, []string{b + " differs from line 12 on"}},
		"an edited file":        {func(c treetest.Checkout) { c.Write(a, strings.Replace(c.Read(a), "Why.", "Because.", 1)) }, []string{a + " differs from line 5 on", "carry tree v1.37.0"}},
		"a shortened file":      {func(c treetest.Checkout) { c.Write(a, strings.TrimSuffix(c.Read(a), "\n")) }, []string{a + " differs from line"}},
		"a commit that is gone": {func(c treetest.Checkout) { c.Git("reset", "-q", "--hard", "HEAD~1") }, []string{b + " has no commit", "patches/series differs"}},
		"uncommitted work":      {func(c treetest.Checkout) { c.Edit("a.go", "al", "my work") }, []string{"uncommitted work"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := treetest.WithTwoHooks(t)
			test.change(c)
			read := func() string { return c.Read("patches/series") + c.Read(a) + c.Read(b) }
			before, head := read(), c.Git("rev-parse", "HEAD")
			err := c.Tree.CheckExport(t.Context())
			if test.want == nil {
				c.Must(err)
			} else {
				treetest.ExpectError(t, err, test.want...)
			}
			if read() != before || c.Git("rev-parse", "HEAD") != head {
				t.Error("it wrote something")
			}
		})
	}
}
