// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
)

// asCommand, as first argument, makes the test binary a command of the agent's settings: the second one
// says which.
const asCommand = "ask-supervisor"

// What is asked of the supervisor.
const (
	start    = "start"
	stop     = "stop"
	kill     = "kill"
	isActive = "is-active"
)

// socket is where the supervisor listens. Only root may enter its directory.
var socket = filepath.Join(host.DefaultPaths.Run, "supervisor", "socket")

// supervisor starts and stops the kubelet for the agent, whose own processes end with its pod. Like
// another supervisor it starts a kubelet again that has ended, but only when somebody asks for it: so
// no kubelet starts while the agent changes its configuration.
type supervisor struct {
	kubelet host.Component

	mutex sync.Mutex
	// wanted means that the kubelet was started, and not stopped since.
	wanted bool
	// breaks is the content of a drop-in that the next start writes, and the one after it removes;
	// it may be empty.
	breaks string
}

// brokenDropIn is where breaks is written. The kubelet reads it before the companion's.
var brokenDropIn = filepath.Join(dropIns, "50-broken.conf")

// supervise plays the supervisor until the test ends.
func supervise(t *testing.T, kubelet host.Component) *supervisor {
	t.Helper()
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s := &supervisor{kubelet: kubelet, wanted: true}
	server := rpc.NewServer()
	if err := server.RegisterName("Supervisor", s); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go server.ServeConn(connection)
		}
	}()
	return s
}

// breakNextStart has the kubelet read a drop-in when it starts next, and no longer the time after.
func (s *supervisor) breakNextStart(content string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.breaks = content
}

// restart restarts the kubelet with another pinning file.
func (s *supervisor) restart(t *testing.T, file string) {
	t.Helper()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := cluster.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	cluster.Config.Pinning = file
	if err := cluster.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Ask does what a command asks for. Package rpc calls it.
func (s *supervisor) Ask(what string, pid *int) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch what {
	case start:
		if err := s.writeBreaks(); err != nil {
			return err
		}
		s.wanted = true
		return s.kubelet.Start()
	case stop:
		s.wanted = false
		return s.kubelet.Stop(20 * time.Second)
	case kill:
		s.wanted = false
		return s.kubelet.Kill()
	case isActive:
		*pid = s.kubelet.PID()
		if *pid != 0 || !s.wanted {
			return nil
		}
		err := s.kubelet.Start()
		*pid = s.kubelet.PID()
		return err
	}
	return fmt.Errorf("%q is asked for; known are %s, %s, %s and %s", what, start, stop, kill, isActive)
}

func (s *supervisor) writeBreaks() error {
	content := s.breaks
	s.breaks = ""
	if content == "" {
		return os.RemoveAll(brokenDropIn)
	}
	return os.WriteFile(brokenDropIn, []byte(content), 0o600)
}

// ask is the command: it asks the supervisor, and returns the exit code.
func ask(what string) int {
	client, err := rpc.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer client.Close()
	var pid int
	if err := client.Call("Supervisor.Ask", what, &pid); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if what != isActive {
		return 0
	}
	if pid == 0 {
		return 3 // as systemctl is-active
	}
	fmt.Println(pid)
	return 0
}
