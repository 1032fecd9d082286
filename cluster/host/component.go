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
	// Args are the path of the program and its arguments. A change counts from the next
	// Start.
	Args() []string
	// Log is the path of the file with all that the program printed.
	Log() string
	// PID returns the number of the running process, or zero.
	PID() int
	// Start starts the program, unless it runs.
	Start() error
	// Stop ends the program, and kills it if it does not end in time. The grace period counts
	// where no supervisor has one of its own.
	Stop(grace time.Duration) error
	// Kill ends the program as a crash would, and nobody starts it again.
	Kill() error
	// Remove removes what Start has made beside the process, which has ended. The log
	// stays.
	Remove() error
}

// program is what a component runs.
type program struct {
	name      string
	args, env []string
	// service are lines of the section [Service], for systemd.
	service []string
	// data has the directory logs.
	data string
}

func (p *program) Name() string   { return p.name }
func (p *program) Args() []string { return p.args }
func (p *program) Log() string    { return filepath.Join(p.data, "logs", p.name+".log") }

// component returns the one that runs a program, as Config has it.
func (c *Cluster) component(p program) Component {
	p.data = c.Config.Paths.Data
	if c.Config.Supervisor == Systemd {
		return &unit{program: p, prefix: c.Config.Paths.UnitPrefix}
	}
	return &process{program: p, run: c.Config.Paths.Run}
}

// starting keeps a Down, after an interrupt, from missing what an Up just makes or
// starts: nothing is made or started below a directory while what is there is ending, nor
// anywhere after an [End].
var (
	starting sync.Mutex
	// ending has the directories with data, and endingAll counts calls of End.
	ending    = map[string]bool{}
	endingAll int
)

var errEnding = errors.New("the cluster is being ended")

// isEnding is asked by those who have locked starting.
func isEnding(data string) bool { return endingAll > 0 || ending[data] }

// startUnlessEnding starts a component that does not run.
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

// await waits until ready returns nil, and fails early if the component ends.
func (c *Cluster) await(ctx context.Context, component Component, limit time.Duration, ready func(context.Context) error) error {
	pause := 100 * time.Millisecond
	if c.Config.Slow {
		limit, pause = 3*limit, time.Second
	}
	var ended error
	err := poll.Until(ctx, pause, limit, func(ctx context.Context) error {
		if component.PID() == 0 {
			ended = fmt.Errorf("%s ended; %s has it all, and last: %s", component.Name(), component.Log(), lastLines(component.Log()))
			return nil
		}
		return ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("%s is not ready after %s (%w); see %s", component.Name(), limit, err, component.Log())
	}
	return ended
}

// lastLines returns the end of a log, or what it has instead.
func lastLines(log string) string {
	data, err := os.ReadFile(log)
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
