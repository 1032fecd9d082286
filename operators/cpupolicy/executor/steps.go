// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// do does the journal's step within its deadline, and returns the journal with what follows, or an error
// and what it has found out all the same. Each step may have been begun, or done, by an earlier process.
func (e *Executor) do(ctx context.Context, driver driver, j Journal) (Journal, error) {
	begin := time.Now()
	if deadline := j.deadline(begin); !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline, fmt.Errorf("not within the time limit: %s after the stop", deadline.Sub(j.Stopped).Round(time.Millisecond)))
		defer cancel()
		if ctx.Err() != nil {
			return j, context.Cause(ctx)
		}
	}
	var err error
	switch j.Step {
	case Validate:
		if j.Plan, err = e.settled(ctx, driver, j.Request.Policy); err == nil {
			err = e.probeBefore(ctx, j.Plan.Healthz)
		}
		if err == nil {
			err = e.probeDisk(j.Plan)
		}
		if err == nil {
			e.lookAtNode(ctx, j.Plan)
		}
		j.Stopped = time.Now()
	case Stop:
		if err = stop(ctx, driver, j.stopLimit()); err == nil {
			j.Before, err = e.takeDown(j.Plan)
		}
	case Configure:
		// A host of rke2 may have no drop-ins yet.
		dir := filepath.Dir(j.Plan.DropIn)
		if err = errors.Join(e.disk.mkdir(dir), e.disk.sync(filepath.Dir(dir))); err == nil {
			err = put(e.disk, j.Plan.DropIn, &File{[]byte(j.Plan.Content), 0o600})
		}
	case Checkpoint:
		err = put(e.disk, j.Plan.Checkpoint, nil)
	case Start, StartAgain:
		err = driver.start(ctx)
	case Healthy:
		err = e.healthy(ctx, driver, j.Plan, 3)
	case Verify:
		err = e.verify(j.Plan, j.Request.Policy)
	case Widen:
		if j.Request.Policy == operation.None {
			j.Note, err = e.widen(ctx, j.Plan, j.Before.Checkpoint)
		}
	case Await, AwaitAgain:
		j = e.await(ctx, j)
	case StopAgain:
		if err = stop(ctx, driver, j.stopLimit()); err == nil {
			j.After = e.writtenUnderStatic(j)
		}
	case Restore:
		if j.Before != nil {
			err = errors.Join(restore(e.disk, j.Plan.DropIn, j.Before.DropIn), restore(e.disk, j.Plan.Checkpoint, j.Before.Checkpoint))
		}
	case HealthyAgain:
		if err = e.healthy(ctx, driver, j.Plan, 0); err == nil && j.After != nil {
			j = e.widenAgain(ctx, j)
		}
	}
	if err != nil {
		return j, err
	}
	return j.done(), nil
}

// writtenUnderStatic returns the checkpoint of a kubelet that has run under the policy static, before it is
// replaced; nil if there is none.
func (e *Executor) writtenUnderStatic(j Journal) *File {
	if j.Request.Policy != operation.Static {
		return nil
	}
	file, err := e.disk.read(j.Plan.Checkpoint)
	if err == nil && file != nil && kubeletstate.ParseCheckpoint(file.Content).Policy == string(operation.Static) {
		return file
	}
	return j.After // of an attempt that has restored the checkpoint already
}

// widenAgain does after a roll-back from the policy static what Widen does after a switch from it: the
// policy none leaves containers what they have. A failure is noted, and ends nothing.
func (e *Executor) widenAgain(ctx context.Context, j Journal) Journal {
	if _, err := e.widen(ctx, j.Plan, j.After); err != nil {
		failure := *j.Failure
		failure.Message += "; " + err.Error()
		j.Failure = &failure
	}
	return j
}

// settled returns the plan of a switch. For a switch to none it first waits, while the kubelet runs, until each container
// has the CPUs that the checkpoint says. One that the CPU manager has yet to move when the kubelet stops has CPUs that no
// checkpoint says any more: Widen could not tell them from those of an NRI plugin, and would leave them for good.
//
// It waits for the time of one reconciliation. What is different after that is somebody else's.
func (e *Executor) settled(ctx context.Context, driver driver, policy operation.Policy) (*Plan, error) {
	begin, failures := time.Now(), 0
	for ctx.Err() == nil {
		// A new one each time: a pod that comes meanwhile may have exclusive CPUs, which is refused.
		plan, err := driver.plan(ctx, policy)
		if err != nil || policy != operation.None {
			return plan, err
		}
		what, err := e.due(ctx, plan)
		if err != nil {
			failures++
			what = err.Error()
		} else {
			failures = 0
		}
		if what == "" {
			return plan, nil
		}
		if failures >= mostFailures || time.Since(begin) >= plan.Reconciled {
			klog.FromContext(ctx).Info("Not waiting for the CPU manager", "due", what)
			return plan, nil
		}
		klog.FromContext(ctx).V(1).Info("Waiting for the CPU manager", "due", what)
		sleep(ctx, 4*e.interval) // the runtime is asked about each container
	}
	return nil, context.Cause(ctx)
}

// probeBefore returns an error unless the kubelet is healthy: nobody could tell whether the switch
// made it unhealthy, and what a roll-back would lead to.
func (e *Executor) probeBefore(ctx context.Context, url string) error {
	if err := e.probe(ctx, url); err != nil {
		return fmt.Errorf("the kubelet is not healthy before the switch: %w", err)
	}
	return nil
}

// probeDisk returns an error unless files can be written where the switch and its roll-back write some. A
// directory may be read-only, or its disk full, and once the kubelet is down that is too late.
func (e *Executor) probeDisk(plan *Plan) error {
	before, err := e.takeDown(plan)
	if err != nil {
		return err
	}
	if err := e.disk.mkdir(filepath.Dir(plan.DropIn)); err != nil {
		return err
	}
	checkpoint := File{[]byte("{}"), 0o600}
	if before.Checkpoint != nil {
		checkpoint = *before.Checkpoint
	}
	for path, file := range map[string]File{plan.DropIn: {[]byte(plan.Content), 0o600}, plan.Checkpoint: checkpoint} {
		if err := e.disk.try(path, file); err != nil {
			return fmt.Errorf("%s cannot be written: %w", path, err)
		}
	}
	return nil
}

// stop stops the kubelet, and kills it after the limit.
func stop(ctx context.Context, driver driver, limit time.Duration) error {
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return driver.stop(ctx)
	}
	err := try()
	if err == nil || ctx.Err() != nil {
		return err
	}
	if killed := driver.kill(ctx); killed != nil {
		return errors.Join(err, killed)
	}
	return try()
}

// takeDown returns configuration and checkpoint as they are.
func (e *Executor) takeDown(plan *Plan) (*Before, error) {
	var before Before
	var err error
	if before.DropIn, err = e.disk.read(plan.DropIn); err != nil {
		return nil, err
	}
	if before.Checkpoint, err = e.disk.read(plan.Checkpoint); err != nil {
		return nil, err
	}
	return &before, nil
}

// healthy waits until the kubelet has been healthy for a while, with a checkpoint: it writes one
// once it has got in touch with the runtime, and may end thereafter all the same. A kubelet that
// has ended a number of times has failed; zero means that there is no such number.
func (e *Executor) healthy(ctx context.Context, driver driver, plan *Plan, most int) error {
	var since time.Time
	last, ended := 0, 0
	for {
		pid, err := driver.pid(ctx)
		if err != nil && !driver.connected() {
			return err
		}
		if last != 0 && err == nil && pid != last {
			ended++
			since = time.Time{}
		}
		if most > 0 && ended >= most {
			return fmt.Errorf("the kubelet ended %d times", ended)
		}
		last = pid
		if err == nil && pid == 0 {
			err = errors.New("the kubelet does not run")
		}
		if err == nil {
			err = e.look(ctx, plan)
		}
		switch {
		case err != nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= e.stable:
			return nil
		}
		sleep(ctx, e.interval)
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// look returns why the kubelet is not healthy now.
func (e *Executor) look(ctx context.Context, plan *Plan) error {
	if err := e.probe(ctx, plan.Healthz); err != nil {
		return err
	}
	checkpoint, err := readCheckpoint(e.disk, plan.Checkpoint)
	if err == nil && checkpoint == nil {
		err = fmt.Errorf("the kubelet has not written %s yet", plan.Checkpoint)
	}
	return err
}

// verify compares the policy in the new checkpoint with the requested one.
func (e *Executor) verify(plan *Plan, policy operation.Policy) error {
	checkpoint, err := readCheckpoint(e.disk, plan.Checkpoint)
	if err != nil {
		return err
	}
	if checkpoint == nil {
		return fmt.Errorf("the kubelet has not written %s", plan.Checkpoint)
	}
	if checkpoint.Policy != string(policy) {
		return fmt.Errorf("%s has policyName %q, want %q: something overrides %s", plan.Checkpoint, checkpoint.Policy, policy, plan.DropIn)
	}
	return nil
}

// readCheckpoint reads the CPU manager's checkpoint; nil means that there is none.
func readCheckpoint(d disk, path string) (*kubeletstate.Checkpoint, error) {
	file, err := d.read(path)
	if err != nil || file == nil {
		return nil, err
	}
	checkpoint := kubeletstate.ParseCheckpoint(file.Content)
	if checkpoint.Damaged != "" {
		return nil, fmt.Errorf("the CPU manager's checkpoint %s is damaged: %s", path, checkpoint.Damaged)
	}
	return checkpoint, nil
}
