// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// Step is a part of an operation. A step begins once the journal that names it is on the disk.
type Step string

// The steps of a switch, in their order.
const (
	// Validate refuses what would keep the kubelet down, and changes nothing. A switch to none waits here until the
	// CPU manager has moved containers.
	Validate Step = operation.StepValidate
	// Stop stops the kubelet, and takes down the configuration and the checkpoint as they are.
	Stop Step = "stop"
	// Configure writes the driver's drop-in.
	Configure Step = "configure"
	// Checkpoint removes the CPU manager's checkpoint; the journal has it.
	Checkpoint Step = "checkpoint"
	// Start starts the kubelet.
	Start Step = "start"
	// Healthy waits until the kubelet stays healthy.
	Healthy Step = "healthy"
	// Verify compares the policy in the new checkpoint with the requested one.
	Verify Step = "verify"
	// Widen gives containers back the CPUs that the policy static kept from them. The switch
	// counts as done: no failure from here on rolls it back.
	Widen Step = "widen"
	// Report is the end in either direction: the journal has the result.
	Report Step = "report"
)

// The steps of the way back, in their order. Report follows.
const (
	// Await waits until the pods of the node go with their Node as they did before: a kubelet that
	// starts again ends those that do not. KubeVirt takes its label schedulable away when the kubelet
	// restarts, and gives it back once its device plugins have found the kubelet. So this waits while the
	// kubelet may run, and AwaitAgain right before it starts.
	Await Step = "await"
	// StopAgain stops the kubelet, if it runs.
	StopAgain Step = "stopAgain"
	// Restore puts the configuration and the checkpoint back.
	Restore Step = "restore"
	// AwaitAgain is [Await], with everything restored.
	AwaitAgain Step = "awaitAgain"
	// StartAgain starts the kubelet as it was.
	StartAgain Step = "startAgain"
	// HealthyAgain waits until it is healthy.
	HealthyAgain Step = "healthyAgain"
)

var (
	forward = []Step{Validate, Stop, Configure, Checkpoint, Start, Healthy, Verify, Widen, Report}
	back    = []Step{Await, StopAgain, Restore, AwaitAgain, StartAgain, HealthyAgain, Report}
)

// Journal is all that is known of an operation, and how those before it have ended. A process that starts
// after a power cut learns from it alone what is left to do.
type Journal struct {
	Request operation.Request `json:"request"`
	// Step is under way, or has not begun yet. Those before it have been done, and are on the disk.
	Step Step `json:"step"`
	// Plan is there once Validate has been done.
	Plan *Plan `json:"plan,omitempty"`
	// Stopped is when the step Stop began. The time limit counts from there.
	Stopped time.Time `json:"stopped,omitzero"`
	// Before is there once Stop has been done: nothing is changed without it.
	Before *Before `json:"before,omitempty"`
	// After is the checkpoint that the kubelet has written under the policy static, once it was stopped
	// to go back; nil if there is none.
	After *File `json:"after,omitempty"`
	// Failure is why the operation goes back, or has failed.
	Failure *Failure `json:"failure,omitempty"`
	// Note is what to know of a success.
	Note string `json:"note,omitempty"`
	// Result is there from Report on.
	Result *operation.Result `json:"result,omitempty"`
	// Ended is how the operations before this one have ended, the last one first: none is done again.
	Ended []operation.Result `json:"ended,omitempty"`
}

const (
	// mostEnded is how many results a journal remembers beside its own.
	mostEnded = 64
	// mostText is how much of each of their texts, in bytes.
	mostText = 256
)

// next returns the journal of a request that comes after this one. What has changed nothing yet is superseded.
func (j *Journal) next(request operation.Request) *Journal {
	next := &Journal{Request: request, Step: Validate}
	if j == nil {
		return next
	}
	last := *j
	if last.Result == nil {
		last = last.ended(operation.Failed, Validate, "another operation has superseded it before its first step")
	}
	next.remember(*last.Result, last.Ended)
	return next
}

// remember has the journal know how an operation has ended, and what was known before.
func (j *Journal) remember(result operation.Result, before []operation.Result) {
	j.Ended = append([]operation.Result{result.Shortened(mostText)}, before...)
	j.Ended = j.Ended[:min(len(j.Ended), mostEnded)]
}

// result returns how an operation has ended; nil if that is not known.
func (j *Journal) result(id string) *operation.Result {
	switch {
	case j == nil:
		return nil
	case j.Request.ID == id:
		return j.Result
	}
	if i := slices.IndexFunc(j.Ended, func(r operation.Result) bool { return r.ID == id }); i >= 0 {
		return &j.Ended[i]
	}
	return nil
}

// Plan is all that the steps need to know of the host, so that they ask nobody while the kubelet
// is down. Paths are those of the host.
type Plan struct {
	// Unit is the unit of systemd that runs the kubelet; empty if it is not one.
	Unit string `json:"unit,omitempty"`
	// DropIn is the path of the drop-in with the policy, and Content what it will have.
	DropIn  string `json:"dropIn"`
	Content string `json:"content"`
	// Checkpoint is the path of the CPU manager's checkpoint.
	Checkpoint string `json:"checkpoint"`
	// Healthz is the URL of the kubelet's health.
	Healthz string `json:"healthz"`
	// Runtime is the endpoint of the container runtime.
	Runtime string `json:"runtime"`
	// CPUs are those that a container without exclusive ones may use under the policy none: all
	// that are online and in no pool.
	CPUs string `json:"cpus"`
	// Reconciled is how long it takes at most until the CPU manager has looked at all containers again. Zero means that
	// it is not waited for.
	Reconciled time.Duration `json:"reconciled,omitempty"`
	// Kubeconfig is the path of the kubelet's, and NodeName the name of the Node if a flag says it; both
	// may be empty.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	NodeName   string `json:"nodeName,omitempty"`
	// Node is how the pods went with their Node before the switch; nil if that is not known.
	Node *NodeBefore `json:"node,omitempty"`
	// LogSize is the size of the kubelet's log, in bytes, if that is a file: what comes later is
	// about the switch.
	LogSize int64 `json:"logSize,omitempty"`
}

// Before is what the operation changes, as it was. Nil means that there was no such file.
type Before struct {
	DropIn     *File `json:"dropIn,omitempty"`
	Checkpoint *File `json:"checkpoint,omitempty"`
}

// Failure is a step that could not be done.
type Failure struct {
	Step         Step   `json:"step"`
	Message      string `json:"message"`
	KubeletError string `json:"kubeletError,omitempty"`
}

// interrupted is the failure of a step whose process has ended, whatever ended it.
const interrupted = "the agent was interrupted"

// resumed returns the journal as a new process goes on with it:
//
//   - A switch that has been verified is finished.
//   - One in which nothing has been changed begins again.
//   - Every other one goes back. A kubelet under the new policy may be running by then, or the
//     host may have booted and wait for this process to let the kubelet start, so going back at
//     once is what surely ends in time.
//   - A way back begins again, unless everything is restored: then the checkpoint is the
//     kubelet's, which may have written it since.
func (j Journal) resumed() Journal {
	switch j.Step {
	case Validate, Widen, Report, Await, AwaitAgain, StartAgain:
		return j
	case HealthyAgain:
		j.Step = StartAgain
		return j
	case StopAgain, Restore:
		j.Step = StopAgain
		return j
	default:
		return j.failed(interrupted, "")
	}
}

// done returns the journal after its step has been done.
func (j Journal) done() Journal {
	way := forward
	if j.goesBack() {
		way = back
	}
	j.Step = way[slices.Index(way, j.Step)+1]
	if j.Step != Report {
		return j
	}
	if j.Failure == nil {
		return j.ended(operation.Succeeded, Report, j.Note)
	}
	return j.ended(operation.RolledBack, j.Failure.Step, j.Failure.Message)
}

// failed returns the journal after its step could not be done.
func (j Journal) failed(message, kubeletError string) Journal {
	switch {
	case j.Step == Widen:
		j.Note = message
		return j.done()
	case j.Step == HealthyAgain:
		j.Step = Report
		failure := *j.Failure
		failure.KubeletError = cmp.Or(failure.KubeletError, kubeletError)
		j.Failure = &failure
		return j.ended(operation.Failed, j.Failure.Step, fmt.Sprintf("%s; configuration and checkpoint are restored, but: %s", j.Failure.Message, message))
	case j.goesBack():
		// There is no other way: it is tried again until it can be done.
		return j
	}
	j.Failure = &Failure{Step: j.Step, Message: message, KubeletError: kubeletError}
	switch j.Step {
	case Validate:
		j.Step = Report
		return j.ended(operation.Failed, Validate, message)
	case Start, Healthy, Verify:
		j.Step = Await // the next start is the second one
	default:
		j.Step = StopAgain
	}
	return j
}

func (j Journal) ended(outcome operation.Outcome, step Step, message string) Journal {
	j.Result = &operation.Result{ID: j.Request.ID, Outcome: outcome, Step: string(step), Message: strings.TrimSpace(message)}
	if j.Failure != nil {
		j.Result.KubeletError = j.Failure.KubeletError
	}
	return j
}

func (j Journal) goesBack() bool { return j.Step != Report && slices.Contains(back, j.Step) }

// whole reports whether configuration and checkpoint belong together, so that a kubelet may start.
func (j Journal) whole() bool {
	switch j.Step {
	case Configure, Checkpoint, StopAgain, Restore:
		return false
	}
	return true
}

// underWay reports whether the operation of an id has begun to change the host, and has no result.
func (j *Journal) underWay(id string) bool {
	return j != nil && j.Request.ID == id && j.Result == nil && j.Step != Validate && j.Step != Report
}

// stopLimit is how long a kubelet may take to stop before it is killed.
func (j Journal) stopLimit() time.Duration {
	return j.Request.Limits.WithDefaults().RollBack.Duration / 3
}

// awaitsUntil is when Await and AwaitAgain end, whatever holds: half of the time for the way back is left then, enough to stop
// and start a kubelet.
func (j Journal) awaitsUntil(now time.Time) time.Time {
	limits := j.Request.Limits.WithDefaults()
	end := j.Stopped.Add(limits.Total.Duration - limits.RollBack.Duration/2)
	if end.Sub(now) > limits.Total.Duration {
		return now // somebody has set the clock
	}
	return end
}

// deadline is when the step must have ended at the latest; zero means never: what restores the
// host is not given up. now matters only where the clock has been set or the host was off.
func (j Journal) deadline(now time.Time) time.Time {
	limits := j.Request.Limits.WithDefaults()
	switch j.Step {
	case Stop, Configure, Checkpoint, Start, Healthy, Verify:
		return j.Stopped.Add(limits.Total.Duration - limits.RollBack.Duration)
	case HealthyAgain:
		end := j.Stopped.Add(limits.Total.Duration)
		if left := end.Sub(now); left <= 0 || left > limits.Total.Duration {
			return now.Add(limits.RollBack.Duration)
		}
		return end
	}
	return time.Time{}
}
