// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// What a hosted cluster has of its NodePools' KubeletConfigs, by the companion hostedconfig.
const (
	KubeletConfigNamespace = "openshift-config-managed"
	KubeletConfigLabel     = "hypershift.openshift.io/kubeletconfig-config"
	NodePoolLabel          = "hypershift.openshift.io/nodePool"
	KubeletConfigKey       = "config"
)

// ParseKubeletConfig reads from the JSON of a KubeletConfig how it wants the kubelet to run. What it does not set is empty. One without
// a payload is an error, and so is another kind.
func ParseKubeletConfig(data []byte) (Kubelet, error) {
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       struct {
			KubeletConfig json.RawMessage `json:"kubeletConfig"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return Kubelet{}, err
	}
	const kind = "KubeletConfig"
	if object.Kind != kind {
		return Kubelet{}, fmt.Errorf("kind: %q, want %s", object.Kind, kind)
	}
	if len(object.Spec.KubeletConfig) == 0 || string(object.Spec.KubeletConfig) == "null" {
		return Kubelet{}, errors.New("spec.kubeletConfig is empty")
	}
	var config kubeletv1beta1.KubeletConfiguration
	if err := json.Unmarshal(object.Spec.KubeletConfig, &config); err != nil {
		return Kubelet{}, fmt.Errorf("spec.kubeletConfig: %w", err)
	}
	return Kubelet{
		TopologyManagerPolicy: config.TopologyManagerPolicy, TopologyManagerScope: config.TopologyManagerScope,
		CPUManagerPolicy: config.CPUManagerPolicy, MemoryManagerPolicy: config.MemoryManagerPolicy,
	}, nil
}

// values are the attributes of a kubelet by their names.
func (k Kubelet) values() map[string]string {
	return map[string]string{
		AttributePolicy: k.TopologyManagerPolicy, AttributeScope: k.TopologyManagerScope,
		AttributeCPUManager: k.CPUManagerPolicy, AttributeMemoryManager: k.MemoryManagerPolicy,
	}
}

// Difference is an attribute of a node that is not what it is to be.
type Difference struct{ Node, Attribute, Is, Want string }

func (d Difference) String() string {
	return fmt.Sprintf("node %s has %s %s, want %s", d.Node, d.Attribute, d.Is, d.Want)
}

// Drift lists, in the order of the attributes, where a node's kubelet runs otherwise than a KubeletConfig wants.
func Drift(node string, want, is Kubelet) (differences []Difference) {
	wanted, has := want.values(), is.values()
	for _, attribute := range slices.Sorted(maps.Keys(wanted)) {
		if wanted[attribute] != "" && has[attribute] != "" && wanted[attribute] != has[attribute] {
			differences = append(differences, Difference{node, attribute, has[attribute], wanted[attribute]})
		}
	}
	return differences
}

// Odd lists, by node and attribute, the nodes of a group that run otherwise than most of it. Of two values that are equally
// common, the first in alphabetical order counts as usual.
func Odd(kubelets map[string]Kubelet) (differences []Difference) {
	count := map[string]map[string]int{}
	for _, kubelet := range kubelets {
		for attribute, value := range kubelet.values() {
			if count[attribute] == nil {
				count[attribute] = map[string]int{}
			}
			count[attribute][value]++
		}
	}
	usual := map[string]string{}
	for attribute, values := range count {
		usual[attribute] = slices.MinFunc(slices.Collect(maps.Keys(values)), func(a, b string) int {
			return cmp.Or(values[b]-values[a], cmp.Compare(a, b))
		})
	}
	for _, node := range slices.Sorted(maps.Keys(kubelets)) {
		has := kubelets[node].values()
		for _, attribute := range slices.Sorted(maps.Keys(has)) {
			if has[attribute] != usual[attribute] {
				differences = append(differences, Difference{node, attribute, has[attribute], usual[attribute]})
			}
		}
	}
	return differences
}
