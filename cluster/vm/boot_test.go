// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A boot in which QEMU crashes is tried again. One that QEMU refuses is not.
func TestBootAfterACrash(t *testing.T) {
	const begin = "#!/bin/sh\necho >>starts\nsleep 0.3\n"
	for name, tc := range map[string]struct {
		qemu, want string
		starts     int
	}{
		"crash":   {qemu: begin + "kill -SEGV $$\n", starts: boots, want: "QEMU of node-1 crashed"},
		"refusal": {qemu: begin + "echo no such device >&2\nexit 1\n", starts: 1, want: "node-1 ended: no such device"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "qemu-system-x86_64"), []byte(tc.qemu), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			vm := New(Config{})
			vm.dir = t.TempDir()
			vm.state = state{Base: filepath.Join(bin, "base"), Accelerator: emulation}
			if err := os.Mkdir(filepath.Join(vm.dir, "logs"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := vm.Boot(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			starts, err := os.ReadFile(filepath.Join(vm.dir, "starts"))
			if err != nil || len(starts) != tc.starts {
				t.Errorf("%d starts (%v), want %d", len(starts), err, tc.starts)
			}
		})
	}
}
