// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"slices"
	"testing"
)

func TestPodsRunInTheOrderOfTheirCreation(t *testing.T) {
	var r Running
	for range 6 {
		r.Add(Pod{Kind: Limited, Partitioned: true})
		r.Add(Pod{Kind: BestEffort})
	}
	names := func(pods []Named) (names []string) {
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		return names
	}
	// By their names, 10 would come before 2.
	if got, want := names(r.Of(Limited)), []string{"limited-0", "limited-2", "limited-4", "limited-6", "limited-8", "limited-10"}; !slices.Equal(got, want) {
		t.Errorf("the pods of a kind are %q, want %q", got, want)
	}
	for _, pod := range r.Of(Limited) {
		r.Remove(pod.Name)
	}
	if name := r.Add(Pod{Kind: Limited}); name != "limited-12" {
		t.Errorf("the next pod has the name %s, want one that no pod had", name)
	}
	if got, want := names(r.All()), []string{"besteffort-1", "besteffort-3", "besteffort-5", "besteffort-7", "besteffort-9", "besteffort-11", "limited-12"}; !slices.Equal(got, want) {
		t.Errorf("after some have gone the pods are %q, want %q", got, want)
	}
	if pod, is := r.Get("besteffort-3"); !is || pod.Kind != BestEffort {
		t.Errorf("besteffort-3 is %+v (%v)", pod, is)
	}
	if pod, is := r.Get("limited-0"); is {
		t.Errorf("limited-0 has gone, and is %+v", pod)
	}
}
