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

// Package cpupolicy asks the companion cpupolicy for the CPU manager policy of nodes, and says what
// became of it. It knows the companion by what it keeps in the API alone: annotations of Nodes, and
// a Lease. Its module is none of this package's; a test there compares the two.
package cpupolicy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

const (
	// Group is the companion's API group. Its webhook configurations have the same name, and tokens
	// for its actions have it as their audience.
	Group = "cpupolicy.workload.openshift.io"
	// Namespace is that of the companion's manifests.
	Namespace = "partition-cpupolicy"
	// ControlPlaneLock is the Lease that one node of the control plane holds at a time.
	ControlPlaneLock = "control-plane"

	// Label on a Node says whether its policy is static: true or false. It is KubeVirt's.
	Label = "cpumanager"
	// StatusAnnotation on a Node asks for a policy, and says how far that is.
	StatusAnnotation = "harvesterhci.io/cpu-manager-policy-update-status"
	// ObservedAnnotation on a Node says what was seen there.
	ObservedAnnotation = "cpupolicy.workload.openshift.io/observed"
	// ClaimAnnotation on a Node says who acts on it.
	ClaimAnnotation = "nodegroup.workload.openshift.io/claim"
	// HoldersAnnotation on a Lease says who holds a lock.
	HoldersAnnotation = "nodegroup.workload.openshift.io/holders"
)

// Policies are those that can be asked for.
func Policies() []string { return []string{"static", "none"} }

// States of a request.
const (
	Requested = "requested"
	Running   = "running"
	Complete  = "complete"
	Failed    = "failed"
)

// Status is the value of StatusAnnotation.
type Status struct {
	State        string    `json:"status"`
	Policy       string    `json:"policy"`
	ID           string    `json:"id,omitempty"`
	Job          string    `json:"job,omitempty"`
	AllowEvicted bool      `json:"allowEvicted,omitempty"`
	Message      string    `json:"message,omitempty"`
	Since        time.Time `json:"since,omitzero"`
	Group        string    `json:"group,omitempty"`
	// Generation is that of the group's spec.
	Generation int64 `json:"generation,omitempty"`
	// Begun means that the kubelet may have been stopped.
	Begun bool `json:"begun,omitempty"`
}

// Observed is the value of ObservedAnnotation, as far as it is shown.
type Observed struct {
	Policy string    `json:"policy"`
	At     time.Time `json:"at"`
	BootID string    `json:"bootID"`
}

// Claim is the value of ClaimAnnotation.
type Claim struct {
	// Owner is a companion, and Operation what it does.
	Owner     string    `json:"owner"`
	Operation string    `json:"operation"`
	Since     time.Time `json:"since"`
}

// Holder is an operation that holds a lock. HoldersAnnotation has a list of them.
type Holder struct {
	Operation string    `json:"operation"`
	Node      string    `json:"node"`
	Since     time.Time `json:"since"`
}

// read decodes an annotation as the companion does: keys are told apart by case, and none occurs
// twice. The error names the annotation and its value.
func read(annotations map[string]string, key string, into any) (found bool, err error) {
	value, found := annotations[key]
	if !found {
		return false, nil
	}
	strict, err := kjson.UnmarshalStrict([]byte(value), into, kjson.DisallowDuplicateFields)
	if err := cmp.Or(err, first(strict)); err != nil {
		return true, fmt.Errorf("annotation %s: %q cannot be read: %w", key, value, err)
	}
	return true, nil
}

func first(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// write returns the value of an annotation. All types of this package can be encoded.
func write(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Node is what is shown of a node.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// CPUManager is the label cpumanager; nil if there is none.
	CPUManager *bool `json:"cpumanager,omitempty"`
	// Policy is the one in force, as it was observed since the node has booted, and ObservedAt when.
	// Both are empty if nobody has looked.
	Policy     string    `json:"policy,omitempty"`
	ObservedAt time.Time `json:"observedAt,omitzero"`
	// State is how far the last request is, and Requested the policy that it is for; empty if there was
	// none. Since is when State was reached.
	State     string    `json:"status,omitempty"`
	Requested string    `json:"requested,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Message says more of State, in one line or several.
	Message string `json:"message,omitempty"`
	// Operation is the request's id, once it was taken up, and Job the Job that does it.
	Operation string `json:"operation,omitempty"`
	Job       string `json:"job,omitempty"`
	// Group is the CPUManagerPolicy that has asked; empty if a person has.
	Group string `json:"group,omitempty"`
	// Claim says who acts on the node; nil if nobody does.
	Claim *Claim `json:"claim,omitempty"`
	// Unreadable says which annotations cannot be read, and why.
	Unreadable []string `json:"unreadable,omitempty"`
}

// NodeOf returns what is shown of a Node.
func NodeOf(object *corev1.Node) Node {
	n := Node{Name: object.Name, Ready: isReady(object)}
	if label := object.Labels[Label]; label == "true" || label == "false" {
		static := label == "true"
		n.CPUManager = &static
	}
	var status Status
	var observed Observed
	var claim Claim
	unreadable := func(err error) bool {
		if err != nil {
			n.Unreadable = append(n.Unreadable, err.Error())
		}
		return err != nil
	}
	found, err := read(object.Annotations, StatusAnnotation, &status)
	if found && err == nil && !slices.Contains([]string{Requested, Running, Complete, Failed}, status.State) {
		err = fmt.Errorf("annotation %s: the status %q is not known", StatusAnnotation, status.State)
	}
	if !unreadable(err) {
		n.State, n.Requested, n.Since, n.Message = status.State, status.Policy, status.Since, status.Message
		n.Operation, n.Job, n.Group = status.ID, status.Job, status.Group
	}
	// What was seen before a reboot may be wrong after it.
	if _, err := read(object.Annotations, ObservedAnnotation, &observed); !unreadable(err) && observed.BootID == object.Status.NodeInfo.BootID {
		n.Policy, n.ObservedAt = observed.Policy, observed.At
	}
	if found, err := read(object.Annotations, ClaimAnnotation, &claim); !unreadable(err) && found {
		n.Claim = &claim
	}
	return n
}

// UnreadableClaim says why the claim cannot be read; empty if it can be, or if there is none.
func (n Node) UnreadableClaim() string {
	for _, text := range n.Unreadable {
		if strings.HasPrefix(text, "annotation "+ClaimAnnotation) {
			return text
		}
	}
	return ""
}

// UnderWay reports whether a policy was asked for and nothing has come of it yet.
func (n Node) UnderWay() bool { return n.State == Requested || n.State == Running }
