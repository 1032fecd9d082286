// SPDX-License-Identifier: Apache-2.0

package readmission

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// systemCriticalPriority is the least priority of critical pods (pkg/apis/scheduling,
// SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// critical reports whether the kubelet makes room for the pod (pkg/kubelet/types, IsCriticalPod).
func (c candidate) critical() bool {
	return IsStatic(c.pod) || c.pod.Spec.Priority != nil && *c.pod.Spec.Priority >= systemCriticalPriority
}

// preempts reports whether another pod may end for this one (pkg/kubelet/types, Preemptable).
func (c candidate) preempts(other candidate) bool {
	if c.critical() && !other.critical() {
		return true
	}
	a, b := c.pod.Spec.Priority, other.pod.Spec.Priority
	return a != nil && b != nil && *a > *b
}

// victims returns the pods that end so that a critical one fits: as few as possible, and Guaranteed
// ones last (pkg/kubelet/preemption, getPodsToPreempt). It returns false if all of them would not be
// enough.
func (c candidate) victims(admitted []candidate, short map[v1.ResourceName]int64) (victims []candidate, enough bool) {
	classes := map[v1.PodQOSClass][]candidate{}
	for _, other := range admitted {
		if c.preempts(other) {
			classes[other.pod.Status.QOSClass] = append(classes[other.pod.Status.QOSClass], other)
		}
	}
	bestEffort, burstable, guaranteed := classes[v1.PodQOSBestEffort], classes[v1.PodQOSBurstable], classes[v1.PodQOSGuaranteed]
	if len(less(short, bestEffort, burstable, guaranteed)) > 0 {
		return nil, false
	}
	guaranteed = nearest(guaranteed, less(short, bestEffort, burstable))
	burstable = nearest(burstable, less(short, bestEffort, guaranteed))
	bestEffort = nearest(bestEffort, less(short, burstable, guaranteed))
	return slices.Concat(bestEffort, burstable, guaranteed), true
}

// less returns what is still missing once these pods have ended.
func less(short map[v1.ResourceName]int64, pods ...[]candidate) map[v1.ResourceName]int64 {
	left := map[v1.ResourceName]int64{}
	for name, missing := range short {
		for _, c := range slices.Concat(pods...) {
			missing -= c.amount(name)
		}
		if missing > 0 {
			left[name] = missing
		}
	}
	return left
}

// nearest returns pods that together ask for what is missing: again and again the one that leaves
// least of it, of several the smallest, and of several such the last in upstream's order
// (pkg/kubelet/preemption, getPodsToPreemptByDistance).
func nearest(pods []candidate, short map[v1.ResourceName]int64) (chosen []candidate) {
	pods = slices.Clone(pods)
	for len(short) > 0 && len(pods) > 0 {
		distance := func(c candidate) (sum float64) {
			for name, missing := range short {
				if rest := missing - c.amount(name); rest > 0 {
					sum += math.Pow(float64(rest)/float64(missing), 2)
				}
			}
			return sum
		}
		best := 0
		for i, c := range pods {
			if cmp.Or(cmp.Compare(distance(c), distance(pods[best])),
				cmp.Compare(c.amount(v1.ResourceMemory), pods[best].amount(v1.ResourceMemory)),
				cmp.Compare(c.amount(v1.ResourceCPU), pods[best].amount(v1.ResourceCPU))) <= 0 {
				best = i
			}
		}
		chosen, short = append(chosen, pods[best]), less(short, pods[best:best+1])
		last := len(pods) - 1
		pods[best], pods = pods[last], pods[:last]
	}
	return chosen
}
