// SPDX-License-Identifier: Apache-2.0

package policyclient

import (
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/api/nodegroup"
)

// Lock is the lock of the control plane.
type Lock struct {
	Holders nodegroup.Holders

	lease *coordinationv1.Lease
}

// Of returns what of the lock is held for a node.
func (l Lock) Of(node string) (held nodegroup.Holders) {
	for _, h := range l.Holders {
		if h.Node == node {
			held = append(held, h)
		}
	}
	return held
}

// Lock reads the lock of the control plane. Without a Lease nobody holds it.
func (c Client) Lock(ctx context.Context) (Lock, error) {
	name := nodegroup.ControlPlaneLock
	lease, err := c.Kube.CoordinationV1().Leases(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Lock{}, nil
	}
	if err != nil {
		return Lock{}, fmt.Errorf("lease %s: %w", name, err)
	}
	l := Lock{lease: lease}
	if l.Holders, err = nodegroup.HoldersOf(lease); err != nil {
		return Lock{}, fmt.Errorf("%w; nobody can take the lock until somebody deletes the Lease", err)
	}
	return l, nil
}

// Unlock takes the lock away from a node, if it is as it was read.
func (c Client) Unlock(ctx context.Context, l Lock, node string) error {
	if len(l.Of(node)) == 0 {
		return fmt.Errorf("node %s does not hold the lock of the control plane", node)
	}
	left := slices.DeleteFunc(slices.Clone(l.Holders), func(h nodegroup.Holder) bool { return h.Node == node })
	lease := l.lease.DeepCopy()
	nodegroup.PutHolders(lease, left)
	_, err := c.Kube.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) {
		err = errors.New("somebody else has written it meanwhile; nothing was written, so look again")
	}
	if err != nil {
		return fmt.Errorf("lease %s: %w", nodegroup.ControlPlaneLock, err)
	}
	return nil
}

// Release removes the claim on a node, if it is as it was read.
func (c Client) Release(ctx context.Context, node *corev1.Node) error {
	if _, has := node.Annotations[nodegroup.ClaimAnnotation]; !has {
		return fmt.Errorf("node %s is not claimed", node.Name)
	}
	if _, err := c.annotate(ctx, node, nodegroup.ClaimAnnotation, nil, false); err != nil {
		return fmt.Errorf("node %s: the claim was not removed: %w", node.Name, err)
	}
	return nil
}
