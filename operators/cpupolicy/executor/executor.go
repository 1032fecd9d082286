// SPDX-License-Identifier: Apache-2.0

// Package executor switches the CPU manager policy of the node that it runs on: it stops the
// kubelet, writes the policy, moves the CPU manager's checkpoint away, starts the kubelet and looks
// at what came of it. Whatever fails, or ends the process or the host, it brings back configuration
// and checkpoint as they were. docs/dev/cpupolicy.md has the contract.
//
// The journal decides (journal.go, without side effects), and the steps do (steps.go). No step needs the
// Kubernetes API: while this works, the node may not reach it. Only Await asks for the Node, to wait.
package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// Directory is where the agent keeps what an operation needs, on the host: root's alone.
const Directory = "/var/lib/partition-agent"

const (
	journalFile = Directory + "/journal.json"
	lockFile    = Directory + "/lock"
	agentFile   = Directory + "/partition-agent"
)

// driver is how a host configures and runs its kubelet.
type driver interface {
	// kubelet returns what is known about the kubelet, which must run.
	kubelet(ctx context.Context) (*kubelet, error)
	// plan returns what a switch to the policy would do. An error says why it is refused; the
	// plan then has what is known.
	plan(ctx context.Context, policy operation.Policy) (*Plan, error)
	// start lets the kubelet start, and does not wait for it. stop returns once the kubelet
	// has ended, and does nothing if it does not run. kill ends one that does not stop.
	start(ctx context.Context) error
	stop(ctx context.Context) error
	kill(ctx context.Context) error
	// pid is the kubelet's process, and zero if it does not run.
	pid(ctx context.Context) (int, error)
	// lastError is the kubelet's own last error since it was stopped according to the plan; empty
	// if it is not known.
	lastError(ctx context.Context, plan *Plan, stopped time.Time) string
	// connected reports whether the host can still be asked. A lost connection does not come back: all
	// that is asked fails until there is another driver.
	connected() bool
	close()
}

// Executor does the steps of an operation.
type Executor struct {
	// driver returns the driver of a name. plan is nil before there is one.
	driver func(ctx context.Context, name operation.Driver, plan *Plan) (driver, error)
	disk   disk
	// probe asks once whether the kubelet is healthy.
	probe func(ctx context.Context, url string) error
	// due returns what the CPU manager will do to containers at its next reconciliation; empty if nothing.
	due func(ctx context.Context, plan *Plan) (what string, err error)
	// widen gives containers back the CPUs that the previous policy kept from them, and returns a
	// note.
	widen func(ctx context.Context, plan *Plan, checkpoint *File) (note string, err error)
	// node returns the labels of the Node that follow the policy, and which pods do not go with it, by UID,
	// with what each requires. If the plan has these labels, it goes by their values there.
	node func(ctx context.Context, plan *Plan) (labels, mismatches map[string]string, err error)
	// ready says that the kubelet may start. It may be called more than once.
	ready func()
	// cleanUp removes the host unit. It may be called more than once.
	cleanUp func(context.Context) error
	// interval is the time between two looks at the kubelet, and stable how long it must stay
	// healthy.
	interval, stable time.Duration
}

// Execute does what remains of the journal's operation, and returns its result. It returns an
// error and no result if there is no operation, or if the context ends or the host cannot be
// asked, or not any more; a later call then goes on.
func (e *Executor) Execute(ctx context.Context) (*operation.Result, error) {
	stored, err := load(e.disk)
	if err != nil {
		return nil, err
	}
	if stored == nil {
		return nil, errors.New("there is no operation: " + journalFile + " is missing")
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("operation", stored.Request.ID))
	j := stored.resumed()
	driver, err := e.driver(ctx, j.Request.Driver, j.Plan)
	switch {
	case err == nil:
		defer driver.close()
	case j.Step == Validate:
		j = j.failed(err.Error(), "")
	case j.Step != Report:
		return nil, err
	}
	if j.Step != stored.Step {
		j = e.save(ctx, *stored, j)
	}
	for j.Step != Report && ctx.Err() == nil {
		if j.whole() {
			e.ready()
		}
		klog.FromContext(ctx).Info("Step begins", "step", j.Step)
		next, err := e.do(ctx, driver, j)
		if ctx.Err() != nil {
			break
		}
		lost := err != nil && !driver.connected()
		if err != nil {
			klog.FromContext(ctx).Error(err, "Step failed", "step", j.Step)
			if !lost || j.Step != HealthyAgain { // nobody could ask whether the kubelet runs
				next = next.failed(err.Error(), kubeletError(ctx, driver, j))
			}
		}
		if next.Step == j.Step && !lost {
			sleep(ctx, e.interval)
		}
		step := j.Step
		if j = e.save(ctx, j, next); lost && j.Step != Report {
			// systemd starts the next process, which has a connection of its own.
			return nil, fmt.Errorf("step %s: the connection to the host is lost: %w", step, err)
		}
	}
	if j.Step != Report {
		return nil, context.Cause(ctx)
	}
	e.ready()
	return j.Result, e.cleanUp(ctx)
}

// kubeletError returns the kubelet's own error, if a step that starts it failed.
func kubeletError(ctx context.Context, driver driver, j Journal) string {
	switch j.Step {
	case Start, Healthy, Verify, HealthyAgain:
		// The way back waits for it.
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return driver.lastError(ctx, j.Plan, j.Stopped)
	}
	return ""
}

// save puts the journal on the disk that follows another, and returns what is to be done.
func (e *Executor) save(ctx context.Context, j, next Journal) Journal {
	for ctx.Err() == nil {
		if next.Step == Report {
			next.Result.Policy = e.policy(next)
		}
		err := store(e.disk, next)
		if err == nil {
			return next
		}
		klog.FromContext(ctx).Error(err, "Journal is not written", "step", next.Step)
		switch {
		case next.goesBack():
			// What restores the host needs no journal: a new process would begin earlier, and
			// do the same again.
			return next
		case next.Step == Report:
			sleep(ctx, e.interval)
		default:
			// A step must not begin without it, so that the previous one has failed.
			next.Step = j.Step
			next = next.failed(err.Error(), "")
		}
	}
	return j
}

// policy returns the policy in force at the end; empty if it is not known.
func (e *Executor) policy(j Journal) operation.Policy {
	if j.Failure == nil {
		return j.Request.Policy // it has been verified
	}
	if j.Plan == nil {
		return ""
	}
	checkpoint, err := readCheckpoint(e.disk, j.Plan.Checkpoint)
	if err != nil || checkpoint == nil {
		return ""
	}
	return operation.Policy(checkpoint.Policy)
}

// load returns the journal, and nil if there is none.
func load(d disk) (*Journal, error) {
	file, err := d.read(journalFile)
	if err != nil || file == nil {
		return nil, err
	}
	var j Journal
	if err := json.Unmarshal(file.Content, &j); err != nil {
		return nil, fmt.Errorf("journal %s: %w", journalFile, err)
	}
	return &j, nil
}

func store(d disk, j Journal) error {
	content, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := put(d, journalFile, &File{content, 0o600}); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// sleep returns after a time, or when the context ends.
func sleep(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
