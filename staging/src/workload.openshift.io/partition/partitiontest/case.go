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

package partitiontest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// The workload types of the cases. Each caller makes Type active, and no other.
const (
	Type         = "management"
	InactiveType = "inactive"
	otherType    = "other"
)

// The namespaces of the cases, as [Namespaces] makes them.
const (
	// Open allows Type and InactiveType.
	Open = "open"
	// Others allows neither of the two, but a third.
	Others = "others"
	// Plain has no allowed annotation.
	Plain = "plain"
)

// Namespaces returns the namespaces in which the cases' pods are created.
func Namespaces() []*v1.Namespace {
	return []*v1.Namespace{
		Namespace(Open, partition.AllowedAnnotation, Type+", "+InactiveType),
		Namespace(Others, partition.AllowedAnnotation, otherType),
		Namespace(Plain, "", ""),
	}
}

// Case is a pod, and what must become of it in a cluster in which only [Type] is active.
type Case struct {
	// Name is a sentence.
	Name string
	// Namespace is one of [Namespaces].
	Namespace string
	// Pod has no name and no images: a test that needs them sets them. The API server accepts
	// its resources, and defaults of the API do not change what is wanted.
	Pod *v1.Pod
	// FeatureGate is the upstream feature gate without which the API server drops what the
	// case is about. Empty means that it needs none.
	FeatureGate string
	Want        Want
}

// Want is what must have become of a pod.
type Want struct {
	Outcome partition.Outcome
	Reason  partition.Reason
	// Pod has the annotations and the resources that the pod must have, except for the warning
	// annotation; see Diff. It is nil if the pod must be refused.
	Pod *v1.Pod
	// NoRoom means that the pod has no room for the warning annotation. Its author is warned
	// all the same.
	NoRoom bool
}

// Gate returns the gate of the cases' cluster for pods of a namespace. It panics if that is
// not one of [Namespaces].
func Gate(namespace string) partition.Gate {
	all := Namespaces()
	i := slices.IndexFunc(all, func(n *v1.Namespace) bool { return n.Name == namespace })
	annotations := all[i].Annotations
	return func(workloadType string) partition.Reason {
		if reason := partition.NamespaceReason(annotations, workloadType); reason != partition.NoReason {
			return reason
		}
		return StaticGate(workloadType)
	}
}

// StaticGate is the gate of a node of that cluster for static pods, which no namespace needs
// to allow.
func StaticGate(workloadType string) partition.Reason {
	if workloadType != Type {
		return partition.ReasonTypeInactive
	}
	return partition.NoReason
}

// OfStaticPod returns what must become of the pod as a static one, which is never refused. It
// returns false for a case that is about a namespace: static pods have no such reason.
func (c Case) OfStaticPod() (want Want, ok bool) {
	want = c.Want
	switch want.Reason {
	case partition.ReasonNamespaceNotAnnotated, partition.ReasonNamespaceOtherTypes:
		return Want{}, false
	}
	if want.Outcome == partition.Refused {
		want.Outcome, want.Pod = partition.Skipped, ordinary(c.Pod)
	}
	return want, true
}

// NotPartitioned returns what must become of a pod that asks with an effect and has a reason. The ordinary pod is what
// is left of it if it is not refused.
func NotPartitioned(reason partition.Reason, effect partition.Effect, ordinary *v1.Pod) Want {
	if podtest.Responses[string(reason)].Refuses(effect == partition.Required) {
		return Want{Outcome: partition.Refused, Reason: reason}
	}
	return Want{Outcome: partition.Skipped, Reason: reason, Pod: ordinary}
}

// RefusedWith reports whether an error is the refusal that the pod must get: a 422 names a field, and a 403 has [Want.Text].
func (w Want) RefusedWith(err error) bool {
	if podtest.Responses[string(w.Reason)].Hard == "422" {
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "metadata.annotations")
	}
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), w.Text())
}

// ordinary returns what must be left of a pod that is skipped: all but what is ours.
func ordinary(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	maps.DeleteFunc(pod.Annotations, func(key, _ string) bool { return partition.OwnsAnnotation(key) })
	return pod
}

// Text returns what the warning or the refusal must say: the text of the rule. It is empty if
// there is neither.
func (w Want) Text() string {
	rule, _ := partition.RuleOf(w.Reason)
	return rule.Text
}

// Diff returns how a pod differs from what it must be, in one line; the empty string if it does
// not. It compares the resources of containers, and annotations that the wanted pod has or
// that are ours. A cpu request of zero counts as none ([partition.Policy.KeepZero]).
func (w Want) Diff(pod *v1.Pod) string {
	var differences []string
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	for _, key := range slices.Sorted(maps.Keys(w.Pod.Annotations)) {
		if got, has := pod.Annotations[key]; !has || got != w.Pod.Annotations[key] {
			differ("annotation %s is %.80q, want %.80q", key, got, w.Pod.Annotations[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if _, wanted := w.Pod.Annotations[key]; !wanted && partition.OwnsAnnotation(key) && key != partition.WarningAnnotation {
			differ("annotation %s is %q, want none", key, pod.Annotations[key])
		}
	}
	warning, warned := pod.Annotations[partition.WarningAnnotation]
	if wanted := w.Reason != partition.NoReason && !w.NoRoom; warned != wanted || !strings.Contains(warning, w.Text()) && warned {
		differ("the warning is %q, want one: %v, with %q", warning, wanted, w.Text())
	}
	got := resourcesOf(pod)
	for name, want := range resourcesOf(w.Pod) {
		if got[name] != want {
			differ("container %s has %s, want %s", name, got[name], want)
		}
		delete(got, name)
	}
	for name := range got {
		differ("container %s is new", name)
	}
	return strings.Join(differences, "; ")
}

// resourcesOf prints the resources of each container.
func resourcesOf(pod *v1.Pod) map[string]string {
	printed := map[string]string{}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			printed[c.Name] = fmt.Sprintf("requests [%s], limits [%s]", printList(c.Resources.Requests), printList(c.Resources.Limits))
		}
	}
	return printed
}

func printList(list v1.ResourceList) string {
	var printed []string
	for name, quantity := range list {
		if name != v1.ResourceCPU || !quantity.IsZero() {
			printed = append(printed, fmt.Sprintf("%s: %s", name, quantity.String()))
		}
	}
	slices.Sort(printed)
	return strings.Join(printed, ", ")
}
