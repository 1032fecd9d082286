// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Mirror does what Plan decides, for copies of one kind.
type Mirror struct {
	// Reader reads where the copies are, live: a cache that is behind would have a copy created twice,
	// or the successor of one deleted. Writer writes there.
	Reader client.Reader
	Writer client.Writer
	// Kind is that of the copies.
	Kind schema.GroupVersionKind
	// Namespace is that of the copies; empty is all, and for kinds without a namespace.
	Namespace string
	// Label and Value are what every copy has and nothing else.
	Label, Value string
	// Claims, if set, selects what else at the target is the mirror's, no matter who made it: nobody else may have such objects
	// there.
	Claims client.ListOption

	unwanted Unwanted
}

// CopyOf returns a typed object as a copy of this kind, without its status and the empty time of its creation.
func CopyOf(object any, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	copied := &unstructured.Unstructured{Object: content}
	copied.SetGroupVersionKind(kind)
	return copied, nil
}

// Result is what a look has done, and what remains.
type Result struct {
	// Done are the actions that were done, in their order.
	Done []Action
	// Again is when the next look is due at the latest; the zero time is when something happens.
	Again time.Time
}

// Look makes the copies those that are wanted. The error joins the problems of the sources and the failures of single
// actions, and the remedy is another look. All other actions were done, except that a copy stays if it has the labels of
// one that could not be written. Look is not safe for concurrent use.
func (m *Mirror) Look(ctx context.Context, want Want, now time.Time) (Result, error) {
	for _, object := range want.Copies {
		object.SetLabels(with(object.GetLabels(), map[string]string{m.Label: m.Value}))
	}
	there, err := m.there(ctx, want)
	if err != nil {
		// This look may want what the last one did not.
		m.unwanted = nil
		return Result{}, err
	}
	planned := Plan(there, want, m.unwanted, now)
	m.unwanted = planned.Unwanted
	result, errs := Result{Again: planned.Again}, planned.Problems
	var missing []labels.Selector
	for _, action := range planned.Actions {
		if action.Kind == Delete && slices.ContainsFunc(missing, func(like labels.Selector) bool { return like.Matches(labels.Set(action.Object.GetLabels())) }) {
			continue // its successor may be what is missing
		}
		if err := m.do(ctx, action); err != nil {
			missing = append(missing, labels.SelectorFromSet(action.Object.GetLabels()))
			errs = append(errs, fmt.Errorf("%s %s: %s: %w", action.Object.GetKind(), key(action.Object), action.Kind, err))
			continue
		}
		result.Done = append(result.Done, action)
	}
	return result, errors.Join(errs...)
}

// there lists the copies, and reads what has the name of a wanted one and not the label: somebody may have taken that off.
func (m *Mirror) there(ctx context.Context, want Want) (there []*unstructured.Unstructured, err error) {
	selections := []client.ListOption{client.MatchingLabels{m.Label: m.Value}}
	if m.Claims != nil {
		selections = append(selections, m.Claims)
	}
	listed := map[types.NamespacedName]bool{}
	for _, selection := range selections {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(m.Kind)
		if err := m.Reader.List(ctx, list, client.InNamespace(m.Namespace), selection); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if !listed[key(&list.Items[i])] {
				there = append(there, &list.Items[i])
				listed[key(&list.Items[i])] = true
			}
		}
	}
	for _, object := range want.Copies {
		if listed[key(object)] {
			continue
		}
		listed[key(object)] = true
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(m.Kind)
		switch err := m.Reader.Get(ctx, key(object), found); {
		case err == nil:
			there = append(there, found)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return there, nil
}

// do does one action. The copy that it was decided on must still be there: nobody else's object is deleted or overwritten.
func (m *Mirror) do(ctx context.Context, action Action) error {
	object := action.Object.DeepCopy()
	uid, version := object.GetUID(), object.GetResourceVersion()
	switch action.Kind {
	case Update:
		return m.Writer.Update(ctx, object)
	case Delete, Recreate:
		if err := m.Writer.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if action.Kind == Delete {
		return nil
	}
	object.SetUID("")
	object.SetResourceVersion("")
	return m.Writer.Create(ctx, object)
}
