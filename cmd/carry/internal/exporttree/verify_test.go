// SPDX-License-Identifier: Apache-2.0

package exporttree

import (
	"path/filepath"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/treetest"
)

func TestVerifySaysWhatItRan(t *testing.T) {
	c := withTwoHooks(t, map[string]string{
		"hack/verify-gofmt.sh":    "[[ $GOPROXY == file://*/cache/download ]]\n",
		"hack/verify-vendor.sh":   "echo vendor differs\nexit 1\n",
		"hack/verify-spelling.sh": "go -C hack/tools install misspell\n",
		"hack/verify-flags.sh":    "exit 1\n",
		"Makefile":                "all:\n\ttest \"$(WHAT)\" = \"cmd/kubelet cmd/kube-apiserver\"\n",
	})
	to := filepath.Join(t.TempDir(), "fork")
	export(c, to)
	var out strings.Builder
	// The files of this tree are not Go, so its types are wrong.
	treetest.ExpectError(t, Verify(t.Context(), c.Tree, to, &out), to, "2 of 4 checks failed")
	for _, want := range []string{
		"types: FAILED after ", "hack/verify-gofmt.sh: passed in ", "hack/verify-vendor.sh: FAILED after ", "vendor differs\n", `make "WHAT=cmd/kubelet cmd/kube-apiserver": passed in `,
		"does not have: verify-spelling.sh\n", "imports and vendor: verify-flags.sh\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says\n%s\nwant %q in it", &out, want)
		}
	}
	treetest.ExpectError(t, Verify(t.Context(), c.Tree, filepath.Join(t.TempDir(), "none"), &out), "has nothing to verify")
}

// A fork need not pass upstream's checks.
func TestVerifyForgivesWhatFailsInTheCheckoutToo(t *testing.T) {
	c, fork := withFork(t)
	fork.commit("UPSTREAM: <carry>: scripts", map[string]string{
		"hack/verify-boilerplate.sh": "echo \"$PWD/openshift-kube-apiserver/patch.go:$(ls -d staging/src/* | wc -l):1: no licence\"\ndate +%N\nexit 1\n",
		"hack/verify-gofmt.sh":       "",
		"Makefile":                   "all:\n",
	})
	to := filepath.Join(t.TempDir(), "fork")
	c.Must(Export(t.Context(), c.Tree, Options{To: to, Onto: fork.Dir}))
	before := contents(c, filepath.Dir(to))
	var out strings.Builder
	c.Must(Verify(t.Context(), c.Tree, to, &out))
	if after := contents(c, filepath.Dir(to)); after != before {
		t.Error("the export has changed")
	}
	for _, want := range []string{
		"types: fails in the same way at ", "pkg/a.go:1: expected 'package', found aa\n",
		"hack/verify-boilerplate.sh: fails in the same way at ", "openshift-kube-apiserver/patch.go:2:1: no licence\n",
		"hack/verify-gofmt.sh: passed in ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says\n%s\nwant %q in it", &out, want)
		}
	}
	// The second line is of the export alone.
	fork.commit("UPSTREAM: <carry>: another", map[string]string{
		"hack/verify-boilerplate.sh": "echo patch.go: no licence\n[[ ! -e staging/src/workload.openshift.io ]] || echo ours: no licence\nexit 1\n",
	})
	to, out = filepath.Join(t.TempDir(), "fork"), strings.Builder{}
	c.Must(Export(t.Context(), c.Tree, Options{To: to, Onto: fork.Dir}))
	treetest.ExpectError(t, Verify(t.Context(), c.Tree, to, &out), "1 of 4 checks failed")
	if got := out.String(); !strings.Contains(got, "hack/verify-boilerplate.sh: FAILED after ") || !strings.Contains(got, "s:\nours: no licence\nhack/verify-gofmt.sh") {
		t.Errorf("it says\n%s", got)
	}
}
