// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

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
	if findings := checkPatch(treetest.MustParse(t, "patches/a.patch", good)); len(findings) > 0 {
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
		"go.mod":              {"pkg/a.go", "go.mod", "is maintained by carry"},
		"a new file":          {"index 1..2 100644", "new file mode 100644", "a patch may only change the content of files"},
		"a changed signature": {"+	managed.A()\n", "-func f() {\n+func f(managed int) {\n", "the signature of an upstream function changes"},
		"too many lines":      {"+	managed.A()\n", strings.Repeat("+	managed.A()\n", 9), "9 lines are added"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []string
			for _, f := range checkPatch(treetest.MustParse(t, "patches/a.patch", strings.ReplaceAll(good, test.old, test.new))) {
				all = append(all, f.String())
			}
			if found := strings.Join(all, "\n"); !strings.Contains(found, test.want) {
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}

func TestLintAcceptsAnExportedPatch(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	const path = "patches/kubelet-call-a.patch"
	if findings := checkPatch(treetest.MustParse(t, path, c.Read(path))); len(findings) > 0 {
		t.Errorf("lint finds %v", findings)
	}
}

func TestLintDirectory(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	c.Write("patches/series", "kubelet-call-a.patch\nmissing.patch\n")
	c.Write("patches/0001-x.patch", "")
	findings, err := checkDirectory(c.Project)
	c.Must(err)
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

func TestLintFindsTestsThatDoNotExist(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	c.Write("pkg/a/a_test.go", "package a\n\nfunc TestHook(t *testing.T) {}\n")
	c.Write("test/e2e/b_test.go", "package e2e\n\nfunc TestPlacement(t *testing.T) {}\n")
	const path = "patches/kubelet-call-a.patch"
	for named, want := range map[string]string{
		"pkg/a TestHook, test/e2e TestPlacement, Tests of upstream": "",
		"pkg/a, test/e2e TestPlacement":                             "",
		"pkg/a TestHook/sub; (test/e2e TestPlacement).":             "",
		"pkg/a TestGone/sub.":                                       "there is no test TestGone in pkg/a",
		"pkg/a TestHook and TestGone":                               "there is no test TestGone in pkg/a",
		"pkg/a TestHook and TestPlacement":                          "there is no test TestPlacement in pkg/a",
		"pkg/gone, test/e2e TestPlacement":                          "there are no tests in pkg/gone",
		"TestHook":                                                  "TestHook has no directory; write it before the test",
	} {
		p := treetest.MustParse(t, path, strings.Replace(c.Read(path), "Tests: T\n", "Tests: "+named+"\n", 1))
		findings, err := checkTests(c.Project, []patch.Patch{p})
		c.Must(err)
		if got := len(findings); (want == "") != (got == 0) || got > 1 || got == 1 && !strings.HasSuffix(findings[0].String(), want) {
			t.Errorf("%s: the findings are %v, want %q", named, findings, want)
		}
	}
}

func TestBudget(t *testing.T) {
	c := treetest.WithTwoHooks(t)
	c.Write("patches/budget", "# The most.\npatches 2\nlines-added 1\nfiles 3\n")
	findings, err := checkBudget(c.Project)
	c.Must(err)
	if len(findings) != 2 || findings[0].String() != "patches/budget:3: lines-added is 2 in v1.37.0; the limit is 1" || findings[1].line != 4 {
		t.Errorf("findings are %v", findings)
	}
}
