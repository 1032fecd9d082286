// SPDX-License-Identifier: Apache-2.0

// Package nodefiles makes the files of partitioned nodes from one validated value: the
// pinning file, and what runtime, kubelet and host need to agree with it.
//
//   - [NodeConfiguration] is what a person writes.
//   - [Validate] makes a [Node] of it for each role. What the kubelet would refuse is an error;
//     what it accepts and a careful operator would not do is a warning.
//   - [Node] has a method for each file of a node.
//
// All of this is a pure function of the value: nothing is read from the host, and nothing is
// written. Before a file is returned it is decoded again, by the decoder of the program that
// it is for where there is one, and compared.
package nodefiles

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/partition"
)

// NodeConfiguration is the configuration that the nodes of one or several roles share.
type NodeConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// Roles are DNS-1123 labels, such as the names of machine pools. They default to master.
	Roles []string `json:"roles,omitempty"`
	// CPUs is the CPU list of a host. Without it, it is unknown which CPUs are in no pool, so
	// checks and files that need these are left out, with a warning.
	CPUs string `json:"cpus,omitempty"`
	// Partitions are the pools; there is at least one.
	Partitions []Partition `json:"partitions"`
	// SystemCPUs is a CPU list that is in no pool and that no pod gets: the host's own packet
	// processing has it, such as Open vSwitch with DPDK.
	SystemCPUs string `json:"systemCPUs,omitempty"`
	// CPUManagerPolicy is the kubelet's: static, none, or empty to leave it as it is.
	CPUManagerPolicy string `json:"cpuManagerPolicy,omitempty"`
	// TopologyManagerPolicy is the kubelet's: none, best-effort, restricted, single-numa-node, or
	// empty to leave it as it is.
	TopologyManagerPolicy string `json:"topologyManagerPolicy,omitempty"`
	// Host says what keeps the rest of the host on the pools. If it is empty, nothing does.
	Host []HostPart `json:"host,omitempty"`
}

// Partition is one pool of a [NodeConfiguration].
type Partition struct {
	// Type is the workload type.
	Type string `json:"type"`
	// CPUSet is the pool's CPU list. It is required, and may be empty: that switches the type
	// on without confining it.
	CPUSet *string `json:"cpuset"`
}

// TopologyManagerPolicies are the kubelet's.
var TopologyManagerPolicies = []string{"none", "best-effort", "restricted", "single-numa-node"}

// Node is the validated configuration of the nodes of one role. Validate makes it.
type Node struct {
	// Role is a DNS-1123 label.
	Role string
	// Pools has at least one type.
	Pools partition.Pools
	// CPUs are the host's; empty if unknown.
	CPUs cpuset.CPUSet
	// SystemCPUs are in no pool, and no pod gets them.
	SystemCPUs cpuset.CPUSet
	// CPUManagerPolicy is static, none or empty; TopologyManagerPolicy one of the kubelet's, or
	// empty.
	CPUManagerPolicy, TopologyManagerPolicy string
	// Host has no part twice.
	Host []HostPart
}

// ControlPlane reports whether the role's nodes run kube-apiserver.
func (n Node) ControlPlane() bool {
	return n.Role == DefaultRole || n.Role == "control-plane"
}

// DefaultRole is the source document's name for a node with a control plane.
const DefaultRole = "master"

// Reserved returns the CPUs that no ordinary pod gets: those that are set aside, and the system's.
func (n Node) Reserved() cpuset.CPUSet { return n.SetAside().Union(n.SystemCPUs) }

// SetAside returns the CPUs of all pools. It is empty if the pools have every CPU of the host,
// since they confine and reserve nothing then (design, section 2).
func (n Node) SetAside() cpuset.CPUSet {
	union := n.Pools.Union()
	if !n.CPUs.IsEmpty() && n.CPUs.IsSubsetOf(union) {
		return cpuset.New()
	}
	return union
}

// Rest returns the CPUs of the host that are in no pool; empty if they are unknown.
func (n Node) Rest() cpuset.CPUSet {
	return n.CPUs.Difference(n.Pools.Union())
}

// Validate returns a Node for each role of a configuration. host may be nil. Otherwise it is
// the topology of such a node: the pools must fit it, whatever CPUs says, and it stands in for
// a missing CPUs.
//
// Errors name the field, or the workload type, and the value. Warnings are sentences, and name
// the CPU.
func Validate(c NodeConfiguration, host *topology.Topology) (nodes []Node, warnings []string, err error) {
	var errs field.ErrorList
	if len(c.Roles) == 0 {
		c.Roles = []string{DefaultRole}
	}
	for i, role := range c.Roles {
		path := field.NewPath("roles").Index(i)
		if problems := validation.IsDNS1123Label(role); len(problems) > 0 {
			errs = append(errs, field.Invalid(path, role, strings.Join(problems, "; ")))
		}
		if slices.Contains(c.Roles[:i], role) {
			errs = append(errs, field.Duplicate(path, role))
		}
	}
	if policies := []string{"none", "static"}; c.CPUManagerPolicy != "" && !slices.Contains(policies, c.CPUManagerPolicy) {
		errs = append(errs, field.NotSupported(field.NewPath("cpuManagerPolicy"), c.CPUManagerPolicy, policies))
	}
	if c.TopologyManagerPolicy != "" && !slices.Contains(TopologyManagerPolicies, c.TopologyManagerPolicy) {
		errs = append(errs, field.NotSupported(field.NewPath("topologyManagerPolicy"), c.TopologyManagerPolicy, TopologyManagerPolicies))
	}
	for i, part := range c.Host {
		path := field.NewPath("host").Index(i)
		if !slices.Contains(HostParts, part) {
			errs = append(errs, field.NotSupported(path, part, HostParts))
		}
		if slices.Contains(c.Host[:i], part) {
			errs = append(errs, field.Duplicate(path, part))
		}
	}
	cpus, err := partition.ParseCPUs(c.CPUs)
	if err != nil {
		errs = append(errs, field.Invalid(field.NewPath("cpus"), c.CPUs, err.Error()))
	}
	system, err := partition.ParseCPUs(c.SystemCPUs)
	if err != nil {
		errs = append(errs, field.Invalid(field.NewPath("systemCPUs"), c.SystemCPUs, err.Error()))
	}
	if len(errs) > 0 {
		return nil, nil, errs.ToAggregate()
	}
	if cpus.IsEmpty() && host != nil {
		cpus = host.Online
	}
	pools, err := poolsOf(c.Partitions, cpus)
	if err != nil {
		return nil, nil, err
	}
	if host != nil && !host.Online.Equals(cpus) {
		if _, err := poolsOf(c.Partitions, host.Online); err != nil {
			return nil, nil, err
		}
	}
	if shared := system.Intersection(pools.Union()); !shared.IsEmpty() {
		return nil, nil, field.Invalid(field.NewPath("systemCPUs"), c.SystemCPUs, fmt.Sprintf("CPU %s is in a pool, too", shared))
	}
	if missing := system.Difference(cpus); !cpus.IsEmpty() && !missing.IsEmpty() {
		return nil, nil, field.Invalid(field.NewPath("systemCPUs"), c.SystemCPUs, fmt.Sprintf("the host has no CPU %s; it has %s", missing, cpus))
	}
	node := Node{Pools: pools, CPUs: cpus, SystemCPUs: system, CPUManagerPolicy: c.CPUManagerPolicy, TopologyManagerPolicy: c.TopologyManagerPolicy, Host: c.Host}
	warnings = node.warnings(host)
	if node.SetAside().IsEmpty() {
		node.Host = nil
	}
	for _, role := range c.Roles {
		node.Role = role
		nodes = append(nodes, node)
	}
	return nodes, warnings, nil
}

// poolsOf lets the kubelet's own decoder judge the pools. host is empty if unknown.
func poolsOf(partitions []Partition, host cpuset.CPUSet) (partition.Pools, error) {
	if len(partitions) == 0 {
		return nil, field.Required(field.NewPath("partitions"), "a node without a pool needs no configuration")
	}
	lists := map[string]string{}
	for i, p := range partitions {
		path := field.NewPath("partitions").Index(i)
		if _, twice := lists[p.Type]; twice {
			return nil, field.Duplicate(path.Child("type"), p.Type)
		}
		if p.CPUSet == nil {
			return nil, field.Required(path.Child("cpuset"), fmt.Sprintf(`the pool of %q; "" switches the type on without confining it`, p.Type))
		}
		lists[p.Type] = *p.CPUSet
	}
	data, err := pinningFile(lists)
	if err != nil {
		return nil, err
	}
	return parsePinningFile(data, host)
}

// pinningFile writes a pinning file in the form of the source document.
func pinningFile(lists map[string]string) ([]byte, error) {
	type entry struct {
		CPUSet string `json:"cpuset"`
	}
	file := map[string]entry{}
	for workloadType, list := range lists {
		file[workloadType] = entry{list}
	}
	data, err := json.MarshalIndent(file, "", "  ")
	return append(data, '\n'), err
}

// parsePinningFile is partition.Parse, also for an unknown host.
func parsePinningFile(data []byte, host cpuset.CPUSet) (partition.Pools, error) {
	if host.IsEmpty() {
		host = anyCPU
	}
	return partition.Parse(data, host)
}

// anyCPU are all CPUs that a list may name (workload.openshift.io/partition, maxCPU), and
// below1024 those that fit libc's cpu_set_t.
var (
	anyCPU    = mustParse("0-8191")
	below1024 = mustParse("0-1023")
)

func mustParse(list string) cpuset.CPUSet {
	cpus, err := partition.ParseCPUs(list)
	if err != nil {
		panic(err)
	}
	return cpus
}
