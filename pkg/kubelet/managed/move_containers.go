package managed

import (
	"time"
)

// mostPasses bounds how often MoveContainers tries once all pods are known, since a
// container that never runs is never moved, and needs not be.
const mostPasses = 30

// MoveContainers puts containers that already run when the kubelet starts where they
// belong, and repairs their weights, under the CPU manager's policy none. Containers that
// are created later are placed by PlaceContainer, so this ends when all are where they belong; then
// nothing more is asked of the runtime. (Under the policy static the CPU manager keeps on
// doing it.)
//
// reconcile is a pass over all active containers, and returns those that could be
// moved and those that could not. Until ready it does not know them all.
func MoveContainers[C any, F reconcileState[C]](period time.Duration, ready func() bool, reconcile F) {
	n, on := partitions()
	if !on {
		return
	}
	if n != nil {
		// From now on there may be confined containers, until a kubelet has freed them all.
		n.writeRecord(host.earlier.sets)
	}
	go func() {
		for passes := 0; passes < mostPasses; {
			time.Sleep(period)
			// Without an API server there are pods that nobody knows: for as long as that takes.
			if ready() {
				passes++
			}
			if failed := callReconcile[C](reconcile); passes > 0 && len(failed) == 0 {
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
