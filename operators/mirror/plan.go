// SPDX-License-Identifier: Apache-2.0

// Package mirror keeps copies of objects in another namespace or another cluster as their sources say.
//
// A caller reads the sources and says what it wants, whole, at each look: nothing is remembered of earlier
// events, and nothing is taken from what happens to be at the target. Plan, which is pure, compares that with
// the copies that are there, and Mirror does what it says. A copy is known by a label. It is updated in place; one
// that an older version wrote as immutable is deleted and created again in the same look. One that is not wanted any
// more is deleted only if that is certain, or if a second look, some time later, does not want it either: a source may
// be missing for a moment.
//
// It knows no companion and no source.
package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Want is what a look at all sources has shown.
type Want struct {
	// Copies are all that can be made of the sources: name, namespace, kind, labels, annotations and content. A
	// namespace and a name that occur twice with other content are a problem, and what is there stays.
	Copies []*unstructured.Unstructured
	// Keep are copies that stay as they are, since their source is there and nothing can be made of it now: it does
	// not parse, say, or what refers to it does and it is missing.
	Keep []types.NamespacedName
	// Takes reports whether what stands where a wanted copy must be is that copy, or may become it; nil is always. What it
	// is not stays, and is a problem.
	Takes func(wanted, standing *unstructured.Unstructured) bool
	// Certain reports of a copy that is in neither list whether it can go at once: what asked for it is gone in a live
	// read, or does not ask any more, or asks for another one in its place. Nil is never.
	Certain func(copied *unstructured.Unstructured) bool
	// Patience is how long other copies stay that are in neither list. Zero is for good.
	Patience time.Duration
}

// Unwanted says of copies, by their UID, when a look first did not want them. It is lost with the process; then they stay
// so much longer.
type Unwanted map[types.UID]time.Time

// Kind is what is to be done to a copy.
type Kind string

// The kinds of actions.
const (
	Create Kind = "Create"
	Update Kind = "Update"
	// Recreate deletes the copy and creates it again: the API server lets nobody change it.
	Recreate Kind = "Recreate"
	Delete   Kind = "Delete"
)

// Action is one of a plan's.
type Action struct {
	Kind Kind
	// Object is what is to be at the target, with UID and resource version of what is there now, if anything is; of
	// Delete it is what is there.
	Object *unstructured.Unstructured
}

// Planned is what Plan decides.
type Planned struct {
	// Actions are in the order of namespaces and names. What is created comes before what is deleted, so that a
	// successor is there first.
	Actions []Action
	// Unwanted is for the next look.
	Unwanted Unwanted
	// Again is when the next look is due because of an unwanted copy; the zero time is when something happens.
	Again time.Time
	// Problems name copies that two sources claim.
	Problems []error
}

// Plan decides what makes the copies that are there those that are wanted. There are those with the mirror's label, and
// any object that has the name of a wanted one: names at the target are the mirror's.
func Plan(there []*unstructured.Unstructured, want Want, unwanted Unwanted, now time.Time) (p Planned) {
	have := map[types.NamespacedName]*unstructured.Unstructured{}
	for _, object := range there {
		have[key(object)] = object
	}
	keep := map[types.NamespacedName]bool{}
	for _, name := range want.Keep {
		keep[name] = true
	}
	wanted := map[types.NamespacedName]*unstructured.Unstructured{}
	for _, object := range want.Copies {
		name := key(object)
		if other, twice := wanted[name]; twice && !equality.Semantic.DeepEqual(other.Object, object.Object) && !keep[name] {
			keep[name] = true
			p.Problems = append(p.Problems, fmt.Errorf("%s %s: two sources make different copies of that name, so it stays as it is; rename one of them", object.GetKind(), name))
		}
		wanted[name] = object
	}
	for name, object := range wanted {
		if keep[name] {
			continue
		}
		current, ok := have[name]
		if !ok {
			p.Actions = append(p.Actions, Action{Create, object.DeepCopy()})
			continue
		}
		if want.Takes != nil && !want.Takes(object, current) {
			keep[name] = true
			p.Problems = append(p.Problems, fmt.Errorf("%s %s is somebody else's, and stands where a copy must be; rename or remove it", object.GetKind(), name))
			continue
		}
		next := merged(current, object)
		switch {
		case equality.Semantic.DeepEqual(current.Object, next.Object):
		case isImmutable(current) && !sameContent(current, next):
			p.Actions = append(p.Actions, Action{Recreate, recreated(current, object)})
		default:
			p.Actions = append(p.Actions, Action{Update, next})
		}
	}
	for name, object := range have {
		if _, ok := wanted[name]; ok || keep[name] {
			continue
		}
		since, known := unwanted[object.GetUID()]
		switch {
		case want.Certain != nil && want.Certain(object), known && want.Patience > 0 && now.Sub(since) >= want.Patience:
			p.Actions = append(p.Actions, Action{Delete, object})
		case want.Patience > 0:
			if !known {
				since = now
			}
			if p.Unwanted == nil {
				p.Unwanted = Unwanted{}
			}
			p.Unwanted[object.GetUID()] = since
			if due := since.Add(want.Patience); p.Again.IsZero() || due.Before(p.Again) {
				p.Again = due
			}
		}
	}
	slices.SortFunc(p.Actions, func(a, b Action) int {
		return cmp.Or(last(a.Kind, Delete)-last(b.Kind, Delete), cmp.Compare(key(a.Object).String(), key(b.Object).String()))
	})
	slices.SortFunc(p.Problems, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return p
}

func last(kind, of Kind) int {
	if kind == of {
		return 1
	}
	return 0
}

func key(object *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// notContent are the fields of an object that a copy does not take from its source.
var notContent = []string{"apiVersion", "kind", "metadata", "status"}

// merged returns the copy with the content that is wanted, and with the labels and annotations that are wanted besides
// those that it has: others may add theirs, such as kubectl.
func merged(current, wanted *unstructured.Unstructured) *unstructured.Unstructured {
	next := current.DeepCopy()
	for field := range current.Object {
		if _, ok := wanted.Object[field]; !ok && !slices.Contains(notContent, field) {
			delete(next.Object, field)
		}
	}
	for field, value := range wanted.DeepCopy().Object {
		if !slices.Contains(notContent, field) {
			next.Object[field] = value
		}
	}
	// Nobody can make an object mutable again. Its content may be right all the same.
	if isImmutable(current) {
		next.Object[immutableField] = true
	}
	if labels := with(next.GetLabels(), wanted.GetLabels()); len(labels) > 0 {
		next.SetLabels(labels)
	}
	if annotations := with(next.GetAnnotations(), wanted.GetAnnotations()); len(annotations) > 0 {
		next.SetAnnotations(annotations)
	}
	return next
}

func with(has, wanted map[string]string) map[string]string {
	if has == nil {
		has = map[string]string{}
	}
	for name, value := range wanted {
		has[name] = value
	}
	return has
}

// immutableField is that of ConfigMaps and Secrets (k8s.io/api/core/v1).
const immutableField = "immutable"

func isImmutable(object *unstructured.Unstructured) bool {
	is, _, _ := unstructured.NestedBool(object.Object, immutableField)
	return is
}

func sameContent(a, b *unstructured.Unstructured) bool {
	for _, fields := range []map[string]any{a.Object, b.Object} {
		for field := range fields {
			if !slices.Contains(notContent, field) && !equality.Semantic.DeepEqual(a.Object[field], b.Object[field]) {
				return false
			}
		}
	}
	return true
}

// recreated is the wanted object with UID and resource version of the one that it replaces.
func recreated(current, wanted *unstructured.Unstructured) *unstructured.Unstructured {
	next := wanted.DeepCopy()
	next.SetUID(current.GetUID())
	next.SetResourceVersion(current.GetResourceVersion())
	return next
}
