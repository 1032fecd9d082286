// SPDX-License-Identifier: Apache-2.0

package companion

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Labelled lets through events of objects that have one of these labels, with any value, or had it before an update.
func Labelled[T client.Object](keys ...string) predicate.TypedPredicate[T] {
	has := func(object T) bool {
		return slices.ContainsFunc(keys, func(key string) bool {
			_, ok := object.GetLabels()[key]
			return ok
		})
	}
	return predicate.TypedFuncs[T]{
		CreateFunc:  func(e event.TypedCreateEvent[T]) bool { return has(e.Object) },
		UpdateFunc:  func(e event.TypedUpdateEvent[T]) bool { return has(e.ObjectOld) || has(e.ObjectNew) },
		DeleteFunc:  func(e event.TypedDeleteEvent[T]) bool { return has(e.Object) },
		GenericFunc: func(e event.TypedGenericEvent[T]) bool { return has(e.Object) },
	}
}
