// SPDX-License-Identifier: Apache-2.0

// Package process runs commands that start others. It must not know which.
package process

import (
	"os/exec"
	"syscall"
)

// Group makes a command, before it starts, its own process group: an interrupt ends what
// it has started, too, as make starts go, and go compilers.
func Group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
