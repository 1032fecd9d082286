// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// Host is a host whose CPU manager policy is to be known or changed.
type Host struct{ host }

// OpenHost returns the host whose root is mounted at a path: "/" for a process of the host. It
// reads [SettingsFile].
func OpenHost(root string) (*Host, error) {
	disk := hostDisk(filepath.Clean(root))
	settings, err := readSettings(disk)
	if err != nil {
		return nil, err
	}
	return &Host{host{disk: disk, settings: settings, chroot: disk != "/", volatile: disk.volatile, interval: 250 * time.Millisecond, stable: 3 * time.Second}}, nil
}

// driver returns the driver of a name.
func (h host) driver(ctx context.Context, name operation.Driver, plan *Plan) (driver, error) {
	switch name {
	case operation.DriverKubelet:
		return h.kubeletDriver(ctx, plan)
	case operation.DriverRKE2:
		return h.rke2Driver(ctx, plan)
	case operation.DriverCommand:
		return h.commandDriver()
	}
	return nil, fmt.Errorf("driver %q: is not known", name)
}

// executor returns the executor of the host.
func (h host) executor(cleanUp func(context.Context) error) *Executor {
	return &Executor{
		driver: h.driver, disk: h.disk, probe: probeHealthz, due: h.due, widen: h.widen, node: h.node, cleanUp: cleanUp,
		ready: func() {
			// Without systemd nobody waits for it.
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		},
		interval: h.interval, stable: h.stable,
	}
}

// probeHealthz asks once for the kubelet's health.
func probeHealthz(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 200))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return err
}

// Execute does what remains of the host's operation. It is the program of the host unit.
func (h *Host) Execute(ctx context.Context) error { return h.execute(ctx, h.removeUnit) }

func (h host) execute(ctx context.Context, cleanUp func(context.Context) error) error {
	if err := h.disk.checkDirectory(Directory); err != nil {
		return err
	}
	unlock, err := h.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = h.executor(cleanUp).Execute(ctx)
	return err
}

// removeUnit removes the host unit.
func (h host) removeUnit(ctx context.Context) error {
	s, err := dialSystemd(ctx, h.disk)
	if err != nil {
		return err
	}
	defer s.close()
	return (&hostUnit{disk: h.disk, systemd: s}).remove(ctx)
}

// kubeletUnit returns the unit that runs the kubelet.
func (h host) kubeletUnit(ctx context.Context, s *systemd, j *Journal) (string, error) {
	if j.Plan != nil && j.Plan.Unit != "" {
		return j.Plan.Unit, nil
	}
	if j.Request.Driver == operation.DriverRKE2 {
		return s.rke2Unit(ctx)
	}
	return cmp.Or(h.settings.Unit, defaultUnit), nil
}

// lock waits until no other process of the agent works on the host.
func (h host) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(h.disk.at(lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if err != unix.EWOULDBLOCK || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err(), file.Close())
		}
		sleep(ctx, h.interval)
	}
}

// Run carries out a request, and returns when it has a result. It is the program of the Job's pod:
// the steps are the host unit's, since a pod may end while the kubelet is down. With the driver
// command, which knows no units, they are its own. agent is the path of this program.
//
// A request that the journal has already is not begun again, even if others have ended since. An
// operation that has stopped the kubelet is finished first; one that has changed nothing is
// superseded, and so is this one if another request comes before its first step.
//
// Run returns an error and no result if the context ends: the operation may be under way.
func (h *Host) Run(ctx context.Context, request operation.Request, agent string) (*operation.Result, error) {
	if err := request.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("request of operation %q: %w", request.ID, err)
	}
	for {
		j, err := h.begin(ctx, request)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			if MayBeUnderWay(string(h.disk), request.ID) {
				return nil, fmt.Errorf("operation %s may be under way: %w", request.ID, err)
			}
			// Nothing has been begun.
			return &operation.Result{ID: request.ID, Outcome: operation.Failed, Step: operation.StepValidate, Message: err.Error()}, nil
		}
		if result := j.result(request.ID); result != nil {
			return result, nil
		}
		if err := h.follow(ctx, j, agent); err != nil {
			return nil, err
		}
		if j.Request.ID != request.ID {
			continue
		}
		if j, err = load(h.disk); err != nil {
			return nil, err
		}
		if result := j.result(request.ID); result != nil {
			return result, nil
		}
		return nil, fmt.Errorf("%s has no result", journalFile)
	}
}

// MayBeUnderWay reports whether an operation has begun to change the host below a directory and has no
// result, or nobody can say. What keeps a process from it then is not how it has ended.
func MayBeUnderWay(root, id string) bool {
	j, err := load(hostDisk(filepath.Clean(root)))
	return err != nil || j.underWay(id)
}

// begin returns the journal with the requested operation, which may have ended, or that of another
// one that must be finished first.
func (h host) begin(ctx context.Context, request operation.Request) (*Journal, error) {
	if err := h.makeDirectory(); err != nil {
		return nil, err
	}
	for {
		j, err := load(h.disk)
		switch {
		case err != nil:
			return nil, err
		case j == nil:
		case j.result(request.ID) != nil:
			return j, nil
		case j.Request.ID == request.ID && j.Request != request && (j.Step == Validate || j.Request.Policy != request.Policy):
			return nil, fmt.Errorf("operation %s has another request in the journal: %+v", request.ID, j.Request)
		case j.Request.ID == request.ID, j.Result == nil && j.Step != Validate:
			return j, nil
		}
		// Nobody does a step while the lock is held.
		unlock, err := h.lock(ctx)
		if err != nil {
			return nil, err
		}
		now, err := load(h.disk)
		same := err == nil && (now == nil || (j != nil && now.Request.ID == j.Request.ID && now.Step == j.Step))
		if same {
			now = now.next(request)
			err = store(h.disk, *now)
		}
		unlock()
		if same || err != nil {
			return now, err
		}
	}
}

// Settle returns how an operation has ended, and from then on nothing of it acts on the host: what has
// stopped the kubelet is finished first, and what has changed nothing, or was never heard of, does not
// begin any more. agent is the path of this program.
//
// It returns an error and no result if the context ends, or if the host cannot be asked.
func (h *Host) Settle(ctx context.Context, id, agent string) (*operation.Result, error) {
	if err := h.makeDirectory(); err != nil {
		return nil, err
	}
	for {
		j, err := h.settle(ctx, id)
		if err != nil {
			return nil, err
		}
		if result := j.result(id); result != nil {
			return result, nil
		}
		if err := h.follow(ctx, j, agent); err != nil {
			return nil, err
		}
	}
}

// settle returns the journal with the result of an operation, unless that has stopped the kubelet and has none yet.
func (h host) settle(ctx context.Context, id string) (*Journal, error) {
	// Nobody does a step while the lock is held.
	unlock, err := h.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	j, err := load(h.disk)
	if err != nil || j.result(id) != nil {
		return j, err
	}
	result := operation.Result{ID: id, Outcome: operation.Failed, Step: operation.StepValidate, Message: "it was given up before its first step"}
	switch {
	case j == nil:
		j = &Journal{Request: operation.Request{ID: id}, Step: Report, Result: &result}
	case j.Request.ID != id:
		j.remember(result, j.Ended)
	case j.Step == Validate:
		*j = j.failed(result.Message, "")
	default:
		return j, nil
	}
	return j, store(h.disk, *j)
}

// makeDirectory makes the agent's directory.
func (h host) makeDirectory() error {
	if err := h.disk.mkdir(Directory); err != nil {
		return err
	}
	if err := h.disk.checkDirectory(Directory); err != nil {
		return err
	}
	if err := os.Chmod(h.disk.at(Directory), 0o700); err != nil {
		return err
	}
	return h.disk.sync(filepath.Dir(Directory))
}

// attempts is how often the host unit may end before its first step has been done.
const attempts = 5

// follow waits until the operation that is under way has ended, and starts what does it whenever
// that does not run.
func (h host) follow(ctx context.Context, j *Journal, agent string) error {
	if j.Request.Driver == operation.DriverCommand {
		return h.execute(ctx, func(context.Context) error { return nil })
	}
	s, err := dialSystemd(ctx, h.disk)
	if err != nil {
		return h.giveUp(ctx, j, err, nil)
	}
	defer func() { s.close() }()
	kubelet, err := h.kubeletUnit(ctx, s, j)
	if err != nil {
		return h.giveUp(ctx, j, err, nil)
	}
	unit := &hostUnit{h.disk, s, kubelet}
	started := 0
	for ctx.Err() == nil {
		now, err := load(h.disk)
		if err != nil {
			return err
		}
		if now == nil || now.Request.ID != j.Request.ID || now.Result != nil {
			return nil
		}
		if !s.connected() {
			if again, err := dialSystemd(ctx, h.disk); err == nil {
				s.close()
				s, unit.systemd = again, again
			}
		}
		state, err := s.properties(ctx, UnitName)
		if err == nil && !state.runs() {
			started++
			if err = unit.install(ctx, agent, j.Request.ID); err == nil {
				err = s.startUnit(ctx, UnitName)
			}
		}
		if now.Step == Validate && (started+int(state.restarts) > attempts) {
			err = errors.Join(fmt.Errorf("the host unit %s does not run; on the node: journalctl -u %[1]s", UnitName), err, s.stopUnit(ctx, UnitName))
			if err = h.giveUp(ctx, now, err, unit.remove); !errors.Is(err, errBegun) {
				return err
			}
			started = 0 // its last start went further, and another one must end it
			continue
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Host unit is not started", "operation", j.Request.ID)
		}
		sleep(ctx, h.interval)
	}
	return context.Cause(ctx)
}

// errBegun says that an operation is not given up, since it has begun, or ended by itself.
var errBegun = errors.New("it has begun")

// giveUp ends an operation that cannot begin, and then calls cleanUp, which may be nil. One that has begun is not given
// up; if it has since the journal was read, the error is errBegun.
func (h host) giveUp(ctx context.Context, j *Journal, reason error, cleanUp func(context.Context) error) error {
	if j.Step != Validate {
		return reason
	}
	unlock, err := h.lock(ctx)
	if err != nil {
		return errors.Join(reason, err)
	}
	defer unlock()
	now, err := load(h.disk)
	if err != nil || now == nil || now.Request.ID != j.Request.ID {
		return errors.Join(reason, err)
	}
	if now.Step != Validate || now.Result != nil {
		return errors.Join(reason, errBegun)
	}
	if cleanUp != nil {
		reason = errors.Join(reason, cleanUp(ctx))
	}
	return store(h.disk, now.failed(reason.Error(), ""))
}
