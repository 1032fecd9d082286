// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"workload.openshift.io/operators/workloadclasses"
)

// With room wanted, the real scheduler, which spreads pods, fills few nodes: a preferred taint weighs more
// for it than what is allocated.
func TestPodsFillFewNodes(t *testing.T) {
	used := map[int]int{}
	for _, room := range []int{0, 20} {
		t.Run(fmt.Sprintf("room of %d percent", room), func(t *testing.T) {
			w := newWorld(t, 8, 1)
			w.start(func(s *Settings) { s.RoomPercent, s.MinNodeAge.Duration = room, time.Hour })
			w.wave("first", 16, "100m")
			avoided := 2
			if room > 0 {
				avoided = 7 // one node has room for a fifth of 16 pods
			}
			w.eventually(func() error {
				n := 0
				for _, node := range w.nodes() {
					if hasTaint(node, workloadclasses.AvoidTaint) {
						n++
					}
				}
				if n != avoided {
					return fmt.Errorf("%d of 8 nodes are avoided, want %d", n, avoided)
				}
				return nil
			})
			on := map[string]bool{}
			for range 12 {
				on[w.wave("trickle", 1, "100m")[0].Spec.NodeName] = true
				time.Sleep(500 * time.Millisecond)
			}
			used[room] = len(on)
		})
	}
	if len(used) < 2 {
		t.Skip("a part of it was skipped or has failed")
	}
	if used[20] > 3 || used[0] < 5 {
		t.Errorf("12 pods landed on so many of 8 nodes, by room: %v", used)
	}
	t.Logf("12 pods landed on %d of 8 nodes without room wanted, and on %d with 20 percent", used[0], used[20])
}
