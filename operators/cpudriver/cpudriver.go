// SPDX-License-Identifier: Apache-2.0

// Package cpudriver finds the DRA driver that gives a node's CPUs to pods, as the kubelet's CPU manager would.
package cpudriver

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Name is that of kubernetes-sigs/dra-driver-cpu, as its ResourceSlices have it.
const Name = "dra.cpu"

// ResourceSlice is the kind by which DRA drivers say what a node has. A node can write only its own (NodeRestriction).
var ResourceSlice = resourcev1.SchemeGroupVersion.WithKind("ResourceSlice")

// OnNode returns the name of the driver that gives this node's CPUs; empty if none does. A cluster without DRA has no such kind.
func OnNode(ctx context.Context, reader client.Reader, node string, options ...client.ListOption) (string, error) {
	slices := &metav1.PartialObjectMetadataList{}
	slices.SetGroupVersionKind(ResourceSlice)
	err := reader.List(ctx, slices, append(options, client.Limit(1), client.MatchingFields{
		resourcev1.ResourceSliceSelectorNodeName: node, resourcev1.ResourceSliceSelectorDriver: Name,
	})...)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("ResourceSlices of driver %s: %w", Name, err)
	case len(slices.Items) == 0:
		return "", nil
	}
	return Name, nil
}
