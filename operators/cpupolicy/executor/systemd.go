// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	systemdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// systemd is the host's. It is reached through its own socket below the host's root, which asks
// for nothing but user 0: no dbus-daemon, which small hosts lack, and no systemctl, which from a
// pod would need the host's libraries and, by chroot, two capabilities more. The jobs that it
// returns also say when they have ended.
type systemd struct {
	disk hostDisk
	conn *systemdbus.Conn
}

const systemdSocket = "/run/systemd/private"

func dialSystemd(ctx context.Context, disk hostDisk) (*systemd, error) {
	conn, err := systemdbus.NewConnection(func() (*dbus.Conn, error) {
		conn, err := dbus.Dial("unix:path="+disk.follow(systemdSocket), dbus.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		// As go-systemd does with the socket of the host that it runs on (NewSystemdConnectionContext).
		if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	})
	if err != nil {
		return nil, fmt.Errorf("systemd of the host: %w", err)
	}
	return &systemd{disk, conn}, nil
}

func (s *systemd) close() { s.conn.Close() }

// connected reports whether systemd still answers here. It closes all connections to this socket when it is
// executed again, and the client does not dial again.
func (s *systemd) connected() bool { return s.conn.Connected() }

// validUnit is what may be the name of a service (systemd.unit(5)), and part of a unit's file.
var validUnit = regexp.MustCompile(`^[A-Za-z0-9:_.@-]{1,240}\.service$`)

// unit is what systemd says of a service.
type unit struct {
	// state is active, activating, deactivating, inactive or failed.
	state string
	// restarts is how often systemd has started it again by itself.
	restarts uint32
	mainPID  int
	// execStart is the command line of its program. Variables are as the unit has them.
	execStart []string
	// files are the unit's: itself, its drop-ins and its environment.
	files []string
}

// runs reports whether something of the service may run, or be started again by itself.
func (u unit) runs() bool { return u.state != "inactive" && u.state != "failed" }

// check returns an error if systemd knows nothing of the unit but its name.
func (u unit) check(name string) error {
	if len(u.execStart) == 0 {
		return fmt.Errorf("unit %s: is not there, or has no ExecStart", name)
	}
	return nil
}

func (s *systemd) properties(ctx context.Context, name string) (unit, error) {
	if !validUnit.MatchString(name) {
		return unit{}, fmt.Errorf("unit %q: is not the name of a service", name)
	}
	all, err := s.conn.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return unit{}, fmt.Errorf("unit %s: %w", name, err)
	}
	var u unit
	u.state, _ = all["ActiveState"].(string)
	u.restarts, _ = all["NRestarts"].(uint32)
	pid, _ := all["MainPID"].(uint32)
	u.mainPID = int(pid)
	// Arrays of structures: (path, arguments, ...) and (path, whether it may be missing).
	if commands, _ := all["ExecStart"].([][]any); len(commands) > 0 {
		last := commands[len(commands)-1]
		if args, _ := last[1].([]string); len(args) > 0 {
			u.execStart = append([]string{fmt.Sprint(last[0])}, args[1:]...)
		}
	}
	fragment, _ := all["FragmentPath"].(string)
	dropIns, _ := all["DropInPaths"].([]string)
	u.files = append(dropIns, fragment)
	environment, _ := all["EnvironmentFiles"].([][]any)
	for _, file := range environment {
		u.files = append(u.files, fmt.Sprint(file[0]))
	}
	return u, nil
}

// startUnit starts a unit, however often it has just been started.
func (s *systemd) startUnit(ctx context.Context, name string) error {
	// A kubelet that ended again and again may have used up the starts that systemd allows in a while.
	_ = s.conn.ResetFailedUnitContext(ctx, name) // the start says what is wrong
	if _, err := s.conn.StartUnitContext(ctx, name, "replace", nil); err != nil {
		return fmt.Errorf("start of unit %s: %w", name, err)
	}
	return nil
}

// stopUnit returns once the unit has ended. It leaves one alone that does not run: when the host
// boots, the kubelet's unit waits for ours, and a stop would cancel that.
func (s *systemd) stopUnit(ctx context.Context, name string) error {
	u, err := s.properties(ctx, name)
	if err != nil || !u.runs() {
		return err
	}
	ended := make(chan string, 1)
	if _, err := s.conn.StopUnitContext(ctx, name, "replace", ended); err != nil {
		return fmt.Errorf("stop of unit %s: %w", name, err)
	}
	select {
	case how := <-ended:
		if how != "done" {
			return fmt.Errorf("stop of unit %s: the job ended as %s", name, how)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop of unit %s: %w", name, context.Cause(ctx))
	}
}

func (s *systemd) killUnit(ctx context.Context, name string) error {
	return s.conn.KillUnitWithTarget(ctx, name, systemdbus.Main, int32(unix.SIGKILL))
}

// below returns the process with a name that is a process or a descendant of it, and zero if there
// is none.
func (s *systemd) below(pid int, name string) (int, error) {
	if pid == 0 {
		return 0, nil
	}
	named, parents, err := s.disk.processes(name)
	if err != nil {
		return 0, err
	}
	for candidate := range named {
		for at := candidate; at != 0; at = parents[at] {
			if at == pid {
				return candidate, nil
			}
		}
	}
	return 0, nil
}

// processes returns the arguments of all processes of the host whose program has a name, and the parent of each
// process.
func (d hostDisk) processes(name string) (named map[int][]string, parents map[int]int, err error) {
	procs, err := procfs.NewFS(d.at("/proc"))
	if err != nil {
		return nil, nil, err
	}
	all, err := procs.AllProcs()
	if err != nil {
		return nil, nil, err
	}
	named, parents = map[int][]string{}, map[int]int{}
	for _, process := range all {
		stat, err := process.Stat()
		if err != nil {
			continue // it has ended
		}
		parents[process.PID] = stat.PPID
		if args, err := process.CmdLine(); err == nil && len(args) > 0 && filepath.Base(args[0]) == name {
			named[process.PID] = args[1:]
		}
	}
	return named, parents, nil
}

func (d *kubeletDriver) start(ctx context.Context) error { return d.startUnit(ctx, d.unit) }
func (d *kubeletDriver) stop(ctx context.Context) error  { return d.stopUnit(ctx, d.unit) }
func (d *kubeletDriver) kill(ctx context.Context) error  { return d.killUnit(ctx, d.unit) }

// pid is the kubelet below the unit's main process, which may be a shell.
func (d *kubeletDriver) pid(ctx context.Context) (int, error) {
	unit, err := d.properties(ctx, d.unit)
	if err != nil {
		return 0, err
	}
	return d.below(unit.mainPID, "kubelet")
}

func (d *kubeletDriver) lastError(ctx context.Context, _ *Plan, since time.Time) string {
	return errorInJournal(ctx, d.unit, since)
}

// errorInJournal is [errorIn] for what a unit has logged.
func errorInJournal(ctx context.Context, unit string, since time.Time) string {
	log, err := exec.CommandContext(ctx, "journalctl", "--unit="+unit, "--since=@"+strconv.FormatInt(since.Unix(), 10), "--output=cat", "--no-pager", "--quiet").Output()
	if err != nil {
		return ""
	}
	return errorIn(string(log))
}

var (
	// severe is a line of klog with the severity error or fatal, and ending what a program says
	// that ends: upstream's commands (k8s.io/component-base/cli, run.go), Go, and rke2.
	severe = regexp.MustCompile(`^[EF]\d{4} `)
	ending = regexp.MustCompile(`"command failed"|^Error: |^panic: |^fatal error: |^F\d{4} |"Failed to start ContainerManager"|"Failed to run kubelet"| level=fatal `)
)

// errorIn returns the line of a kubelet's log that says why it ended: the last one that can be the
// reason, or the last error.
func errorIn(log string) string {
	last, reason := "", ""
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if severe.MatchString(line) {
			last = line
		}
		if ending.MatchString(line) {
			reason = line
		}
	}
	if reason != "" {
		return reason
	}
	return last
}

// errorInFile is [errorIn] for what has been added to a file since it had a size, as far as that is at
// its end.
func (h host) errorInFile(path string, since int64) string {
	const most = 64 << 10
	file, err := os.Open(h.disk.follow(path))
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	if info.Size() < since {
		since = 0 // another file has taken its place
	}
	log := make([]byte, min(info.Size()-since, most))
	n, _ := file.ReadAt(log, info.Size()-int64(len(log)))
	return errorIn(string(log[:n]))
}

// sizeOf returns the size of a file, and zero if there is none.
func (h host) sizeOf(path string) int64 {
	info, err := os.Stat(h.disk.follow(path))
	if err != nil {
		return 0
	}
	return info.Size()
}
