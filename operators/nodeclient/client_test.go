// SPDX-License-Identifier: Apache-2.0

package nodeclient

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"workload.openshift.io/operators/api/nodegroup"
)

// counted returns a client that counts its writes.
func counted(writes *int, objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			*writes++
			return c.Patch(ctx, obj, patch, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			*writes++
			return c.Create(ctx, obj, opts...)
		},
	}).Build()
}

func TestUpdateNode(t *testing.T) {
	ctx, writes := t.Context(), 0
	n := node("n1")
	c := counted(&writes, &n)
	update := func(change func(*corev1.Node) error) error {
		return Client{c, c}.UpdateNode(ctx, "n1", change)
	}
	take := func(operation string) func(*corev1.Node) error {
		return func(node *corev1.Node) error {
			held, err := nodegroup.ClaimOf(node)
			if err != nil {
				return err
			}
			claim := nodegroup.Claim{Owner: "cpupolicy", Operation: operation, Since: at}
			if err := claim.Check(node.Name, held, node.Spec.Unschedulable, false); err != nil {
				return err
			}
			nodegroup.Put(node, claim)
			return nil
		}
	}
	checkError(t, update(take("a1")))
	checkError(t, update(take("a1")))
	if writes != 1 {
		t.Errorf("%d writes, want 1: what changes nothing is not written", writes)
	}
	checkError(t, update(take("b2")), "node n1", "a1")

	// Somebody else writes between reading and writing: a conflict, and nothing is written.
	err := update(func(node *corev1.Node) error {
		checkError(t, update(func(node *corev1.Node) error {
			nodegroup.Put(node, nodegroup.Claim{Owner: "tuning", Operation: "c3", Since: at})
			return nil
		}))
		nodegroup.Put(node, nodegroup.Claim{})
		return nil
	})
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	var got corev1.Node
	checkError(t, c.Get(ctx, client.ObjectKey{Name: "n1"}, &got))
	if claim, err := nodegroup.ClaimOf(&got); err != nil || claim.Operation != "c3" {
		t.Errorf("got %v, %v, want the claim of c3", claim, err)
	}
	if err := (Client{c, c}).UpdateNode(ctx, "gone", take("a1")); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
}

func TestUpdateHolders(t *testing.T) {
	ctx, writes := t.Context(), 0
	c := counted(&writes)
	key := client.ObjectKey{Namespace: "ns", Name: "lock"}
	update := func(change func(nodegroup.Holders) (nodegroup.Holders, error)) error {
		return Client{c, c}.UpdateHolders(ctx, key, change)
	}
	add := func(operation string) func(nodegroup.Holders) (nodegroup.Holders, error) {
		return func(h nodegroup.Holders) (nodegroup.Holders, error) {
			return h.Add(nodegroup.Holder{Operation: operation, Node: "n1", Since: at}, 1)
		}
	}
	remove := func(h nodegroup.Holders) (nodegroup.Holders, error) { return h.Remove("", "a1"), nil }

	checkError(t, update(remove))
	if writes != 0 {
		t.Errorf("%d writes, want 0: there is nothing to remove", writes)
	}
	// Two find no Lease, and one creates it.
	err := update(func(h nodegroup.Holders) (nodegroup.Holders, error) {
		checkError(t, update(add("a1")))
		return h.Add(nodegroup.Holder{Operation: "b2", Node: "n2", Since: at}, 1)
	})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v, want already exists", err)
	}
	var full *nodegroup.FullError
	if err := update(add("b2")); !errors.As(err, &full) {
		t.Errorf("got %v, want a FullError", err)
	}
	// Two read the same Lease, and one writes it.
	err = update(func(h nodegroup.Holders) (nodegroup.Holders, error) {
		checkError(t, update(remove))
		return h.Add(nodegroup.Holder{Operation: "b2", Node: "n2", Since: at}, 2)
	})
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	checkError(t, update(add("b2")))
	var lease coordinationv1.Lease
	checkError(t, c.Get(ctx, key, &lease))
	if h, err := nodegroup.HoldersOf(&lease); err != nil || len(h) != 1 || !h.Has("", "b2") {
		t.Errorf("got %v, %v, want b2 alone", h, err)
	}
	lease.Annotations[nodegroup.HoldersAnnotation] = "x"
	checkError(t, c.Update(ctx, &lease))
	checkError(t, update(add("c3")), "lease ns/lock", "x")
}

var at = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

func node(name string) corev1.Node { return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func checkError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if (err != nil) != (parts != nil) {
		t.Fatalf("got error %v, want one with %q", err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}
