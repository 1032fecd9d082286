// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"workload.openshift.io/operators/api/nodegroup"
)

// Owner is the owner of this companion's claims.
const Owner = "workloadclasses"

// OperationOf returns the operation on a node; the zero value if there is none.
func OperationOf(node *corev1.Node) (Operation, error) {
	value, ok := node.Annotations[OperationAnnotation]
	if !ok {
		return Operation{}, nil
	}
	o, err := ParseOperation(value)
	if err != nil {
		return o, fmt.Errorf("node %s: %w", node.Name, err)
	}
	return o, nil
}

// Held returns why nothing is done to a node; empty if it may be.
func Held(node *corev1.Node) string {
	record, err := RecordOf(node)
	if err != nil {
		return err.Error()
	}
	o, err := OperationOf(node)
	if err != nil {
		return err.Error()
	}
	claim, err := nodegroup.ClaimOf(node)
	switch {
	case err != nil:
		return err.Error()
	case node.DeletionTimestamp != nil:
		return "it is being deleted"
	case nodegroup.Paused(node):
		return fmt.Sprintf("it is paused by %s", nodegroup.PausedAnnotation)
	case claim != nodegroup.Claim{} && (claim.Owner != Owner || claim.Operation != o.ID):
		return fmt.Sprintf("%s has claimed it for its operation %s", claim.Owner, claim.Operation)
	case CordonedByOthers(node, record):
		return "somebody cordoned it"
	case kept(node):
		return keptByPerson
	}
	return ""
}

const keptByPerson = "a person keeps it by " + KeepAnnotation

// HeldByMark reports whether a keep mark is all that holds a node. Then pods need not avoid it any more.
func HeldByMark(node *corev1.Node) bool { return Held(node) == keptByPerson }
