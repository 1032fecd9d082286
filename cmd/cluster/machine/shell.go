package machine

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
	"time"

	"golang.org/x/crypto/ssh"
)

// shell is a connection to a machine. A command takes one session of it, without the
// seconds that a new connection costs under emulation.
type shell struct {
	mu     sync.Mutex
	client *ssh.Client
}

func (s *shell) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

func (m *Machine) connect() (*ssh.Client, error) {
	m.shell.mu.Lock()
	defer m.shell.mu.Unlock()
	if m.shell.client != nil {
		return m.shell.client, nil
	}
	data, err := os.ReadFile(m.state.Key)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.state.Key, err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(m.state.SSH))
	const limit = 15 * time.Second
	connection, err := net.DialTimeout("tcp", address, limit)
	if err != nil {
		return nil, err
	}
	// QEMU accepts before the machine does.
	if err := connection.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	config := &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		// The port is this host's, and QEMU's that we started.
		HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	}
	transport, channels, requests, err := ssh.NewClientConn(connection, address, config)
	if err != nil {
		connection.Close()
		return nil, err
	}
	if err := connection.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	client := ssh.NewClient(transport, channels, requests)
	go closeWhenSilent(client)
	m.shell.client = client
	return client, nil
}

// answerLimit is for how long a machine that runs may be too busy to answer.
const answerLimit = 90 * time.Second

// closeWhenSilent closes a connection to a machine that has stopped, so that nobody waits
// for it for ever: QEMU keeps its end of the connection.
func closeWhenSilent(client *ssh.Client) {
	for {
		answered := make(chan error, 1)
		go func() {
			_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		select {
		case err := <-answered:
			if err != nil {
				return
			}
		case <-time.After(answerLimit):
			client.Close()
			return
		}
		time.Sleep(10 * time.Second)
	}
}

// ErrLost is the error of a command whose machine has stopped or ended meanwhile.
var ErrLost = errors.New("the connection to the machine is lost")

// Run runs a script in the machine, as root, and returns what it printed on its standard
// output, without blanks around it. An error has what it printed on the other one.
func (m *Machine) Run(ctx context.Context, script string) (string, error) {
	var output bytes.Buffer
	err := m.Stream(ctx, script, nil, &output)
	return strings.TrimSpace(output.String()), err
}

// Stream is Run with an input, which may be nil, and an output that is written as it comes.
func (m *Machine) Stream(ctx context.Context, script string, input io.Reader, output io.Writer) error {
	client, err := m.connect()
	if err != nil {
		return err
	}
	var complaints bytes.Buffer
	done := make(chan error, 1)
	go func() {
		session, err := client.NewSession()
		if err != nil {
			m.shell.close()
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
		// That ends the session, too.
		m.shell.close()
		<-done
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	// A program that ends has a status; what never began has not lost anything.
	if missing := (*ssh.ExitMissingError)(nil); errors.As(err, &missing) {
		m.shell.close()
		err = ErrLost
	}
	return fmt.Errorf("%s: %s: %w: %s", m.Name(), abbreviate(script), err, strings.TrimSpace(complaints.String()))
}

// Write writes a file of the machine, for root alone.
func (m *Machine) Write(ctx context.Context, path string, content []byte) error {
	return m.Stream(ctx, "umask 077 && mkdir -p $(dirname '"+path+"') && cat > '"+path+"'", bytes.NewReader(content), io.Discard)
}

func abbreviate(script string) string {
	const most = 60
	if len(script) > most {
		return script[:most] + "…"
	}
	return script
}
