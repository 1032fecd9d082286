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

package managed

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNotesOfContainersThatNeverRanDoNotPileUp(t *testing.T) {
	on(t, management)
	restarted(t, &fakeRuntime{})
	stays := withUID(ordinaryPod(), "stays")
	shim.observed.activePods = func() []*v1.Pod { return []*v1.Pod{stays} }
	for i := range 3 * placedBetween {
		pod := stays
		if i > 0 {
			pod = withUID(ordinaryPod(), types.UID(fmt.Sprint(i)))
		}
		PlaceContainer(pod, creating("c", ""))
	}
	if count := len(shim.observed.lastUpdates.GetCPUAssignments()); count > placedBetween || noted(stays, "c").IsEmpty() {
		t.Errorf("there are %d notes", count)
	}
}
