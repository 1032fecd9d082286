// SPDX-License-Identifier: Apache-2.0

// Package plan predicts what a kubelet does at its next start with another pinning file: whether
// it starts at all, which containers move, which pods fall out, and whose exclusive CPUs keep it
// from starting.
//
// It reads what a node has (files or API objects, see [Node]) and decides nothing itself: the
// core decides as it does for the kubelet (partition.Pools.Reserve, Divide,
// partition.Checkpoint.Derive, partition.Mutate). Only the admission of pods is upstream's: package
// readmission foresees it. The package changes nothing, and prints nothing.
package plan

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/node/result"
)

// Plan is what becomes of nodes when their pinning file changes and their kubelets start again.
type Plan struct {
	metav1.TypeMeta `json:",inline"`
	// Verdict is the worst of the nodes' verdicts.
	Verdict Verdict    `json:"verdict"`
	Nodes   []NodePlan `json:"nodes"`
}

// Verdict says whether a change is safe.
type Verdict string

const (
	// Safe: the kubelet starts, and no pod falls out or loses exclusive CPUs.
	Safe Verdict = "Safe"
	// Unsafe: one of these is not so. It wins over Unknown.
	Unsafe Verdict = "Unsafe"
	// Unknown: what is known of the node does not suffice to decide.
	Unknown Verdict = "Unknown"
)

// NodePlan is what becomes of one node.
type NodePlan struct {
	// Node is its name; empty if the input does not name it.
	Node    string  `json:"node,omitempty"`
	Verdict Verdict `json:"verdict"`
	Before  State   `json:"before"`
	After   State   `json:"after"`
	// Exclusive are the exclusive CPUs that the change wants to reserve.
	Exclusive []Exclusive `json:"exclusive,omitempty"`
	// Actions are what the kubelet does besides starting, in order. There are none if nothing
	// changes.
	Actions  []Action  `json:"actions,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	// Steps are the order in which to go about the change, if it is not safe as it is.
	Steps []string `json:"steps,omitempty"`
}

// State is what a kubelet makes of a pinning file.
type State struct {
	// Pools are the pools by workload type, as CPU lists. They are absent without a file, or if
	// nothing is known of it.
	Pools map[string]string `json:"pools,omitempty"`
	// ReservedCPUs are reservedSystemCPUs, those of pools included.
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
	// SharedCPUs are those on which ordinary pods run.
	SharedCPUs string `json:"sharedCPUs,omitempty"`
	// AllocatableMillicores is the node's cpu allocatable; nil if it is not known.
	AllocatableMillicores *int64 `json:"allocatableMillicores,omitempty"`
}

// Exclusive is a container, or a whole pod, that holds exclusive CPUs.
type Exclusive struct {
	// Pod is namespace/name, or only the UID if that is all that is known.
	Pod string `json:"pod"`
	// Container is empty if the pod holds them as a whole.
	Container string `json:"container,omitempty"`
	CPUs      string `json:"cpus"`
	// Wanted are those of them that a pool or the reserved CPUs take.
	Wanted string `json:"wanted"`
	// InPool means that a pool wants them. If it is false, the container keeps them.
	InPool bool `json:"inPool"`
	// Runs says whether a container of the pod runs.
	Runs Answer `json:"runs"`
}

// Answer is the answer to a question that may have none.
type Answer string

// The answers.
const (
	Yes   Answer = "Yes"
	No    Answer = "No"
	Maybe Answer = "Unknown"
)

// Action is something that a kubelet does at its start.
type Action struct {
	Kind ActionKind `json:"kind"`
	// Object is what it is done to: "ordinary pods", say.
	Object string `json:"object"`
	// From and To are CPU lists or amounts; empty where they are not known or do not apply.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Pods are namespace/name of those concerned, if they are known.
	Pods []string `json:"pods,omitempty"`
}

// ActionKind is what is done.
type ActionKind string

// The kinds of actions.
const (
	// Reserve: the reserved CPUs change, and cpu allocatable with them.
	Reserve ActionKind = "Reserve"
	// Replace: the pools replace a reserved amount of CPU.
	Replace ActionKind = "Replace"
	// Derive: the shared CPUs in the CPU manager's checkpoint change.
	Derive ActionKind = "Derive"
	// Drop: an assignment of a pod that does not run is removed from the checkpoint.
	Drop ActionKind = "Drop"
	// Move: containers get other CPUs.
	Move ActionKind = "Move"
	// Free: containers that earlier pools confined get all CPUs.
	Free ActionKind = "Free"
	// Keep: a container keeps exclusive CPUs that are reserved from now on, until it ends.
	Keep ActionKind = "Keep"
	// Restart: static pods end and start in their other form.
	Restart ActionKind = "Restart"
	// Report: the node reports another amount of a cores resource.
	Report ActionKind = "Report"
)

// Problem is something that the operator should know before the change.
type Problem struct {
	Severity Severity `json:"severity"`
	// Code is one word. Where the kubelet sends an Event about it, it is the Event's reason.
	Code string `json:"code"`
	// Object is what has the problem: a pod, or empty for the node.
	Object string `json:"object,omitempty"`
	// Text says what happens; Remedy, if anything, what to do about it.
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

// Severity says what a problem means for the verdict.
type Severity string

const (
	// Error makes a change unsafe.
	Error Severity = "Error"
	// Undecided makes it unknown whether a change is safe.
	Undecided Severity = "Unknown"
	// Warning and Info do not count for the verdict.
	Warning Severity = "Warning"
	Info    Severity = "Info"
)

// Codes of problems for which there is no Event.
const (
	CodeNoStart          = "KubeletDoesNotStart"
	CodeExclusiveTaken   = "ExclusiveCPUsTaken"
	CodeExclusiveUnknown = "ExclusiveCPUsUnknown"
	CodeFallsOut         = "PodFallsOut"
	CodePreempted        = "PodPreempted"
	CodeNodeDiffers      = "NodeNoLongerMatches"
	CodeNodeUnknown      = "NodeUnknown"
	CodePodsUnknown      = "PodsUnknown"
	CodeReservedUnknown  = "ReservedCPUsUnknown"
	CodeOnlineUnknown    = "OnlineCPUsUnknown"
	CodeConfigUnknown    = "KubeletConfigurationUnknown"
	CodePresentUnknown   = "PresentPoolsUnknown"
	CodeAnotherHost      = "NodeOfAnotherHost"
	CodeNotInEffect      = "PresentFileNotInEffect"
	CodeTypeGoes         = "TypeGoes"
	CodeStaticRestart    = "StaticPodsRestart"
	CodeUnpatched        = "KubeletUnpatched"
	CodeDriverOffers     = "DRADriverOffersPools"
	CodeDriverUnknown    = "DRADriverUnknown"
)

// New returns the plan of nodes that have been planned.
func New(nodes []NodePlan) Plan {
	p := Plan{TypeMeta: result.TypeMeta("Plan"), Verdict: Safe, Nodes: nodes}
	for _, node := range nodes {
		if node.Verdict == Unsafe || p.Verdict == Safe {
			p.Verdict = node.Verdict
		}
	}
	return p
}

// judge sets the verdict.
func (p *NodePlan) judge() {
	has := func(severity Severity) bool {
		return slices.ContainsFunc(p.Problems, func(problem Problem) bool { return problem.Severity == severity })
	}
	switch {
	case has(Error):
		p.Verdict = Unsafe
	case has(Undecided):
		p.Verdict = Unknown
	default:
		p.Verdict = Safe
	}
}
