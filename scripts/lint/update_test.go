// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Users who wait for a fix run make update. Its script runs here in a checkout of its own, whose carry prints what carry outdated does.
func TestUpdateNamesReleasesThatItCannotTake(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "scripts/update.sh"))
	if err != nil {
		t.Fatal(err)
	}
	const refused = "v1.36.6 is listed but cannot be downloaded: k8s.io/kubernetes v1.36.6: 403 Forbidden"
	dir := t.TempDir()
	write(t, filepath.Join(dir, "scripts/update.sh"), string(script))
	write(t, filepath.Join(dir, "build/releases/v1.36.5/go.mod"), "module m\n")
	write(t, filepath.Join(dir, ".gitignore"), "/_output/\n")
	write(t, filepath.Join(dir, "_output/bin/carry"), "#!/bin/sh\necho 'v1.36.5   v1.36.5  until 2027-06  -'\necho\necho '"+refused+"'\necho 'v1.35.9 is listed but cannot be downloaded: k8s.io/kubernetes v1.35.9: 403 Forbidden'\n")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		return string(out)
	}
	run("git", "init", "--quiet")
	run("git", "add", ".")
	run("git", "commit", "--quiet", "--message=begin")
	said := run("bash", "scripts/update.sh", "v1.36", "linux/amd64")
	if !strings.Contains(said, refused) || !strings.Contains(said, "there is nothing to do") || strings.Contains(said, "v1.35.9") {
		t.Errorf("it says\n%s\nwant that there is nothing to do, and\n%s", said, refused)
	}
}
