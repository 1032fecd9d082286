// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NUMAResourcesOperator has exporters run on groups of nodes. Each writes the NodeResourceTopology of its node, from which a
// NUMA-aware scheduler reads what is free where. There is one in a cluster, and its name is numaresourcesoperator.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=numaresourcesoperators,shortName=numaresop
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=".status.conditions[?(@.type=='Available')].status"
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=".status.conditions[?(@.type=='Degraded')].status"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'numaresourcesoperator'",message="metadata.name must be numaresourcesoperator: there is one in a cluster"
type NUMAResourcesOperator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NUMAResourcesOperatorSpec `json:"spec,omitempty"`
	// +optional
	Status NUMAResourcesOperatorStatus `json:"status,omitempty"`
}

// NUMAResourcesOperatorName is the name of the only NUMAResourcesOperator.
const NUMAResourcesOperatorName = "numaresourcesoperator"

// NUMAResourcesOperatorList is a list of them.
//
// +kubebuilder:object:root=true
type NUMAResourcesOperatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NUMAResourcesOperator `json:"items"`
}

// NUMAResourcesOperatorSpec says where exporters run, and how.
type NUMAResourcesOperatorSpec struct {
	// nodeGroups are groups of nodes. A node that is in two of them gets no exporter.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NodeGroups []NodeGroup `json:"nodeGroups,omitempty"`
}

// NodeGroup is some nodes, and how their exporters work. Exactly one of the three fields chooses the nodes.
//
// +kubebuilder:validation:XValidation:rule="(has(self.nodeSelector) ? 1 : 0) + (has(self.machineConfigPoolSelector) ? 1 : 0) + (has(self.poolName) ? 1 : 0) == 1",message="exactly one of nodeSelector, machineConfigPoolSelector and poolName must be set"
type NodeGroup struct {
	// nodeSelector selects nodes by their labels. It works on hosted and on ordinary clusters. An empty one selects all nodes.
	//
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// machineConfigPoolSelector selects MachineConfigPools by their labels, and so the nodes of these pools. It is for clusters
	// that have such pools.
	//
	// +optional
	MachineConfigPoolSelector *metav1.LabelSelector `json:"machineConfigPoolSelector,omitempty"`
	// poolName is the name of a NodePool on a hosted cluster, and of a MachineConfigPool on one that has those.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	PoolName *string `json:"poolName,omitempty"`

	// config says how the exporters of the group work.
	//
	// +optional
	Config *NodeGroupConfig `json:"config,omitempty"`
}

// InfoRefreshMode says when an exporter looks for changes.
//
// +kubebuilder:validation:Enum=Periodic;Events;PeriodicAndEvents
type InfoRefreshMode string

// InfoRefreshPause says whether exporters write.
//
// +kubebuilder:validation:Enum=Disabled;Enabled
type InfoRefreshPause string

// PodsFingerprinting says which pods a fingerprint is of.
//
// +kubebuilder:validation:Enum=Disabled;Enabled;EnabledExclusiveResources
type PodsFingerprinting string

// The values of these fields.
const (
	InfoRefreshPeriodic          InfoRefreshMode = "Periodic"
	InfoRefreshEvents            InfoRefreshMode = "Events"
	InfoRefreshPeriodicAndEvents InfoRefreshMode = "PeriodicAndEvents"

	InfoRefreshPauseDisabled InfoRefreshPause = "Disabled"
	InfoRefreshPauseEnabled  InfoRefreshPause = "Enabled"

	PodsFingerprintingDisabled                  PodsFingerprinting = "Disabled"
	PodsFingerprintingEnabled                   PodsFingerprinting = "Enabled"
	PodsFingerprintingEnabledExclusiveResources PodsFingerprinting = "EnabledExclusiveResources"
)

// NodeGroupConfig says how the exporters of a group work.
type NodeGroupConfig struct {
	// infoRefreshMode is Periodic to look for changes once in a period, and else once a second. In all modes a change is written
	// when it is seen, and nothing else but a heartbeat each five minutes.
	//
	// +optional
	// +kubebuilder:default=PeriodicAndEvents
	InfoRefreshMode *InfoRefreshMode `json:"infoRefreshMode,omitempty"`
	// infoRefreshPeriod is the period of the mode Periodic: at least one second.
	//
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be at least one second"
	InfoRefreshPeriod *metav1.Duration `json:"infoRefreshPeriod,omitempty"`
	// infoRefreshPause is Enabled to stop the exporters from writing. What they have written becomes stale after a quarter of an
	// hour.
	//
	// +optional
	// +kubebuilder:default=Disabled
	InfoRefreshPause *InfoRefreshPause `json:"infoRefreshPause,omitempty"`
	// podsFingerprinting says which pods the fingerprint is of: all, or those that have something for themselves. A scheduler
	// must do the same.
	//
	// +optional
	// +kubebuilder:default=EnabledExclusiveResources
	PodsFingerprinting *PodsFingerprinting `json:"podsFingerprinting,omitempty"`
	// tolerations are those of the exporters' pods.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// NUMAResourcesOperatorStatus says what has become of the groups.
type NUMAResourcesOperatorStatus struct {
	// observedGeneration is the generation of the spec that the rest is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// nodeGroups are those of the spec, in its order.
	//
	// +optional
	// +listType=atomic
	NodeGroups []NodeGroupStatus `json:"nodeGroups,omitempty"`
	// conditions are Available, Progressing, Degraded, Paused, and what was seen of nodes: PolicyUnknown, KubeletConfigDrift,
	// NodesDiffer, CPUDriver and Stale.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeGroupStatus is what has become of a group.
type NodeGroupStatus struct {
	// name is the group's: poolName, or a hash of the selector.
	Name string `json:"name"`
	// daemonSet is that of the exporters.
	//
	// +optional
	DaemonSet NamespacedName `json:"daemonset,omitempty"`
	// configMap has the exporters' configuration.
	//
	// +optional
	ConfigMap NamespacedName `json:"configMap,omitempty"`
	// nodes is how many nodes the group has.
	Nodes int32 `json:"nodes"`
	// reported is how many of them have a NodeResourceTopology that is not stale.
	Reported int32 `json:"reported"`
}

// NamespacedName names an object.
type NamespacedName struct {
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
}

// The types of conditions.
const (
	// ConditionAvailable: every node of each group has an exporter that reports, or a scheduler works.
	ConditionAvailable = "Available"
	// ConditionProgressing: exporters or schedulers start, or are replaced.
	ConditionProgressing = "Progressing"
	// ConditionDegraded: something keeps exporters or the scheduler from being as the spec says.
	ConditionDegraded = "Degraded"
	// ConditionPaused: the object has the annotation workload.openshift.io/paused.
	ConditionPaused = "Paused"
	// ConditionPolicyUnknown: of some nodes it is not known how their kubelets run.
	ConditionPolicyUnknown = "PolicyUnknown"
	// ConditionKubeletConfigDrift: kubelets run otherwise than the KubeletConfig of their pool says.
	ConditionKubeletConfigDrift = "KubeletConfigDrift"
	// ConditionNodesDiffer: nodes of a group run otherwise than the rest of it.
	ConditionNodesDiffer = "NodesDiffer"
	// ConditionCPUDriver: a DRA driver gives the CPUs of some nodes, so their zones offer none.
	ConditionCPUDriver = "CPUDriver"
	// ConditionStale: some nodes have had no report for a quarter of an hour, or never.
	ConditionStale = "Stale"
)
