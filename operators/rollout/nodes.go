// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/nodeclient"
)

// Nodes is the Store of a companion that keeps its operations on Nodes, in an annotation of its own.
// Claims are on Nodes in any case, and locks are Leases: nodegroup.ControlPlaneLock by its name and namespace, any other by a name in Namespace.
type Nodes struct {
	nodeclient.Client
	// Namespace is that of the companion's own Leases.
	Namespace string
	// Read returns the operation of a node, the zero value if there is none or it cannot be read.
	// Write puts it there; it is not called with the zero value.
	Read  func(*corev1.Node) Operation
	Write func(*corev1.Node, Operation)
}

// StateOf returns what is stored of a node. The error says that its claim cannot be read: then nobody
// acts on it.
func (n Nodes) StateOf(node *corev1.Node) (State, error) {
	claim, err := nodegroup.ClaimOf(node)
	return State{Operation: n.Read(node), Claim: claim, Cordoned: node.Spec.Unschedulable}, err
}

// Get implements Store.
func (n Nodes) Get(ctx context.Context, name string) (State, error) {
	node := &corev1.Node{}
	if err := n.Reader.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return State{}, err
	}
	return n.StateOf(node)
}

// Update implements Store. It leaves the node's cordon alone.
func (n Nodes) Update(ctx context.Context, name string, change func(*State) error) error {
	return n.UpdateNode(ctx, name, func(node *corev1.Node) error {
		before, err := n.StateOf(node)
		if err != nil {
			return err
		}
		after := before
		if err := change(&after); err != nil {
			return err
		}
		if after.Claim != before.Claim {
			nodegroup.Put(node, after.Claim)
		}
		if after.Operation != before.Operation {
			n.Write(node, after.Operation)
		}
		return nil
	})
}

// key returns the Lease of a lock. That of the control plane is all companions'.
func (n Nodes) key(lock string) client.ObjectKey {
	if lock == nodegroup.ControlPlaneLock.String() {
		return nodegroup.ControlPlaneLock
	}
	return client.ObjectKey{Namespace: n.Namespace, Name: lock}
}

// UpdateHolders implements Store.
func (n Nodes) UpdateHolders(ctx context.Context, lock string, change func(nodegroup.Holders) (nodegroup.Holders, error)) error {
	return n.Client.UpdateHolders(ctx, n.key(lock), change)
}
