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
	"slices"
	"time"
)

// mostPasses is how often MoveContainers tries once all pods are known, and all containers that
// run have been moved. Then it gives up: one that never runs is never moved, and need not be.
const mostPasses = 30

// shortestPeriod is the shortest pause between two passes.
const shortestPeriod = 100 * time.Millisecond

// MoveContainers moves the containers that already run when the kubelet starts to where they
// belong, and repairs their weights, under the CPU manager's policy none. PlaceContainer
// places all later ones, so MoveContainers ends when these have moved, and asks the runtime
// nothing more. (Under the policy static the CPU manager does this itself, for as long as it
// runs.)
//
// reconcile is one pass over all active containers. It returns the containers that it could
// move, and those that it could not. It knows all containers only once ready returns true.
func MoveContainers[C any, F reconcileState[C]](period time.Duration, ready func() bool, reconcile F) {
	n, on := partitions()
	if !on {
		return
	}
	period = max(period, shortestPeriod) // upstream accepts a negative one
	if n != nil {
		// Write the record first: from now on containers may be confined.
		n.writeRecord(shim.host.previous.sets)
	}
	go func() {
		for passes := 0; passes < mostPasses; {
			time.Sleep(period)
			// Until the API server answers, not all pods are known: passes before that do not
			// count. Nor does one in which a container runs where it does not belong, or may do so, since
			// the runtime cannot be reached, say.
			known := ready()
			failed := callReconcile[C](reconcile)
			if known && !slices.ContainsFunc(failed, unmoved) {
				passes++
			}
			if passes > 0 && len(failed) == 0 {
				break
			}
		}
		if n == nil {
			removeRecordOnceFreed(period)
		} else {
			n.writeRecord(nil)
		}
	}()
}
