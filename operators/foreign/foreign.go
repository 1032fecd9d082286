// SPDX-License-Identifier: Apache-2.0

// Package foreign finds other programs that manage the same objects as a companion. Two of them
// would undo each other's work on a node for ever.
//
// It knows no companion, and no object's meaning.
package foreign

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"workload.openshift.io/operators/internal/ownership"
)

// Manager is a program that is known to manage the same objects.
type Manager struct {
	// Name is what its users call it.
	Name string
	// Deployments run it. One that is scaled to zero does not, nor does one whose ServiceAccount may not do what
	// Writes says: anyone who may create a namespace may give a Deployment any name, image and label, but no right.
	Deployments []types.NamespacedName
	Writes      authorizationv1.ResourceAttributes
	// Fields are those that it writes. Anyone who may write an object may do so under any name. So they say that this
	// one object is left alone, and nothing about others.
	Fields []Fields
	// HandOver says what a person must do to let the companion take over, as a sentence without a
	// full stop.
	HandOver string
}

// Fields are fields of a kind of objects that another program wrote.
type Fields struct {
	Kind schema.GroupVersionKind
	// Owner is the field manager that objects name for these fields.
	Owner string
	Paths []fieldpath.Path
}

// Found says where another manager was seen.
type Found struct {
	Manager Manager
	// Where is an object, and a field of it, such as "the Deployment harvester-system/harvester".
	Where string
}

// Error names the other manager, and says how to hand over.
func (f *Found) Error() string {
	return fmt.Sprintf("%s manages the same objects: %s; to hand over, %s", f.Manager.Name, f.Where, f.Manager.HandOver)
}

// Find returns the first of these programs that runs in a cluster, or nil. The reader must not be a cache; the writer
// creates reviews of rights.
func Find(ctx context.Context, reader client.Reader, writer client.Writer, managers []Manager) (*Found, error) {
	for _, manager := range managers {
		for _, name := range manager.Deployments {
			runs, err := manager.runs(ctx, reader, writer, name)
			if err != nil {
				return nil, fmt.Errorf("looking for %s: %w", manager.Name, err)
			}
			if runs {
				return &Found{Manager: manager, Where: fmt.Sprintf("the Deployment %s", name)}, nil
			}
		}
	}
	return nil, nil
}

func (m Manager) runs(ctx context.Context, reader client.Reader, writer client.Writer, name types.NamespacedName) (bool, error) {
	var deployment appsv1.Deployment
	if err := reader.Get(ctx, name, &deployment); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if ptr.Deref(deployment.Spec.Replicas, 1) == 0 {
		return false, nil
	}
	account := cmp.Or(deployment.Spec.Template.Spec.ServiceAccountName, "default")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               fmt.Sprintf("system:serviceaccount:%s:%s", name.Namespace, account),
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + name.Namespace, "system:authenticated"},
		ResourceAttributes: &m.Writes,
	}}
	if err := writer.Create(ctx, review); err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// Wrote returns which field of an object this program wrote, as an error that says how to hand over; nil if it wrote none.
// Of an object from a cache, the managed fields of its Owner must be there.
func (m Manager) Wrote(object client.Object, kind schema.GroupVersionKind) *Found {
	for _, fields := range m.Fields {
		if fields.Kind != kind {
			continue
		}
		owned, err := ownership.Of(object, fields.Owner)
		if err != nil {
			return &Found{Manager: m, Where: err.Error()}
		}
		for _, path := range fields.Paths {
			if owned.Has(path) {
				name := client.ObjectKeyFromObject(object).String()
				return &Found{Manager: m, Where: fmt.Sprintf("it wrote %s of the %s %s", path, kind.Kind, strings.TrimPrefix(name, "/"))}
			}
		}
	}
	return nil
}
