// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"workload.openshift.io/kubernetes/cluster/atomicfile"
	"workload.openshift.io/kubernetes/cluster/poll"
)

// process is a component without a supervisor. A file has its identity, so that the next command
// finds it.
type process struct {
	program
	// run is the directory with that file.
	run string
}

// NewProcess describes a program. A directory has the file with its identity, and, in logs, its
// log.
func NewProcess(dir, name string, args ...string) Component { return newProcess(dir, name, args...) }

func newProcess(dir, name string, args ...string) *process {
	return &process{program: program{name: name, args: args, data: dir}, run: dir}
}

// with returns the process with other arguments and another environment, for its next start.
func (p *process) with(args, env []string) *process {
	other := *p
	other.args, other.env = args, env
	return &other
}

// endPause is the pause between two looks at something that must end.
const endPause = 20 * time.Millisecond

// identity tells a process from a later one with the same number, and says how to start it again after a crash.
type identity struct {
	PID int
	// Started is in clock ticks since boot (proc(5), field 22 of stat); empty for one that ended at once.
	Started string
	// Args and Env are those of the program.
	Args, Env []string `json:",omitempty"`
}

func (p *process) file() string { return filepath.Join(p.run, p.name+".json") }

// Start starts the program in a separate session, unless it is running.
func (p *process) Start() error { return startUnlessEnding(p, p.data, p.start) }

func (p *process) start() error {
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Dir = p.data
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	// Without Wait, the process would stay a zombie until this one ends.
	go func() { _ = cmd.Wait() }()
	started, err := startTime(cmd.Process.Pid)
	id := identity{PID: cmd.Process.Pid, Started: started, Args: p.args, Env: p.env}
	if err != nil {
		return errors.Join(fmt.Errorf("%s ended at once: %s", p.name, lastLines(p.Log())), p.remember(id))
	}
	if err := p.remember(id); err != nil {
		// No command would find it.
		return errors.Join(err, cmd.Process.Kill())
	}
	return nil
}

// remember writes the file by which a command finds the process.
func (p *process) remember(id identity) error {
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return atomicfile.Write(p.file(), data, 0o644)
}

// last returns the identity of the process that was started last and was not stopped since, whether or not it runs.
func (p *process) last() (id identity, err error) {
	data, err := os.ReadFile(p.file())
	if err == nil {
		err = json.Unmarshal(data, &id)
	}
	return id, err
}

// PID returns the number of the running process, or zero.
func (p *process) PID() int {
	id, err := p.last()
	if err != nil {
		return 0
	}
	if started, err := startTime(id.PID); err != nil || started != id.Started {
		return 0
	}
	return id.PID
}

// signal sends a signal to the process, if it is running.
func (p *process) signal(signal syscall.Signal) error {
	pid := p.PID()
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// Stop ends the process, and kills it if it does not end within the grace period.
func (p *process) Stop(grace time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.awaitEnd(grace); err != nil {
		return p.Kill()
	}
	return p.forget()
}

// Kill ends the process as a crash would.
func (p *process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if err := p.awaitEnd(10 * time.Second); err != nil {
		return err
	}
	return p.forget()
}

func (p *process) awaitEnd(limit time.Duration) error {
	return poll.Until(context.Background(), endPause, limit, func(context.Context) error {
		if p.PID() != 0 {
			return fmt.Errorf("%s does not end", p.name)
		}
		return nil
	})
}

// Remove does nothing: Stop and Kill have removed the file.
func (p *process) Remove() error { return nil }

func (p *process) forget() error {
	if err := os.Remove(p.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// startTime returns when a process started, and an error for one that has ended.
func startTime(pid int) (string, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return "", err
	}
	stat, err := p.Stat()
	if err != nil {
		return "", err
	}
	// A killed process is a zombie while its other threads are ending, and keeps its ports until
	// the last one has ended.
	if threads, err := procfs.AllThreads(pid); err != nil || (stat.State == "Z" && len(threads) <= 1) {
		return "", fs.ErrNotExist
	}
	return strconv.FormatUint(stat.Starttime, 10), nil
}
