// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Local is a program of this host. It ends with this process.
type Local struct {
	// Binary is its path.
	Binary string
	// Home is a directory for what upstream's tests and kubectl keep, and leave, in a user's home and
	// among temporary files. Empty means those of this process.
	Home string
}

func (l *Local) String() string { return l.Binary }

// Run is that of [Program].
func (l *Local) Run(ctx context.Context, log io.Writer, args ...string) (report []byte, err error) {
	dir, err := os.MkdirTemp(l.Home, "specs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "report.json")
	cmd := exec.CommandContext(ctx, l.Binary, append(args, "--ginkgo.json-report="+file)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	if l.Home != "" {
		cmd.Env = append(os.Environ(), "HOME="+l.Home, "TMPDIR="+l.Home)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		// Upstream's tests start programs of their own, such as kubectl proxy. They end with the first
		// process of their namespace.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	runErr := cmd.Run()
	report, err = os.ReadFile(file)
	if err != nil {
		return nil, errors.Join(runErr, err)
	}
	return report, runErr
}

// Images returns the references of all images that upstream's tests use.
func (l *Local) Images(ctx context.Context) ([]string, error) {
	output, err := exec.CommandContext(ctx, l.Binary, "--list-images").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list-images: %w", l.Binary, err)
	}
	return strings.Fields(string(output)), nil
}
