// SPDX-License-Identifier: Apache-2.0

// Package operand keeps in a cluster what a companion runs there: a DaemonSet or a Deployment, with what it needs.
//
// A caller says what there is to be, whole, at each look. Apply brings it there by server-side apply, so that fields of
// others stay, and deletes what an earlier look made and this one does not want. What belongs to a companion is known by
// companion.OwnerLabel and by the label of the operand.
//
// It knows no companion.
package operand

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/companion"
)

// Label is on each object of an operand, with the operand's name.
const Label = "workload.openshift.io/operand"

// Operand is what a companion runs in a cluster.
type Operand struct {
	// Reader reads what is there, live, since what is pruned must be there. Writer writes.
	Reader client.Reader
	Writer client.Writer
	// Companion and Name say whose it is: values of companion.OwnerLabel and Label.
	Companion, Name string
	// Namespace is where all of its objects are. Empty means that they are in several, or in none.
	Namespace string
	// Kinds are all that an operand may have, in the order in which they are made. What goes, goes in the other.
	Kinds []schema.GroupVersionKind

	// applied is what each object was when it was last applied: its resource version, and what was wanted.
	applied map[id]string
}

// id is one object of an operand.
type id struct {
	schema.GroupKind
	types.NamespacedName
}

// Apply makes the objects those that are there. It adds its labels to them, and writes nothing where nothing has changed since it
// last did. The error joins the failures of single objects: all others are there, and the remedy is another look.
func (o *Operand) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	var errs []error
	var there []metav1.PartialObjectMetadata
	versions := map[id]string{}
	for _, kind := range slices.Backward(o.Kinds) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := o.Reader.List(ctx, list, client.InNamespace(o.Namespace), client.MatchingLabels{companion.OwnerLabel: o.Companion, Label: o.Name}); err != nil {
			return err
		}
		for _, object := range list.Items {
			object.SetGroupVersionKind(kind)
			there = append(there, object)
			versions[idOf(&object)] = object.ResourceVersion
		}
	}
	before := o.applied
	o.applied = map[id]string{}
	wanted := map[id]bool{}
	for _, object := range objects {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[companion.OwnerLabel], labels[Label] = o.Companion, o.Name
		object.SetLabels(labels)
		of := idOf(object)
		wanted[of] = true
		text, err := object.MarshalJSON()
		if err != nil {
			return err
		}
		if version, ok := versions[of]; ok && before[of] == version+string(text) {
			o.applied[of] = before[of]
			continue
		}
		if err := o.Writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership, client.FieldOwner(companion.FieldOwner(o.Companion))); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", object.GetKind(), of.NamespacedName, err))
			continue
		}
		o.applied[of] = object.GetResourceVersion() + string(text)
	}
	if len(errs) > 0 {
		// What goes may be what runs until its successor does.
		return errors.Join(errs...)
	}
	for i := range there {
		object := &there[i]
		if wanted[idOf(object)] || object.DeletionTimestamp != nil {
			continue
		}
		err := o.Writer.Delete(ctx, object, client.Preconditions{UID: &object.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", object.Kind, client.ObjectKeyFromObject(object), err))
		}
	}
	return errors.Join(errs...)
}

func idOf(object client.Object) id {
	return id{object.GetObjectKind().GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(object)}
}

// Progress is how far a workload is.
type Progress struct {
	// Done reports whether all of its pods are those of its template, and available.
	Done bool
	// Reason is a code for a condition, and Message what is missing; Message is empty if it is done.
	Reason, Message string
}

// The reasons of a Progress.
const (
	Available  = "Available"
	NotSeen    = "NotSeen"
	RollingOut = "RollingOut"
)

// OfDaemonSet returns the progress of a DaemonSet. One without nodes is done.
func OfDaemonSet(d *appsv1.DaemonSet) Progress {
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return Progress{Reason: NotSeen, Message: fmt.Sprintf("DaemonSet %s: the DaemonSet controller has not seen generation %d", client.ObjectKeyFromObject(d), d.Generation)}
	case s.UpdatedNumberScheduled < s.DesiredNumberScheduled || s.NumberAvailable < s.DesiredNumberScheduled:
		return Progress{Reason: RollingOut, Message: fmt.Sprintf("DaemonSet %s: of %d nodes %d have its newest pod, and %d an available one", client.ObjectKeyFromObject(d), s.DesiredNumberScheduled, s.UpdatedNumberScheduled, s.NumberAvailable)}
	}
	return Progress{Done: true, Reason: Available}
}

// OfDeployment returns the progress of a Deployment.
func OfDeployment(d *appsv1.Deployment) Progress {
	s, replicas := d.Status, int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	switch {
	case s.ObservedGeneration < d.Generation:
		return Progress{Reason: NotSeen, Message: fmt.Sprintf("Deployment %s: the Deployment controller has not seen generation %d", client.ObjectKeyFromObject(d), d.Generation)}
	case s.UpdatedReplicas < replicas || s.AvailableReplicas < replicas || s.Replicas > replicas:
		return Progress{Reason: RollingOut, Message: fmt.Sprintf("Deployment %s: of %d pods %d are its newest, and %d available", client.ObjectKeyFromObject(d), replicas, s.UpdatedReplicas, s.AvailableReplicas)}
	}
	return Progress{Done: true, Reason: Available}
}

// Manifest reads a DaemonSet or a Deployment from YAML. complete gives the first container of its pods what is not in the file,
// such as its image.
func Manifest(manifest []byte, complete func(container map[string]any)) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(manifest, &object.Object); err != nil {
		return nil, err
	}
	at := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(object.Object, at...)
	if err != nil {
		return nil, err
	}
	complete(containers[0].(map[string]any))
	return object, unstructured.SetNestedSlice(object.Object, containers, at...)
}
