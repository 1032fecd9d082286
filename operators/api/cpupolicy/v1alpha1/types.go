// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// CPUManagerPolicy gives the nodes of a group one policy of the kubelet's CPU manager, a few nodes
// at a time, and brings back a node that was installed again. A node is in one group at most.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cpupol
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=".spec.policy"
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=".status.nodes"
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=".status.updatedNodes"
// +kubebuilder:printcolumn:name="Updating",type=integer,JSONPath=".status.updatingNodes"
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=".status.failedNodes"
// +kubebuilder:printcolumn:name="Paused",type=string,JSONPath=".status.conditions[?(@.type=='Paused')].status",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 247",message="metadata.name must have at most 247 characters: it is part of the name of a Lease"
type CPUManagerPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CPUManagerPolicySpec `json:"spec"`
	// +optional
	Status CPUManagerPolicyStatus `json:"status,omitempty"`
}

// Policy is a policy of the kubelet's CPU manager.
//
// +kubebuilder:validation:Enum=none;static
type Policy string

const (
	// PolicyNone lets all containers share all CPUs.
	PolicyNone Policy = "none"
	// PolicyStatic gives containers of Guaranteed pods that ask for whole CPUs their own.
	PolicyStatic Policy = "static"
)

// CPUManagerPolicySpec is what the nodes of a group are to be like.
//
// +kubebuilder:validation:XValidation:rule="!has(self.drain) || self.cordon",message="drain needs cordon: true; otherwise new pods come while the old ones go"
type CPUManagerPolicySpec struct {
	// nodes says which nodes are in the group.
	// +required
	Nodes NodeSelection `json:"nodes"`
	// policy is what the CPU manager of these nodes runs with: none or static.
	// +required
	Policy Policy `json:"policy"`
	// maxUnavailable is how many nodes of the group may be unavailable because of this: a number
	// from 1 to 100000, or a percentage from 1% to 100%, rounded up. A node that has failed with this spec
	// once its kubelet had been stopped counts as well, so that what breaks nodes stops.
	// +optional
	// +default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 100000 : self.matches('^([1-9][0-9]?|100)%$')",message="must be a number from 1 to 100000, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// cordon keeps new pods from a node while its policy is switched.
	// +optional
	// +default=false
	Cordon bool `json:"cordon,omitempty"`
	// drain evicts a node's pods before its policy is switched, as far as their disruption budgets
	// allow. Pods of DaemonSets and static pods stay.
	// +optional
	Drain *Drain `json:"drain,omitempty"`
}

// NodeSelection names nodes, or selects them by labels.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) != has(self.selector)",message="must have exactly one of names and selector"
type NodeSelection struct {
	// names are those of nodes. A node that does not exist yet is in the group once it does.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Names []string `json:"names,omitempty"`
	// selector matches the labels of nodes. One without any requirement matches all nodes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="matchExpressions: operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="matchExpressions: In and NotIn need values, and Exists and DoesNotExist must have none"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Drain says how a node's pods are evicted.
type Drain struct {
	// timeout is how long pods may take to go. After that the switch fails, and the node is
	// uncordoned as it is. It is at most the controller's settings.operationTimeout less its
	// switchTimeout and labelTimeout, 52m30s by default; the condition Degraded says if it is
	// longer.
	// +optional
	// +default="15m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than 0s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Conditions of a CPUManagerPolicy.
const (
	// ConditionPaused is true while the annotation workload.openshift.io/paused is there: nothing
	// new begins, and what has begun ends.
	ConditionPaused = "Paused"
	// ConditionProgressing is true while nodes are switched.
	ConditionProgressing = "Progressing"
	// ConditionAvailable is true while all nodes of the group run with the policy.
	ConditionAvailable = "Available"
	// ConditionDegraded is true if a node could not be switched, or is in two groups, or if a field
	// of the spec does not hold.
	ConditionDegraded = "Degraded"
)

// CPUManagerPolicyStatus is what was observed of the group.
type CPUManagerPolicyStatus struct {
	// observedGeneration is the generation of the spec that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// nodes is how many nodes are in the group.
	// +optional
	Nodes int32 `json:"nodes"`
	// updatedNodes is how many of them run with the policy, as their checkpoints say.
	// +optional
	UpdatedNodes int32 `json:"updatedNodes"`
	// updatingNodes is how many of them are being switched.
	// +optional
	UpdatingNodes int32 `json:"updatingNodes"`
	// failedNodes is how many of them could not be switched.
	// +optional
	FailedNodes int32 `json:"failedNodes"`
	// unavailableNodes is how many of them are not Ready, or are cordoned. They count against
	// maxUnavailable.
	// +optional
	UnavailableNodes int32 `json:"unavailableNodes"`
	// conditions are Paused, Progressing, Available and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CPUManagerPolicyList is a list of CPUManagerPolicies.
//
// +kubebuilder:object:root=true
type CPUManagerPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CPUManagerPolicy `json:"items"`
}
