package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program of the cluster. It outlives the command that started it,
// and is found again by a file with its identity.
type Process struct {
	Name string
	Args []string
	Env  []string
	// unit are lines of a service of systemd, which runs the program if they are not nil.
	unit []string
	// slow is that of Config.
	slow bool
	dirs dirs
}

// addUnit adds lines to the service, if the program is one.
func (p *Process) addUnit(lines ...string) {
	if p.unit != nil {
		p.unit = append(p.unit, lines...)
	}
}

// NewProcess describes a program whose state is kept in a directory, and what it prints in
// the directory logs in there.
func NewProcess(dir, name string, args ...string) *Process {
	return &Process{Name: name, Args: args, dirs: dirs{data: dir, run: dir}}
}

// identity tells a process from a later one with the same number.
type identity struct {
	PID int
	// Started is in clock ticks since boot (proc(5), field 22 of stat).
	Started string
}

func (p *Process) file() string { return filepath.Join(p.dirs.run, p.Name+".json") }

// Log is the path of the file with all that the program printed.
func (p *Process) Log() string { return filepath.Join(p.dirs.data, "logs", p.Name+".log") }

// starting keeps a Down, after an interrupt, from missing what an Up just makes or
// starts: nothing is made or started while one is ending, or after an [End].
var (
	starting sync.Mutex
	ending   bool
)

var errEnding = errors.New("the cluster is being ended")

// Start starts the program in a session of its own, unless it runs.
func (p *Process) Start() error {
	if p.Running() {
		return nil
	}
	starting.Lock()
	defer starting.Unlock()
	if ending {
		return fmt.Errorf("%s is not started: %w", p.Name, errEnding)
	}
	if p.unit != nil {
		return p.startUnit()
	}
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Dir = p.dirs.data
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	// A child that nobody waits for would stay as a zombie for as long as we run.
	go func() { _ = cmd.Wait() }()
	started, err := startTime(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("%s ended at once: %s", p.Name, p.lastLines())
	}
	if err := p.remember(identity{cmd.Process.Pid, started}); err != nil {
		// Nobody would find it again.
		return errors.Join(err, cmd.Process.Kill())
	}
	return nil
}

// remember writes the file by which the process is found again.
func (p *Process) remember(id identity) error {
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return writeFile(p.file(), data)
}

// writeFile leaves the old file or the new one, and no half of it.
func writeFile(path string, data []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// PID returns the number of the running process, or zero.
func (p *Process) PID() int {
	if p.unit != nil {
		return p.unitPID()
	}
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

// Running reports whether the process that Start started still runs.
func (p *Process) Running() bool { return p.PID() != 0 }

// Signal sends a signal to the process, if it runs.
func (p *Process) Signal(signal syscall.Signal) error {
	pid := p.PID()
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

// Stop ends the process, and kills it if it does not end within the grace period.
func (p *Process) Stop(grace time.Duration) error {
	if p.unit != nil {
		return p.stopUnit()
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if !eventually(grace, func() bool { return !p.Running() }) {
		return p.Kill()
	}
	return p.forget()
}

// Kill ends the process as a crash would.
func (p *Process) Kill() error {
	if p.unit != nil {
		return p.killUnit()
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !eventually(10*time.Second, func() bool { return !p.Running() }) {
		return fmt.Errorf("%s does not end", p.Name)
	}
	return p.forget()
}

func (p *Process) forget() error {
	if err := os.Remove(p.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// await waits until ready returns nil, and fails early if the process ends.
func (p *Process) await(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	pause := 100 * time.Millisecond
	if p.slow {
		limit, pause = 3*limit, time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		if !p.Running() {
			return fmt.Errorf("%s ended; %s has it all, and last: %s", p.Name, p.Log(), p.lastLines())
		}
		if last = ready(ctx); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s (%w); see %s", p.Name, limit, last, p.Log())
		case <-time.After(pause):
		}
	}
}

func (p *Process) lastLines() string {
	data, err := os.ReadFile(p.Log())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	// What a Go program says of its end comes before the stack, not after.
	if at := slices.IndexFunc(lines, func(line []byte) bool { return bytes.HasPrefix(line, []byte("panic: ")) }); at >= 0 {
		lines = lines[:min(at+8, len(lines))]
		return string(bytes.Join(lines[at:], []byte("\n")))
	}
	const most = 3
	return string(bytes.Join(lines[max(0, len(lines)-most):], []byte("\n")))
}

// startTime returns when a process started, and an error for one that has ended.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The name stands in parentheses and may contain anything.
	_, rest, _ := strings.Cut(string(data[bytes.LastIndexByte(data, ')'):]), " ")
	fields := strings.Fields(rest)
	const state, started = 0, 19
	if len(fields) <= started {
		return "", fs.ErrNotExist
	}
	// A process that was killed is a zombie while its other threads still end, and has its
	// ports until the last has.
	if threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task"); err != nil || (fields[state] == "Z" && len(threads) <= 1) {
		return "", fs.ErrNotExist
	}
	return fields[started], nil
}

// eventually polls until the condition holds, and reports whether it did in time.
func eventually(limit time.Duration, condition func() bool) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
