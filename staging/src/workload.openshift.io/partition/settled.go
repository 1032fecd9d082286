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
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Settled reports whether the pod is as [Mutate] leaves it: partitioned in every detail, or
// an ordinary pod with nothing of ours but a warning. It is false for a pod that something
// has changed after Mutate, and for one that asks and cannot be partitioned. It does not
// look at namespaces or nodes.
func Settled[L ~map[N]resource.Quantity, N ~string](pod Pod[L, N]) bool {
	var buffer [usualContainers]amount
	d, cores, found := pod.decide(Policy{Gate: AnyType}, buffer[:0])
	switch d.Outcome {
	case Partitioned:
		return pod.isPartitioned(d.Target, cores, found)
	case Ordinary:
		return !pod.hasOurs()
	default:
		return false
	}
}

// hasOurs reports whether a pod without a target has cores or resources annotations.
func (p Pod[L, N]) hasOurs() bool {
	for key := range *p.Annotations {
		if strings.HasPrefix(key, ResourcesPrefix) {
			return true
		}
	}
	for i := range p.Containers {
		if p.Containers[i].carriesCores() {
			return true
		}
	}
	return false
}

// isPartitioned reports whether partition would change nothing.
func (p Pod[L, N]) isPartitioned(target Target, cores N, found findings) bool {
	if _, warned := (*p.Annotations)[WarningAnnotation]; warned {
		return false
	}
	resources := 0
	for key, value := range *p.Annotations {
		switch {
		case strings.HasPrefix(key, TargetPrefix) && value != target.AnnotationValue():
			return false
		case strings.HasPrefix(key, ResourcesPrefix):
			resources++
		}
	}
	// The loop below finds one for each container, so there are no others.
	if resources != len(p.Containers) {
		return false
	}
	for i := range p.Containers {
		c, was := &p.Containers[i], found.amounts[i]
		if value, _ := resourcesOf(*p.Annotations, c.Name); !was.is(value) {
			return false
		}
		if found.class == bestEffort && !c.carriesCores() {
			continue
		}
		if !onlyCores(*c.Requests, cores, was) || !onlyCores(*c.Limits, cores, was) {
			return false
		}
	}
	return true
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
