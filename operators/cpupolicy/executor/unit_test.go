// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// systemd executes no file with the label of its directory. Elsewhere than under SELinux a label would be nobody's.
func TestAProgramGetsTheLabelThatSystemdExecutes(t *testing.T) {
	for name, test := range map[string]struct{ has, want string }{
		"a file that SELinux has labelled": {"system_u:object_r:var_lib_t:s0", programLabel},
		"a file of a host without SELinux": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(path, []byte("program"), 0o700); err != nil {
				t.Fatal(err)
			}
			if test.has != "" {
				err := unix.Setxattr(path, selinuxAttribute, []byte(test.has), 0)
				if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
					t.Skipf("no label can be written here, as by root on ext4: %v", err)
				}
				if err != nil {
					t.Fatal(err)
				}
			} else if _, err := os.Stat("/sys/fs/selinux"); err == nil {
				t.Skip("this host has SELinux")
			}
			if err := labelProgram(path); err != nil {
				t.Fatal(err)
			}
			value := make([]byte, 100)
			n, err := unix.Getxattr(path, selinuxAttribute, value)
			if got := string(value[:max(0, n)]); got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("the label is %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
