// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"workload.openshift.io/kubernetes/cluster/poll"
)

// Programs are what a test binary can also be, by name. Each returns its exit code.
type Programs map[string]func() int

// startedAs is the environment variable that says which program a test binary is.
const startedAs = "PARTITION_TESTENV_PROGRAM"

// Become says that the test binary that this process executes next is a program.
func Become(program string) { os.Setenv(startedAs, program) }

func (p Programs) runIfStarted() {
	name := os.Getenv(startedAs)
	if name == "" {
		return
	}
	program, is := p[name]
	if !is {
		panic("testenv: TestMain has no program " + name)
	}
	os.Exit(program())
}

// Process is a program that a test started.
type Process struct {
	command     *exec.Cmd
	output, log output
	ended       chan struct{}
	err         error
}

// Run starts a program of TestMain, which the test may kill. What is left of it ends with the test.
// The end of its log is shown if the test fails.
func Run(t testing.TB, program string, arguments ...string) *Process {
	t.Helper()
	command := exec.Command(os.Args[0], arguments...)
	command.Env = append(os.Environ(), startedAs+"="+program)
	return run(t, program, command)
}

// RunBeside starts one of Kubernetes' binaries that is [Beside] kube-apiserver, as Run does.
func RunBeside(t testing.TB, binary string, arguments ...string) *Process {
	t.Helper()
	return run(t, binary, exec.Command(Beside(t, binary), arguments...))
}

// Beside is one of Kubernetes' binaries, such as kube-controller-manager, in the directory that has kube-apiserver. It skips the test if it is
// not there.
func Beside(t testing.TB, binary string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(os.Getenv(kubeAPIServer)), binary)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("there is no %s beside kube-apiserver; make build makes it", binary)
	}
	return path
}

// RunFile starts a program in a file, as Run does.
func RunFile(t testing.TB, file string, arguments ...string) *Process {
	t.Helper()
	return run(t, filepath.Base(file), exec.Command(file, arguments...))
}

func run(t testing.TB, program string, command *exec.Cmd) *Process {
	t.Helper()
	p := &Process{command: command, ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = &p.output, &p.log
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel ends a process with the thread that started it.
		runtime.LockOSThread()
		err := p.command.Start()
		started <- err
		if err == nil {
			p.err = p.command.Wait()
		}
		close(p.ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			log := p.Log()
			t.Logf("%s %s:\n%s", program, strings.Join(command.Args[1:], " "), log[max(0, len(log)-8192):])
		}
	})
	return p
}

// Kill ends a process without letting it do anything, and waits for its end.
func (p *Process) Kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

// Terminate asks a process to end, and returns how it did.
func (p *Process) Terminate(t testing.TB, timeout time.Duration) error {
	t.Helper()
	_ = p.command.Process.Signal(syscall.SIGTERM)
	return p.Wait(t, timeout)
}

// Wait waits until a process ends by itself, and returns how it did.
func (p *Process) Wait(t testing.TB, timeout time.Duration) error {
	t.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(timeout):
		t.Fatalf("the process has not ended after %s", timeout)
		return nil
	}
}

// Pid is the process' number.
func (p *Process) Pid() int { return p.command.Process.Pid }

// Running reports whether a process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Memory is what a process takes for itself, in bytes. Like the kernel's account of a container that
// the kubelet compares with limits, it leaves out pages of the program's file that can be read again.
func (p *Process) Memory(t testing.TB) int64 {
	t.Helper()
	status, err := p.proc(t).NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	return int64(status.RssAnon)
}

// CPU is the CPU time that a process has taken so far, in hundredths of a second.
func (p *Process) CPU(t testing.TB) time.Duration {
	t.Helper()
	stat, err := p.proc(t).Stat()
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second))
}

// proc is the kernel's account of a process.
func (p *Process) proc(t testing.TB) procfs.Proc {
	t.Helper()
	process, err := procfs.NewProc(p.command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// Log is what a process has written to standard error so far.
func (p *Process) Log() string {
	return p.log.String()
}

// Output is what a process has written to standard output so far.
func (p *Process) Output() string {
	return p.output.String()
}

// output is a buffer for several goroutines.
type output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// Eventually waits until a check has no error.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	// Functions of Cleanup wait, too, and the test's own context has ended by then.
	ctx := context.WithoutCancel(t.Context())
	if err := poll.Until(ctx, pause, timeout, func(context.Context) error { return check() }); err != nil {
		t.Fatalf("after %s: %v", timeout, err)
	}
}

// pause is the one between two checks.
const pause = 50 * time.Millisecond

// Always fails a test if a check has an error within a time.
func Always(t testing.TB, duration time.Duration, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(duration); time.Now().Before(deadline); time.Sleep(pause) {
		if err := check(); err != nil {
			t.Fatal(err)
		}
	}
}
