// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"workload.openshift.io/kubernetes/cluster/poll"
)

// shell is a connection to a VM. Each command is a session of it, since a new connection takes
// seconds under emulation.
type shell struct {
	mu         sync.Mutex
	connection *connection
}

type connection struct {
	*ssh.Client
	// stopped means that the VM no longer answers.
	stopped atomic.Bool
}

func (s *shell) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connection != nil {
		s.connection.Close()
		s.connection = nil
	}
}

// drop closes a connection. If it is the shell's, the next command makes another.
func (s *shell) drop(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Close()
	if s.connection == c {
		s.connection = nil
	}
}

func (vm *VM) connect() (*connection, error) {
	vm.shell.mu.Lock()
	defer vm.shell.mu.Unlock()
	if vm.shell.connection != nil {
		return vm.shell.connection, nil
	}
	data, err := os.ReadFile(vm.state.Key)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", vm.state.Key, err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(vm.state.SSH))
	const limit = 15 * time.Second
	conn, err := net.DialTimeout("tcp", address, limit)
	if err != nil {
		return nil, err
	}
	// QEMU accepts the connection before the VM does.
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	config := &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		// The port is on this host, and belongs to the QEMU that we started.
		HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	}
	transport, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	c := &connection{Client: ssh.NewClient(transport, channels, requests)}
	go vm.shell.watch(c)
	vm.shell.connection = c
	return c, nil
}

// answerLimit is for how long a running VM may be too busy to answer.
const answerLimit = 90 * time.Second

// watch drops the connection if the VM stops answering. Nothing else would notice, since QEMU keeps
// its end of the connection open.
func (s *shell) watch(c *connection) {
	for {
		answered := make(chan error, 1)
		go func() {
			_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		select {
		case err := <-answered:
			if err != nil {
				return
			}
		case <-time.After(answerLimit):
			c.stopped.Store(true)
			s.drop(c)
			return
		}
		time.Sleep(10 * time.Second)
	}
}

// ErrStopped is the error of a command whose VM no longer answers. Under
// emulation that may be QEMU's fault, as with a boot (docs/dev/vm.md).
var ErrStopped = errors.New("the VM no longer answers")

// crashed reports whether QEMU has ended under a script that failed.
func (vm *VM) crashed(err error) bool {
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return false
	}
	// The connection may end a moment before the process.
	return poll.Until(context.Background(), 50*time.Millisecond, time.Second, func(context.Context) error {
		if vm.qemu.PID() != 0 {
			return errors.New("QEMU is running")
		}
		return nil
	}) == nil
}

// Run runs a script in the VM, as root, and returns its standard output without the space around
// it. An error has its standard error.
func (vm *VM) Run(ctx context.Context, script string) (string, error) {
	var output bytes.Buffer
	err := vm.Stream(ctx, script, nil, &output)
	return strings.TrimSpace(output.String()), err
}

// Stream runs a script as Run does, with an input, which may be nil, and writes the output as it
// comes.
func (vm *VM) Stream(ctx context.Context, script string, input io.Reader, output io.Writer) error {
	c, err := vm.connect()
	if err != nil {
		return err
	}
	var complaints bytes.Buffer
	done := make(chan error, 1)
	go func() {
		session, err := c.NewSession()
		if err != nil {
			vm.shell.drop(c)
			done <- err
			return
		}
		defer session.Close()
		session.Stdin, session.Stdout, session.Stderr = input, output, &complaints
		done <- session.Run(script)
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		// This ends the session, too.
		vm.shell.drop(c)
		<-done
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	if c.stopped.Load() || ctx.Err() == nil && vm.crashed(err) {
		err = ErrStopped
	}
	return fmt.Errorf("%s: %s: %w: %s", vm.Name(), abbreviate(script), err, strings.TrimSpace(complaints.String()))
}

// Write writes a file in the VM that only root can read.
func (vm *VM) Write(ctx context.Context, path string, content []byte) error {
	return vm.Stream(ctx, "umask 077 && mkdir -p $(dirname '"+path+"') && cat > '"+path+"'", bytes.NewReader(content), io.Discard)
}

func abbreviate(script string) string {
	const most = 60
	if len(script) > most {
		return script[:most] + "…"
	}
	return script
}
