// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWrongFlagsOfGatherAreNamed(t *testing.T) {
	here := filepath.Join(t.TempDir(), "here.tar.gz")
	if err := os.WriteFile(here, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expectRefused(t, newGather, map[string]string{
		"":                              "--image is missing: it names the image of kubectl-partition for a pod on each node; --no-pods reads no node",
		"--no-pods --image a":           "[image no-pods]",
		"--no-pods --to a.zip":          `--to is "a.zip", and must end in .tar.gz or .tgz`,
		"--no-pods --to " + here:        "nothing was written, because " + here + " exists; --force overwrites it",
		"--image a --at-once 0":         "--at-once is 0, and must be at least 1",
		"--image a --node-timeout 10ms": "--node-timeout is 10ms, and must be at least 1s",
		"--image a --selector a=b=c":    "--selector: ",
		"--no-pods --to " + filepath.Join(here, "a.tgz"):                       "not a directory",
		"--no-pods --to /nonexistent.tgz --kubeconfig /nonexistent/admin.conf": "/nonexistent/admin.conf",
		"nodes": `unknown command "nodes"`,
	})
}
