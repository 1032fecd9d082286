// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"workload.openshift.io/kubernetes/node/nodefiles"
)

// machineConfig is the part of OpenShift's kind that is used here. Its own type writes fields
// that are not set, and some of these mean something.
type machineConfig struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        objectMeta `json:"metadata"`
	Spec            struct {
		Config          types.Config `json:"config"`
		KernelArguments []string     `json:"kernelArguments,omitempty"`
	} `json:"spec"`
}

type objectMeta struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// kubeletConfig is OpenShift's kind around the kubelet's configuration. Its nodes with a
// control plane have no directory for drop-ins.
type kubeletConfig struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        objectMeta `json:"metadata"`
	Spec            struct {
		MachineConfigPoolSelector metav1.LabelSelector                `json:"machineConfigPoolSelector"`
		KubeletConfig             kubeletv1beta1.KubeletConfiguration `json:"kubeletConfig"`
	} `json:"spec"`
}

// The names that OpenShift and the source document have.
const (
	machineConfigGroup = "machineconfiguration.openshift.io"
	roleLabel          = machineConfigGroup + "/role"
	poolLabelPrefix    = "pools.operator.machineconfiguration.openshift.io/"
)

func machineConfigName(role string) string { return "02-" + role + "-workload-partitioning" }

func renderMachineConfig(nodes []nodefiles.Node, _ Options) (r Rendered, err error) {
	for _, node := range nodes {
		files, err := filesOf(node, nil)
		if err != nil {
			return Rendered{}, err
		}
		name := machineConfigName(node.Role)
		content := slices.Concat(files.basic, files.host)
		m := machineConfig{
			TypeMeta: metav1.TypeMeta{APIVersion: machineConfigGroup + "/v1", Kind: "MachineConfig"},
			Metadata: objectMeta{Name: name, Labels: map[string]string{roleLabel: node.Role}},
		}
		m.Spec.Config = nodefiles.Ignition(content)
		m.Spec.KernelArguments = node.KernelArguments()
		file, err := nodefiles.YAML(name+".yaml", 0o644, "", m)
		if err != nil {
			return Rendered{}, err
		}
		if err := nodefiles.CheckIgnition(file.Path, m.Spec.Config, content); err != nil {
			return Rendered{}, err
		}
		r.Files = append(r.Files, file)
		if kubelet, err := kubeletObject(node); err != nil {
			return Rendered{}, err
		} else if kubelet != nil {
			r.Files = append(r.Files, *kubelet)
			r.note(poolLabelNote(node.Role))
		}
	}
	r.note([]string{openShiftNote})
	return r, nil
}

// openShiftNote says why there is no configuration for kube-apiserver.
const openShiftNote = "On OpenShift the object Infrastructure decides which types are active, so there is no configuration for kube-apiserver."

// poolLabelNote says what a machine pool needs that OpenShift does not label by itself.
func poolLabelNote(role string) []string {
	if role == nodefiles.DefaultRole || role == "worker" {
		return nil
	}
	return []string{fmt.Sprintf("The KubeletConfig of %s selects its machine pool by a label that only master and worker have from the start: oc label machineconfigpool %[1]s %[2]s%[1]s=", role, poolLabelPrefix)}
}

// kubeletObject returns the KubeletConfig of a role, or nil if nothing is to be configured.
func kubeletObject(node nodefiles.Node) (*nodefiles.File, error) {
	fields := node.KubeletConfiguration()
	if fields == nil {
		return nil, nil
	}
	k := kubeletConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: machineConfigGroup + "/v1", Kind: "KubeletConfig"},
		Metadata: objectMeta{Name: node.Role + "-workload-partitioning"},
	}
	k.Spec.MachineConfigPoolSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: poolLabelPrefix + node.Role, Operator: metav1.LabelSelectorOpExists}}
	k.Spec.KubeletConfig = *fields
	k.Spec.KubeletConfig.TypeMeta = metav1.TypeMeta{} // the operator knows it
	file, err := nodefiles.YAML(machineConfigName(node.Role)+"-kubelet.yaml", 0o644, "", k)
	return &file, err
}
