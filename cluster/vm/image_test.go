// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNothingUnsignedGoesIntoTheBase runs debootstrap on a host without Debian's keyring, and on a mirror that no one
// has signed. Both must end it before it looks at packages.
func TestNothingUnsignedGoesIntoTheBase(t *testing.T) {
	if _, err := exec.LookPath("debootstrap"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and debootstrap")
	}
	if err := exec.Command("unshare", "--mount", "true").Run(); err != nil {
		t.Skip("needs mount namespaces: ", err)
	}
	if _, err := os.Stat(keyring); err != nil {
		t.Skip("needs debian-archive-keyring: ", err)
	}
	mirror := t.TempDir()
	release := filepath.Join(mirror, "dists", "bookworm")
	if err := os.MkdirAll(release, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(release, "Release"), []byte("Suite: stable\nCodename: bookworm\nComponents: main\nArchitectures: amd64\nSHA256:\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		// before runs in a mount namespace of the test's own.
		before, want string
	}{
		"the host has no keyring":  {"mount -t tmpfs none /usr/share/keyrings", "keyring file (" + keyring + ") not found"},
		"the mirror is not signed": {"test -e " + keyring, "Failed getting release signature file"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--mount", "sh", "-c", test.before + ` && exec debootstrap "$@"`, "sh"}, bootstrap("bookworm", filepath.Join(t.TempDir(), "system"), "file://"+mirror)...)
			out, err := exec.Command("unshare", args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), test.want) {
				t.Errorf("debootstrap says (%v)\n%s\nwant %q in it", err, out, test.want)
			}
		})
	}
}
