// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// commandDriver is a kubelet that commands of the host start and stop.
type commandDriver struct {
	host
	CommandSettings
}

func (h host) commandDriver() (driver, error) {
	c := h.settings.Command
	if c == nil {
		return nil, fmt.Errorf("%s: command is missing; the driver command needs it", SettingsFile)
	}
	for _, required := range []struct {
		name  string
		value []string
	}{{"start", c.Start}, {"stop", c.Stop}, {"isActive", c.IsActive}, {"dropInDirectory", strings.Fields(c.DropInDirectory)}} {
		if len(required.value) == 0 {
			return nil, fmt.Errorf("%s: command.%s is missing", SettingsFile, required.name)
		}
	}
	return &commandDriver{h, *c}, nil
}

func (d *commandDriver) close() {}

// connected is always true: commands share no connection that could be lost.
func (d *commandDriver) connected() bool { return true }

func (d *commandDriver) kubelet(ctx context.Context) (*kubelet, error) {
	pid, err := d.pid(ctx)
	if err != nil {
		return nil, err
	}
	return d.kubeletOf(pid, nil, nil, d.DropInDirectory)
}

func (d *commandDriver) plan(ctx context.Context, policy operation.Policy) (*Plan, error) {
	k, err := d.kubelet(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := d.planDropIn(ctx, k, policy, "", "")
	if plan != nil && d.Log != "" {
		plan.LogSize = d.sizeOf(d.Log)
	}
	return plan, err
}

// start leaves the command without an output: the kubelet may inherit it, and would end with a pipe
// that nobody reads any longer.
func (d *commandDriver) start(ctx context.Context) error {
	if err := d.command(ctx, d.Start).Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(d.Start, " "), cmp.Or(context.Cause(ctx), err))
	}
	return nil
}

func (d *commandDriver) stop(ctx context.Context) error {
	if pid, err := d.pid(ctx); err != nil || pid == 0 {
		return err
	}
	return d.run(ctx, d.Stop)
}

func (d *commandDriver) kill(ctx context.Context) error {
	if len(d.Kill) == 0 {
		return fmt.Errorf("%s: there is no command.kill", SettingsFile)
	}
	return d.run(ctx, d.Kill)
}

func (d *commandDriver) pid(ctx context.Context) (int, error) {
	if d.looks {
		return d.listed()
	}
	output, err := d.command(ctx, d.IsActive).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", strings.Join(d.IsActive, " "), err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("%s: printed %q, which is not the number of a process", strings.Join(d.IsActive, " "), output)
	}
	return pid, nil
}

// listed returns the kubelet as the host's list of processes has it: the one with the drop-ins of the
// settings. No command runs for that.
func (d *commandDriver) listed() (int, error) {
	kubelets, _, err := d.disk.processes("kubelet")
	if err != nil {
		return 0, err
	}
	var found []int
	for pid, args := range kubelets {
		var f flags
		if err := f.parse(args); err == nil && f.configDir != "" && filepath.Clean(f.configDir) == filepath.Clean(d.DropInDirectory) {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	if len(found) != 1 {
		return 0, fmt.Errorf("%s: command.dropInDirectory %s: must be the --config-dir of one kubelet that runs, and is that of the processes %v", SettingsFile, d.DropInDirectory, found)
	}
	return found[0], nil
}

func (d *commandDriver) lastError(_ context.Context, plan *Plan, _ time.Time) string {
	if d.Log == "" {
		return ""
	}
	return d.errorInFile(d.Log, plan.LogSize)
}

func (d *commandDriver) run(ctx context.Context, args []string) error {
	// A command may end and leave its output to what it has started.
	if output, err := d.command(ctx, args).CombinedOutput(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), cmp.Or(context.Cause(ctx), err), bytes.TrimSpace(output))
	}
	return nil
}

// command is a command of the host: from a pod, it sees the host's files.
func (d *commandDriver) command(ctx context.Context, args []string) *exec.Cmd {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.WaitDelay = 100 * time.Millisecond
	// Nothing that an agent began may have an effect after its end, when another one goes on.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if d.chroot {
		command.SysProcAttr.Chroot, command.Dir = string(d.disk), "/"
	}
	return command
}
