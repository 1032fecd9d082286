// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"

	"workload.openshift.io/partition"
)

// Level says how bad a finding is.
type Level string

const (
	// Error: kube-apiserver refuses the object or its pods.
	Error Level = "error"
	// Warning: something is not as its author wants it.
	Warning Level = "warning"
	// Note: something is worth knowing, and need not be wrong. A report with nothing else is clean.
	Note Level = "note"
)

// Rule is a row of the catalogue of what lint finds.
type Rule struct {
	// ID is stable. For what keeps a pod from being partitioned it is the core's reason.
	ID string `json:"id"`
	// Condition says when the rule holds: a clause, in Markdown.
	Condition string `json:"condition"`
	// Remedy says what to do: a sentence. It is empty where the finding's message says it.
	Remedy string `json:"remedy,omitempty"`
	// Fixable: some findings of the rule can be corrected by writing an annotation.
	Fixable bool `json:"fixable,omitempty"`
}

// The rules that the core does not have.
const (
	targetMissing        = "target_missing"
	severalTypes         = "several_types"
	staleAnnotation      = "stale_annotation"
	misplacedAnnotation  = "misplaced_annotation"
	unknownAnnotation    = "unknown_annotation"
	notAString           = "annotation_not_a_string"
	invalidAllowed       = "invalid_allowed"
	overwritten          = "annotation_overwritten"
	requestLost          = "request_lost"
	quotaWithoutCores    = "quota_without_cores"
	hpaCPUUtilization    = "hpa_cpu_utilization"
	vpaCPU               = "vpa_cpu"
	kedaCPUUtilization   = "keda_cpu_utilization"
	exceedsPool          = "exceeds_pool"
	allowedUnbounded     = "allowed_without_quota"
	staticPodHardEffect  = "static_pod_hard_effect"
	noPlugin             = "no_plugin"
	idleForRuntime       = "runtime_annotation_idle"
	driverReserves       = "driver_reserves_others"
	isolatedPool         = "pool_isolated"
	splitPool            = "pool_splits_core"
	unusedIgnore         = "unused_ignore"
	namespaceUnannotated = string(partition.ReasonNamespaceNotAnnotated)
)

var ownRules = []Rule{
	{ID: targetMissing, Condition: "a workload that must ask for a type (`--require`) does not", Remedy: "Annotate the pod template.", Fixable: true},
	{ID: severalTypes, Condition: "a pod asks for more than one type", Remedy: "Keep one target annotation."},
	{ID: staleAnnotation, Condition: "an annotation has the form of an early draft, such as `workload.openshift.io/management` on a pod, and does nothing", Remedy: "Rename it.", Fixable: true},
	{ID: misplacedAnnotation, Condition: "a target annotation is not on a pod or pod template, or an allowed annotation is not on a namespace", Remedy: "Move it."},
	{ID: unknownAnnotation, Condition: "an annotation of the domain workload.openshift.io does not exist, and does nothing", Remedy: "Correct its spelling or remove it."},
	{ID: notAString, Condition: "the value of one of our annotations is not a string: Kubernetes refuses the object", Remedy: "Put the value in quotes."},
	{ID: invalidAllowed, Condition: "an allowed annotation lists a name that no workload type can have", Remedy: "Correct the name."},
	{ID: overwritten, Condition: "a manifest has a resources or warning annotation, which admission overwrites or removes", Remedy: "Remove it: a pod never chooses its own CPUs."},
	{ID: requestLost, Condition: "a container has `cpu`, or cores of another type, besides its cores: only the cores of the pod's type count", Remedy: "Write the `cpu` that the container needs, and no cores."},
	{ID: quotaWithoutCores, Condition: "a ResourceQuota bounds `cpu` in a namespace that allows a type: it does not bound partitioned pods or, with `limits.cpu`, keeps pods from being partitioned", Remedy: "Bound the type's cores as well; in place of `limits.cpu`, bound only them."},
	{ID: hpaCPUUtilization, Condition: "a HorizontalPodAutoscaler scales a partitioned workload by the utilisation of `cpu`, which is relative to a request that its pods do not have", Remedy: "Scale by memory, by a custom metric, or by an AverageValue of `cpu`."},
	{ID: vpaCPU, Condition: "a VerticalPodAutoscaler controls the `cpu` of a partitioned workload, which has no effect; unless its updateMode is `Initial`, it would also evict the pods again and again", Remedy: "Set controlledResources to [memory]."},
	{ID: kedaCPUUtilization, Condition: "a ScaledObject of KEDA has a trigger `cpu` of the type `Utilization` for a partitioned workload: KEDA makes a HorizontalPodAutoscaler of it, which never scales by it", Remedy: "Use a trigger of the type `AverageValue`, or another one."},
	{ID: exceedsPool, Condition: "a pod requests more of a type's cores than its pool has CPUs (`--pool-cpus`), and its weight takes CPU time from the other pods there", Remedy: "Request less."},
	{ID: allowedUnbounded, Condition: "a namespace allows a type, and no ResourceQuota there bounds the type's cores: its pods may request all cores of a node, and thereby as much weight", Remedy: "Bound `requests.TYPE.workload.openshift.io/cores` by a ResourceQuota."},
	{ID: staticPodHardEffect, Condition: "a static pod has the effect `RequiredDuringScheduling`, which refuses no static pod", Remedy: "Watch the Event StaticPodNotPartitioned instead."},
	{ID: noPlugin, Condition: "a pod of a cluster asks, and kube-apiserver has no admission plugin (`--live`)", Remedy: "Run a kube-apiserver with the plugin, and create the pod again."},
	{ID: idleForRuntime, Condition: "an annotation of CRI-O for low latency, such as `irq-load-balancing.crio.io`, does nothing for such a pod", Remedy: "Remove it, or give the pod what the message names."},
	{ID: driverReserves, Condition: "the DRA driver `dra.cpu` reserves other CPUs than those of the pools (`--pools`)", Remedy: "Set its `reservedCPUs` to the CPUs of the pools."},
	{ID: isolatedPool, Condition: "a kernel argument `isolcpus` has CPUs of the pools (`--pools`), or a pool has CPUs that this host isolates (`--from-node`): the kernel balances no load there", Remedy: "Isolate other CPUs."},
	{ID: splitPool, Condition: "a pool has a part of a physical core or of a socket, and those of this host (`--from-node`) have different numbers of CPUs: before v1.38, the static policy of the CPU manager may give the pool's CPU away", Remedy: "Give the pools whole cores."},
	{ID: unusedIgnore, Condition: "an entry of the ignore file matches no finding", Remedy: "Remove the entry."},
}

// Rules returns the catalogue: what keeps pods from being partitioned, in the order of the
// core's table, and then what else lint finds.
func Rules() []Rule {
	var rules []Rule
	for _, rule := range partition.Rules() {
		// A decision that a webhook changes afterwards shows in no manifest.
		if rule.Reason == partition.ReasonChangedLater {
			continue
		}
		rules = append(rules, Rule{ID: string(rule.Reason), Condition: rule.Condition, Fixable: rule.Reason == partition.ReasonNamespaceNotAnnotated})
	}
	return append(rules, ownRules...)
}

func knownRule(id string) bool {
	return slices.ContainsFunc(Rules(), func(r Rule) bool { return r.ID == id })
}
