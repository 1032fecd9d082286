// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodePool is a set of a hosted cluster's nodes that have one configuration. It is an object of the management cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=np;nps
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=".spec.clusterName"
// +kubebuilder:printcolumn:name="ValidTuningConfig",type=string,JSONPath=".status.conditions[?(@.type=='ValidTuningConfig')].status"
// +kubebuilder:printcolumn:name="ValidMachineConfig",type=string,JSONPath=".status.conditions[?(@.type=='ValidMachineConfig')].status"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.conditions[?(@.status=='False')].message",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type NodePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NodePoolSpec `json:"spec"`
	// +optional
	Status NodePoolStatus `json:"status,omitempty"`
}

// NodePoolSpec is what the nodes of a pool are to be like.
//
// +kubebuilder:validation:XValidation:rule="self.clusterName == oldSelf.clusterName",message="spec.clusterName is immutable: a pool's nodes are those of one hosted cluster"
type NodePoolSpec struct {
	// clusterName names the hosted cluster. Its control-plane namespace is <metadata.namespace>-<clusterName>, with dots of
	// the cluster's name as dashes.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ClusterName string `json:"clusterName"`
	// config names ConfigMaps of this namespace. Their key config has manifests of KubeletConfig, MachineConfig and other
	// kinds of machine configuration. At most ten are used, and at most one KubeletConfig in all of them.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Config []corev1.LocalObjectReference `json:"config,omitempty"`
	// tuningConfig names ConfigMaps of this namespace. Their key tuning has manifests of Tuned. At most ten are used.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	TuningConfig []corev1.LocalObjectReference `json:"tuningConfig,omitempty"`
	// nodeLabels are labels of the pool's nodes.
	// +optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// management says how nodes get another configuration.
	// +optional
	Management NodePoolManagement `json:"management,omitempty"`
	// pausedUntil keeps the pool as it is: until a time, such as 2026-12-01T06:00:00Z, or, with true, until it is removed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PausedUntil *string `json:"pausedUntil,omitempty"`
}

// UpgradeType is a way in which nodes get another configuration.
//
// +kubebuilder:validation:Enum=Replace;InPlace
type UpgradeType string

// The ways of an upgrade.
const (
	// UpgradeTypeReplace makes new nodes in the place of the old ones.
	UpgradeTypeReplace UpgradeType = "Replace"
	// UpgradeTypeInPlace reboots the nodes that are there.
	UpgradeTypeInPlace UpgradeType = "InPlace"
)

// NodePoolManagement says how nodes get another configuration.
type NodePoolManagement struct {
	// upgradeType is Replace or InPlace.
	// +optional
	UpgradeType UpgradeType `json:"upgradeType,omitempty"`
	// replace is for the upgrade type Replace.
	// +optional
	Replace *ReplaceUpgrade `json:"replace,omitempty"`
	// inPlace is for the upgrade type InPlace.
	// +optional
	InPlace *InPlaceUpgrade `json:"inPlace,omitempty"`
}

// ReplaceUpgrade says how new nodes take the place of old ones.
type ReplaceUpgrade struct {
	// rollingUpdate says how many at once.
	// +optional
	RollingUpdate *RollingUpdate `json:"rollingUpdate,omitempty"`
}

// RollingUpdate says how many nodes are replaced at once.
type RollingUpdate struct {
	// maxUnavailable is how many nodes, or what percentage of them, may be missing. The default is 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// maxSurge is how many nodes, or what percentage of them, there may be more. The default is 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// InPlaceUpgrade says how nodes are rebooted.
type InPlaceUpgrade struct {
	// maxUnavailable is how many nodes, or what percentage of them, may reboot at once. The default is 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// NodePoolStatus is what was observed of a pool.
type NodePoolStatus struct {
	// conditions are, among others, ValidTuningConfig and ValidMachineConfig.
	// +optional
	Conditions []NodePoolCondition `json:"conditions,omitempty"`
}

// Conditions that the companion nodepool writes.
const (
	// ConditionValidTuningConfig says whether what spec.tuningConfig names can be used.
	ConditionValidTuningConfig = "ValidTuningConfig"
	// ConditionValidMachineConfig says whether what spec.config names can be used.
	ConditionValidMachineConfig = "ValidMachineConfig"
)

// Reasons of these conditions. The first two are HyperShift's.
const (
	// ReasonAsExpected is that of a condition that is True.
	ReasonAsExpected = "AsExpected"
	// ReasonValidationFailed means that the message names what to change in the NodePool or in a ConfigMap. Until then
	// nothing of the pool changes.
	ReasonValidationFailed = "ValidationFailed"
	// ReasonConflict means that another object stands where a copy must be. The message names both.
	ReasonConflict = "Conflict"
	// ReasonNotControlPlane means that the namespace is not known to be this hosted cluster's.
	ReasonNotControlPlane = "NotControlPlane"
	// ReasonControlPlaneNamespaceMissing means that the control plane's namespace is not there yet.
	ReasonControlPlaneNamespaceMissing = "ControlPlaneNamespaceMissing"
	// ReasonPoolConfigurationInvalid means that this part is valid, and waits since the other one is not: nothing of a pool
	// changes until all of it is valid.
	ReasonPoolConfigurationInvalid = "PoolConfigurationInvalid"
)

// NodePoolCondition is one thing that was observed of a pool. It is not a metav1.Condition: HyperShift's has reasons that
// those refuse.
type NodePoolCondition struct {
	// type names what was observed.
	// +required
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// status is True, False or Unknown.
	// +required
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status corev1.ConditionStatus `json:"status"`
	// severity of a condition that is False.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Severity string `json:"severity,omitempty"`
	// lastTransitionTime is when the status last changed.
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// reason is a word for programs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// message is for people.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
	// observedGeneration is the generation of the NodePool that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// NodePoolList is a list of NodePools.
//
// +kubebuilder:object:root=true
type NodePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePool `json:"items"`
}
