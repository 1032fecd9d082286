// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runUpdate runs the script of make update for v1.36 in a checkout of its own, which has v1.36.5 and these files, and whose carry is a
// script. It returns the checkout, and what it says.
func runUpdate(t *testing.T, carry string, files map[string]string) (dir, said string) {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(root, "scripts/update.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	write(t, filepath.Join(dir, "scripts/update.sh"), string(script))
	write(t, filepath.Join(dir, "build/releases/v1.36.5/go.mod"), "module m\n")
	write(t, filepath.Join(dir, ".gitignore"), "/_output/\n")
	write(t, filepath.Join(dir, "_output/bin/carry"), "#!/bin/sh\n"+carry)
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
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
	return dir, run("bash", "scripts/update.sh", "v1.36", "linux/amd64")
}

// Users who wait for a fix run make update.
func TestUpdateNamesReleasesThatItCannotTake(t *testing.T) {
	const refused = "v1.36.6 is listed but cannot be downloaded: k8s.io/kubernetes v1.36.6: 403 Forbidden"
	_, said := runUpdate(t, "echo 'v1.36.5   v1.36.5  until 2027-06  -'\necho\necho '"+refused+"'\necho 'v1.35.9 is listed but cannot be downloaded: k8s.io/kubernetes v1.35.9: 403 Forbidden'\n", nil)
	if !strings.Contains(said, refused) || !strings.Contains(said, "there is nothing to do") || strings.Contains(said, "v1.35.9") {
		t.Errorf("it says\n%s\nwant that there is nothing to do, and\n%s", said, refused)
	}
}

// What a page tells its reader to name is a release that is known. What it says of a release stays.
func TestUpdateNamesTheNewReleaseInThePages(t *testing.T) {
	const succeeds = "#!/bin/sh\n"
	dir, said := runUpdate(t, `case $1 in
outdated) echo 'v1.36.5   v1.36.6  until 2027-06  carry rebase v1.36.6'; exit 1 ;;
rebase)
  mkdir -p build/releases/$2 _output/$2/kubernetes
  echo 'module m' >build/releases/$2/go.mod
  echo 1.26.9 >_output/$2/kubernetes/.go-version
  echo "$2: done: 10 patches, 1 of them overrides; check the series" ;;
esac
`, map[string]string{
		"README.md":                   "| v1.36.5 | 10 | 0 | Go 1.26.8 | the default |\n",
		"docs/page.md":                "| 4.23, 5.0 | `release-5.0` | 1.36.3 | v1.36.5 | exported |\n$ carry export-tree v1.36.5 --onto a\nIt was measured with v1.36.5.\n",
		"scripts/install-packages.sh": succeeds,
		"_output/bin/images":          succeeds,
		"Makefile":                    "lint-series images:\n",
	})
	for name, want := range map[string]string{
		"README.md":    "| v1.36.6 | 10 | 1 | Go 1.26.9 | the default |\n",
		"docs/page.md": "| 4.23, 5.0 | `release-5.0` | 1.36.3 | v1.36.6 | exported |\n$ carry export-tree v1.36.6 --onto a\nIt was measured with v1.36.5.\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is (%v)\n%s\nwant\n%s\nmake update says\n%s", name, err, got, want, said)
		}
	}
}
