// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/partition"
)

// kubeadmVersion is the version of kubeadm's configuration that v1.33 to v1.37 read.
const kubeadmVersion = "kubeadm.k8s.io/v1beta4"

// The parts of kubeadm's kinds that are used here. Its own types are in k8s.io/kubernetes,
// which brings far more than these fields.
type (
	kubeadmNode struct { // InitConfiguration and JoinConfiguration
		metav1.TypeMeta `json:",inline"`
		Patches         kubeadmPatches `json:"patches"`
	}
	kubeadmUpgrade struct { // UpgradeConfiguration
		metav1.TypeMeta `json:",inline"`
		Apply           kubeadmUpgradeStep `json:"apply,omitzero"`
		Node            kubeadmUpgradeStep `json:"node"`
	}
	kubeadmUpgradeStep struct {
		Patches kubeadmPatches `json:"patches"`
	}
	kubeadmPatches struct {
		Directory string `json:"directory"`
	}
	kubeadmCluster struct { // ClusterConfiguration
		metav1.TypeMeta `json:",inline"`
		APIServer       struct {
			ExtraArgs    []kubeadmArg    `json:"extraArgs"`
			ExtraVolumes []kubeadmVolume `json:"extraVolumes"`
		} `json:"apiServer"`
	}
	kubeadmArg struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	kubeadmVolume struct {
		Name      string `json:"name"`
		HostPath  string `json:"hostPath"`
		MountPath string `json:"mountPath"`
		ReadOnly  bool   `json:"readOnly"`
	}
)

// staticPods are kubeadm's, with the memory that a patch has to request. Without memory the
// pod would become BestEffort, and is skipped; etcd requests some by itself (upstream,
// cmd/kubeadm/app/phases/controlplane/manifests.go and cmd/kubeadm/app/phases/etcd/local.go).
var staticPods = []struct{ name, memory string }{
	{"etcd", ""},
	{"kube-apiserver", "512Mi"},
	{"kube-controller-manager", "128Mi"},
	{"kube-scheduler", "64Mi"},
}

const kubeadmPatchDirectory = "/etc/kubernetes/patches"

func renderKubeadm(nodes []nodefiles.Node, o Options) (r Rendered, err error) {
	for _, node := range nodes {
		files, err := filesOf(node, typesOf(nodes))
		if err != nil {
			return Rendered{}, err
		}
		content := slices.Concat(files.basic, files.admission, files.host, files.grub)
		if kubelet := node.KubeletConfiguration(); kubelet != nil {
			patch, err := nodefiles.YAML(path.Join(kubeadmPatchDirectory, "kubeletconfiguration+strategic.yaml"), 0o644, "", *kubelet)
			if err != nil {
				return Rendered{}, err
			}
			content = append(content, patch)
			r.note(kubeletNotes(node))
		}
		if node.ControlPlane() {
			patches, err := staticPodPatches(node, o.KubeAPIServerImage)
			if err != nil {
				return Rendered{}, err
			}
			content = append(content, patches...)
			if o.KubeAPIServerImage == "" {
				r.Warnings = append(r.Warnings, fmt.Sprintf("Nodes of %s get kubeadm's kube-apiserver, which is not patched: --kube-apiserver-image names no other. It ignores the plugin's configuration, and anyone who creates pods can write the cores and annotations of a partitioned pod by hand.", node.Role))
			}
		}
		directory := directoryOf(node, nodes)
		r.Files = append(r.Files, below(directory, content)...)
		configurations, err := kubeadmConfigurations(node)
		if err != nil {
			return Rendered{}, err
		}
		r.Files = append(r.Files, below(directory, configurations)...)
		r.note(files.grubNote(node))
	}
	r.note([]string{
		"Put the files of etc on each node before kubeadm init or kubeadm join, and add the fields of kubeadm-*.yaml to your own configuration.",
		"The amounts of memory in the patches are examples: the scheduler counts them.",
	})
	return r, nil
}

// staticPodPatches returns a patch for each static pod of kubeadm's control plane.
func staticPodPatches(node nodefiles.Node, image string) (patches []nodefiles.File, err error) {
	workloadType, err := controlPlaneType(node)
	if err != nil {
		return nil, err
	}
	for _, pod := range staticPods {
		var patch v1.Pod
		patch.Annotations = map[string]string{partition.TargetAnnotation(workloadType): fmt.Sprintf(`{"effect": %q}`, partition.Preferred)}
		container := v1.Container{Name: pod.name}
		if pod.memory != "" {
			container.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(pod.memory)}
		}
		if pod.name == "kube-apiserver" {
			container.Image = image
		}
		if container.Image != "" || container.Resources.Requests != nil {
			patch.Spec.Containers = []v1.Container{container}
		}
		file, err := nodefiles.YAML(path.Join(kubeadmPatchDirectory, pod.name+"+strategic.yaml"), 0o644, "", patch)
		if err != nil {
			return nil, err
		}
		patches = append(patches, file)
	}
	return patches, nil
}

// controlPlaneType returns the type of the control plane's static pods: management, or the
// only one there is.
func controlPlaneType(n nodefiles.Node) (string, error) {
	const management = "management"
	types := n.Pools.Types()
	if slices.Contains(types, management) {
		return management, nil
	}
	if len(types) == 1 {
		return types[0], nil
	}
	return "", fmt.Errorf("role %q has the types %s, and none of them is %s: it is not clear in which the control plane runs", n.Role, strings.Join(types, ", "), management)
}

// kubeadmConfigurations returns what kubeadm's commands need to know.
func kubeadmConfigurations(node nodefiles.Node) ([]nodefiles.File, error) {
	patches := kubeadmPatches{kubeadmPatchDirectory}
	kind := func(name string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: kubeadmVersion, Kind: name} }
	upgrade := kubeadmUpgrade{TypeMeta: kind("UpgradeConfiguration"), Node: kubeadmUpgradeStep{patches}}
	var files []nodefiles.File
	if node.ControlPlane() {
		upgrade.Apply = kubeadmUpgradeStep{patches}
		cluster := kubeadmCluster{TypeMeta: kind("ClusterConfiguration")}
		cluster.APIServer.ExtraArgs = []kubeadmArg{{"admission-control-config-file", AdmissionPath}}
		cluster.APIServer.ExtraVolumes = []kubeadmVolume{{"admission", admissionDirectory, admissionDirectory, true}}
		clusterFile, err := nodefiles.YAML("kubeadm-init.yaml", 0o644, "", cluster)
		if err != nil {
			return nil, err
		}
		initFile, err := nodefiles.YAML("kubeadm-init.yaml", 0o644, "", kubeadmNode{kind("InitConfiguration"), patches})
		if err != nil {
			return nil, err
		}
		initFile.Content = slices.Concat(initFile.Content, []byte("---\n"), clusterFile.Content)
		files = append(files, initFile)
	}
	join, err := nodefiles.YAML("kubeadm-join.yaml", 0o644, "", kubeadmNode{kind("JoinConfiguration"), patches})
	if err != nil {
		return nil, err
	}
	upgradeFile, err := nodefiles.YAML("kubeadm-upgrade.yaml", 0o644, "", upgrade)
	return append(files, join, upgradeFile), err
}
