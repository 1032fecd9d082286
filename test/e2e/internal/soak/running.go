// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"slices"
)

// Running are the pods of a round while it runs. They are in the order of their creation, so that
// what an event does to them, and in which order, follows from the seed, too. The zero value has
// none.
type Running struct {
	created int
	pods    []Named
}

// Named is a pod that runs, with its name.
type Named struct {
	Name string
	Pod
}

// Add adds a pod, and returns its name.
func (r *Running) Add(pod Pod) string {
	name := fmt.Sprintf("%s-%d", pod.Kind, r.created)
	r.created++
	r.pods = append(r.pods, Named{name, pod})
	return name
}

// All returns the pods.
func (r *Running) All() []Named { return slices.Clone(r.pods) }

// Of returns the pods of a kind.
func (r *Running) Of(kind Kind) []Named {
	return slices.DeleteFunc(r.All(), func(pod Named) bool { return pod.Kind != kind })
}

// Get returns the pod of a name.
func (r *Running) Get(name string) (Pod, bool) {
	at := slices.IndexFunc(r.pods, func(pod Named) bool { return pod.Name == name })
	if at < 0 {
		return Pod{}, false
	}
	return r.pods[at].Pod, true
}

// Remove removes the pod of a name.
func (r *Running) Remove(name string) {
	r.pods = slices.DeleteFunc(r.pods, func(pod Named) bool { return pod.Name == name })
}
