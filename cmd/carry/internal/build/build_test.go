// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

func TestWhatCannotBeBuiltIsRefusedByName(t *testing.T) {
	for _, test := range []struct {
		name, platform, want string
		wanted               []string
	}{
		{"a platform without an architecture", "arm64", `unknown platform "arm64"`, nil},
		{"a platform that leads elsewhere", "linux/../arm64", `unknown platform "linux/../arm64"`, nil},
		{"a binary that is not known", HostPlatform, `unknown binary "etcd"; known are kubelet, `, []string{"etcd"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := Binaries(t.Context(), nil, nil, test.platform, false, test.wanted); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// Each package that go is working on has its own line, and hundreds of them are in progress or wait.
func TestADiskThatFillsIsOneError(t *testing.T) {
	for _, test := range []struct{ name, lines, want string }{
		{"a disk that fills", "k8s.io/api/core/v1\ncompile: writing output: write $WORK/b1197/_pkg_.a: no space left on device\nk8s.io/kms: mkdir /tmp/b1: no space left on device",
			"compile: writing output: write $WORK/b1197/_pkg_.a: no space left on device"},
		{"anything else", "k8s.io/api/core/v1\nmain.go:1:1: expected 'package'", "exit status 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := follow(&tree.Tree{Release: "v1.37.0"}, exec.CommandContext(t.Context(), "sh", "-c", "echo \"$0\"; exit 1", test.lines), "compiled")
			if err == nil || err.Error() != test.want || errors.Is(err, syscall.ENOSPC) != strings.Contains(test.want, "no space") {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}
