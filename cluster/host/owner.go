// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
)

// Lock keeps other processes from making or removing what is in a directory, until this process ends or calls unlock. It is a socket
// without a file, so that nothing of it is left. If another process has it, the error is [ErrLocked].
func Lock(dir string) (unlock func() error, err error) {
	listener, err := net.Listen("unix", "@"+dir)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: %w", dir, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("lock on %s: %w", dir, err)
	}
	return listener.Close, nil
}

// Take is [Lock] for a directory that is not in use; left says that a process which was killed has left it.
func Take(dir string) (left bool, unlock func() error, err error) {
	if unlock, err = Lock(dir); err != nil {
		return false, nil, err
	}
	if left = exists(dir); left && !Abandoned(dir) {
		err := fmt.Errorf("%s is in use: other tests run, or there is a cluster that make down or make vm-down removes", dir)
		return false, nil, errors.Join(err, unlock())
	}
	return left, unlock, nil
}

// ErrLocked is the error of [Lock] if another process has the lock.
var ErrLocked = errors.New("tests use it, or another command makes or removes it")

// Own records that what is in a directory must end with this process.
func Own(dir string) error {
	pid := os.Getpid()
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	return owner(dir).remember(identity{PID: pid, Started: started})
}

// Abandoned reports whether the process that owned a directory ([Own]) has ended without
// removing it: it was killed. An empty directory is what it leaves before it can own it.
func Abandoned(dir string) bool {
	if p := owner(dir); exists(p.file()) {
		return p.PID() == 0
	}
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// Owner returns the process that owns a directory, and runs; zero if there is none, or it is this one.
func Owner(dir string) int {
	if pid := owner(dir).PID(); pid != os.Getpid() {
		return pid
	}
	return 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// EndSignals are those that end what makes and removes clusters: also the loss of a terminal, but not below nohup.
func EndSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

func owner(dir string) *process { return newProcess(dir, "owner") }
