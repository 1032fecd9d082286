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

// Package gate answers whether pods of a namespace may be partitioned as a workload type, as
// far as the pod itself has no say in it (design, section 4.1): the namespace must allow the
// type, and the type must be active.
//
// It knows namespaces, and that caches can be behind. What makes a type active it asks of
// others, and pods it must not know; it imports nothing of k8s.io/kubernetes.
package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"workload.openshift.io/partition"
)

// Types says which workload types are active; activation.Tracker does.
type Types interface {
	// Reason says what keeps pods from being partitioned as the type, whatever their
	// namespace. If an object must decide that and has not, awaits says what is missing.
	Reason(workloadType string) (reason partition.Reason, awaits string)
	// Synced reports whether all else has been seen on which the reason depends. It does not
	// matter for [partition.ReasonDecidedAgainst].
	Synced() bool
}

// Gate answers for the namespaces of one cluster. Make one with [New], and set a client and a
// lister before it is asked.
type Gate struct {
	name       string
	types      Types
	synced     func() bool
	client     kubernetes.Interface
	namespaces corev1listers.NamespaceLister
}

// New returns a gate for the workload types. Errors begin with the name. No request is answered
// before synced reports that the caller's own caches are filled.
func New(name string, types Types, synced func() bool) *Gate {
	return &Gate{name: name, types: types, synced: synced}
}

// SetClient gives the client that reads what the cache may be behind of.
func (g *Gate) SetClient(client kubernetes.Interface) { g.client = client }

// SetNamespaces gives the cache.
func (g *Gate) SetNamespaces(namespaces corev1listers.NamespaceLister) { g.namespaces = namespaces }

// Validate returns an error if the gate lacks a client or a cache.
func (g *Gate) Validate() error {
	if g.client == nil || g.namespaces == nil {
		return fmt.Errorf("%s needs a client and informers", g.name)
	}
	return nil
}

// Ask says what keeps pods of the namespace from being partitioned as the type. A no of the
// cache counts only after a live read, of the namespace and of the latch: a pod that is not
// partitioned now will never be. It waits for caches, and for an object that decides on the type,
// within the context's deadline. Its error is one of the API: 503 where these did not come in time,
// or what the live read gave.
//
// That an installer has decided against the type is said before the namespace is looked at:
// in such a cluster no namespace has to be prepared for it.
func (g *Gate) Ask(ctx context.Context, namespace, workloadType string) (partition.Reason, error) {
	ofType, err := g.awaitType(ctx, workloadType)
	if err != nil || ofType == partition.ReasonDecidedAgainst {
		return ofType, err
	}
	found, err := g.namespaces.Get(namespace)
	// Even without an error, IsNotFound allocates.
	if (err == nil && partition.NamespaceReason(found.Annotations, workloadType) != partition.NoReason) || (err != nil && apierrors.IsNotFound(err)) {
		// The cache may be behind a namespace that was created or annotated a moment ago.
		found, err = g.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	}
	if err != nil {
		return partition.NoReason, err
	}
	reason := cmp.Or(partition.NamespaceReason(found.Annotations, workloadType), ofType)
	if reason != partition.ReasonTypeInactive {
		return reason, nil
	}
	// Nor may it have seen what another replica has latched.
	latch, err := g.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return reason, nil
	case err != nil:
		return partition.NoReason, err
	case slices.Contains(partition.ParseTypes(latch.Annotations[partition.EnabledAnnotation]), workloadType):
		return partition.NoReason, nil
	}
	return reason, nil
}

// AskCache is Ask for who only wants to warn: it neither waits nor reads live, and its answer
// is not known where nothing is decided yet, or the caches are not filled or do not have the
// namespace.
func (g *Gate) AskCache(namespace, workloadType string) (reason partition.Reason, known bool) {
	ofType, known := g.ofType(workloadType)
	if !known || ofType == partition.ReasonDecidedAgainst {
		return ofType, known
	}
	found, err := g.namespaces.Get(namespace)
	if err != nil {
		return partition.NoReason, false
	}
	return cmp.Or(partition.NamespaceReason(found.Annotations, workloadType), ofType), true
}

// ofType says what about the type keeps pods from being partitioned. That is not known before
// everything that decides on them has been seen.
func (g *Gate) ofType(workloadType string) (reason partition.Reason, known bool) {
	// In this order: a reason from before the caches were filled would be a guess.
	synced := g.types.Synced() && g.synced()
	reason, awaits := g.types.Reason(workloadType)
	return reason, awaits == "" && (synced || reason == partition.ReasonDecidedAgainst)
}

// awaitType is ofType as soon as that is known. It waits as long as the request may, and then
// asks the client to try again, rather than guess.
func (g *Gate) awaitType(ctx context.Context, workloadType string) (partition.Reason, error) {
	reason, known := g.ofType(workloadType)
	if known {
		return reason, nil
	}
	const poll = 50 * time.Millisecond
	// The server's own timeout would answer 504 in our place at the deadline.
	limit := longestWait
	if _, awaits := g.types.Reason(workloadType); awaits != "" {
		limit = undecidedWait
	}
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)-time.Second)
	}
	waiting, cancel := context.WithTimeout(ctx, max(limit, poll))
	defer cancel()
	if err := wait.PollUntilContextCancel(waiting, poll, false, func(context.Context) (bool, error) {
		reason, known = g.ofType(workloadType)
		return known, nil
	}); err == nil {
		return reason, nil
	}
	if _, awaits := g.types.Reason(workloadType); awaits != "" {
		return partition.NoReason, apierrors.NewServiceUnavailable(fmt.Sprintf("%s cannot decide on the workload type %q yet: %s; try again", g.name, workloadType, awaits))
	}
	return partition.NoReason, apierrors.NewServiceUnavailable(g.name + " has not seen the cluster's namespaces and nodes yet; try again")
}

// longestWait is for how long a request waits for caches, and undecidedWait for an object that
// must decide. That may take long, and a controller's worker creates no other pods meanwhile.
const (
	longestWait   = 10 * time.Second
	undecidedWait = 2 * time.Second
)
