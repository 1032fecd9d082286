// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"workload.openshift.io/kubernetes/cluster/poll"
)

// newTestProcess describes a shell's script as a component in a directory of the test.
func newTestProcess(t *testing.T, script string) Component {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := NewProcess(dir, "sleeper", "/bin/sh", "-c", script)
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// awaitLog waits until the component has printed something.
func awaitLog(t *testing.T, c Component) {
	t.Helper()
	if err := poll.Until(t.Context(), endPause, 10*time.Second, func(context.Context) error {
		data, err := os.ReadFile(c.Log())
		if err == nil && len(data) == 0 {
			err = fmt.Errorf("%s is empty", c.Log())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestProcessIsFoundAgain(t *testing.T) {
	p := newTestProcess(t, "exec sleep 100")
	if pid := p.PID(); pid != 0 {
		t.Errorf("before Start its PID is %d, want 0", pid)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	pid := p.PID()
	if session, err := unix.Getsid(pid); err != nil || session != pid {
		t.Errorf("process %d has the session %d (%v), want its own", pid, session, err)
	}
	if err := p.Start(); err != nil || p.PID() != pid {
		t.Errorf("a second Start gives PID %d (%v), want %d", p.PID(), err, pid)
	}
	again := NewProcess(filepath.Dir(filepath.Dir(p.Log())), "sleeper")
	if got := again.PID(); got != pid {
		t.Errorf("found again, its PID is %d, want %d", got, pid)
	}
	if err := again.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := p.PID(); got != 0 {
		t.Errorf("after Stop its PID is %d, want 0", got)
	}
	awaitReaped(t, pid)
}

// awaitReaped waits until a child that has ended is no longer a zombie.
func awaitReaped(t *testing.T, pid int) {
	t.Helper()
	if err := poll.Until(t.Context(), endPause, 10*time.Second, func(context.Context) error {
		if unix.Kill(pid, 0) == nil {
			return fmt.Errorf("there still is a process %d", pid)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// make restart starts what has crashed, with the same arguments and environment, and says which program that is.
func TestWhatHasCrashedIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	c := New(Config{Paths: Paths{Data: dir, Run: dir}})
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	start := func(script string) Component {
		return c.component(program{name: c.Kubelet.Name(), args: []string{"/bin/sh", "-c", script}, env: []string{"CALLED=kubelet"}})
	}
	p := start("echo $CALLED; exec sleep 100")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	awaitLog(t, p)
	pid := p.PID()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitReaped(t, pid)
	// Another command, which knows neither arguments nor environment.
	again, err := New(Config{Paths: Paths{Data: dir, Run: dir}}).asRunning(c.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	if err := poll.Until(t.Context(), endPause, 10*time.Second, func(context.Context) error {
		data, err := os.ReadFile(p.Log())
		if err == nil && string(data) != "kubelet\nkubelet\n" {
			err = fmt.Errorf("the log is %q", data)
		}
		return err
	}); err != nil {
		t.Error("it does not run as before: ", err)
	}
	if err := again.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.asRunning(c.Kubelet); err == nil {
		t.Error("one that was ended on purpose is started again")
	}
	// One that crashes at once is known, too.
	broken := start("exit 1")
	_ = broken.Start() // it may have ended already
	if err := poll.Until(t.Context(), endPause, 10*time.Second, func(context.Context) error {
		if pid := broken.PID(); pid != 0 {
			return fmt.Errorf("process %d does not end", pid)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if program, err := c.Program(c.Kubelet.Name()); err != nil || program != shell {
		t.Errorf("the program of one that has crashed is %q (%v), want %s", program, err, shell)
	}
	if err := os.Remove(filepath.Join(dir, c.Kubelet.Name()+".json")); err != nil {
		t.Fatal(err)
	}
}

func TestProcessThatIgnoresStopIsKilled(t *testing.T) {
	p := newTestProcess(t, `trap "" TERM; echo ready; while :; do sleep 0.1; done`)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, p)
	if err := p.Stop(100 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if pid := p.PID(); pid != 0 {
		t.Errorf("its PID is %d, want 0", pid)
	}
}

func TestOneProcessHasALock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second lock returns %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = Lock(dir); err != nil {
		t.Fatal(err)
	}
	_ = unlock()
}

func TestADirectoryThatSomebodyUsesIsNotTaken(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		file       string
		left, used bool
	}{
		"none":  {},
		"empty": {left: true},
		"used":  {file: "file", left: true, used: true},
	} {
		path := filepath.Join(dir, name)
		if test.left {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if test.file != "" {
			if err := os.WriteFile(filepath.Join(path, test.file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		left, unlock, err := Take(path)
		if (err != nil) != test.used || err == nil && left != test.left {
			t.Errorf("%s: it is left %t, and the error is %v", name, left, err)
		}
		// What was not taken is not locked.
		if err == nil {
			err = unlock()
		} else if unlock, err = Lock(path); err == nil {
			err = unlock()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatWasAbandonedIsKnown(t *testing.T) {
	dir := t.TempDir()
	if !Abandoned(dir) {
		t.Error("an empty directory has no owner, and is not abandoned")
	}
	if Abandoned(filepath.Join(dir, "none")) {
		t.Error("a directory that is not there is abandoned")
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if Abandoned(dir) {
		t.Error("a directory with files and without an owner is abandoned: a user may have made it")
	}
}

func TestAnotherProcessOfTheSameNumberIsNotOurs(t *testing.T) {
	dir := t.TempDir()
	p := newProcess(dir, "owner")
	if err := Own(dir); err != nil {
		t.Fatal(err)
	}
	if pid := p.PID(); pid != os.Getpid() || Abandoned(dir) {
		t.Errorf("the owner's PID is %d, and abandoned is %v, want %d and false", pid, Abandoned(dir), os.Getpid())
	}
	if err := p.remember(identity{PID: os.Getpid(), Started: "1"}); err != nil {
		t.Fatal(err)
	}
	if pid := p.PID(); pid != 0 || !Abandoned(dir) {
		t.Errorf("with another start time the owner's PID is %d, and abandoned is %v, want 0 and true", pid, Abandoned(dir))
	}
	// Another version of the command may read what this one wrote.
	data, err := os.ReadFile(p.file())
	if want := `"Started":"1"}`; err != nil || !strings.HasSuffix(string(data), want) {
		t.Errorf("%s is %s (%v), want it to end with %s", p.file(), data, err, want)
	}
}

func TestNothingStartsWhileTheClusterEnds(t *testing.T) {
	p := newTestProcess(t, "exec sleep 100")
	resume := End()
	if err := p.Start(); !errors.Is(err, errEnding) || p.PID() != 0 {
		t.Errorf("Start returns %v, and its PID is %d, want %v and 0", err, p.PID(), errEnding)
	}
	resume()
	if err := p.Start(); err != nil || p.PID() == 0 {
		t.Errorf("after that Start returns %v, and its PID is %d, want nil and a process", err, p.PID())
	}
}

func TestOneClusterEndsWhileAnotherStarts(t *testing.T) {
	p, other := newTestProcess(t, "exec sleep 100"), newTestProcess(t, "exec sleep 100")
	c := New(Config{Paths: Paths{Data: filepath.Dir(filepath.Dir(p.Log()))}})
	resume := c.end()
	if err := p.Start(); !errors.Is(err, errEnding) {
		t.Errorf("Start of what ends returns %v, want %v", err, errEnding)
	}
	if err := other.Start(); err != nil {
		t.Errorf("Start of something else returns %v", err)
	}
	resume()
	if err := p.Start(); err != nil {
		t.Errorf("Start after that returns %v", err)
	}
}

func TestUnitFile(t *testing.T) {
	c := New(Config{Bin: "/b", Tools: "/t"}.OnDedicatedHost())
	const want = `[Unit]
Description=kube-proxy
After=network.target payload.mount containerd.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart="/b/kube-proxy" "--config=/var/lib/workload-partitioning/kube-proxy.yaml"
StandardOutput=append:/var/lib/workload-partitioning/logs/kube-proxy.log
StandardError=append:/var/lib/workload-partitioning/logs/kube-proxy.log
Restart=always
RestartSec=1s
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
`
	if got := c.Proxy.(*unit).content(); got != want {
		t.Errorf("the unit file of kube-proxy is\n%s\nwant\n%s", got, want)
	}
	content := c.Kubelet.(*unit).content()
	for _, line := range []string{`Environment="PATH=/t:`, "\nKillMode=process\n", "\nWatchdogSec=30s\n"} {
		if !strings.Contains(content, line) {
			t.Errorf("the unit file of the kubelet lacks %q:\n%s", line, content)
		}
	}
}
