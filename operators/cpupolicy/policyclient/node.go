// SPDX-License-Identifier: Apache-2.0

// Package policyclient asks the companion cpupolicy for the CPU manager policy of nodes, and says what became of it. It reads and
// writes what the companion keeps in the API, with the rights of its user: annotations of Nodes, and a Lease.
package policyclient

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy"
)

const (
	// Group is the companion's API group. Its webhook configurations have the same name, and tokens
	// for its actions have it as their audience.
	Group = "cpupolicy.workload.openshift.io"
	// Namespace is that of the companion's manifests.
	Namespace = "partition-cpupolicy"
)

// Node is what is shown of a node.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// CPUManager is the label cpumanager; nil if there is none.
	CPUManager *bool `json:"cpumanager,omitempty"`
	// Policy is the one in force, as it was observed since the node has booted, and ObservedAt when.
	// Both are empty if nobody has looked.
	Policy     cpupolicy.Policy `json:"policy,omitempty"`
	ObservedAt time.Time        `json:"observedAt,omitzero"`
	// State is how far the last request is, and Requested the policy that it is for; empty if there was
	// none. Since is when State was reached.
	State     nodestatus.State `json:"status,omitempty"`
	Requested cpupolicy.Policy `json:"requested,omitempty"`
	Since     time.Time        `json:"since,omitzero"`
	// Message says more of State, in one line or several.
	Message string `json:"message,omitempty"`
	// Overdue means that there was no result in time, and that the node stays claimed until one is known.
	Overdue bool `json:"overdue,omitempty"`
	// Operation is the request's id, once it was taken up, and Job the Job that does it.
	Operation string `json:"operation,omitempty"`
	Job       string `json:"job,omitempty"`
	// Group is the CPUManagerPolicy that has asked; empty if a person has.
	Group string `json:"group,omitempty"`
	// Claim says who acts on the node; nil if nobody does.
	Claim *nodegroup.Claim `json:"claim,omitempty"`
	// UnreadableClaim says why the claim cannot be read; empty if it can be, or if there is none.
	UnreadableClaim string `json:"-"`
	// Unreadable says which annotations cannot be read, and why.
	Unreadable []string `json:"unreadable,omitempty"`
}

// NodeOf returns what is shown of a Node.
func NodeOf(object *corev1.Node) Node {
	n := Node{Name: object.Name, Ready: nodegroup.IsReady(object)}
	if label := object.Labels[cpupolicy.Label]; label == "true" || label == "false" {
		static := label == "true"
		n.CPUManager = &static
	}
	unreadable := func(err error) bool {
		if err != nil {
			n.Unreadable = append(n.Unreadable, err.Error())
		}
		return err != nil
	}
	if status, found, err := nodestatus.ReadStatus(object.Annotations); !unreadable(err) && found {
		n.State, n.Requested, n.Since, n.Message = status.State, status.Policy, status.Since, status.Message
		n.Overdue = status.Overdue
		n.Operation, n.Job, n.Group = status.ID, status.Job, status.Group
	}
	// What was seen before a reboot may be wrong after it.
	if observed, err := nodestatus.ReadObserved(object); !unreadable(err) && observed != nil && observed.BootID == object.Status.NodeInfo.BootID {
		n.Policy, n.ObservedAt = observed.Policy, observed.At
	}
	if claim, err := nodegroup.ClaimOf(object); err != nil {
		n.UnreadableClaim = err.Error()
		n.Unreadable = append(n.Unreadable, n.UnreadableClaim)
	} else if claim != (nodegroup.Claim{}) {
		n.Claim = &claim
	}
	return n
}

// UnderWay reports whether a policy was asked for and nothing has come of it yet.
func (n Node) UnderWay() bool {
	return n.State == nodestatus.Requested || n.State == nodestatus.Running
}
