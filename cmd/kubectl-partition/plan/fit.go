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
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"workload.openshift.io/partition"
)

// outOfCPU is upstream's reason for rejecting a pod (pkg/kubelet/lifecycle/predicate.go).
const outOfCPU = "OutOfcpu"

// fit foresees which pods fall out.
func (f *foresight) fit(pods []candidate) {
	allocatable := f.After.AllocatableMillicores
	if allocatable == nil {
		// The configuration is not known. The pools are reserved in any case.
		most := int64(f.Online.Difference(f.after.division.Pooled).Size()) * 1000
		allocatable = &most
	}
	unknown := "the node's pods are not known"
	had, _ := f.types()
	goes := slices.ContainsFunc(had, func(workloadType string) bool { return !slices.Contains(f.after.read.Types(), workloadType) })
	if goes {
		unknown += ", and static pods that are partitioned now will ask for cpu"
	}
	switch before := f.Before.AllocatableMillicores; {
	case f.Pods != nil:
		f.reject(pods, *allocatable)
		if goes && before != nil && *before < *allocatable {
			f.mayReject(pods, *before, *allocatable)
		}
	case before != nil && *before <= *allocatable && !goes:
		// Nobody loses any cpu.
	case f.Allocated != nil && !goes:
		f.sumUp(*allocatable)
	default:
		f.add(Problem{Severity: Undecided, Code: CodePodsUnknown,
			Text:   because(fmt.Sprintf("%s: those that ask for more than %s of cpu together do not fit", unknown, millicores(*allocatable)), f.PodsDenied),
			Remedy: podsRemedy})
	}
}

// reject foresees it pod by pod.
func (f *foresight) reject(pods []candidate, allocatable int64) {
	rejected, preempted := admit(pods, allocatable)
	for _, c := range rejected {
		text := fmt.Sprintf("asks for %s of cpu and no longer fits beside older pods in %s: the kubelet rejects it (%s), even if it runs, at its first start after the change or at the second", millicores(c.millicores), millicores(allocatable), outOfCPU)
		if f.mayLoseAssignment(c.pod) {
			text += "; its exclusive CPUs are free then"
		}
		f.add(Problem{Severity: Error, Code: CodeFallsOut, Object: nameOf(c.pod), Text: text, Remedy: f.partitionFirst(c.pod)})
	}
	for _, p := range preempted {
		f.add(Problem{Severity: Error, Code: CodePreempted, Object: nameOf(p.victim.pod),
			Text: fmt.Sprintf("ends so that %s fits, which is critical (Preempting)", nameOf(p.preemptor.pod)), Remedy: f.partitionFirst(p.victim.pod)})
	}
}

// mayReject foresees which pods would not fit what the Node had, and fit what it will have. The first
// pods may come before the kubelet has written its status, and with them the static pods that have got
// their cpu back.
func (f *foresight) mayReject(pods []candidate, before, allocatable int64) {
	out := func(allocatable int64) map[*v1.Pod]bool {
		pods, victims := admit(pods, allocatable)
		falls := map[*v1.Pod]bool{}
		for _, c := range pods {
			falls[c.pod] = true
		}
		for _, p := range victims {
			falls[p.victim.pod] = true
		}
		return falls
	}
	certain, possible := out(allocatable), out(before)
	for _, c := range pods {
		if possible[c.pod] && !certain[c.pod] {
			f.add(Problem{Severity: Undecided, Code: CodeFallsOut, Object: nameOf(c.pod),
				Text: fmt.Sprintf("asks for %s of cpu, and may fall out (%s) at the kubelet's first start after the change: static pods ask for cpu again, and until the kubelet has written its status it goes by the %s that the Node had",
					millicores(c.millicores), outOfCPU, millicores(before))})
		}
	}
}

// mayLoseAssignment reports whether a pod holds exclusive CPUs.
func (f *foresight) mayLoseAssignment(p *v1.Pod) bool {
	return f.Checkpoint != nil && slices.ContainsFunc(f.Checkpoint.Assignments, func(a partition.Assignment) bool { return a.Pod == uidOf(p) })
}

// asked returns the type for which a pod asked, and as which it could be partitioned if it were
// created again; empty if there is none.
func asked(p *v1.Pod) string {
	decision, warned := partition.ParseMessage(p.Annotations[partition.WarningAnnotation])
	if !warned || decision.Reason != partition.ReasonTypeInactive || isStatic(p) {
		return ""
	}
	return decision.Target.Type
}

// partitionFirst is the remedy for a pod that asked for a type before that was active.
func (f *foresight) partitionFirst(p *v1.Pod) string {
	if workloadType := asked(p); workloadType != "" {
		return fmt.Sprintf("it asked for the type %s before that was active: create it again once it is, and it needs no cpu", workloadType)
	}
	return ""
}

// sumUp adds up what the kubelet has allocated to containers. It does not know which of the pods have
// ended, nor which are the oldest. Pods ask for more: overhead, and what init containers and the pod as
// a whole ask for, are not in the checkpoint of each release. So the sum does not show that pods fit.
func (f *foresight) sumUp(allocatable int64) {
	var sum int64
	var pods []string
	for _, uid := range slices.Sorted(maps.Keys(f.Allocated)) {
		if amount := f.Allocated[uid]; amount > 0 {
			sum += amount
			pods = append(pods, fmt.Sprintf("%s: %s", f.podName(uid), millicores(amount)))
		}
	}
	if sum > allocatable {
		f.add(Problem{Severity: Undecided, Code: CodeFallsOut,
			Text: fmt.Sprintf("pods of this node ask for %s of cpu together, and %s are left: those created last fall out (%s), unless they have ended, or are static and become partitioned: %s",
				millicores(sum), millicores(allocatable), outOfCPU, strings.Join(pods, ", ")),
			Remedy: "give the node's pods with --pods, and this names those that fall out"})
		return
	}
	f.add(Problem{Severity: Undecided, Code: CodePodsUnknown,
		Text:   fmt.Sprintf("containers of this node ask for %s of cpu together, and %s are left; what their pods ask for beside that is not known", millicores(sum), millicores(allocatable)),
		Remedy: podsRemedy})
}

// podsRemedy says how to make the node's pods known.
const podsRemedy = "give them with --pods (kubectl get pods --all-namespaces --field-selector spec.nodeName=NODE -o json), or name the node"

// steps says in which order to go about a change that is not safe.
func (f *foresight) steps() {
	has := func(code string) bool {
		return slices.ContainsFunc(f.Problems, func(p Problem) bool { return p.Code == code && p.Severity != Info })
	}
	falls := has(CodeFallsOut) || has(CodePreempted)
	if !falls && !has(CodeExclusiveTaken) {
		return
	}
	step := func(format string, args ...any) { f.Steps = append(f.Steps, fmt.Sprintf(format, args...)) }
	node := cmp.Or(f.NodePlan.Node, "NODE")
	taken := has(CodeExclusiveTaken)
	if taken {
		var pods []string
		for _, e := range f.Exclusive {
			if e.InPool {
				pods = append(pods, e.Pod)
			}
		}
		step("While the kubelet runs with the present file, kubectl cordon %s, so that no pod gets these CPUs again. Then delete the pods that hold them exclusively, or drain the node: %s", node, strings.Join(slices.Compact(slices.Sorted(slices.Values(pods))), ", "))
	}
	had, _ := f.types()
	var again []string
	enough := falls && f.Pods != nil && f.After.AllocatableMillicores != nil
	if enough {
		var left []candidate
		for i := range f.Pods {
			p := &f.Pods[i]
			if slices.Contains(had, asked(p)) && !ended(p) {
				again = append(again, nameOf(p))
			} else if !ended(p) {
				left = append(left, newCandidate(p, isStatic(p)))
			}
		}
		rejected, preempted := admit(left, *f.After.AllocatableMillicores)
		enough = len(rejected)+len(preempted) == 0
	}
	switch {
	case len(again) > 0 && enough:
		step("Partition first: create these pods again, so that they ask for cores in place of cpu: %s", strings.Join(again, ", "))
	case falls:
		step("Make room: kubectl drain %s --ignore-daemonsets (and delete what DaemonSets ask for too much), so that all pods fit", node)
	}
	change := "Write"
	if !f.after.file() {
		change = "Remove"
	}
	step("%s %s, and restart the kubelet", change, partition.PinningFilePath)
	if taken || (falls && (len(again) == 0 || !enough)) {
		step("kubectl uncordon %s", node)
	}
}
