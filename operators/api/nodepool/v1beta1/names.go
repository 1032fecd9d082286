// SPDX-License-Identifier: Apache-2.0

package v1beta1

import "strings"

// Labels of ConfigMaps in the control plane's namespace and in the hosted cluster, and of hosted Nodes. All are
// HyperShift's.
const (
	// PoolLabel has the name of a NodePool: of the pool whose configuration a ConfigMap has, or to which a Node belongs.
	// As an annotation of a ConfigMap in the control plane's namespace it has the NodePool's namespace, too:
	// NAMESPACE/NAME.
	PoolLabel = "hypershift.openshift.io/nodePool"
	// TunedConfigLabel has the value true on the one ConfigMap of a pool that has its Tuned manifests.
	TunedConfigLabel = "hypershift.openshift.io/tuned-config"
	// KubeletConfigLabel marks ConfigMaps that have a KubeletConfig. It is written with an empty value; select it by its
	// existence, since other versions write true.
	KubeletConfigLabel = "hypershift.openshift.io/kubeletconfig-config"
	// PerformanceProfileLabel has the value true on the one ConfigMap of a pool that has its PerformanceProfile.
	PerformanceProfileLabel = "hypershift.openshift.io/performanceprofile-config"
	// GeneratedMachineConfigLabel has the value true on the one MachineConfig of a pool that the companion tuning makes, and on
	// its ConfigMap.
	GeneratedMachineConfigLabel = "hypershift.openshift.io/nto-generated-machine-config"
	// GeneratedStatusLabel has the value true on the ConfigMap with the status of a pool's PerformanceProfile.
	GeneratedStatusLabel = "hypershift.openshift.io/nto-generated-performance-profile-status"
)

// Keys of ConfigMaps, of the user's and of copies.
const (
	// TuningKey has Tuned manifests, as documents of YAML.
	TuningKey = "tuning"
	// ConfigKey has a KubeletConfig or other machine configuration.
	ConfigKey = "config"
	// StatusKey has the status of a PerformanceProfile.
	StatusKey = "status"
)

// SourcesAnnotation of a ConfigMap with Tuned manifests says where each comes from: TUNED=CONFIGMAP, separated by commas, in
// the order of the Tuneds' names. On any other copy, and on a Tuned of the hosted cluster, it has the name of the ConfigMap alone.
const SourcesAnnotation = "nodepool.workload.openshift.io/sources"

// NodesLabel marks ConfigMaps in the control plane's namespace in which the provider of machines records which nodes are
// a pool's. They also have PoolLabel. Each key of their data is the name of a hosted Node, and its value is the Node's
// spec.providerID, or empty if that is not to be compared. The companion hostedconfig writes PoolLabel of the
// hosted Nodes from them.
const NodesLabel = "nodepool.workload.openshift.io/nodes"

// HostedClusterAnnotation of a namespace says whose control plane it is for: NAMESPACE/CLUSTER, by the NodePools' namespace and
// their spec.clusterName. Without it nothing is copied there. Who may create NodePools in one namespace could otherwise have
// ConfigMaps made in another, such as kube-system by a NodePool in kube.
const HostedClusterAnnotation = "nodepool.workload.openshift.io/hosted-cluster"

// HostedKubeletConfigNamespace is where the companion hostedconfig copies KubeletConfigs to, in the hosted cluster.
const HostedKubeletConfigNamespace = "openshift-config-managed"

// ControlPlaneNamespace returns the namespace of a hosted cluster's control plane. Dots of the cluster's name are dashes in
// it (HyperShift, hypershift-operator/controllers/manifests, HostedControlPlaneNamespace).
func ControlPlaneNamespace(namespace, clusterName string) string {
	return namespace + "-" + strings.ReplaceAll(clusterName, ".", "-")
}

// TunedConfigMapName returns the name of the ConfigMap in the control plane's namespace that has a pool's Tuned manifests.
func TunedConfigMapName(pool string) string { return "tuned-" + pool }
