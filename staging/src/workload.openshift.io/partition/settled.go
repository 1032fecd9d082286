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

package partition

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Settled reports whether the pod is as [Mutate] leaves it: partitioned in every detail, or
// an ordinary pod with nothing of ours but a warning. It is false for a pod that something
// has changed after Mutate, and for one that asks and cannot be partitioned. It does not
// look at namespaces or nodes.
func Settled[L ~map[N]resource.Quantity, N ~string](pod Pod[L, N]) bool { return Unsettled(pod) == "" }

// Unsettled says what keeps a pod from being [Settled], with the container or the annotation
// and its value; the empty string if nothing does.
func Unsettled[L ~map[N]resource.Quantity, N ~string](pod Pod[L, N]) string {
	var buffer [usualContainers]amount
	d, cores, found := pod.decide(Policy{Gate: AnyType}, buffer[:0])
	switch d.Outcome {
	case Partitioned:
		return pod.unpartitioned(d.Target, cores, found)
	case Ordinary:
		return pod.ours()
	default:
		return cmp.Or(d.Message(), string(d.Reason))
	}
}

// ours names the cores or a resources annotation of a pod without a target; the empty string
// means that it has neither.
func (p Pod[L, N]) ours() string {
	const unasked = ", and the pod asks for no workload type"
	for key, value := range *p.Annotations {
		if strings.HasPrefix(key, ResourcesPrefix) {
			return fmt.Sprintf("the annotation %q is %q", key, value) + unasked
		}
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.carriesCores() {
			return c.describe() + unasked
		}
	}
	return ""
}

// unpartitioned says what partition would change; the empty string means nothing.
func (p Pod[L, N]) unpartitioned(target Target, cores N, found findings) string {
	if warning, warned := (*p.Annotations)[WarningAnnotation]; warned {
		return fmt.Sprintf("the annotation %q is %q, and the pod can be partitioned", WarningAnnotation, warning)
	}
	resources := 0
	for key, value := range *p.Annotations {
		switch {
		case strings.HasPrefix(key, TargetPrefix) && value != target.AnnotationValue():
			return unlike(key, value, target.AnnotationValue())
		case strings.HasPrefix(key, ResourcesPrefix):
			resources++
		}
	}
	for i := range p.Containers {
		c, was := &p.Containers[i], found.amounts[i]
		if value, _ := resourcesOf(*p.Annotations, c.Name); !was.is(value) {
			return unlike(ResourcesAnnotation(c.Name), value, was.annotation().String())
		}
		if found.class == bestEffort && !c.carriesCores() {
			continue
		}
		if !onlyCores(*c.Requests, cores, was) || !onlyCores(*c.Limits, cores, was) {
			want := "no cpu and no cores"
			if was.requested {
				want = fmt.Sprintf("%s %d in requests and limits, and no cpu", cores, was.request)
			}
			return c.describe() + ", and must have " + want
		}
	}
	if resources == len(p.Containers) {
		return ""
	}
	// Each container has its own, so another is of no container.
	return p.foreign()
}

// unlike says that an annotation is not what it must be.
func unlike(key, value, want string) string {
	return fmt.Sprintf("the annotation %q is %q, and must be %q", key, value, want)
}

// foreign names a resources annotation that is of no container of the pod.
func (p Pod[L, N]) foreign() string {
	own := map[string]bool{}
	for i := range p.Containers {
		own[ResourcesAnnotation(p.Containers[i].Name)] = true
	}
	for key, value := range *p.Annotations {
		if strings.HasPrefix(key, ResourcesPrefix) && !own[key] {
			return fmt.Sprintf("the annotation %q is %q, and names no container", key, value)
		}
	}
	return "two containers have one name"
}

// is reports whether a resources annotation is what partition writes for the amount.
func (a amount) is(annotation string) bool {
	var buffer [64]byte
	return string(a.annotation().appendTo(buffer[:0])) == annotation
}

// onlyCores reports whether a list has the cores that the amount gives, no cores of another
// type, and no cpu other than zero.
func onlyCores[L ~map[N]resource.Quantity, N ~string](list L, cores N, was amount) bool {
	if quantity, has := list[cpu]; has && !quantity.IsZero() {
		return false
	}
	quantity, has := list[cores]
	if has != was.requested || quantity.CmpInt64(was.request) != 0 {
		return false
	}
	if hasOnly(list, memory, cores) {
		return true
	}
	for name := range list {
		if _, ok := TypeOfCores(string(name)); ok && name != cores {
			return false
		}
	}
	return true
}
