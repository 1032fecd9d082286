// SPDX-License-Identifier: Apache-2.0

// Package v2 holds the part of PerformanceProfile (performance.openshift.io/v2) that is rendered here. Users write it as a
// manifest into a ConfigMap of a NodePool; it is never an object of a cluster. Names and meanings are the Node Tuning
// Operator's (pkg/apis/performanceprofile/v2). A field that is not here is refused.
package v2

// APIVersion and Kind are those of a manifest.
const (
	APIVersion = "performance.openshift.io/v2"
	Kind       = "PerformanceProfile"
)

// PerformanceProfile divides the CPUs of a pool's nodes, and tunes them for what runs on the isolated ones.
type PerformanceProfile struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata is what a manifest may have of an object's metadata.
type Metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Spec is what the nodes are to be like.
type Spec struct {
	CPU CPU `json:"cpu"`
	// NUMA is how the kubelet aligns a pod's resources.
	NUMA *NUMA `json:"numa,omitempty"`
	// HugePages are set aside at the boot.
	HugePages *HugePages `json:"hugepages,omitempty"`
	// AdditionalKernelArgs come after those that are rendered.
	AdditionalKernelArgs []string `json:"additionalKernelArgs,omitempty"`
	// NodeSelector is accepted and ignored: the profile is for the nodes of its NodePool.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// WorkloadHints say what the nodes are used for.
	WorkloadHints *WorkloadHints `json:"workloadHints,omitempty"`
}

// CPU divides the CPUs. Together these are all CPUs of a node, and no CPU is in two of them.
type CPU struct {
	// Reserved is the CPU list of the pool management, which the host shares. It is required.
	Reserved string `json:"reserved"`
	// Isolated is the CPU list for ordinary pods. It is required.
	Isolated string `json:"isolated"`
	// OVSDPDK is the CPU list for the host's own packet processing, which no pod gets.
	OVSDPDK string `json:"ovsDpdk,omitempty"`
}

// NUMA is about NUMA nodes.
type NUMA struct {
	// TopologyPolicy is the kubelet's topologyManagerPolicy.
	TopologyPolicy string `json:"topologyPolicy,omitempty"`
}

// HugePages are pages of memory.
type HugePages struct {
	// DefaultHugePagesSize is 1G, 2M, or another size of the architecture.
	DefaultHugePagesSize string     `json:"defaultHugepagesSize,omitempty"`
	Pages                []HugePage `json:"pages,omitempty"`
}

// HugePage are pages of one size.
type HugePage struct {
	Size  string `json:"size"`
	Count int32  `json:"count"`
	// Node is a NUMA node; without one, the kernel spreads them.
	Node *int32 `json:"node,omitempty"`
}

// WorkloadHints say what nodes are used for.
type WorkloadHints struct {
	// HighPowerConsumption keeps CPUs from sleeping deeply.
	HighPowerConsumption *bool `json:"highPowerConsumption,omitempty"`
	// RealTime, which is the default, keeps the kernel's timers off the isolated CPUs.
	RealTime *bool `json:"realTime,omitempty"`
	// PerPodPowerManagement lets the frequency driver be the passive one.
	PerPodPowerManagement *bool `json:"perPodPowerManagement,omitempty"`
}
