// SPDX-License-Identifier: Apache-2.0

package nodegroup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// HoldersAnnotation on a Lease says which operations hold a lock.
const HoldersAnnotation = "nodegroup.workload.openshift.io/holders"

// ControlPlaneLock is the Lease that one operation on a node of the control plane holds at a time, whichever companion's
// it is. The first operation creates it.
var ControlPlaneLock = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "partition-control-plane"}

// Holder is an operation that holds a lock, and its node.
type Holder struct {
	// Owner is the companion. Where only one takes a lock, older releases wrote none.
	Owner     string    `json:"owner,omitempty"`
	Operation string    `json:"operation"`
	Node      string    `json:"node"`
	Since     time.Time `json:"since"`
}

func (h Holder) known() bool { return h.Operation != "" && h.Node != "" }

// is reports whether it is an operation of a companion.
func (h Holder) is(owner, operation string) bool {
	return h.Operation == operation && h.OwnedBy(owner)
}

// OwnedBy reports whether it is a companion's, or was written by a release that knew of one companion only.
func (h Holder) OwnedBy(owner string) bool { return h.Owner == owner || h.Owner == "" }

// Holders are the operations that hold a lock: as many at a time as the taker allows. A group
// of nodes has one, so that no more of them are under way than its limit says, and the nodes of the
// control plane have ControlPlaneLock. Only one object with one resource
// version can decide that: of two operations that begin at once, on two nodes, neither sees the
// other's claim.
//
// The lock is of this package, and not of rollout: like a claim it says who may act, is written with
// the resource version and does not expire by time. Package rollout decides when an operation may
// begin, and knows no object in which that could be written down. Those who know no rollout can take the
// same lock.
type Holders []Holder

// FullError says that a lock has no room.
type FullError struct {
	By  Holders
	Max int
}

func (e *FullError) Error() string {
	var names []string
	for _, h := range e.By {
		of := ""
		if h.Owner != "" {
			of = " of " + h.Owner
		}
		names = append(names, fmt.Sprintf("operation %s%s on node %s", h.Operation, of, h.Node))
	}
	return fmt.Sprintf("held by %s, and at most %d may be under way", strings.Join(names, ", "), e.Max)
}

// Add returns the holders with another one, unless there are max of them: then it returns a FullError.
// An operation that holds the lock may ask again, even if there are more than max by now. A holder without operation or
// node is an error: nobody could find out whether it still needs the lock.
func (h Holders) Add(holder Holder, max int) (Holders, error) {
	if !holder.known() {
		return h, fmt.Errorf("operation %q of node %q: both must have a name to hold a lock", holder.Operation, holder.Node)
	}
	if h.Has(holder.Owner, holder.Operation) {
		return h, nil
	}
	if len(h) >= max {
		return h, &FullError{h, max}
	}
	return append(slices.Clip(h), holder), nil
}

// Has reports whether an operation of a companion holds the lock.
func (h Holders) Has(owner, operation string) bool {
	return slices.ContainsFunc(h, func(other Holder) bool { return other.is(owner, operation) })
}

// Remove returns the holders without an operation of a companion.
func (h Holders) Remove(owner, operation string) Holders {
	return slices.DeleteFunc(slices.Clone(h), func(other Holder) bool { return other.is(owner, operation) })
}

// HoldersOf returns who holds the lock that a Lease stands for. If that cannot be read, nobody may
// take it.
func HoldersOf(lease *coordinationv1.Lease) (Holders, error) {
	value, has := lease.Annotations[HoldersAnnotation]
	if !has {
		return nil, nil
	}
	holders, err := ParseHolders(value)
	if err != nil {
		return nil, fmt.Errorf("lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return holders, nil
}

// ParseHolders reads a value of the annotation. An entry without operation or node holds nothing, and is left out:
// else such an entry would keep everybody from the lock, for ever.
func ParseHolders(value string) (Holders, error) {
	var h Holders
	if err := decode(value, &h); err != nil {
		return nil, fmt.Errorf("annotation %s: %q is no list of holders: %w", HoldersAnnotation, value, err)
	}
	for _, holder := range h {
		if err := checkYear(holder.Since); err != nil {
			return nil, fmt.Errorf("annotation %s: %q: %w", HoldersAnnotation, value, err)
		}
	}
	return slices.DeleteFunc(h, func(holder Holder) bool { return !holder.known() }), nil
}

// String returns the value of the annotation.
func (h Holders) String() string {
	h = append(Holders{}, h...)
	for i := range h {
		h[i].Since = h[i].Since.UTC().Truncate(time.Second)
	}
	return encode(h)
}

// PutHolders writes the holders into a Lease. Its holder identity repeats the operations, for those
// who look with kubectl.
func PutHolders(lease *coordinationv1.Lease, h Holders) {
	if len(h) == 0 {
		delete(lease.Annotations, HoldersAnnotation)
		lease.Spec.HolderIdentity = nil
		return
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, HoldersAnnotation, h.String())
	var operations []string
	for _, holder := range h {
		operations = append(operations, holder.Operation)
	}
	identity := strings.Join(operations, ",")
	lease.Spec.HolderIdentity = &identity
}
