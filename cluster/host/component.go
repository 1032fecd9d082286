// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"workload.openshift.io/kubernetes/cluster/poll"
)

// Component is a program of the cluster. It outlives the command that started it, and the next
// command finds it again.
type Component interface {
	// Name tells the components of a cluster apart.
	Name() string
	// Args are the path of the program and its arguments. A change takes effect at the next
	// Start.
	Args() []string
	// Log is the path of the file with everything that the program printed.
	Log() string
	// PID returns the number of the running process, or zero.
	PID() int
	// Start starts the program, unless it is running.
	Start() error
	// Stop stops the program, and kills it if it does not end within the grace period. A
	// supervisor has its own grace period.
	Stop(grace time.Duration) error
	// Kill ends the program as a crash would, and nothing starts it again.
	Kill() error
	// Remove removes what Start made besides the process, which must have ended. The log
	// stays.
	Remove() error
}

// program is what a component runs.
type program struct {
	name      string
	args, env []string
	// service are lines for the section [Service] of a systemd unit.
	service []string
	// data is the directory that has logs.
	data string
}

func (p *program) Name() string   { return p.name }
func (p *program) Args() []string { return p.args }
func (p *program) Log() string    { return filepath.Join(p.data, "logs", p.name+".log") }

// component returns a component that runs a program, under the supervisor of Config.
func (c *Cluster) component(p program) Component {
	p.data = c.Config.Paths.Data
	if c.Config.Supervisor == Systemd {
		return &unit{program: p, prefix: c.Config.Paths.UnitPrefix}
	}
	return &process{program: p, run: c.Config.Paths.Run}
}

// starting is held while something is made or started, so that a Down after an interrupt misses
// nothing of what an Up is making. While a cluster ends, nothing is made or started in its
// directory, and after an [End] nothing at all.
var (
	starting sync.Mutex
	// ending has the data directories of clusters that end. endingAll counts calls of End.
	ending    = map[string]bool{}
	endingAll int
)

var errEnding = errors.New("the cluster is being removed")

// isEnding reports whether the cluster with this data directory ends, or the one next to which it
// runs ([Config.Beside]). The caller holds starting.
func isEnding(data string) bool {
	return endingAll > 0 || ending[data] || ending[filepath.Dir(data)]
}

// startUnlessEnding starts a component, unless it is running or its cluster ends.
func startUnlessEnding(c Component, data string, start func() error) error {
	if c.PID() != 0 {
		return nil
	}
	starting.Lock()
	defer starting.Unlock()
	if isEnding(data) {
		return fmt.Errorf("%s is not started: %w", c.Name(), errEnding)
	}
	return start()
}

// await waits until ready returns nil. It fails at once if the component ends.
func (c *Cluster) await(ctx context.Context, component Component, limit time.Duration, ready func(context.Context) error) error {
	pause := 100 * time.Millisecond
	if c.Config.Slow {
		limit, pause = 3*limit, time.Second
	}
	var ended error
	err := poll.Until(ctx, pause, limit, func(ctx context.Context) error {
		if component.PID() == 0 {
			ended = fmt.Errorf("%s ended; its log %s ends with: %s", component.Name(), component.Log(), lastLines(component.Log()))
			return nil
		}
		return ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("%s is not ready after %s (%w); see %s", component.Name(), limit, err, component.Log())
	}
	return ended
}

// lastLines returns the end of a log, or the error of reading it.
func lastLines(log string) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	// A Go program prints why it crashed before the stack.
	if at := slices.IndexFunc(lines, isCrash); at >= 0 {
		lines = lines[:min(at+8, len(lines))]
		return string(bytes.Join(lines[at:], []byte("\n")))
	}
	const most = 3
	return string(bytes.Join(lines[max(0, len(lines)-most):], []byte("\n")))
}
