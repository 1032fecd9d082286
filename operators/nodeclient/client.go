// SPDX-License-Identifier: Apache-2.0

// Package nodeclient reads and writes what says who may act on nodes: claims, and the holders of locks.
//
// It knows no companion.
package nodeclient

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodegroup"
)

// Client reads and writes Nodes and Leases. Reader must read from the API, and not from a cache
// (manager.GetAPIReader): what it returns decides who may act.
type Client struct {
	Reader client.Reader
	Writer client.Writer
}

// UpdateNode reads a node, has it changed, and writes its metadata and spec if that changed anything.
// If change returns an error, nothing is written and the error is returned. So is a conflict.
func (c Client) UpdateNode(ctx context.Context, name string, change func(*corev1.Node) error) error {
	node := &corev1.Node{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	before := node.DeepCopy()
	if err := change(node); err != nil {
		return err
	}
	return c.patch(ctx, before, node)
}

func (c Client) patch(ctx context.Context, before, after client.Object) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return c.Writer.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// UpdateHolders reads who holds a lock, has that changed, and writes it. There need not be a Lease of
// that name. If change returns an error, nothing is written and the error is returned. So is a
// conflict, also with somebody who creates the Lease at the same time.
func (c Client) UpdateHolders(ctx context.Context, lock client.ObjectKey, change func(nodegroup.Holders) (nodegroup.Holders, error)) error {
	lease := &coordinationv1.Lease{}
	err := c.Reader.Get(ctx, lock, lease)
	missing := apierrors.IsNotFound(err)
	if missing {
		lease.ObjectMeta = metav1.ObjectMeta{Namespace: lock.Namespace, Name: lock.Name}
	} else if err != nil {
		return err
	}
	before := lease.DeepCopy()
	holders, err := nodegroup.HoldersOf(lease)
	if err != nil {
		return err
	}
	if holders, err = change(holders); err != nil {
		return err
	}
	nodegroup.PutHolders(lease, holders)
	if missing && len(holders) > 0 {
		return c.Writer.Create(ctx, lease)
	}
	return c.patch(ctx, before, lease)
}
