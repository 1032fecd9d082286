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
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"workload.openshift.io/partition"
)

// Types tells which workload types are active; activation.Tracker does.
type Types interface {
	// Active reports whether pods may be partitioned as the type.
	Active(workloadType string) bool
	// Awaits names the object that decides on the type and has not been seen yet, and is
	// empty if there is none.
	Awaits(workloadType string) string
	// Synced reports whether everything else has been seen.
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

// New returns a gate for the workload types. Errors begin with the name. Nobody is answered
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

// Ask tells what keeps pods of the namespace from being partitioned as the type. A no of the
// cache counts only after a live read: a pod that is not partitioned now will never be. It
// waits for caches within the context's deadline. Its error is one of the API: 503 where a
// cache was not filled in time, or what the live read gave.
func (g *Gate) Ask(ctx context.Context, namespace, workloadType string) (partition.Reason, error) {
	if err := g.awaitCaches(ctx, workloadType); err != nil {
		return partition.NoReason, err
	}
	found, err := g.namespaces.Get(namespace)
	if apierrors.IsNotFound(err) || (err == nil && partition.NamespaceReason(found.Annotations, workloadType) != partition.NoReason) {
		// The cache may be behind a namespace that was created or annotated a moment ago.
		found, err = g.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	}
	if err != nil {
		return partition.NoReason, err
	}
	return g.reason(found.Annotations, workloadType), nil
}

// AskCache is Ask for who only wants to warn: it neither waits nor reads live, and its answer
// is not known where the caches are not filled or do not have the namespace.
func (g *Gate) AskCache(namespace, workloadType string) (reason partition.Reason, known bool) {
	if !g.filled(workloadType) {
		return partition.NoReason, false
	}
	found, err := g.namespaces.Get(namespace)
	if err != nil {
		return partition.NoReason, false
	}
	return g.reason(found.Annotations, workloadType), true
}

func (g *Gate) reason(namespace map[string]string, workloadType string) partition.Reason {
	if reason := partition.NamespaceReason(namespace, workloadType); reason != partition.NoReason {
		return reason
	}
	if !g.types.Active(workloadType) {
		return partition.ReasonTypeInactive
	}
	return partition.NoReason
}

// filled reports whether everything has been seen that decides on pods of the type.
func (g *Gate) filled(workloadType string) bool {
	return g.types.Synced() && g.types.Awaits(workloadType) == "" && g.synced()
}

// awaitCaches waits for them as long as the request may, and then asks the client to come
// again: nobody guesses.
func (g *Gate) awaitCaches(ctx context.Context, workloadType string) error {
	if g.filled(workloadType) {
		return nil
	}
	const poll = 50 * time.Millisecond
	// The server's own timeout would answer 504 in our place at the deadline.
	limit := longestWait
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)-time.Second)
	}
	waiting, cancel := context.WithTimeout(ctx, max(limit, poll))
	defer cancel()
	if err := wait.PollUntilContextCancel(waiting, poll, false, func(context.Context) (bool, error) { return g.filled(workloadType), nil }); err == nil {
		return nil
	}
	if object := g.types.Awaits(workloadType); object != "" {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("%s has not seen the %s yet, which decides on the workload type %q; try again", g.name, object, workloadType))
	}
	return apierrors.NewServiceUnavailable(g.name + " has not seen the cluster's namespaces and nodes yet; try again")
}

// longestWait is for how long a request waits for the caches.
const longestWait = 10 * time.Second
