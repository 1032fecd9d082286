// SPDX-License-Identifier: Apache-2.0

package nodefiles

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"workload.openshift.io/partition"
)

// Where a node has its files. The first path and that of the pinning file are the source
// document's.
const (
	CRIODropInPath    = "/etc/crio/crio.conf.d/01-workload-partitioning"
	KubeletDropInPath = KubeletDropInDirectory + "/01-workload-partitioning.conf"
	// KubeletDropInDirectory is for the kubelet's flag --config-dir.
	KubeletDropInDirectory = "/etc/kubernetes/kubelet.conf.d"
	// GRUBDropInPath is read by the grub-mkconfig of Debian and its descendants. It comes late in
	// the directory's order: a file that assigns GRUB_CMDLINE_LINUX after it would undo it.
	GRUBDropInPath = "/etc/default/grub.d/99-workload-partitioning.cfg"
)

// PinningFile returns the node's pinning file. Only its owner may read it.
func (n Node) PinningFile() (File, error) {
	lists := map[string]string{}
	for workloadType, pool := range n.Pools {
		lists[workloadType] = pool.String()
	}
	data, err := pinningFile(lists)
	if err != nil {
		return File{}, err
	}
	file := File{Path: partition.PinningFilePath, Mode: 0o600, Content: data}
	again, err := parsePinningFile(data, n.CPUs)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", file.Path, err)
	}
	return file, file.MustEqual(printed(n.Pools), printed(again))
}

func printed(pools partition.Pools) map[string]string {
	lists := map[string]string{}
	for workloadType, pool := range pools {
		lists[workloadType] = pool.String()
	}
	return lists
}

// crioConfig is what CRI-O reads of a drop-in (cri-o, pkg/config).
type crioConfig struct {
	CRIO struct {
		Runtime struct {
			InfraCtrCPUSet string                  `toml:"infra_ctr_cpuset"`
			Workloads      map[string]crioWorkload `toml:"workloads"`
		} `toml:"runtime"`
	} `toml:"crio"`
}

type crioWorkload struct {
	ActivationAnnotation string        `toml:"activation_annotation"`
	AnnotationPrefix     string        `toml:"annotation_prefix"`
	Resources            crioResources `toml:"resources"`
}

type crioResources struct {
	CPUShares uint64 `toml:"cpushares"`
	CPUSet    string `toml:"cpuset"`
}

// CRIODropIn returns CRI-O's drop-in in the form of the design's section 7. The encoder of the
// TOML library has another form for inline tables, so it only decodes.
func (n Node) CRIODropIn() (File, error) {
	var meant crioConfig
	meant.CRIO.Runtime.Workloads = map[string]crioWorkload{}
	var text bytes.Buffer
	if union := n.Pools.Union(); !union.IsEmpty() {
		meant.CRIO.Runtime.InfraCtrCPUSet = union.String()
		fmt.Fprintf(&text, "[crio.runtime]\ninfra_ctr_cpuset = %q\n\n", union)
	}
	for i, workloadType := range n.Pools.Types() {
		w := crioWorkload{
			ActivationAnnotation: partition.TargetAnnotation(workloadType),
			AnnotationPrefix:     partition.ResourcesPrefix[:len(partition.ResourcesPrefix)-1],
			Resources:            crioResources{CPUSet: n.Pools[workloadType].String()},
		}
		meant.CRIO.Runtime.Workloads[workloadType] = w
		if i > 0 {
			text.WriteByte('\n')
		}
		fmt.Fprintf(&text, "[crio.runtime.workloads.%s]\nactivation_annotation = %q\nannotation_prefix = %q\nresources = { \"cpushares\" = %d, \"cpuset\" = %q }\n",
			workloadType, w.ActivationAnnotation, w.AnnotationPrefix, w.Resources.CPUShares, w.Resources.CPUSet)
	}
	file := File{Path: CRIODropInPath, Mode: 0o644, Content: text.Bytes()}
	var again crioConfig
	if err := toml.NewDecoder(bytes.NewReader(file.Content)).DisallowUnknownFields().Decode(&again); err != nil {
		return File{}, fmt.Errorf("%s: %w", file.Path, err)
	}
	return file, file.MustEqual(meant, again)
}

// KubeletConfiguration returns the fields of the kubelet's configuration that follow from the
// pools. The kubelet would set them by itself; written down, they are also there for unpatched
// kubelets, and for tools that compare the configuration with the CPU manager's checkpoint. It
// is nil if there are none.
func (n Node) KubeletConfiguration() *kubeletv1beta1.KubeletConfiguration {
	c := &kubeletv1beta1.KubeletConfiguration{
		ReservedSystemCPUs:    n.Reserved().String(),
		CPUManagerPolicy:      n.CPUManagerPolicy,
		TopologyManagerPolicy: n.TopologyManagerPolicy,
	}
	if c.ReservedSystemCPUs == "" && c.CPUManagerPolicy == "" && c.TopologyManagerPolicy == "" {
		return nil
	}
	if c.CPUManagerPolicy == "static" {
		c.CPUManagerPolicyOptions = map[string]string{"strict-cpu-reservation": "true"}
	}
	c.APIVersion, c.Kind = kubeletv1beta1.SchemeGroupVersion.String(), "KubeletConfiguration"
	return c
}

// KubeletDropIn returns a file for the directory that the kubelet's flag --config-dir names.
// It has no content if nothing is to be configured.
func (n Node) KubeletDropIn() (File, error) {
	c := n.KubeletConfiguration()
	if c == nil {
		return File{}, nil
	}
	return YAML(KubeletDropInPath, 0o644, "", *c)
}

// GRUBDropIn returns the file with the kernel arguments of a host that boots by GRUB. It has no
// content if there are none.
func (n Node) GRUBDropIn() File {
	arguments := n.KernelArguments()
	if len(arguments) == 0 {
		return File{}
	}
	// The arguments have no character that a shell would expand.
	return File{Path: GRUBDropInPath, Mode: 0o644, Content: fmt.Appendf(nil, "%sGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX %s\"\n", madeBy, strings.Join(arguments, " "))}
}
