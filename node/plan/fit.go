// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"workload.openshift.io/kubernetes/node/readmission"
	"workload.openshift.io/partition"
)

// fit foresees which pods fall out.
func (f *foresight) fit(pods []v1.Pod) {
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
		// No pod loses any cpu.
		f.add(Problem{Severity: Undecided, Code: CodePodsUnknown,
			Text:   because("the node's pods are not known: any restart of the kubelet ends those whose required node affinity no longer fits the Node's labels, and those that do not tolerate a taint NoExecute that has come", f.PodsDenied),
			Remedy: podsRemedy})
	case f.Allocated != nil && !goes:
		f.sumUp(*allocatable)
	default:
		f.add(Problem{Severity: Undecided, Code: CodePodsUnknown,
			Text:   because(fmt.Sprintf("%s: those that ask for more than %s of cpu together do not fit", unknown, millicores(*allocatable)), f.PodsDenied),
			Remedy: podsRemedy})
	}
}

// readmit returns the pods that the kubelet rejects if so much cpu is allocatable.
func (f *foresight) readmit(pods []v1.Pod, allocatable int64) []readmission.Rejection {
	node := &v1.Node{}
	if f.Object != nil {
		node = f.Object.DeepCopy()
	} else {
		// Neither labels nor amounts are known: of everything but cpu there is enough.
		pods = slices.Clone(pods)
		node.Status.Allocatable = v1.ResourceList{v1.ResourcePods: plenty}
		for i := range pods {
			pods[i].Spec.NodeSelector, pods[i].Spec.Affinity = nil, nil
			for name := range resourcehelper.PodRequests(&pods[i], resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
				node.Status.Allocatable[name] = plenty
			}
		}
	}
	if node.Status.Allocatable == nil {
		node.Status.Allocatable = v1.ResourceList{}
	}
	node.Status.Allocatable[v1.ResourceCPU] = *resource.NewMilliQuantity(allocatable, resource.DecimalSI)
	// Of the cores of a type that comes the whole host will be reported, and of one that goes nothing.
	had, _ := f.types()
	for _, workloadType := range had {
		delete(node.Status.Allocatable, v1.ResourceName(partition.CoresResource(workloadType)))
	}
	for _, workloadType := range f.after.read.Types() {
		node.Status.Allocatable[v1.ResourceName(partition.CoresResource(workloadType))] = *resource.NewQuantity(int64(f.Online.Size())*1000, resource.DecimalSI)
	}
	return readmission.Foresee(node, f.kubelet(), pods)
}

// plenty is more than pods ask for.
var plenty = *resource.NewQuantity(math.MaxInt64, resource.DecimalSI)

// kubelet returns what decides about exclusive CPUs at the kubelet's start, if that is known.
func (f *foresight) kubelet() (k readmission.Kubelet) {
	if f.Configuration == nil || f.derived == nil || !f.after.static() {
		return k
	}
	c := f.Configuration
	k = readmission.Kubelet{
		Policy: f.after.settings.CPUManagerPolicy, Options: f.after.settings.CPUManagerPolicyOptions,
		Reserved:       *resource.NewMilliQuantity(f.after.millicores, resource.DecimalSI),
		TopologyPolicy: c.TopologyManagerPolicy, TopologyScope: c.TopologyManagerScope, TopologyOptions: c.TopologyManagerPolicyOptions, MemoryPolicy: c.MemoryManagerPolicy,
		Online: f.Online, Held: f.derived.Assignments,
	}
	if f.after.reservedKnown {
		k.ReservedCPUs = f.after.reserved
	}
	return k
}

// reject foresees it pod by pod.
func (f *foresight) reject(pods []v1.Pod, allocatable int64) {
	for _, r := range f.readmit(pods, allocatable) {
		problem := Problem{Severity: Error, Code: CodeFallsOut, Object: nameOf(r.Pod), Remedy: f.partitionFirst(r.Pod)}
		switch {
		case r.Maybe:
			problem.Severity, problem.Text = Undecided, fmt.Sprintf("%s (%s)", r.Text, r.Reason)
		case r.Reason == readmission.Preempting:
			problem.Code, problem.Text = CodePreempted, fmt.Sprintf("%s (%s)", r.Text, r.Reason)
		case r.Reason == readmission.NodeAffinity || r.Reason == readmission.TaintToleration:
			problem.Code = CodeNodeDiffers
			problem.Text = fmt.Sprintf("%s: the kubelet rejects it (%s) at any restart, even if it runs, whatever the pools are", r.Text, r.Reason)
			problem.Remedy = "before the kubelet restarts, make the Node match what the pod requires, or run the pod elsewhere"
		default:
			problem.Text = fmt.Sprintf("%s: the kubelet rejects it (%s), even if it runs, at its first start after the change or at the second", r.Text, r.Reason)
			if f.mayLoseAssignment(r.Pod) {
				problem.Text += "; its exclusive CPUs are free then"
			}
		}
		f.add(problem)
	}
	if f.Object != nil {
		return
	}
	var picky []string
	for i := range pods {
		if p := &pods[i]; readmission.HasRequirements(p) && (!ended(p) || readmission.IsStatic(p)) {
			picky = append(picky, nameOf(p))
		}
	}
	if len(picky) > 0 {
		f.add(Problem{Severity: Undecided, Code: CodeNodeUnknown,
			Text:   "the Node's labels are not known, and any restart of the kubelet ends a pod whose nodeSelector or required node affinity no longer fits them: " + strings.Join(picky, ", "),
			Remedy: nodeRemedy})
	}
}

// mayReject foresees which pods would not fit what the Node had, and fit what it will have. The first
// pods may come before the kubelet has written its status, and with them the static pods that have got
// their cpu back.
func (f *foresight) mayReject(pods []v1.Pod, before, allocatable int64) {
	certain := map[string]bool{}
	for _, r := range f.readmit(pods, allocatable) {
		certain[nameOf(r.Pod)] = true
	}
	for _, r := range f.readmit(pods, before) {
		if !certain[nameOf(r.Pod)] && !r.Maybe {
			f.add(Problem{Severity: Undecided, Code: CodeFallsOut, Object: nameOf(r.Pod),
				Text: fmt.Sprintf("%s: it may fall out (%s) at the kubelet's first start after the change. Static pods ask for cpu again, and until the kubelet has written its status it goes by the %s that the Node had",
					r.Text, r.Reason, millicores(before))})
		}
	}
}

// mayLoseAssignment reports whether a pod holds exclusive CPUs.
func (f *foresight) mayLoseAssignment(p *v1.Pod) bool {
	return f.Checkpoint != nil && slices.ContainsFunc(f.Checkpoint.Assignments, func(a partition.Assignment) bool { return a.Pod == readmission.UID(p) })
}

// asked returns the type for which a pod asked, and as which it could be partitioned if it were
// created again; empty if there is none.
func asked(p *v1.Pod) string {
	decision, warned := partition.ParseMessage(p.Annotations[partition.WarningAnnotation])
	if !warned || decision.Reason != partition.ReasonTypeInactive || readmission.IsStatic(p) {
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
			Text: fmt.Sprintf("pods of this node ask for %s of cpu together, and %s are left: those created last fall out (OutOfcpu), unless they have ended, or are static and become partitioned: %s",
				millicores(sum), millicores(allocatable), strings.Join(pods, ", ")),
			Remedy: "give the node's pods with --pods, and this names those that fall out"})
		return
	}
	f.add(Problem{Severity: Undecided, Code: CodePodsUnknown,
		Text:   fmt.Sprintf("containers of this node ask for %s of cpu together, and %s are left; what else their pods ask for is not known", millicores(sum), millicores(allocatable)),
		Remedy: podsRemedy})
}

// podsRemedy says how to make the node's pods known, and nodeRemedy the Node.
const (
	podsRemedy = "give them with --pods (kubectl get pods --all-namespaces --field-selector spec.nodeName=NODE -o json), or name the node"
	nodeRemedy = "name the node, or put it into the directory of --state as node.json (kubectl get node NODE -o json)"
)

// steps says in which order to go about a change that is not safe.
func (f *foresight) steps() {
	has := func(code string) bool {
		return slices.ContainsFunc(f.Problems, func(p Problem) bool { return p.Code == code && p.Severity != Info })
	}
	falls := has(CodeFallsOut) || has(CodePreempted)
	if !falls && !has(CodeExclusiveTaken) && !has(CodeNodeDiffers) {
		return
	}
	step := func(format string, args ...any) { f.Steps = append(f.Steps, fmt.Sprintf(format, args...)) }
	node := cmp.Or(f.NodePlan.Node, "NODE")
	var differ []string
	for _, p := range f.Problems {
		if p.Code == CodeNodeDiffers {
			differ = append(differ, p.Object)
		}
	}
	if len(differ) > 0 {
		step("Give the Node back what these pods require of its labels, and take the taint off that they do not tolerate, or run them elsewhere: %s", strings.Join(differ, ", "))
	}
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
		var left []v1.Pod
		for i := range f.Pods {
			p := &f.Pods[i]
			if slices.Contains(had, asked(p)) && !ended(p) {
				again = append(again, nameOf(p))
			} else if !ended(p) {
				left = append(left, *p)
			}
		}
		enough = !slices.ContainsFunc(f.readmit(left, *f.After.AllocatableMillicores), func(r readmission.Rejection) bool {
			return r.Reason != readmission.NodeAffinity && r.Reason != readmission.TaintToleration && !r.Maybe
		})
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
