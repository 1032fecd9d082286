// SPDX-License-Identifier: Apache-2.0

// Package nodestatus is what the companion cpupolicy keeps on a Node: which policy was asked for and how far that is, and
// what was observed. People and programs read it there (docs/dev/cpupolicy.md).
package nodestatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/untrusted"
)

const (
	// StatusAnnotation on a Node is the API: it asks for a policy, and says how far that is.
	StatusAnnotation = "harvesterhci.io/cpu-manager-policy-update-status"
	// ShippedAnnotation is the key of the system that Harvester ships. It is read, never written.
	ShippedAnnotation = "harvesterhci.io/cpu-manager-update-status"
	// ObservedAnnotation on a Node has what an agent has observed there. Only the controller may write it.
	ObservedAnnotation = "cpupolicy.workload.openshift.io/observed"
)

// NotObserved is the reason of the Events of a Node that say why no agent could look at it. They are in the namespace
// default, as all Events of Nodes are, and come again with each Job that fails.
const NotObserved = "CPUPolicyNotObserved"

// PolicyRequested is the reason of the Events of a Node that name the user who has asked for a policy, and RequestPolicy their
// action.
const (
	PolicyRequested = "CPUPolicyRequested"
	RequestPolicy   = "RequestPolicy"
)

// CauseObserved is the type of the cause in a webhook's answer that says when the node was observed. The other causes
// have the codes of what stands against a request, and in their field the object (operators/cpupolicy, Code).
const CauseObserved metav1.CauseType = "Observed"

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
	State  State            `json:"status"`
	Policy operation.Policy `json:"policy"`
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
	// Group is the CPUManagerPolicy for which the controller itself asks; empty if a person has asked. GroupUID and
	// Generation are those of that group and its spec, or of the group in which the node is and whose policy the person
	// asked for. One that is created again has another UID, and the generation of the first.
	Group      string    `json:"group,omitempty"`
	GroupUID   types.UID `json:"groupUID,omitempty"`
	Generation int64     `json:"generation,omitempty"`
	// Begun means that its Job may have been created, so that the kubelet may have been stopped. It is
	// written before the Job, and taken back once an agent says that nothing was changed.
	Begun bool `json:"begun,omitempty"`
	// Overdue means that it has failed since there was no result in time, and that the node stays claimed until it is
	// known that nothing of it runs there. Message then gets what became of it.
	Overdue bool `json:"overdue,omitempty"`
}

// StaysClaimed is what Overdue means, for people.
const StaysClaimed = "the node stays claimed until it is known that nothing runs there"

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
	// Before there was a key for it, the message said so.
	if before, ok := strings.CutSuffix(s.Message, "; "+StaysClaimed); ok {
		s.Message, s.Overdue = before, true
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
		return fmt.Errorf("%q is not what it must be, such as {\"status\":\"requested\",\"policy\":\"static\"}: %w", untrusted.Abbreviate(value, 200), err)
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
			return fmt.Errorf("%s %q: %s", key, untrusted.Abbreviate(name, 80), strings.Join(problems, "; "))
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
	s.Message = untrusted.Abbreviate(s.Message, maxMessage)
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
func (s Status) RolledBack(inForce operation.Policy, why string) Status {
	s.State, s.Message = Failed, fmt.Sprintf("rolled back, the policy in force is %s: %s", inForce, why)
	return s
}
