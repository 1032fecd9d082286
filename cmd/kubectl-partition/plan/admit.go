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

package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"workload.openshift.io/partition"
)

// This file repeats upstream's admission of the pods that a kubelet knows when it starts, as far
// as it has to do with cpu (pkg/kubelet/kubelet.go, HandlePodAdditions; pkg/kubelet/lifecycle,
// predicateAdmitHandler; pkg/kubelet/preemption). No part of it can be imported without the
// whole kubelet.

// candidate is a pod as the kubelet will see it.
type candidate struct {
	pod *v1.Pod
	// millicores is its request of cpu.
	millicores int64
	static     bool
}

func newCandidate(p *v1.Pod, static bool) candidate {
	// The kubelet does not count what the status of a partitioned pod says (managed,
	// WithoutReportedCPU).
	_, partitioned := partition.PartitionedType(p)
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: !partitioned, InPlacePodLevelResourcesVerticalScalingEnabled: true})
	return candidate{p, requests.Cpu().MilliValue(), static}
}

// systemCriticalPriority is the least priority of critical pods (pkg/apis/scheduling,
// SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// critical reports whether upstream makes room for the pod (pkg/kubelet/types, IsCriticalPod).
func (c candidate) critical() bool {
	return c.static || (c.pod.Spec.Priority != nil && *c.pod.Spec.Priority >= systemCriticalPriority)
}

// preempts reports whether upstream may end another pod for this one (pkg/kubelet/types,
// Preemptable).
func (c candidate) preempts(other candidate) bool {
	if c.critical() && !other.critical() {
		return true
	}
	a, b := c.pod.Spec.Priority, other.pod.Spec.Priority
	return a != nil && b != nil && *a > *b
}

// preemption is a pod that ends so that a critical one fits.
type preemption struct{ victim, preemptor candidate }

// admit admits pods one after another, static pods first, then the oldest, and returns those that
// fall out. At its first start after a change, a kubelet may still go by the allocatable that the
// Node had; then they fall out at the second.
func admit(candidates []candidate, allocatable int64) (rejected []candidate, preempted []preemption) {
	candidates = slices.Clone(candidates)
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		if a.static != b.static {
			if a.static {
				return -1
			}
			return 1
		}
		return a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time)
	})
	var admitted []candidate
	for _, c := range candidates {
		used := int64(0)
		for _, other := range admitted {
			used += other.millicores
		}
		missing := used + c.millicores - allocatable
		if c.millicores == 0 || missing <= 0 {
			admitted = append(admitted, c)
			continue
		}
		victims, enough := c.victims(admitted, missing)
		if !c.critical() || !enough {
			rejected = append(rejected, c)
			continue
		}
		for _, victim := range victims {
			preempted = append(preempted, preemption{victim, c})
			admitted = slices.DeleteFunc(admitted, func(other candidate) bool { return other.pod == victim.pod })
		}
		admitted = append(admitted, c)
	}
	return rejected, preempted
}

// victims returns the pods that upstream ends so that this one fits: as few as possible, and
// Guaranteed ones last (pkg/kubelet/preemption, getPodsToPreempt). It returns false if all of
// them would not be enough. BestEffort pods free no cpu.
func (c candidate) victims(admitted []candidate, missing int64) (victims []candidate, enough bool) {
	classes := map[v1.PodQOSClass][]candidate{}
	sum := map[v1.PodQOSClass]int64{}
	for _, other := range admitted {
		if c.preempts(other) {
			class := other.pod.Status.QOSClass
			classes[class], sum[class] = append(classes[class], other), sum[class]+other.millicores
		}
	}
	if sum[v1.PodQOSBurstable]+sum[v1.PodQOSGuaranteed] < missing {
		return nil, false
	}
	guaranteed := nearest(classes[v1.PodQOSGuaranteed], missing-sum[v1.PodQOSBurstable])
	for _, victim := range guaranteed {
		missing -= victim.millicores
	}
	return append(nearest(classes[v1.PodQOSBurstable], missing), guaranteed...), true
}

// nearest returns pods that together ask for the missing amount: again and again the one that is
// nearest to what is still missing (pkg/kubelet/preemption, getPodsToPreemptByDistance).
func nearest(candidates []candidate, missing int64) (chosen []candidate) {
	candidates = slices.Clone(candidates)
	for missing > 0 && len(candidates) > 0 {
		best := slices.MinFunc(candidates, func(a, b candidate) int {
			distance := func(c candidate) int64 { return max(0, missing-c.millicores) }
			return cmp.Or(cmp.Compare(distance(a), distance(b)), cmp.Compare(memory(a), memory(b)), cmp.Compare(a.millicores, b.millicores))
		})
		chosen, missing = append(chosen, best), missing-best.millicores
		candidates = slices.DeleteFunc(candidates, func(c candidate) bool { return c.pod == best.pod })
	}
	return chosen
}

// memory returns a pod's request of memory, by which upstream compares pods first.
func memory(c candidate) int64 {
	requests := resourcehelper.PodRequests(c.pod, resourcehelper.PodResourcesOptions{})
	return requests.Memory().Value()
}
