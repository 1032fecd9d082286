// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/readmission"
	"workload.openshift.io/kubernetes/node/reported"
	"workload.openshift.io/partition"
)

// Plan says what the node's kubelet does at its next start with the wanted pinning file.
func (n Node) Plan(wanted File) NodePlan {
	if !n.InEffect || n.Configuration == nil {
		return n.plan(wanted)
	}
	// The running kubelet shows its reserved CPUs with the pools in them. Of these CPUs the
	// administrator may have written all, or as few as the pools leave.
	shown, err := partition.ParseCPUs(n.Configuration.ReservedSystemCPUs)
	if err != nil || shown.IsEmpty() || (n.Present.Known && n.Present.Data == nil) {
		return n.plan(wanted) // there are no pools in them
	}
	// With the pools comes this option. Few have written it, and pools bring it again.
	if settings := n.settings(); settings.Strict() {
		configuration := *n.Configuration
		configuration.CPUManagerPolicyOptions = maps.Clone(configuration.CPUManagerPolicyOptions)
		delete(configuration.CPUManagerPolicyOptions, partition.StrictReservation)
		n.Configuration = &configuration
	}
	least := cpuset.New()
	if present := n.start(n.Present); n.Present.Known && present.refusal == "" {
		least = shown.Difference(present.division.Pooled)
	}
	most, fewest := n.plan(wanted), n.withReserved(least).plan(wanted)
	most.Problems = slices.DeleteFunc(most.Problems, func(p Problem) bool {
		return p.Code == partition.EventReservedDiffer && !slices.Contains(fewest.Problems, p)
	})
	if most.After.ReservedCPUs == fewest.After.ReservedCPUs {
		return most
	}
	const text = "the API does not show which reserved CPUs are configured and which come from the pools, nor whether " + partition.StrictReservation + " and reserved cgroups are: after the change %q are reserved, or %q"
	severity := Info
	for i, problem := range most.Problems {
		if problem.Severity == Error && !slices.Contains(fewest.Problems, problem) {
			most.Problems[i].Severity, severity = Undecided, Undecided
		}
	}
	if fewest.Verdict != Safe && most.Verdict == Safe {
		severity = Undecided
	}
	most.add(Problem{Severity: severity, Code: CodeReservedUnknown, Text: fmt.Sprintf(text, most.After.ReservedCPUs, fewest.After.ReservedCPUs), Remedy: "give the kubelet's configuration file with --kubelet-config, or run this on the node with --on-host"})
	most.finish()
	return most
}

// withReserved returns the node with other reserved CPUs in its kubelet's configuration.
func (n Node) withReserved(cpus cpuset.CPUSet) Node {
	configuration := *n.Configuration
	configuration.ReservedSystemCPUs = cpus.String()
	n.Configuration = &configuration
	return n
}

// foresight is a plan in the making.
type foresight struct {
	Node
	NodePlan
	before, after start
	// pooled are the CPUs of the pools with which the kubelet runs now; ran is false if they are
	// not known.
	pooled cpuset.CPUSet
	ran    bool
	// sharedBefore and sharedAfter are where ordinary pods run; empty if that is not known.
	sharedBefore, sharedAfter cpuset.CPUSet
	// derived is the CPU manager's checkpoint with which the kubelet starts under the policy static; nil
	// if it is not known.
	derived *partition.Derived
}

// asAdmitted returns pods as their kubelet has them. The mirror of a static pod shows cpu again where its namespace
// refuses pods without it (reported.PartitionedType).
func asAdmitted(pods []v1.Pod) []v1.Pod {
	pods = slices.Clone(pods)
	for i := range pods {
		_, partitioned := reported.PartitionedType(&pods[i])
		if _, shown := partition.PartitionedType(&pods[i]); partitioned && !shown {
			p := pods[i].DeepCopy()
			partition.Mutate(partition.V1(p), partition.Policy{Gate: partition.AnyType, NeverRefuse: true})
			pods[i] = *p
		}
	}
	return pods
}

func (n Node) plan(wanted File) NodePlan {
	n.Pods = asAdmitted(n.Pods)
	f := foresight{Node: n, before: n.start(n.Present), after: n.start(wanted), sharedBefore: cpuset.New(), sharedAfter: cpuset.New()}
	f.NodePlan = NodePlan{Node: n.Name, Before: f.before.state(), After: f.after.state()}
	f.lookBack()
	if f.after.refusal != "" {
		f.add(Problem{Severity: Error, Code: CodeNoStart, Text: f.after.refusal})
		f.finish()
		return f.NodePlan
	}
	if f.Access != nil && f.after.file() {
		f.add(Problem{Severity: Error, Code: CodeNoStart, Text: f.Access.Error()})
	}
	f.unknowns()
	f.driver()
	for _, note := range f.after.notes(n) {
		if !slices.Contains(f.before.notes(n), note) {
			f.add(note)
		}
	}
	f.reserve()
	started := f.checkpoint()
	f.report()
	pods := f.staticPods()
	if started {
		f.move()
		f.leave()
	}
	f.fit(pods)
	f.steps()
	f.finish()
	return f.NodePlan
}

func (p *NodePlan) add(problem Problem) { p.Problems = append(p.Problems, problem) }

func (p *NodePlan) act(kind ActionKind, object, from, to string, pods ...string) {
	p.Actions = append(p.Actions, Action{Kind: kind, Object: object, From: from, To: to, Pods: pods})
}

// finish sorts the problems, and judges. A kubelet that does not start does nothing.
func (p *NodePlan) finish() {
	if slices.ContainsFunc(p.Problems, func(problem Problem) bool { return problem.Code == CodeNoStart }) {
		p.Actions = nil
	}
	order := []Severity{Error, Undecided, Warning, Info}
	slices.SortStableFunc(p.Problems, func(a, b Problem) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
	p.judge()
}

// lookBack finds out with which pools the kubelet runs now.
func (f *foresight) lookBack() {
	if f.before.known && f.before.refusal == "" {
		f.pooled, f.ran = f.before.division.Pooled, true
	}
	if f.Record == nil && !f.NoRecord {
		return
	}
	recorded := cpuset.New()
	if f.Record != nil {
		var err error
		if recorded, err = partition.ParseCPUs(f.Record.ReservedCPUs); err != nil {
			return
		}
	}
	if f.ran && !recorded.Equals(f.pooled) {
		f.add(Problem{Severity: Warning, Code: CodeNotInEffect,
			Text:   fmt.Sprintf("The kubelet was last started with pools of the CPUs %q, and the present file has %q: the kubelet has not read it yet", recorded, f.pooled),
			Remedy: "the moves below start from the pools that the kubelet has recorded"})
	}
	f.pooled, f.ran = recorded, true
}

// runsAsRead reports whether the kubelet runs with the present file.
func (f *foresight) runsAsRead() bool {
	return f.before.known && f.before.refusal == "" && f.pooled.Equals(f.before.division.Pooled)
}

// patched is in the versions of this project's kubelets; others may be patched, too.
const patched = "+wp."

// unknowns adds what is not known about the node.
func (f *foresight) unknowns() {
	if f.Object != nil && f.Boot != "" && f.Object.Status.NodeInfo.BootID != "" && f.Boot != f.Object.Status.NodeInfo.BootID {
		f.add(Problem{Severity: Undecided, Code: CodeAnotherHost,
			Text:   fmt.Sprintf("this host has the boot ID %s, and the Node %s: the files and the pods may be those of two hosts", f.Boot, f.Object.Status.NodeInfo.BootID),
			Remedy: "name the Node of this host; if this is it, its kubelet has not run since the host booted"})
	}
	if !f.after.beyond.IsEmpty() {
		f.add(Problem{Severity: Undecided, Code: CodeOnlineUnknown,
			Text:   fmt.Sprintf("the node has %d CPUs, and the API does not say which: the kubelet does not start if the host has no CPU %s", f.Online.Size(), f.after.beyond),
			Remedy: "give the CPUs of the host, or of all hosts of the group, with --online (/sys/devices/system/cpu/online), or run this on the node with --on-host"})
	}
	if f.Configuration == nil {
		f.add(Problem{Severity: Undecided, Code: CodeConfigUnknown,
			Text:   because("the kubelet's configuration is not known: neither the policy of its CPU manager, nor what it reserves besides the pools", f.ConfigurationDenied),
			Remedy: "give it with --kubelet-config, or run this on the node with --on-host"})
	}
	if f.Object != nil && f.after.file() && len(reported.Types(f.Object)) == 0 && !strings.Contains(f.Object.Status.NodeInfo.KubeletVersion, patched) {
		f.add(Problem{Severity: Warning, Code: CodeUnpatched,
			Text:   fmt.Sprintf("the kubelet's version is %q, without the %s of one that reads the file: if it is not patched, the file does nothing", f.Object.Status.NodeInfo.KubeletVersion, patched),
			Remedy: "install the patched kubelet before you write the file"})
	}
	if settings := f.settings(); f.Object == nil {
		if _, err := f.after.pools.Reserve(&settings, oldestRelease); err != nil { // the newest starts
			f.add(Problem{Severity: Undecided, Code: CodeNodeUnknown, Text: "the kubelet's version is not known, and an older one does not start: " + err.Error(), Remedy: nodeRemedy})
		}
	}
	if f.Changing != "" {
		f.add(Problem{Severity: Undecided, Code: CodeConfigUnknown,
			Text:   "the kubelet's command line changes what its configuration file says, and is not read: " + f.Changing,
			Remedy: "write what the kubelet uses to a file, and give that with --kubelet-config"})
	}
	if !f.ran {
		f.add(Problem{Severity: Info, Code: CodePresentUnknown,
			Text: "the present pools are not known, so this does not say where containers run now", Remedy: "give the present file with --present-file, or run this on the node with --on-host"})
	}
}

// because appends a reason to a sentence, if there is one.
func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + " (" + reason + ")"
}

// reserve compares what is reserved.
func (f *foresight) reserve() {
	capacity := int64(f.Online.Size()) * 1000
	if f.Object != nil {
		capacity = f.Object.Status.Capacity.Cpu().MilliValue()
		allocatable := f.Object.Status.Allocatable.Cpu().MilliValue()
		f.Before.AllocatableMillicores = &allocatable
	} else if f.runsAsRead() && f.Configuration != nil {
		allocatable := capacity - f.before.millicores
		f.Before.AllocatableMillicores = &allocatable
	}
	if f.Configuration == nil {
		return
	}
	allocatable := capacity - f.after.millicores
	f.After.AllocatableMillicores = &allocatable
	if !f.before.known || f.before.refusal != "" {
		return
	}
	if from, to := f.Before.ReservedCPUs, f.After.ReservedCPUs; from != to {
		f.act(Reserve, "reserved CPUs", from, to)
	}
	if f.runsAsRead() && f.before.millicores != f.after.millicores {
		f.act(Reserve, "cpu allocatable", millicores(capacity-f.before.millicores), millicores(allocatable))
	}
	for _, replaced := range f.after.found.Replaced {
		if !slices.Contains(f.before.found.Replaced, replaced) {
			f.act(Replace, replaced, "", f.After.ReservedCPUs)
		}
	}
}

// millicores prints an amount of cpu.
func millicores(amount int64) string { return fmt.Sprintf("%dm", amount) }

// checkpoint foresees what the CPU manager does with its checkpoint. It returns false if the
// kubelet does not start with it.
func (f *foresight) checkpoint() (starts bool) {
	if f.Configuration == nil {
		return true
	}
	if c := f.Checkpoint; c != nil {
		refusal := c.Damaged
		if policy := cmp.Or(f.after.settings.CPUManagerPolicy, "none"); refusal == "" && c.Policy != "" && c.Policy != policy {
			refusal = fmt.Sprintf("configured policy %q differs from state checkpoint policy %q", policy, c.Policy)
		}
		if refusal != "" {
			f.add(Problem{Severity: Error, Code: CodeNoStart, Object: kubeletstate.CheckpointName, Text: "could not restore state from checkpoint: " + refusal,
				Remedy: "drain the node, and delete " + kubeletstate.CheckpointName + " before the kubelet starts"})
			return false
		}
	}
	if !f.after.static() {
		f.sharedBefore, f.sharedAfter = f.unreserved(f.pooled), f.unreserved(f.after.division.Pooled)
		if !f.ran {
			f.sharedBefore = cpuset.New()
		}
		return true
	}
	present, exact := f.assigned()
	if present == nil {
		return true
	}
	if f.sharedBefore = present.Shared; f.sharedBefore.IsEmpty() && f.before.file() && f.runsAsRead() {
		f.sharedBefore = f.before.division.Unshared(f.sharedBefore, exclusiveOf(present))
	}
	if !f.after.file() && !f.ranWithFile() {
		f.sharedAfter = present.Shared // the kubelet does what an unpatched one does
		return true
	}
	f.holders(present)
	starts = f.derive(present)
	if f.Checkpoint == nil && !f.before.known {
		f.sharedBefore = cpuset.New()
	}
	if !exact {
		f.sharedBefore, f.sharedAfter = cpuset.New(), cpuset.New()
	}
	return starts
}

// exclusiveOf returns the CPUs of all assignments.
func exclusiveOf(c *partition.Checkpoint) cpuset.CPUSet {
	exclusive := cpuset.New()
	for _, a := range c.Assignments {
		exclusive = exclusive.Union(a.CPUs)
	}
	return exclusive
}

// unreserved are the CPUs of ordinary pods under the policy none.
func (f *foresight) unreserved(pooled cpuset.CPUSet) cpuset.CPUSet {
	return partition.WithoutIsolated(f.Online.Difference(pooled), f.Isolated)
}

// ranWithFile reports whether a kubelet with a file has left something to take back.
func (f *foresight) ranWithFile() bool { return f.Record != nil || f.before.file() || !f.before.known }

// assigned returns the checkpoint under the policy static; nil if it is not known, and matters. If
// exact is false, it is one without assignments, and there may be some that the change does not
// touch.
func (f *foresight) assigned() (present *partition.Checkpoint, exact bool) {
	started := f.before.known && f.before.refusal == ""
	fresh := &partition.Checkpoint{Shared: f.after.sharable(f.Online)}
	if started {
		fresh.Shared = f.before.sharable(f.Online)
	}
	if f.Checkpoint != nil {
		if f.Checkpoint.IsNew() {
			return fresh, true
		}
		return &f.Checkpoint.Checkpoint, true
	}
	var may []string
	for i := range f.Pods {
		if mayHoldExclusive(&f.Pods[i]) {
			may = append(may, nameOf(&f.Pods[i]))
		}
	}
	if f.Pods != nil && len(may) == 0 {
		return fresh, true
	}
	if started && f.runsAsRead() && f.after.division.Pooled.IsSubsetOf(f.pooled) && (f.after.file() || !f.before.file()) {
		return fresh, false // nothing is taken from any container
	}
	text := "the CPU manager's checkpoint is not known, and neither are the pods: a container may exclusively hold a CPU that the change takes, and would keep the kubelet from starting"
	if len(may) > 0 {
		text = "the API does not show which containers hold which exclusive CPUs. These pods may hold some that the change takes, and would keep the kubelet from starting: " + strings.Join(may, ", ")
	}
	f.add(Problem{Severity: Undecided, Code: CodeExclusiveUnknown, Text: text, Remedy: "give the checkpoint with --checkpoint, or run this on the node with --on-host"})
	return nil, false
}

// holders lists who holds CPUs that are reserved from now on.
func (f *foresight) holders(present *partition.Checkpoint) {
	claimed := f.after.division.Pooled
	if f.after.reservedKnown && f.after.file() {
		claimed = claimed.Union(f.after.reserved)
	}
	for _, a := range present.Assignments {
		wanted := a.CPUs.Intersection(claimed)
		inPool := !a.CPUs.Intersection(f.after.division.Pooled).IsEmpty()
		if wanted.IsEmpty() || (!inPool && f.before.known && wanted.IsSubsetOf(f.before.reserved)) {
			continue
		}
		f.Exclusive = append(f.Exclusive, Exclusive{Pod: f.podName(a.Pod), Container: a.Container, CPUs: a.CPUs.String(), Wanted: wanted.String(), InPool: inPool, Runs: f.runs(a.Pod)})
	}
}

// derive foresees what becomes of the checkpoint.
func (f *foresight) derive(present *partition.Checkpoint) (starts bool) {
	// Pods that may run, and those of which it is known.
	cautious := func(uid string) bool { return f.runs(uid) != No }
	certain := func(uid string) bool { return f.runs(uid) == Yes }
	from := partition.Derivation{Online: f.Online, Reserved: f.after.reserved, Strict: f.after.settings.Strict(), File: f.after.file(), Pooled: f.after.division.Pooled, MayRun: cautious}
	if f.OnlineCounted {
		// It is unknown what is offline.
		for _, a := range present.Assignments {
			from.Online = from.Online.Union(a.CPUs)
		}
	}
	derived, err := present.Derive(from)
	var taken *partition.TakenError
	if errors.As(err, &taken) {
		from.MayRun = certain
		_, certainly := present.Derive(from)
		for _, a := range present.Assignments {
			held := a.CPUs.Intersection(from.Pooled)
			if held.IsEmpty() || f.runs(a.Pod) == No {
				continue
			}
			problem := Problem{Severity: Undecided, Code: CodeExclusiveTaken, Object: f.podName(a.Pod), Text: (&partition.TakenError{Held: partition.Held{Assignment: a, Of: held}}).Message(f.podName(a.Pod))}
			if f.runs(a.Pod) == Yes {
				problem.Severity = Error
			} else {
				problem.Remedy = "it is not known whether a container of the pod runs; if none does, the kubelet starts, and drops what it holds"
			}
			f.add(problem)
		}
		if certainly != nil {
			f.add(Problem{Severity: Error, Code: CodeNoStart, Text: "the kubelet ends at its start, with the error about the exclusive CPUs"})
		}
		return false
	}
	f.tell(derived)
	if f.Checkpoint != nil {
		f.derived = &derived
	}
	f.sharedAfter = derived.Shared
	if f.sharedAfter.IsEmpty() && f.after.file() {
		f.sharedAfter = f.after.division.Unshared(f.sharedBefore, derived.Exclusive)
		if !present.Shared.IsEmpty() && !f.sharedAfter.IsEmpty() {
			f.add(Problem{Severity: Warning, Code: partition.EventNoSharedCPUs,
				Text: fmt.Sprintf("No CPU is left to share: ordinary pods run on CPU %s", f.sharedAfter), Remedy: "leave one CPU more outside the pools, or ask for fewer exclusive CPUs on this node"})
		}
	}
	if !f.after.file() && !f.upstreamStarts(derived) {
		return false
	}
	if !present.Shared.Equals(derived.Shared) {
		f.act(Derive, "shared CPUs", present.Shared.String(), derived.Shared.String())
	}
	return true
}

// tell adds what becomes of assignments.
func (f *foresight) tell(derived partition.Derived) {
	for _, a := range derived.Dropped {
		f.act(Drop, a.Holder(f.podName(a.Pod)), a.CPUs.String(), "")
		if f.Pods == nil {
			f.add(Problem{Severity: Undecided, Code: CodeExclusiveTaken, Object: f.podName(a.Pod),
				Text:   fmt.Sprintf("%s has no running container, and loses its exclusive CPUs %s; it is not known whether the pod has ended", a.Holder(f.podName(a.Pod)), a.CPUs),
				Remedy: "give the node's pods with --pods"})
		}
		if p := f.pod(a.Pod); p != nil && !ended(p) {
			f.add(Problem{Severity: Error, Code: CodeExclusiveTaken, Object: nameOf(p),
				Text: fmt.Sprintf("%s does not run, and loses its exclusive CPUs %s; it gets others when it is admitted again, if enough are left", a.Holder(nameOf(p)), a.CPUs)})
		}
	}
	for _, held := range derived.Offline {
		f.add(Problem{Severity: Warning, Code: partition.EventCPUOffline, Object: f.podName(held.Pod),
			Text: fmt.Sprintf("CPU %s, which %s holds exclusively, is offline", held.Of, held.Holder(f.podName(held.Pod))), Remedy: "bring it online, or delete the pod"})
	}
	for _, held := range derived.Reserved {
		if f.after.reservedKnown && !(f.before.known && held.Of.IsSubsetOf(f.before.reserved)) {
			f.act(Keep, held.Holder(f.podName(held.Pod)), held.CPUs.String(), held.CPUs.String(), f.podName(held.Pod))
		}
	}
}

// upstreamStarts foresees whether upstream takes the checkpoint for damaged once the file has
// gone: it shares reserved CPUs, and cannot share one that a container holds
// (pkg/kubelet/cm/cpumanager/policy_static.go, validateState). Of a checkpoint that is untenable
// upstream is not asked (managed, StartPolicy).
func (f *foresight) upstreamStarts(derived partition.Derived) bool {
	held := derived.Exclusive.Intersection(f.after.reserved)
	switch {
	case derived.Untenable:
	case !f.after.reservedKnown && !derived.Exclusive.IsEmpty():
		f.add(Problem{Severity: Undecided, Code: CodeReservedUnknown,
			Text:   fmt.Sprintf("without a file, the kubelet chooses the CPUs of the reserved %s by itself, and does not start if a container exclusively holds one of them; held are %s", millicores(f.after.millicores), derived.Exclusive),
			Remedy: "in reservedSystemCPUs, name CPUs that no container holds exclusively"})
	case !held.IsEmpty():
		f.add(Problem{Severity: Error, Code: CodeNoStart, Object: kubeletstate.CheckpointName,
			Text:   fmt.Sprintf("invalid state, please drain node and remove policy state file: not all reserved cpus: %q are present in defaultCpuSet: %q", f.after.reserved, derived.Shared),
			Remedy: "delete the pods that hold these CPUs before the file goes, or reserve other CPUs in reservedSystemCPUs"})
		return false
	}
	return true
}

// report compares the types of the node.
func (f *foresight) report() {
	had, known := f.types()
	if !known {
		return
	}
	cores := fmt.Sprint(f.Online.Size() * 1000)
	for _, workloadType := range f.after.read.Types() {
		if !slices.Contains(had, workloadType) {
			f.act(Report, partition.CoresResource(workloadType), "", cores)
		}
	}
	for _, workloadType := range had {
		if _, has := f.after.read[workloadType]; !has {
			f.act(Report, partition.CoresResource(workloadType), cores, "")
		}
	}
}

// types returns the types that the node has now, in alphabetical order.
func (f *foresight) types() (types []string, known bool) {
	if f.before.known && f.before.refusal == "" {
		return f.before.read.Types(), true
	}
	if f.Object == nil {
		return nil, false
	}
	return reported.Types(f.Object), true
}

// staticPods foresees which static pods become partitioned or ordinary, and returns all pods as
// the kubelet will admit them.
func (f *foresight) staticPods() (pods []v1.Pod) {
	var restarted []string
	for i := range f.Pods {
		p := &f.Pods[i]
		if !readmission.IsStatic(p) {
			pods = append(pods, *p)
			continue
		}
		q, decision := f.reread(p)
		was, _ := partition.PartitionedType(p)
		is, _ := partition.PartitionedType(q)
		if was == is {
			q = p
		} else {
			restarted = append(restarted, nameOf(p))
		}
		if message := decision.Message(); decision.Outcome == partition.Skipped && message != "" && message != p.Annotations[partition.WarningAnnotation] {
			f.add(Problem{Severity: Warning, Code: partition.EventStaticPodNotPartitioned, Object: nameOf(p), Text: message})
		}
		pods = append(pods, *q)
	}
	if len(restarted) > 0 {
		f.act(Restart, "static pods", "", "", restarted...)
		f.add(Problem{Severity: Info, Code: CodeStaticRestart,
			Text: "static pods that ask for a type restart when their type comes or goes, since the kubelet reads their manifests differently then: " + strings.Join(restarted, ", ")})
	}
	return pods
}

// reread returns a static pod as the kubelet makes it of its manifest next (managed,
// PartitionStaticPod), as far as its mirror shows what the manifest says.
func (f *foresight) reread(p *v1.Pod) (*v1.Pod, partition.Decision) {
	q := p.DeepCopy()
	q.Status = v1.PodStatus{QOSClass: p.Status.QOSClass}
	if decision, warned := partition.ParseMessage(q.Annotations[partition.WarningAnnotation]); warned && decision.Target.Type != "" {
		delete(q.Annotations, partition.WarningAnnotation)
		q.Annotations[partition.TargetAnnotation(decision.Target.Type)] = decision.Target.AnnotationValue()
	}
	if f.after.file() {
		return q, partition.Mutate(partition.V1(q), partition.Policy{Gate: f.after.read.Gate, NeverRefuse: true})
	}
	if _, partitioned := partition.PartitionedType(q); partitioned {
		partition.RestoreCPU(partition.V1(q))
		maps.DeleteFunc(q.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, partition.ResourcesPrefix) })
	}
	return q, partition.Decision{}
}

// ordinaryPods is the object of actions on pods in no partition.
const ordinaryPods = "ordinary pods"

// move foresees which containers get other CPUs.
func (f *foresight) move() {
	if f.Configuration == nil {
		return
	}
	f.Before.SharedCPUs, f.After.SharedCPUs = f.sharedBefore.String(), f.sharedAfter.String()
	type group struct{ object, from, to string }
	groups := map[group][]string{}
	add := func(object string, from, to cpuset.CPUSet, pods ...string) {
		if !from.Equals(to) && !to.IsEmpty() {
			key := group{object, from.String(), to.String()}
			groups[key] = append(groups[key], pods...)
		}
	}
	kind := Move
	if f.ran && !f.pooled.IsEmpty() && !f.after.confines() {
		kind = Free
	}
	if f.Pods == nil {
		add(ordinaryPods, f.sharedBefore, f.sharedAfter)
		types, _ := f.types()
		types = slices.Compact(slices.Sorted(slices.Values(append(types, f.after.read.Types()...))))
		for _, workloadType := range types {
			from, to := f.places(workloadType)
			add("pods of type "+workloadType, from, to)
		}
	}
	for i := range f.Pods {
		p := &f.Pods[i]
		if ended(p) || f.exclusive(p) {
			continue
		}
		object, workloadType := ordinaryPods, ""
		if is, partitioned := partition.PartitionedType(p); partitioned {
			object, workloadType = "pods of type "+is, is
		}
		if readmission.IsStatic(p) {
			q, _ := f.reread(p)
			if is, _ := partition.PartitionedType(q); is != workloadType {
				continue // it is started again
			}
		}
		from, to := f.places(workloadType)
		add(object, from, to, nameOf(p))
	}
	for _, key := range slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.from, b.from))
	}) {
		f.act(kind, key.object, key.from, key.to, groups[key]...)
	}
}

// places returns where shared containers of a type run before and after; of ordinary pods, if
// the type is empty.
func (f *foresight) places(workloadType string) (from, to cpuset.CPUSet) {
	from, to = f.sharedBefore, f.sharedAfter
	if workloadType == "" {
		return from, to
	}
	if pool := f.before.pools[workloadType]; !f.runsAsRead() {
		from = cpuset.New()
	} else if !pool.IsEmpty() {
		from = pool
	}
	if pool := f.after.pools[workloadType]; !pool.IsEmpty() {
		to = pool
	}
	return from, to
}

// exclusive reports whether every container of a pod, or the pod as a whole, has exclusive CPUs.
func (f *foresight) exclusive(p *v1.Pod) bool {
	if f.Checkpoint == nil {
		return false
	}
	holds := map[string]bool{}
	for _, a := range f.Checkpoint.Assignments {
		if a.Pod == readmission.UID(p) {
			holds[a.Container] = true
		}
	}
	return holds[""] || (len(holds) > 0 && !slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return !holds[c.Name] }))
}

// leave adds what it means that types or the file go.
func (f *foresight) leave() {
	if !f.after.file() && f.ranWithFile() && (f.before.known || f.Record != nil) {
		f.add(Problem{Severity: Warning, Code: partition.EventFileMissing, Text: "Without the file nothing is confined any more, and the node reports no cores: pods that ask for them do not come here"})
		return
	}
	had, _ := f.types()
	for _, workloadType := range had {
		if _, stays := f.after.read[workloadType]; stays {
			continue
		}
		var pods []string
		for i := range f.Pods {
			if is, _ := partition.PartitionedType(&f.Pods[i]); is == workloadType && !readmission.IsStatic(&f.Pods[i]) {
				pods = append(pods, nameOf(&f.Pods[i]))
			}
		}
		text := fmt.Sprintf("the node no longer has the type %s: pods that ask for its cores do not come here, and those that run here are no longer confined", workloadType)
		if len(pods) > 0 {
			text += ": " + strings.Join(pods, ", ")
		}
		f.add(Problem{Severity: Warning, Code: CodeTypeGoes, Object: workloadType, Text: text})
	}
}
