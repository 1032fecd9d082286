// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/tuning"
)

// Daemon runs TuneD for a node. All fields but Kept, Unit, Image and the durations are required.
type Daemon struct {
	// Node is the name of the node, and of its Profile.
	Node   string
	Client client.WithWatch
	// Python is the interpreter that TuneD runs with.
	Python string
	// EtcDir and RunDir are /etc/tuned and /run/tuned, where TuneD expects them. Both are directories of the host's /run, so
	// that they outlive this program and no boot.
	EtcDir, RunDir string
	// Kept is a directory of the host that outlives boots, where Run keeps what Boot needs, if the host has the Unit that runs Boot. It is
	// empty if nothing is to be kept. Image is a name of the image that this program runs in.
	Kept, Unit, Image string
	// BootID tells one boot of the node from all others (/proc/sys/kernel/random/boot_id).
	BootID string

	// Settle is how long a changed Profile must stay as it is before it counts, so that what the operator puts back at once
	// never reaches the kernel. Zero is DefaultSettle.
	Settle time.Duration
	// ApplyLimit is how long TuneD may take to apply a profile. Zero is DefaultApplyLimit.
	ApplyLimit time.Duration
	// UndoLimit is how long TuneD may take to undo one. Zero is DefaultUndoLimit.
	UndoLimit time.Duration
	// Probation is after how long the node must still reach the API server, for a boot to rely on a profile. Zero is DefaultProbation.
	Probation time.Duration

	files
	desired *tunedv1.Profile
	seen    bool // desired is what the API server said
	since   time.Time
	running *process
	// held is what TuneD runs with, or ran with when it ended without undoing it.
	held  Record
	state observed
	// booted is true until a Profile was taken in this boot.
	booted bool
	// stored is the hash of the Profile that is kept for the next boot.
	stored string
	// unproven is the hash of a Profile with which the node has not reached the API server yet, and proveAt is when that is tried next.
	unproven string
	proveAt  time.Time
	// proofAtBoot is the proof of that Profile if Boot has applied it.
	proofAtBoot string
	// leftOut is the hash of a Profile that Boot has left out, until it is proven. toldSo is true once that is due to be told.
	leftOut string
	toldSo  bool
	// begun is when the running TuneD was started, or told to reload.
	begun, started time.Time
	failures       int
	restart        time.Time
	reportAt       time.Time
}

// Defaults of a Daemon's durations.
const (
	DefaultSettle     = 2 * time.Second
	DefaultApplyLimit = time.Minute
	DefaultUndoLimit  = 30 * time.Second
	DefaultProbation  = 3 * time.Second
)

const (
	// firstRestart is how long a TuneD that ended is not started again; twice as long each time, up to lastRestart.
	firstRestart = time.Second
	lastRestart  = time.Minute
	// stable is how long a TuneD must run for the next restart to be a first one.
	stable = 2 * lastRestart
	// hopeless is after how many ends in a row what TuneD held is given up for what is wanted now.
	hopeless = 3
	// quiet is how long nothing happens before a status is written.
	quiet = 300 * time.Millisecond
	// reportAgain is when a status is written again that could not be.
	reportAgain = 5 * time.Second
	// asking is how long the API server may take to say whether the DaemonSet is there.
	asking = 10 * time.Second
)

func (d *Daemon) defaults() {
	d.Settle = cmp.Or(d.Settle, DefaultSettle)
	d.ApplyLimit = cmp.Or(d.ApplyLimit, DefaultApplyLimit)
	d.UndoLimit = cmp.Or(d.UndoLimit, DefaultUndoLimit)
	d.Probation = cmp.Or(d.Probation, DefaultProbation)
	d.files = files{d.EtcDir, d.RunDir}
	d.stored = "not known"
}

// Run runs until the context ends, and undoes what TuneD changed if the DaemonSet is gone then. The error is that of files that
// cannot be read.
func (d *Daemon) Run(ctx context.Context) error {
	d.defaults()
	log := logr.FromContextOrDiscard(ctx)
	var err error
	if d.booted, err = d.files.booted(d.BootID); err != nil {
		return err
	}
	if d.held, err = d.read(); err != nil {
		// It was cut off with the power, and so was what it is about: these files do not outlive a boot.
		log.Error(err, "Ignoring the record of what TuneD ran with")
	}
	d.state.record = d.held
	applied := d.appliedAtBoot(d.BootID)
	d.recall(!applied.IsZero())
	if !applied.IsZero() {
		kubelet := startOf("kubelet")
		log.Info("TuneD applied the profile at the boot", "profile", d.held.Profile, "applied", applied, "kubeletStarted", kubelet, "before", applied.Before(kubelet))
	}
	imageKept := d.keepImage(ctx)
	profiles := d.follow(ctx)
	now := clock.RealClock{}.Now
	for {
		wait := d.step(ctx, now())
		var events <-chan event
		if d.running != nil {
			events = d.running.events
		}
		timer := time.NewTimer(wait)
		select {
		case profile := <-profiles:
			d.see(profile, now())
		case e := <-events:
			d.take(ctx, e, now())
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			<-imageKept
			return d.end(ctx)
		}
		timer.Stop()
	}
}

// see takes a version of the Profile.
func (d *Daemon) see(profile *tunedv1.Profile, now time.Time) {
	if d.seen && (hashOf(profile) != hashOf(d.desired) || deferral(profile) != deferral(d.desired)) {
		d.since = now
	}
	d.desired, d.seen = profile, true
	d.reportSoon(now)
}

// deferral is what a Profile says about waiting.
func deferral(profile *tunedv1.Profile) string {
	if profile == nil {
		return ""
	}
	return profile.Annotations[tunedv1.DeferredAnnotation]
}

func (d *Daemon) reportSoon(now time.Time) { d.reportAt = now.Add(quiet) }

// take takes what TuneD does.
func (d *Daemon) take(ctx context.Context, e event, now time.Time) {
	switch {
	case e.line != nil:
		d.state.take(e.line)
		// A profile that the first TuneD cannot load is told in no other way (_init_profile in tuned/daemon/daemon.py).
		if d.state.phase == applying && e.line.level == "ERROR" && e.line.logger == "tuned.daemon.daemon" {
			d.state.phase = failed
		}
	case e.outcome != nil:
		d.proveAt = now.Add(d.Probation) // a TuneD that starts takes seconds
		if d.state.phase = applied; !e.outcome.ok {
			d.state.phase = failed
		}
		d.state.ended = nil
		d.state.cmdline = d.kernelArguments()
	case e.ended != nil:
		if now.Sub(d.started) > stable {
			d.failures = 0
		}
		pause := min(firstRestart<<min(d.failures, 10), lastRestart)
		d.failures++
		d.restart = now.Add(pause)
		d.running = nil
		d.state.phase, d.state.ended = idle, e.ended
		logr.FromContextOrDiscard(ctx).Error(e.ended, "TuneD ended", "again", pause)
	}
	d.reportSoon(now)
}

// step does what is due, and returns when the next step is.
func (d *Daemon) step(ctx context.Context, now time.Time) time.Duration {
	log := logr.FromContextOrDiscard(ctx)
	wait := time.Hour
	until := func(t time.Time) { wait = min(wait, max(t.Sub(now), time.Millisecond)) }
	wanted := hashOf(d.desired)
	changes := d.seen && wanted != d.held.Hash
	if d.state.waits = changes && d.waits(); d.state.waits {
		changes = false
	}
	if d.seen && !changes {
		if d.booted && wanted != "" {
			d.notes(ctx) // Boot has applied it
		}
		if settled := d.since.Add(d.Settle); now.Before(settled) && !d.since.IsZero() {
			until(settled)
		} else if err := d.keep(); err != nil {
			log.Error(err, "Keeping the profile for the next boot failed")
			until(now.Add(reportAgain))
		}
	}
	if d.running == nil && d.held.Profile != "" {
		if changes && d.failures >= hopeless {
			log.Info("Giving up what TuneD held: it ends each time", "profile", d.held.Profile)
			d.held = Record{}
		} else if now.Before(d.restart) {
			until(d.restart)
		} else {
			// It finds what it must undo in its storage, whatever comes next.
			d.start(ctx, now)
		}
	}
	if d.running != nil && d.state.phase == applying {
		if limit := d.begun.Add(d.ApplyLimit); now.Before(limit) {
			until(limit)
		} else {
			d.state.phase = timedOut
			d.reportSoon(now)
		}
	}
	if at := d.prove(ctx, now); !at.IsZero() {
		until(at)
	}
	d.state.leftOut = d.leftOut != "" && d.leftOut == wanted && !d.state.waits
	if changes && d.state.phase != applying && (d.running != nil || d.held.Profile == "") {
		if d.state.leftOut && !d.toldSo {
			// Once it is applied, the node may tell nothing any more.
			d.toldSo, d.reportAt = true, now
			until(now)
		} else if settled := d.since.Add(d.Settle); now.Before(settled) && !d.since.IsZero() {
			until(settled)
		} else if now.Before(d.restart) && d.running == nil {
			until(d.restart)
		} else {
			d.change(ctx, now)
			until(now)
		}
	}
	if d.reportAt.IsZero() || d.desired == nil {
		return wait
	}
	if now.Before(d.reportAt) {
		until(d.reportAt)
		return wait
	}
	d.reportAt = time.Time{}
	status := d.state.status(d.desired, now)
	if err := d.report(ctx, d.desired, status); err != nil {
		if ctx.Err() == nil {
			log.Error(err, "Writing the status of the Profile failed")
		}
		d.reportAt = now.Add(reportAgain)
		until(d.reportAt)
		return wait
	}
	d.desired = d.desired.DeepCopy()
	d.desired.Status = status
	return wait
}

// waits reports whether what is wanted waits for the node's next boot. If the node reported about the Profile in an earlier boot,
// this is the next one.
func (d *Daemon) waits() bool {
	if hashOf(d.desired) == "" || d.booted && len(d.desired.Status.Conditions) > 0 {
		return false
	}
	return tuning.Deferred(deferral(d.desired), d.held.Profile, d.desired.Spec.Config.TunedProfile)
}

// notes records that a Profile was taken in this boot.
func (d *Daemon) notes(ctx context.Context) {
	if err := d.files.taken(d.BootID); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Noting the boot failed: a deferred profile may be applied before the next one")
	}
	d.booted = false
}

// change has TuneD run with what is wanted now.
func (d *Daemon) change(ctx context.Context, now time.Time) {
	log := logr.FromContextOrDiscard(ctx)
	d.reportSoon(now)
	if hashOf(d.desired) == "" {
		undone := true
		if d.running != nil {
			log.Info("Undoing the profile: the node has none", "profile", d.held.Profile)
			undone = d.undo(ctx)
		}
		d.held = Record{}
		d.state = observed{}
		if err := d.clear(undone); err != nil {
			log.Error(err, "Removing the profiles failed")
		}
		d.try(ctx, "")
		if !d.booted {
			d.notes(ctx)
		}
		return
	}
	d.try(ctx, hashOf(d.desired))
	_ = d.keep() // step does so again, and says why it fails
	record, err := d.write(d.desired)
	if err != nil {
		d.state.problem = err
		d.restart, d.since = now.Add(reportAgain), now
		log.Error(err, "Writing the profiles failed")
		return
	}
	d.notes(ctx) // not before: a deferred profile would wait for another boot
	before := d.held
	if d.running != nil && (before.Debug != record.Debug || before.ReapplySysctl != record.ReapplySysctl) {
		d.undo(ctx)
	}
	d.held = record
	d.state = observed{record: record, phase: applying, unsupported: unsupportedPlugins(d.desired.Spec)}
	if d.running == nil {
		d.start(ctx, now)
		return
	}
	log.Info("Reloading TuneD", "profile", record.Profile, "before", before.Profile, "generation", record.Generation)
	d.begun, d.failures = now, 0
	if err := d.running.reload(); err != nil {
		log.Error(err, "Reloading TuneD failed") // it has ended, and says so
	}
}

// start starts TuneD with what is held.
func (d *Daemon) start(ctx context.Context, now time.Time) {
	log := logr.FromContextOrDiscard(ctx)
	ended := d.state.ended
	d.state = observed{record: d.held, phase: applying, unsupported: d.state.unsupported, ended: ended, waits: d.state.waits}
	d.begun, d.started = now, now
	p, err := startTuned(d.files, d.Python, d.held)
	if err != nil {
		d.state.phase, d.state.problem = failed, fmt.Errorf("TuneD does not start: %w", err)
		d.restart = now.Add(lastRestart)
		d.reportSoon(now)
		log.Error(err, "Starting TuneD failed")
		return
	}
	d.running = p
	log.Info("Started TuneD", "profile", d.held.Profile, "pid", p.pid)
}

// undo ends TuneD, which undoes what it changed. It reports whether TuneD did so in time.
func (d *Daemon) undo(ctx context.Context) bool {
	done := d.running.undo(d.UndoLimit)
	if !done {
		logr.FromContextOrDiscard(ctx).Info("TuneD has not undone what it changed", "limit", d.UndoLimit)
		d.running.kill()
	}
	d.running = nil
	return done
}

// end ends TuneD. What it changed is undone only if the DaemonSet is uninstalled.
func (d *Daemon) end(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), asking)
	defer cancel()
	gone, err := d.uninstalled(asked)
	if err != nil {
		log.Error(err, "Asking for the DaemonSet failed: what TuneD changed stays")
	}
	if !gone {
		if d.running != nil {
			d.running.kill()
		}
		log.Info("Ended TuneD; what it changed stays for the next")
		return nil
	}
	undone := d.held.Profile == ""
	// It may have been killed a moment ago, noticed or not yet. Then the next one undoes what that left.
	for range 2 {
		if d.running == nil && !undone {
			d.start(ctx, time.Now())
			d.await(ctx)
		}
		if d.running != nil {
			undone = d.undo(ctx)
		}
	}
	log.Info("The DaemonSet is gone, so what TuneD changed is undone", "done", undone)
	return errors.Join(d.clear(undone), d.forget())
}

// await waits until TuneD has applied what it holds, or has failed to.
func (d *Daemon) await(ctx context.Context) {
	for limit := time.After(d.ApplyLimit); d.running != nil && d.state.phase == applying; {
		select {
		case e := <-d.running.events:
			d.take(ctx, e, time.Now())
		case <-limit:
			d.state.phase = timedOut
		}
	}
}
