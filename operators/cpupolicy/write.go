// SPDX-License-Identifier: Apache-2.0

package cpupolicy

import (
	"fmt"
	"slices"

	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/untrusted"
)

// Policy is a CPU manager policy.
type Policy = operation.Policy

const (
	None   = operation.None
	Static = operation.Static
)

// Writer is who writes the annotation.
type Writer int

const (
	// User is anyone who may update a Node.
	User Writer = iota
	// Controller is the identity of the controller, and nobody else.
	Controller
)

// SupersededError says that an operation must not write, since the annotation is about another.
type SupersededError struct{ Old, Has nodestatus.Status }

func (e *SupersededError) Error() string {
	return fmt.Sprintf("annotation %s: id %q with policy %q must not replace id %q with policy %q", nodestatus.StatusAnnotation, e.Old.ID, e.Old.Policy, e.Has.ID, e.Has.Policy)
}

// CheckWrite returns an error if the writer must not change the annotations of a Node in that way.
// An update that leaves the status as it was is nobody's concern, even if it cannot be parsed.
//
//   - A user may ask: write requested, without what the controller adds, and with allowEvicted if pods
//     may end. A user may also withdraw a request that the controller has not taken up.
//   - Nobody may ask while a policy was asked for and nothing has come of it.
//   - The controller refuses a request, which fails without id, or takes it up by giving it one, and
//     then writes for this id alone. Requested becomes running or failed, and running becomes complete or
//     failed. After that, only message and begun may change. Evictions that nobody asked for are refused.
//   - What cannot be parsed may be replaced by anything that can be, and removed.
func CheckWrite(before, after map[string]string, by Writer) error {
	value, has := after[nodestatus.StatusAnnotation]
	if old, had := before[nodestatus.StatusAnnotation]; had == has && old == value {
		return nil
	}
	// A status that cannot be parsed is as good as none: it must not block its correction.
	was, err := nodestatus.ParseStatus(before[nodestatus.StatusAnnotation])
	if err != nil {
		was = nodestatus.Status{}
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("annotation "+nodestatus.StatusAnnotation+": "+format, args...)
	}
	busy := func() error {
		return refuse("policy %s is %s (id %q); wait until that is complete or failed", was.Policy, was.State, was.ID)
	}
	if !has {
		if by == User && was.UnderWay() && was.ID != "" {
			return busy()
		}
		return nil
	}
	is, err := nodestatus.ParseStatus(value)
	if err != nil {
		return refuse("%w", err)
	}
	if by == User {
		switch {
		case is.State != nodestatus.Requested:
			return refuse("status %q is the controller's to write; ask with status %q", is.State, nodestatus.Requested)
		case is != nodestatus.Status{State: nodestatus.Requested, Policy: is.Policy, AllowEvicted: is.AllowEvicted}:
			return refuse("id %q, job %q, message %q and since are the controller's to write; leave them out", is.ID, is.Job, untrusted.Abbreviate(is.Message, 80))
		case was.UnderWay():
			return busy()
		}
		return nil
	}
	next := map[nodestatus.State][]nodestatus.State{
		nodestatus.Requested: {nodestatus.Requested, nodestatus.Running, nodestatus.Failed},
		nodestatus.Running:   {nodestatus.Running, nodestatus.Complete, nodestatus.Failed},
		nodestatus.Complete:  {nodestatus.Complete},
		nodestatus.Failed:    {nodestatus.Failed},
	}
	switch {
	case was == nodestatus.Status{}:
		return nil
	case is.State == nodestatus.Requested && !was.UnderWay():
		return nil // a request by the controller itself, for a group of nodes
	case was.State == nodestatus.Requested && was.ID == "":
		takesUp, refuses := is.State == nodestatus.Requested && is.ID != "", is.State == nodestatus.Failed && is.ID == ""
		if is.Policy != was.Policy || !takesUp && !refuses {
			return refuse("status %q with policy %q and id %q must not follow a request for %q that has no id; give it one first", is.State, is.Policy, is.ID, was.Policy)
		}
	case is.ID != was.ID || is.Policy != was.Policy:
		return &SupersededError{Old: is, Has: was}
	case !slices.Contains(next[was.State], is.State):
		return refuse("status %q must not follow %q (id %q)", is.State, was.State, was.ID)
	}
	if is.AllowEvicted && !was.AllowEvicted {
		return refuse("allowEvicted true (id %q) was not asked for", is.ID)
	}
	return nil
}
