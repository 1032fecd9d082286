// SPDX-License-Identifier: Apache-2.0

package nodefiles

import (
	"github.com/coreos/ignition/v2/config/v3_2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// MachineConfigGroup is the API group of OpenShift's kinds for machines.
const MachineConfigGroup = "machineconfiguration.openshift.io"

// machineConfig is the part of OpenShift's kind that is used here. Its own type writes fields
// that are not set, and some of these mean something.
type machineConfig struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        ObjectMeta `json:"metadata"`
	Spec            struct {
		Config          types.Config `json:"config"`
		KernelArguments []string     `json:"kernelArguments,omitempty"`
	} `json:"spec"`
}

// ObjectMeta is what an object's metadata has here.
type ObjectMeta struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// kubeletConfig is OpenShift's kind around the kubelet's configuration. Its nodes with a
// control plane have no directory for drop-ins.
type kubeletConfig struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        ObjectMeta `json:"metadata"`
	Spec            struct {
		MachineConfigPoolSelector metav1.LabelSelector                `json:"machineConfigPoolSelector"`
		KubeletConfig             kubeletv1beta1.KubeletConfiguration `json:"kubeletConfig"`
	} `json:"spec"`
}

// MachineConfig returns the MachineConfig that writes the files and has the kernel arguments. Ignition's
// own parser has judged it.
func MachineConfig(name string, labels map[string]string, files []File, arguments []string) (File, error) {
	m := machineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: MachineConfigGroup + "/v1", Kind: "MachineConfig"},
		Metadata: ObjectMeta{Name: name, Labels: labels},
	}
	m.Spec.Config = Ignition(files)
	m.Spec.KernelArguments = arguments
	file, err := YAML(name+".yaml", 0o644, "", m)
	if err != nil {
		return File{}, err
	}
	return file, CheckIgnition(file.Path, m.Spec.Config, files)
}

// KubeletConfig returns the KubeletConfig with these fields of the kubelet's configuration. The
// selector is empty where it means nothing.
func KubeletConfig(name string, selector metav1.LabelSelector, fields kubeletv1beta1.KubeletConfiguration) (File, error) {
	k := kubeletConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: MachineConfigGroup + "/v1", Kind: "KubeletConfig"},
		Metadata: ObjectMeta{Name: name},
	}
	k.Spec.MachineConfigPoolSelector = selector
	k.Spec.KubeletConfig = fields
	k.Spec.KubeletConfig.TypeMeta = metav1.TypeMeta{} // the operator knows it
	return YAML(name+".yaml", 0o644, "", k)
}
