// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/node/nodefiles"
)

// The names that OpenShift and the source document have.
const (
	roleLabel       = nodefiles.MachineConfigGroup + "/role"
	poolLabelPrefix = "pools.operator.machineconfiguration.openshift.io/"
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
		file, err := nodefiles.MachineConfig(name, map[string]string{roleLabel: node.Role}, content, node.KernelArguments())
		if err != nil {
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
	selector := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: poolLabelPrefix + node.Role, Operator: metav1.LabelSelectorOpExists}}}
	file, err := nodefiles.KubeletConfig(node.Role+"-workload-partitioning", selector, *fields)
	file.Path = machineConfigName(node.Role) + "-kubelet.yaml"
	return &file, err
}
