/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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
	// The files of this tree are no Go, so its types are wrong.
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
