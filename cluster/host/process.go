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
	"workload.openshift.io/kubernetes/cluster/internal/atomicfile"
	"workload.openshift.io/kubernetes/cluster/poll"
)

// process is a component that nobody supervises. A file with its identity finds it again.
type process struct {
	program
	// run has that file.
	run string
}

// NewProcess describes a program whose state is kept in a directory, and what it prints in
// the directory logs in there.
func NewProcess(dir, name string, args ...string) Component { return newProcess(dir, name, args...) }

func newProcess(dir, name string, args ...string) *process {
	return &process{program: program{name: name, args: args, data: dir}, run: dir}
}

// endPause is the pause between looks at something that is to end.
const endPause = 20 * time.Millisecond

// identity tells a process from a later one with the same number.
type identity struct {
	PID int
	// Started is in clock ticks since boot (proc(5), field 22 of stat).
	Started string
}

func (p *process) file() string { return filepath.Join(p.run, p.name+".json") }

// Start starts the program in a session of its own, unless it runs.
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
	// A child that nobody waits for would stay as a zombie for as long as we run.
	go func() { _ = cmd.Wait() }()
	started, err := startTime(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("%s ended at once: %s", p.name, lastLines(p.Log()))
	}
	if err := p.remember(identity{cmd.Process.Pid, started}); err != nil {
		// Nobody would find it again.
		return errors.Join(err, cmd.Process.Kill())
	}
	return nil
}

// remember writes the file by which the process is found again.
func (p *process) remember(id identity) error {
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return atomicfile.Write(p.file(), data, 0o644)
}

// PID returns the number of the running process, or zero.
func (p *process) PID() int {
	var id identity
	data, err := os.ReadFile(p.file())
	if err != nil || json.Unmarshal(data, &id) != nil {
		return 0
	}
	if started, err := startTime(id.PID); err != nil || started != id.Started {
		return 0
	}
	return id.PID
}

// signal sends a signal to the process, if it runs.
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

// Remove has nothing to do: Stop and Kill forget the process.
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
	// A process that was killed is a zombie while its other threads still end, and has its
	// ports until the last has.
	if threads, err := procfs.AllThreads(pid); err != nil || (stat.State == "Z" && len(threads) <= 1) {
		return "", fs.ErrNotExist
	}
	return strconv.FormatUint(stat.Starttime, 10), nil
}
