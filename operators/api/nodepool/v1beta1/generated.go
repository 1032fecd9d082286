// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// What the companion tuning generates for a pool, in the control plane's namespace. The companion nodepool renders a pool's
// configuration only from a whole set of it: all parts that Generated names, for the input that the pool has now.
const (
	// GeneratedLabel has the value true on the ConfigMap with a pool's Generated.
	GeneratedLabel = "tuning.workload.openshift.io/generated"
	// GeneratedKey is the key of its data.
	GeneratedKey = "generated"
	// InputAnnotation is on each generated ConfigMap: the InputHash that it is made from.
	InputAnnotation = "tuning.workload.openshift.io/input"
	// ApplyArgumentsAnnotation of the ConfigMap with a pool's Generated is a person's: the hash of outdated kernel arguments that
	// are to take effect now. It becomes empty when the pool's arguments change.
	ApplyArgumentsAnnotation = "tuning.workload.openshift.io/apply-arguments"
)

// The rendered configuration of a pool. A provider of machines reads the Secret that the annotation TargetConfigAnnotation of a
// NodePool names, and nothing else.
const (
	// TargetConfigAnnotation of a NodePool has the hash of the configuration that its nodes are to have.
	TargetConfigAnnotation = "hypershift.openshift.io/nodePoolTargetConfigVersion"
	// CurrentConfigAnnotation of a NodePool has the hash of the configuration that all its nodes have. During a change it is the
	// one before.
	CurrentConfigAnnotation = "hypershift.openshift.io/nodePoolCurrentConfigVersion"
	// ConfigSecretKey is the key of the Secret: an Ignition configuration.
	ConfigSecretKey = "value"
	// BootedAnnotation is the provider's. On the ConfigMap that records a pool's nodes (NodesLabel) it has a JSON object: the name
	// of each node, and the hash of the configuration that it has booted. On a hosted Node, for people, it has the hash.
	BootedAnnotation = "nodepool.workload.openshift.io/config"
)

// Conditions of a NodePool that are about what is generated and rendered.
const (
	// ConditionKernelArgumentsAgree says whether the pool has the kernel arguments that its configuration asks for. Its message
	// names nodes that hold them back.
	ConditionKernelArgumentsAgree = "KernelArgumentsAgree"
	// ConditionKernelArgumentsOutdated is True if the nodes compute other arguments than they boot with, after an upgrade of the
	// operand.
	ConditionKernelArgumentsOutdated = "KernelArgumentsOutdated"
	// ConditionRendered says whether the target configuration is what the NodePool's spec asks for.
	ConditionRendered = "ConfigurationRendered"
	// PerformanceConditionPrefix is before the conditions of a PerformanceProfile.
	PerformanceConditionPrefix = "performance.operator.openshift.io/"
)

// Generated says what the companion tuning has made for a pool.
//
// +kubebuilder:object:generate=false
type Generated struct {
	// Input is the InputHash that all parts are made from.
	Input string `json:"input"`
	// Computed is false if no node was there to compute those kernel arguments that nodes compute.
	Computed bool `json:"computed"`
	// Arguments are the pool's kernel arguments, in their order.
	Arguments []string `json:"arguments"`
	// Outdated are those that the nodes compute now, if they are others.
	Outdated []string `json:"outdated,omitempty"`
	// Parts are the generated ConfigMaps, by name, with the PartHash of each.
	Parts map[string]string `json:"parts"`
	// Conditions are for the NodePool.
	Conditions []GeneratedCondition `json:"conditions,omitempty"`
}

// GeneratedCondition is a condition without its time.
//
// +kubebuilder:object:generate=false
type GeneratedCondition struct {
	Type    string                 `json:"type"`
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message,omitempty"`
}

// ReadGenerated reads the ConfigMap with a pool's Generated.
func ReadGenerated(configMap *corev1.ConfigMap) (g Generated, err error) {
	if err := json.Unmarshal([]byte(configMap.Data[GeneratedKey]), &g); err != nil {
		return Generated{}, fmt.Errorf("ConfigMap %s/%s, key %s: %w", configMap.Namespace, configMap.Name, GeneratedKey, err)
	}
	return g, nil
}

// InputHash is the hash of a pool's configuration: the values of its ConfigMaps with Tuneds and with a PerformanceProfile, each
// empty if there is none.
func InputHash(tuneds, performanceProfile string) string { return hash(tuneds, performanceProfile) }

// PartHash is the hash of a generated ConfigMap's content.
func PartHash(configMap *corev1.ConfigMap) string { return hash(configMap.Data[ConfigKey]) }

// hash tells lists of texts apart.
func hash(texts ...string) string {
	data, err := json.Marshal(texts)
	if err != nil {
		panic(err) // they are texts
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// GeneratedName returns the name of the ConfigMap with a pool's Generated.
func GeneratedName(pool string) string { return "generated-" + pool }

// MachineConfigMapName returns the name of the ConfigMap with a pool's generated MachineConfig, and MachineConfigName that of the
// MachineConfig.
func MachineConfigMapName(pool string) string { return "nto-mc-" + pool }

// MachineConfigName returns the name of a pool's generated MachineConfig.
func MachineConfigName(pool string) string { return "50-nto-" + pool }

// PerformanceProfileConfigMapName returns the name of the ConfigMap with a pool's PerformanceProfile.
func PerformanceProfileConfigMapName(pool string) string { return "perfprofile-" + pool }

// PerformanceStatusConfigMapName returns the name of the ConfigMap with the status of a pool's PerformanceProfile.
func PerformanceStatusConfigMapName(pool string) string { return "perfprofile-status-" + pool }

// GeneratedKubeletConfigName returns the name of the ConfigMap with the KubeletConfig of a PerformanceProfile. Profiles of two pools
// may have one name.
func GeneratedKubeletConfigName(profile, pool string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(pool))
	return fmt.Sprintf("kubeletconfig-%s-%08x", profile, sum.Sum32())
}

// ConfigSecretName returns the name of the Secret with a pool's rendered configuration.
func ConfigSecretName(pool, hash string) string { return pool + "-config-" + hash }

// AtOnce returns how many of a pool's nodes its provider changes at once: reboots them, or replaces them.
func (m NodePoolManagement) AtOnce(nodes int) int {
	scaled := func(value *intstr.IntOrString, roundUp bool, standard int) int {
		if value == nil {
			return standard
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(value, nodes, roundUp)
		if err != nil {
			return standard
		}
		return n
	}
	if m.UpgradeType == UpgradeTypeReplace {
		rolling := RollingUpdate{}
		if m.Replace != nil && m.Replace.RollingUpdate != nil {
			rolling = *m.Replace.RollingUpdate
		}
		return max(1, scaled(rolling.MaxUnavailable, false, 0)+scaled(rolling.MaxSurge, true, 1))
	}
	var unavailable *intstr.IntOrString
	if m.InPlace != nil {
		unavailable = m.InPlace.MaxUnavailable
	}
	return max(1, scaled(unavailable, false, 1))
}
