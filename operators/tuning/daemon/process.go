// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

//go:embed originals.py
var originals string

// event is what a TuneD does. One of its fields is set.
type event struct {
	line    *line
	outcome *outcome
	// ended is why it ended.
	ended error
}

// line is one of TuneD's log.
type line struct {
	level, logger, text string
	// more is true of a line that continues the one before.
	more bool
}

// outcome is TuneD's signal profile_changed: what became of a profile that it was to apply.
type outcome struct {
	profile string
	ok      bool
	text    string
}

// process is a TuneD that runs.
type process struct {
	pid    int
	events chan event
	ended  chan struct{}
}

// startTuned starts a TuneD with the profile that the files name. It ends with this program.
func startTuned(f files, python string, record Record) (*process, error) {
	if err := absent(os.Remove(f.pid())); err != nil {
		return nil, err
	}
	// TuneD replaces one line of this file, and its value may have several.
	if err := replace(f.cmdline(), ""); err != nil {
		return nil, err
	}
	if err := absent(os.Remove(f.signals())); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: f.signals(), Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the next TuneD's has the same name, and may be there by then
	arguments := []string{"-I", "-c", originals, "--no-dbus", "-P", f.pid(), "-p", record.Profile}
	if record.Debug {
		arguments = append(arguments, "--debug")
	}
	command := exec.Command(python, arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	output, input, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	command.Stdout, command.Stderr = input, input
	p := &process{events: make(chan event, 64), ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ends a process with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		_ = input.Close()
		started <- err
		if err == nil {
			p.run(command, output)
		}
		_, _ = listener.Close(), output.Close()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = command.Process.Pid
	go p.listen(listener)
	return p, nil
}

// run takes what it writes until it ends.
func (p *process) run(command *exec.Cmd, output *os.File) {
	read := make(chan struct{})
	go func() {
		p.log(output)
		close(read)
	}()
	err := command.Wait()
	if err == nil {
		err = errors.New("exit status 0")
	}
	// A script of its profile may live on, and have the other end of the pipe.
	select {
	case <-read:
	case <-time.After(time.Second):
		_ = output.Close()
		<-read
	}
	close(p.ended)
	p.events <- event{ended: err}
}

// format is that of TuneD's log (tuned/logs.py).
var format = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ([A-Z]+) +([^ :]+): (.*)$`)

// longestLine is how much of a line of TuneD's log counts, in bytes.
const longestLine = 2048

func (p *process) log(output io.Reader) {
	reader := bufio.NewReaderSize(output, longestLine)
	for {
		data, prefix, err := reader.ReadLine()
		if err != nil {
			return
		}
		text := strings.ToValidUTF8(string(data), "\uFFFD")
		for prefix && err == nil {
			_, prefix, err = reader.ReadLine()
		}
		fmt.Fprintln(os.Stderr, text)
		l := &line{text: text, more: true}
		if match := format.FindStringSubmatch(text); match != nil {
			l = &line{level: match[1], logger: match[2], text: match[3]}
		}
		p.events <- event{line: l}
	}
}

// listen takes TuneD's signals, which are JSON-RPC (tuned/exports/unix_socket_exporter.py).
func (p *process) listen(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		_ = connection.SetReadDeadline(time.Now().Add(5 * time.Second))
		data, _ := io.ReadAll(io.LimitReader(connection, 64<<10))
		_ = connection.Close()
		var signal struct {
			Method string `json:"method"`
			Params []any  `json:"params"`
		}
		if json.Unmarshal(data, &signal) != nil || signal.Method != "profile_changed" || len(signal.Params) != 3 {
			continue
		}
		profile, _ := signal.Params[0].(string)
		ok, _ := signal.Params[1].(bool)
		text, _ := signal.Params[2].(string)
		select {
		case p.events <- event{outcome: &outcome{profile, ok, text}}:
		case <-p.ended:
			return
		}
	}
}

// reload lets it undo its profile and apply the one that the files name now.
func (p *process) reload() error { return syscall.Kill(p.pid, syscall.SIGHUP) }

// undo lets it undo its profile and end. It reports whether that happened within a time: one that a signal has ended has
// undone nothing.
func (p *process) undo(limit time.Duration) bool {
	_ = syscall.Kill(p.pid, syscall.SIGTERM)
	ended := p.wait(limit)
	exit, ok := errors.AsType[*exec.ExitError](ended)
	return ended != nil && !(ok && exit.ExitCode() == -1)
}

// kill ends it at once: nothing is undone.
func (p *process) kill() {
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	select {
	case <-p.ended: // its event may have been taken
	default:
		_ = p.wait(5 * time.Second)
	}
}

// wait waits for its end, and takes its events meanwhile. It returns why it ended; nil if it has not.
func (p *process) wait(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case e := <-p.events:
			if e.ended != nil {
				return e.ended
			}
		case <-timer.C:
			return nil
		}
	}
}
