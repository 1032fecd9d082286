// SPDX-License-Identifier: Apache-2.0

package workloadclasses

// Keys that openshift/ci-tools knows (cmd/ci-scheduling-webhook).
const (
	// ClassLabel of a pod is its class. Nodes usually have the same; a class's nodeSelector says.
	ClassLabel = "ci-workload"
	// NamespaceLabel of a pod is its namespace.
	NamespaceLabel = "ci-workload-namespace"
	// AvoidTaint is the key of the taint of nodes that new pods avoid, effect PreferNoSchedule.
	AvoidTaint = "ci-workload-avoid"
	// EvictTaint is the key of the taint of nodes that are given back, effect NoExecute.
	EvictTaint = "ci-workload-evict"
	// PrecludeAnnotation of a node says that no new pod of its class lands there: the webhook
	// writes that into their node affinity. Its value is the class.
	PrecludeAnnotation = "ci-workload-preclude"
	// KeepAnnotation, or a label of that key, keeps a node from being given back or avoided. Its
	// value has no meaning.
	KeepAnnotation = "ci-scheduling.ci.openshift.io/keep-node"
)

// Keys of this companion.
const (
	// BlockTaint takes the place of a cordon after Timing.MaxCordon, effect NoSchedule. The
	// cluster autoscaler leaves keys with this prefix out of its template of new nodes
	// (autoscaler, cluster-autoscaler/utils/taints/taints.go), so that a class without nodes still scales up.
	BlockTaint = "status-taint.cluster-autoscaler.kubernetes.io/ci-workload-avoid"
	// StateAnnotation of a node is its Record.
	StateAnnotation = "workloadclasses.workload.openshift.io/state"
	// OperationAnnotation of a node, and of its Machine, is the Operation that gives it back.
	OperationAnnotation = "workloadclasses.workload.openshift.io/operation"
	// PrecludedAnnotation of a pod names the node that its affinity precludes.
	PrecludedAnnotation = "workloadclasses.workload.openshift.io/precluded"
	// RuleAnnotation of a pod names the rule that gave it its class.
	RuleAnnotation = "workloadclasses.workload.openshift.io/rule"
	// ScaleDownDisabledAnnotation of a node keeps the cluster autoscaler from removing it
	// (autoscaler, cluster-autoscaler/core/scaledown/eligibility).
	ScaleDownDisabledAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// SafeToEvictAnnotation of a pod with the value true says that it holds no node.
	SafeToEvictAnnotation = "cluster-autoscaler.kubernetes.io/safe-to-evict"
)
