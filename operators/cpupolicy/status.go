/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package cpupolicy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"workload.openshift.io/operators/cpupolicy/operation"
)

const (
	// StatusAnnotation on a Node is the API: it asks for a policy, and says how far that is.
	StatusAnnotation = "harvesterhci.io/cpu-manager-policy-update-status"
	// ShippedAnnotation is the key of the system that Harvester ships. It is read, never written.
	ShippedAnnotation = "harvesterhci.io/cpu-manager-update-status"
)

// NotObserved is the reason of the Events of a Node that say why no agent could look at it. They are in the namespace
// default, as all Events of Nodes are, and come again with each Job that fails.
const NotObserved = "CPUPolicyNotObserved"

// Policy is a CPU manager policy.
type Policy = operation.Policy

const (
	None   = operation.None
	Static = operation.Static
)

// State is how far the change to a policy is.
type State string

const (
	Requested State = "requested"
	Running   State = "running"
	Complete  State = "complete"
	Failed    State = "failed"
)

// Status is the value of the annotation. The first two keys are documented; the others may follow.
type Status struct {
	State  State  `json:"status"`
	Policy Policy `json:"policy"`
	// ID is the operation's. A request has none until the controller has taken it up.
	ID string `json:"id,omitempty"`
	// Job is the name of the Job that does it.
	Job string `json:"job,omitempty"`
	// AllowEvicted accepts that pods end because they no longer fit. It is the user's to ask for, and
	// stays while the operation is under way.
	AllowEvicted bool `json:"allowEvicted,omitempty"`
	// Message is for people.
	Message string `json:"message,omitempty"`
	// Since is when State was reached, in seconds.
	Since time.Time `json:"since,omitzero"`
	// Group is the CPUManagerPolicy for which the controller itself asks; empty if a person has asked. Generation
	// is that of its spec, or of the group in which the node is and whose policy the person asked for.
	Group      string `json:"group,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Begun means that its Job may have been created, so that the kubelet may have been stopped. It is
	// written before the Job, and taken back once an agent says that nothing was changed.
	Begun bool `json:"begun,omitempty"`
}

// UnderWay reports whether a policy was asked for and nothing has come of it yet.
func (s Status) UnderWay() bool { return s.State == Requested || s.State == Running }

// ParseStatus reads a value of the annotation. The keys are read as they are written, upper and
// lower case told apart; one that occurs twice is an error, an unknown one is not. The error names
// the key and its value.
func ParseStatus(value string) (Status, error) {
	var s Status
	if err := decode(value, &s); err != nil {
		return Status{}, err
	}
	if err := s.validate(); err != nil {
		return Status{}, err
	}
	return s, nil
}

func decode(value string, into any) error {
	strict, err := kjson.UnmarshalStrict([]byte(value), into, kjson.DisallowDuplicateFields)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return fmt.Errorf("%q is not what it must be, such as {\"status\":\"requested\",\"policy\":\"static\"}: %w", operation.Abbreviate(value, 200), err)
	}
	return nil
}

func (s Status) validate() error {
	if states := []State{Requested, Running, Complete, Failed}; !slices.Contains(states, s.State) {
		return fmt.Errorf("status %q must be one of %q", s.State, states)
	}
	if policies := operation.Policies(); !slices.Contains(policies, s.Policy) {
		return fmt.Errorf("policy %q must be one of %q", s.Policy, policies)
	}
	// Both become parts of names.
	for key, name := range map[string]string{"id": s.ID, "job": s.Job} {
		if problems := validation.IsDNS1123Label(name); name != "" && problems != nil {
			return fmt.Errorf("%s %q: %s", key, operation.Abbreviate(name, 80), strings.Join(problems, "; "))
		}
	}
	if year := s.Since.UTC().Year(); year < 0 || year > 9999 {
		return fmt.Errorf("since %q is out of range", s.Since)
	}
	return nil
}

// maxMessage is how much of a message the annotation gets, in bytes. A kubelet's error can be long,
// and all annotations of a Node share 256 KiB.
const maxMessage = 1024

// String returns the value of the annotation: the documented keys first, in a fixed order.
func (s Status) String() string {
	s.Message = operation.Abbreviate(s.Message, maxMessage)
	s.Since = s.Since.UTC().Truncate(time.Second)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // people read it with kubectl
	if err := encoder.Encode(s); err != nil {
		panic(err) // no field can fail, but for a year beyond 9999
	}
	return strings.TrimSpace(text.String())
}

// ReadStatus returns what the annotations of a Node say; false if they say nothing. The shipped key
// counts where ours is missing: its success is complete. What was under way there has failed, since
// nobody is left who would end it, and nothing starts because of that key.
func ReadStatus(annotations map[string]string) (s Status, found bool, err error) {
	if value, has := annotations[StatusAnnotation]; has {
		if s, err = ParseStatus(value); err != nil {
			return Status{}, true, fmt.Errorf("annotation %s: %w", StatusAnnotation, err)
		}
		return s, true, nil
	}
	value, has := annotations[ShippedAnnotation]
	if !has {
		return Status{}, false, nil
	}
	var shipped struct {
		Status
		JobName string `json:"jobName"`
	}
	err = decode(value, &shipped)
	s = Status{State: shipped.State, Policy: shipped.Policy, Job: shipped.JobName}
	switch {
	case s.State == "success":
		s.State = Complete
	case s.UnderWay():
		s.Message = fmt.Sprintf("was %s under the annotation %s, whose controller no longer runs", s.State, ShippedAnnotation)
		s.State = Failed
	}
	if err == nil {
		err = s.validate()
	}
	if err != nil {
		return Status{}, true, fmt.Errorf("annotation %s: %w", ShippedAnnotation, err)
	}
	return s, true, nil
}

// RolledBack is the status of an operation that failed, and left the node with the policy that it
// had. The API knows it as failed; the message has the policy in force.
func (s Status) RolledBack(inForce Policy, why string) Status {
	s.State, s.Message = Failed, fmt.Sprintf("rolled back, the policy in force is %s: %s", inForce, why)
	return s
}

// Writer is who writes the annotation.
type Writer int

const (
	// User is whoever may update a Node.
	User Writer = iota
	// Controller is the identity of the controller, and nobody else.
	Controller
)

// SupersededError says that an operation must not write, since the annotation is about another.
type SupersededError struct{ Old, Has Status }

func (e *SupersededError) Error() string {
	return fmt.Sprintf("annotation %s: id %q with policy %q must not replace id %q with policy %q", StatusAnnotation, e.Old.ID, e.Old.Policy, e.Has.ID, e.Has.Policy)
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
	value, has := after[StatusAnnotation]
	if old, had := before[StatusAnnotation]; had == has && old == value {
		return nil
	}
	// A status that cannot be parsed is as good as none: it must not block its correction.
	was, err := ParseStatus(before[StatusAnnotation])
	if err != nil {
		was = Status{}
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("annotation "+StatusAnnotation+": "+format, args...)
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
	is, err := ParseStatus(value)
	if err != nil {
		return refuse("%w", err)
	}
	if by == User {
		switch {
		case is.State != Requested:
			return refuse("status %q is the controller's to write; ask with status %q", is.State, Requested)
		case is != Status{State: Requested, Policy: is.Policy, AllowEvicted: is.AllowEvicted}:
			return refuse("id %q, job %q, message %q and since are the controller's to write; leave them out", is.ID, is.Job, operation.Abbreviate(is.Message, 80))
		case was.UnderWay():
			return busy()
		}
		return nil
	}
	next := map[State][]State{
		Requested: {Requested, Running, Failed},
		Running:   {Running, Complete, Failed},
		Complete:  {Complete},
		Failed:    {Failed},
	}
	switch {
	case was == Status{}:
		return nil
	case is.State == Requested && !was.UnderWay():
		return nil // a request by the controller itself, for a group of nodes
	case was.State == Requested && was.ID == "":
		takesUp, refuses := is.State == Requested && is.ID != "", is.State == Failed && is.ID == ""
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
