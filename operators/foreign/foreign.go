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

// Package foreign finds other programs that manage the same objects as a companion. Two of them
// would undo each other's work on a node for ever.
//
// It knows no companion, and no object's meaning.
package foreign

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"workload.openshift.io/operators/internal/ownership"
)

// Manager is a program that is known to manage the same objects.
type Manager struct {
	// Name is what its users call it.
	Name string
	// Deployments run it. One that is scaled to zero does not.
	Deployments []types.NamespacedName
	// Fields are those that it writes.
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

// page is how many objects are read at a time: what they have is thrown away at once.
const page = 100

// Find returns the first trace of these programs in a cluster, or nil. The reader must not be a
// cache, which drops what is looked for.
func Find(ctx context.Context, reader client.Reader, managers []Manager) (*Found, error) {
	for _, manager := range managers {
		where, err := manager.find(ctx, reader)
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", manager.Name, err)
		}
		if where != "" {
			return &Found{Manager: manager, Where: where}, nil
		}
	}
	return nil, nil
}

func (m Manager) find(ctx context.Context, reader client.Reader) (string, error) {
	for _, name := range m.Deployments {
		var deployment appsv1.Deployment
		err := reader.Get(ctx, name, &deployment)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		if deployment.Spec.Replicas == nil || *deployment.Spec.Replicas > 0 {
			return fmt.Sprintf("the Deployment %s", name), nil
		}
	}
	for _, fields := range m.Fields {
		if where, err := fields.find(ctx, reader); where != "" || err != nil {
			return where, err
		}
	}
	return "", nil
}

func (f Fields) find(ctx context.Context, reader client.Reader) (string, error) {
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(f.Kind.GroupVersion().WithKind(f.Kind.Kind + "List"))
	for {
		err := reader.List(ctx, &list, client.Limit(page), client.Continue(list.Continue))
		if meta.IsNoMatchError(err) {
			return "", nil // a cluster without the kind has none of its objects
		}
		if err != nil {
			return "", err
		}
		for _, object := range list.Items {
			owned, err := ownership.Of(&object, f.Owner)
			if err != nil {
				return "", err
			}
			for _, path := range f.Paths {
				if owned.Has(path) {
					name := client.ObjectKeyFromObject(&object).String()
					return fmt.Sprintf("it wrote %s of the %s %s", path, f.Kind.Kind, strings.TrimPrefix(name, "/")), nil
				}
			}
		}
		if list.Continue == "" {
			return "", nil
		}
	}
}
