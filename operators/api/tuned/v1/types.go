// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Namespace is where Tuneds, Profiles and the operand are in a cluster.
const Namespace = "openshift-cluster-node-tuning-operator"

// Labels and annotations.
const (
	// NodePoolNameLabel is on a Tuned of a hosted cluster: the NodePool of whose nodes it is.
	NodePoolNameLabel = "hypershift.openshift.io/nodePoolName"
	// NodePoolLabel is on a Node of a hosted cluster, and on the objects of a control-plane namespace: the NodePool.
	NodePoolLabel = "hypershift.openshift.io/nodePool"
	// TunedConfigLabel is on a ConfigMap of a control-plane namespace that has a NodePool's Tuneds; its value is true.
	TunedConfigLabel = "hypershift.openshift.io/tuned-config"
	// TuningKey is the key of that ConfigMap: YAML documents, each a Tuned.
	TuningKey = "tuning"
)

// DefaultName is that of the Tuned that the operator brings for all nodes.
const DefaultName = "default"

// Tuned is a set of TuneD profiles, and says which nodes get which of them. On a hosted cluster it is output: the operator writes
// what the management cluster has for each NodePool, and reads none of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="NodePool",type=string,JSONPath=".metadata.labels['hypershift\\.openshift\\.io/nodePoolName']"
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=".status.conditions[?(@.type=='Valid')].status"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.conditions[?(@.type=='Valid')].message",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Tuned struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec TunedSpec `json:"spec,omitempty"`
	// +optional
	Status TunedStatus `json:"status,omitempty"`
}

// TunedSpec is a set of profiles, and their choice.
type TunedSpec struct {
	// managementState says whether the operator works for it: Managed, which is the default, Unmanaged, Force or Removed.
	// Only the Tuned default of an ordinary cluster can have another than Managed.
	// +optional
	// +kubebuilder:validation:Pattern=`^(Managed|Unmanaged|Force|Removed)$`
	ManagementState string `json:"managementState,omitempty"`
	// profile has the profiles. Those of TuneD's package are there anyway.
	// +optional
	// +listType=atomic
	Profile []TunedProfile `json:"profile,omitempty"`
	// recommend says which nodes get which profile. Of all entries that match a node, the one with the lowest priority wins.
	// +optional
	// +listType=atomic
	Recommend []TunedRecommend `json:"recommend,omitempty"`
}

// TunedProfile is one TuneD profile.
type TunedProfile struct {
	// name is that of the profile, for recommend and for the include of other profiles.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// data is the content of the profile's tuned.conf.
	// +required
	Data string `json:"data"`
}

// TunedRecommend recommends a profile for nodes.
type TunedRecommend struct {
	// profile is the name of the profile.
	// +required
	Profile string `json:"profile"`
	// priority is compared with those of other entries that match the same node: 0 is the highest.
	// +required
	// +kubebuilder:validation:Minimum=0
	Priority int64 `json:"priority"`
	// match says which nodes: those that match any of the rules. Without rules, all.
	// +optional
	// +listType=atomic
	Match []TunedMatch `json:"match,omitempty"`
	// machineConfigLabels selects MachineConfigPools. On a hosted cluster, which has none, it means nothing.
	// +optional
	MachineConfigLabels map[string]string `json:"machineConfigLabels,omitempty"`
	// operand configures the operand on these nodes.
	// +optional
	Operand OperandConfig `json:"operand,omitempty,omitzero"`
}

// MatchType is whose labels a rule is about.
//
// +kubebuilder:validation:Enum=node;pod
type MatchType string

// Types of rules. Empty is MatchNode.
const (
	MatchNode MatchType = "node"
	// MatchPod is any pod on the node.
	MatchPod MatchType = "pod"
)

// TunedMatch is a rule about a label, and further rules of which one must match, too.
type TunedMatch struct {
	// label is the label's name.
	// +required
	Label string `json:"label"`
	// value is the label's value. Without one, any value matches.
	// +optional
	Value *string `json:"value,omitempty"`
	// type is node, which is the default, or pod.
	// +optional
	Type MatchType `json:"type,omitempty"`
	// match are further rules. If there are any, one of them must match as well.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Match []TunedMatch `json:"match,omitempty"`
}

// OperandConfig configures the operand.
type OperandConfig struct {
	// debug makes TuneD log what it does in detail.
	// +optional
	Debug bool `json:"debug,omitempty"`
	// tunedConfig are settings of TuneD itself.
	// +optional
	TunedConfig TunedConfig `json:"tunedConfig,omitempty,omitzero"`
	// verbosity is that of the operand's log.
	// +optional
	Verbosity int32 `json:"verbosity,omitempty"`
}

// TunedConfig are settings of TuneD's tuned-main.conf.
type TunedConfig struct {
	// reapply_sysctl lets the values of /etc/sysctl.d and /run/sysctl.d win over those of the profile. The default is true.
	// +optional
	ReapplySysctl *bool `json:"reapply_sysctl,omitempty"`
}

// ConditionValid is the condition of a Tuned. It is False if it is not what is wanted now, since that is not valid; the
// message names the ConfigMap, the document and the line.
const ConditionValid = "Valid"

// TunedStatus is what the operator says of a Tuned.
type TunedStatus struct {
	// conditions has Valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TunedList is a list of Tuneds.
//
// +kubebuilder:object:root=true
type TunedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tuned `json:"items"`
}

// Profile says which TuneD profile a node gets. It has the node's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Tuned",type=string,JSONPath=".spec.config.tunedProfile"
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=".status.conditions[?(@.type=='Applied')].status"
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=".status.conditions[?(@.type=='Degraded')].status"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.conditions[?(@.type=='Applied')].message"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Profile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ProfileSpec `json:"spec"`
	// +optional
	Status ProfileStatus `json:"status,omitempty,omitzero"`
}

// ProfileSpec is what a node's operand needs.
type ProfileSpec struct {
	// +required
	Config ProfileConfig `json:"config"`
	// profile has all profiles that the node may need. The operand reads no others but those of TuneD's package.
	// +optional
	// +listType=atomic
	Profile []TunedProfile `json:"profile,omitempty"`
}

// ProfileConfig is the choice for a node.
type ProfileConfig struct {
	// tunedProfile is the profile to apply.
	// +required
	TunedProfile string `json:"tunedProfile"`
	// debug makes TuneD log what it does in detail.
	// +optional
	Debug bool `json:"debug,omitempty"`
	// tunedConfig are settings of TuneD itself.
	// +optional
	TunedConfig TunedConfig `json:"tunedConfig,omitempty,omitzero"`
	// verbosity is that of the operand's log.
	// +optional
	Verbosity int32 `json:"verbosity,omitempty"`
	// providerName is the name before :// of the Node's spec.providerID.
	// +optional
	ProviderName string `json:"providerName,omitempty"`
}

// Conditions of a Profile.
const (
	// ConditionApplied is True once TuneD has applied the profile.
	ConditionApplied = "Applied"
	// ConditionDegraded is True if TuneD reported errors; the message has them.
	ConditionDegraded = "Degraded"
)

// ReasonDeferred is the reason of a profile that is not applied because it waits for the node's next boot.
const ReasonDeferred = "Deferred"

// ProfileStatus is what a node's operand says. Only it may write this.
type ProfileStatus struct {
	// tunedProfile is the profile that TuneD runs with; empty is none.
	// +required
	TunedProfile string `json:"tunedProfile"`
	// bootcmdline has the kernel arguments that TuneD computed.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Bootcmdline string `json:"bootcmdline,omitempty"`
	// observedGeneration is the generation of the spec that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are Applied and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProfileList is a list of Profiles.
//
// +kubebuilder:object:root=true
type ProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Profile `json:"items"`
}
