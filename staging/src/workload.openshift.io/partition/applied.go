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

import "k8s.io/apimachinery/pkg/api/resource"

// KeepCPU gives a container of a changed pod the cpu and the cores of the stored one, if it
// asks for what the stored one asked for before [Mutate]. A client that sends its manifest
// again, by PUT, patch or apply, asks for that, and means no change. KeepCPU leaves every
// other container for validation to refuse.
func KeepCPU[L ~map[N]resource.Quantity, N ~string](changed, stored Pod[L, N]) {
	target, errs := ParseTarget(*stored.Annotations)
	if len(errs) > 0 || target.Type == "" {
		return
	}
	cores := N(CoresResource(target.Type))
	storedAs := make(map[string]*Container[L, N], len(stored.Containers))
	for i := range stored.Containers {
		storedAs[stored.Containers[i].Name] = &stored.Containers[i]
	}
	for i := range changed.Containers {
		c := &changed.Containers[i]
		if was, ok := storedAs[c.Name]; ok && c.asksFor(was, *stored.Annotations, cores) {
			keep(c.Requests, *was.Requests)
			keep(c.Limits, *was.Limits)
		}
	}
}

// asksFor reports whether a container asks for the CPU that a stored one asked for.
func (c *Container[L, N]) asksFor(stored *Container[L, N], annotations map[string]string, cores N) bool {
	was := stored.ordinary(annotations, cores)
	if !c.carriesCores() {
		return c.ordinary(nil, cores) == was
	}
	// A patch keeps the cores, and adds to them what it names.
	for _, list := range []struct {
		now, stored L
		was         int64
	}{{*c.Requests, *stored.Requests, was.request}, {*c.Limits, *stored.Limits, was.limit}} {
		now, then := list.now[cores], list.stored[cores]
		if beside := milli(list.now, cpu); now.Cmp(then) != 0 || (beside != 0 && beside != list.was) {
			return false
		}
	}
	return true
}

// keep gives a list the cpu and the cores of the stored one.
func keep[L ~map[N]resource.Quantity, N ~string](list *L, stored L) {
	removeCores(list, "")
	remove(list, cpu)
	for name, quantity := range stored {
		if _, ok := TypeOfCores(string(name)); ok || name == cpu {
			set(list, name, quantity)
		}
	}
}

// KeepAnnotations gives a pod the stored pod's annotations that are ours, and returns what
// [ChangedAnnotation] said of them before. No pod enters or leaves a partition after creation
// (design, section 4.3).
func KeepAnnotations(annotations *map[string]string, stored map[string]string) (changed string) {
	changed = ChangedAnnotation(*annotations, stored)
	for key := range *annotations {
		if _, known := stored[key]; OwnsAnnotation(key) && !known {
			delete(*annotations, key)
		}
	}
	for key, value := range stored {
		if now, present := (*annotations)[key]; OwnsAnnotation(key) && (!present || now != value) {
			if *annotations == nil {
				*annotations = map[string]string{}
			}
			(*annotations)[key] = value
		}
	}
	return changed
}

// ChangedAnnotation names an annotation of ours that a pod has and the stored pod does not, or
// the reverse, or that says something else there; the empty string means that there is none.
// It allocates nothing if neither pod has any.
func ChangedAnnotation(annotations, stored map[string]string) string {
	for key := range annotations {
		if _, known := stored[key]; OwnsAnnotation(key) && !known {
			return key
		}
	}
	for key, value := range stored {
		if !OwnsAnnotation(key) {
			continue
		}
		if now, present := annotations[key]; !present || !sameTarget(key, now, value) {
			return key
		}
	}
	return ""
}

// sameTarget reports whether two values of a target annotation ask for the same, however they
// are written. Values of other annotations must be equal.
func sameTarget(key, a, b string) bool {
	if a == b {
		return true
	}
	first, errs := ParseTarget(map[string]string{key: a})
	if len(errs) > 0 || first.Type == "" {
		return false
	}
	second, errs := ParseTarget(map[string]string{key: b})
	return len(errs) == 0 && first == second
}
