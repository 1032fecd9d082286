// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"workload.openshift.io/operators/api/nodegroup"
)

// Runner is what a companion does to nodes.
type Runner interface {
	// Start has an operation begin, without waiting for its end. It is called again until Observe sees
	// it, so that it may take several calls to drain a node before something is done to it. An operation
	// that has begun, has ended, or was finished is not begun again, however late the call comes: a caller who
	// calls may have been stopped for minutes after it last looked. Nor is it begun on another Node of
	// the same name; an owner reference to the Node that was asked sees to that.
	Start(ctx context.Context, node, operation string) error
	// Observe says what can be told of an operation now. It asks the API or the node, not a cache.
	Observe(ctx context.Context, node, operation string) (Result, error)
	// Finish removes what is left of an operation that is Over or Absent: a Job, a cordon. The node may
	// be gone. It is called until it succeeds, and may be called again after that.
	Finish(ctx context.Context, node, operation string) error
}

// Store is where operations, claims and locks are kept. An update reads what is there, has it changed
// and writes it, if change returns no error, and if nobody else has written in between: that is a
// conflict, and an error. Nothing comes from a cache.
type Store interface {
	// Get returns an error that apierrors.IsNotFound knows if there is no such node.
	Get(ctx context.Context, node string) (State, error)
	Update(ctx context.Context, node string, change func(*State) error) error
	UpdateHolders(ctx context.Context, lock string, change func(nodegroup.Holders) (nodegroup.Holders, error)) error
}

// Rollout does what Plan decides.
type Rollout struct {
	Store  Store
	Runner Runner
}

// errStale says that a look was old: what it has shown is not so any more.
var errStale = errors.New("somebody was faster")

// startAgain is after how long what runs and is not started is looked at again. It may wait for
// something else, such as a drain, which would be asked for without a pause.
const startAgain = 5 * time.Second

// Step observes what runs, decides, and does it. Nodes of the look need no Result. It returns when to
// look again at the latest; the zero time means when something happens. Errors are of single actions:
// all others were done. After each of them, too, the remedy is another look; the
// caller decides when, since the next one may fail as well.
func (r Rollout) Step(ctx context.Context, look Look) (again time.Time, err error) {
	look.Nodes = slices.Clone(look.Nodes)
	var errs []error
	for i := range look.Nodes {
		n := &look.Nodes[i]
		id := n.Watched(look.Owner)
		if id == "" {
			continue
		}
		n.Result, err = r.Runner.Observe(ctx, n.Name, id)
		if err == nil && n.Result.Seen == Over && !n.Result.Phase.Ended() {
			err = fmt.Errorf("is over with the phase %q, which is not final", n.Result.Phase)
		}
		if err != nil {
			n.Result = Result{}
			errs = append(errs, fmt.Errorf("node %s, operation %s: observe: %w", n.Name, id, err))
		}
	}
	actions, again := Plan(look)
	for _, a := range actions {
		err := r.do(ctx, look, a)
		if err != nil && !errors.Is(err, errStale) {
			errs = append(errs, fmt.Errorf("node %s, operation %s: %s: %w", a.Node, a.Operation, strings.ToLower(string(a.Kind)), err))
			continue
		}
		next := look.Now // one action for each node; there may be another
		if err == nil && a.Kind == Begin && a.From == Running {
			next = look.Now.Add(startAgain)
		}
		if again.IsZero() || next.Before(again) {
			again = next
		}
	}
	return again, errors.Join(errs...)
}

func (r Rollout) do(ctx context.Context, look Look, a Action) error {
	switch a.Kind {
	case Begin:
		return r.begin(ctx, look, a)
	case End:
		return r.end(ctx, look, a)
	case Release:
		return r.release(ctx, look, a)
	default:
		return r.unlock(ctx, look, a)
	}
}

func (r Rollout) begin(ctx context.Context, look Look, a Action) error {
	// All take them in this order, so that no two wait for each other. What runs has had them.
	locks := slices.SortedFunc(slices.Values(a.Locks), byOrder)
	for _, lock := range locks {
		if a.From == Running {
			break
		}
		if err := r.Store.UpdateHolders(ctx, lock.Name, func(h nodegroup.Holders) (nodegroup.Holders, error) {
			return h.Add(nodegroup.Holder{Owner: look.Owner, Operation: a.Operation, Node: a.Node, Since: look.Now}, lock.Max)
		}); err != nil {
			return stale(err)
		}
	}
	claim := nodegroup.Claim{Owner: look.Owner, Operation: a.Operation, Since: look.Now}
	if err := r.Store.Update(ctx, a.Node, func(s *State) error {
		if s.Operation.ID != a.Operation || s.Operation.Phase.Ended() {
			return errStale
		}
		despite := a.DespiteCordon || s.Operation.Phase == Running
		if err := claim.Check(a.Node, s.Claim, s.Cordoned, despite); err != nil {
			return err
		}
		if s.Claim == (nodegroup.Claim{}) {
			s.Claim = claim
		}
		if s.Operation.Phase == Requested {
			s.Operation = Operation{ID: a.Operation, Phase: Running, Since: look.Now}
		}
		return nil
	}); err != nil {
		return stale(err)
	}
	return r.Runner.Start(ctx, a.Node, a.Operation)
}

// byOrder is in which order locks are taken: that of the control plane first, since a companion may take it before
// anything begins.
func byOrder(x, y Lock) int {
	shared := nodegroup.ControlPlaneLock.String()
	switch {
	case x.Name == y.Name:
		return 0
	case x.Name == shared:
		return -1
	case y.Name == shared:
		return 1
	}
	return strings.Compare(x.Name, y.Name)
}

// stale makes errStale of what only means that others have something.
func stale(err error) error {
	var full *nodegroup.FullError
	var held *nodegroup.HeldError
	var cordoned *nodegroup.CordonedError
	if errors.As(err, &full) || errors.As(err, &held) || errors.As(err, &cordoned) {
		return errStale
	}
	return err
}

func (r Rollout) end(ctx context.Context, look Look, a Action) error {
	return r.Store.Update(ctx, a.Node, func(s *State) error {
		if s.Operation.ID != a.Operation || s.Operation.Phase != a.From || a.From.Ended() && !s.Operation.Overdue {
			return errStale
		}
		if s.Operation.Message, s.Operation.Overdue = a.Message, a.Overdue; a.To != a.From {
			s.Operation.Phase, s.Operation.Since = a.To, look.Now
		}
		return nil
	})
}

func (r Rollout) release(ctx context.Context, look Look, a Action) error {
	if err := r.Runner.Finish(ctx, a.Node, a.Operation); err != nil {
		return err
	}
	return r.Store.Update(ctx, a.Node, func(s *State) error {
		if !s.owns(look.Owner, a.Operation) {
			return errStale
		}
		s.Claim = nodegroup.Claim{}
		return nil
	})
}

func (r Rollout) unlock(ctx context.Context, look Look, a Action) error {
	return r.Store.UpdateHolders(ctx, a.Lock, func(h nodegroup.Holders) (nodegroup.Holders, error) {
		// The node is read after the lock: who takes the lock in between makes this a conflict.
		s, err := r.Store.Get(ctx, a.Node)
		if apierrors.IsNotFound(err) {
			err = r.Runner.Finish(ctx, a.Node, a.Operation)
		}
		if err != nil {
			return nil, err
		}
		if needsLock(s, look.Owner, a.Operation) {
			return nil, errStale
		}
		return h.Remove(look.Owner, a.Operation), nil
	})
}
