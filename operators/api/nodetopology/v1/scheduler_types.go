// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NUMAResourcesScheduler has a second scheduler run, which places pods by what the NUMA nodes of each node have. Pods ask for it
// in spec.schedulerName. There is one in a cluster, and its name is numaresourcesscheduler.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=numaresourcesschedulers,shortName=numaressched
// +kubebuilder:printcolumn:name="Scheduler",type=string,JSONPath=".status.schedulerName"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=".status.conditions[?(@.type=='Available')].status"
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=".status.conditions[?(@.type=='Degraded')].status"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'numaresourcesscheduler'",message="metadata.name must be numaresourcesscheduler: there is one in a cluster"
type NUMAResourcesScheduler struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec NUMAResourcesSchedulerSpec `json:"spec,omitempty"`
	// +optional
	Status NUMAResourcesSchedulerStatus `json:"status,omitempty"`
}

// NUMAResourcesSchedulerName is the name of the only NUMAResourcesScheduler.
const NUMAResourcesSchedulerName = "numaresourcesscheduler"

// NUMAResourcesSchedulerList is a list of them.
//
// +kubebuilder:object:root=true
type NUMAResourcesSchedulerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NUMAResourcesScheduler `json:"items"`
}

// ScoringStrategyType says which of the nodes that fit is best.
//
// +kubebuilder:validation:Enum=LeastAllocated;BalancedAllocation;LeastNUMANodes;MostAllocated
type ScoringStrategyType string

// UnknownNodes says whether pods that need alignment get to nodes of which too little is known.
//
// +kubebuilder:validation:Enum=Filter;Allow
type UnknownNodes string

// LogLevel says how much the scheduler logs.
//
// +kubebuilder:validation:Enum=Normal;Debug;Trace;TraceAll
type LogLevel string

// The values of these fields.
const (
	ScoringLeastAllocated     ScoringStrategyType = "LeastAllocated"
	ScoringBalancedAllocation ScoringStrategyType = "BalancedAllocation"
	ScoringLeastNUMANodes     ScoringStrategyType = "LeastNUMANodes"
	ScoringMostAllocated      ScoringStrategyType = "MostAllocated"

	UnknownNodesFilter UnknownNodes = "Filter"
	UnknownNodesAllow  UnknownNodes = "Allow"

	LogNormal   LogLevel = "Normal"
	LogDebug    LogLevel = "Debug"
	LogTrace    LogLevel = "Trace"
	LogTraceAll LogLevel = "TraceAll"
)

// NUMAResourcesSchedulerSpec says how the scheduler runs.
type NUMAResourcesSchedulerSpec struct {
	// schedulerName is what pods ask for.
	//
	// +optional
	// +kubebuilder:default=topo-aware-scheduler
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="self != 'default-scheduler'",message="is the name of the cluster's own scheduler, whose pods both would place"
	SchedulerName string `json:"schedulerName,omitempty"`
	// replicas is how many pods of the scheduler there are, of which one works. Without it there is one where the cluster has one
	// or two workers, and there are three where it has more. A worker is a Node that is ready and schedulable, and has no label
	// node-role.kubernetes.io/control-plane.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	Replicas *int32 `json:"replicas,omitempty"`
	// unknownNodes says what becomes of pods that need alignment, on nodes that have no report, an old one, or one that does not say how
	// the kubelet runs: Filter keeps them away, Allow places them there.
	//
	// +optional
	// +kubebuilder:default=Filter
	UnknownNodes UnknownNodes `json:"unknownNodes,omitempty"`
	// scoringStrategy says which of the nodes that fit is best.
	//
	// +optional
	ScoringStrategy *ScoringStrategy `json:"scoringStrategy,omitempty"`
	// logLevel is how much the scheduler logs.
	//
	// +optional
	// +kubebuilder:default=Normal
	LogLevel LogLevel `json:"logLevel,omitempty"`
}

// ScoringStrategy says which of the nodes that fit is best.
type ScoringStrategy struct {
	// type is the strategy.
	//
	// +optional
	// +kubebuilder:default=LeastAllocated
	Type ScoringStrategyType `json:"type,omitempty"`
	// resources are those that count. Without them cpu and memory do, alike.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Resources []ScoredResource `json:"resources,omitempty"`
}

// ScoredResource is a resource, and how much it counts beside others.
type ScoredResource struct {
	// name is the resource's.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Name string `json:"name"`
	// weight is from 1 to 100.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int64 `json:"weight,omitempty"`
}

// NUMAResourcesSchedulerStatus says what has become of the scheduler.
type NUMAResourcesSchedulerStatus struct {
	// observedGeneration is the generation of the spec that the rest is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// deployment is the scheduler's.
	//
	// +optional
	Deployment NamespacedName `json:"deployment,omitempty"`
	// schedulerName is what pods ask for.
	//
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// conditions are Available, Progressing, Degraded and Paused.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
