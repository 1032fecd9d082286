// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/partition"
)

// Status is what the API of a cluster, and each of its kube-apiservers, say about workload
// partitioning.
type Status struct {
	metav1.TypeMeta `json:",inline"`
	// Servers are the kube-apiservers, the configured one first.
	Servers []Server `json:"servers"`
	// Types are the workload types that the latch, a node, a kube-apiserver or a pod names.
	Types []Type `json:"types"`
	// Nodes has an entry for each type on each node, the most overcommitted pools first.
	Nodes []Node `json:"nodes"`
	// NodesUnknown: the nodes could not be listed, so Nodes has at most some on which
	// partitioned pods are.
	NodesUnknown bool `json:"nodesUnknown,omitempty"`
	// PodsUnknown: the pods could not be listed, or not all of them, so what counts pods is too small.
	PodsUnknown bool `json:"podsUnknown,omitempty"`
	// Skipped are the pods that asked and run as ordinary pods, by type and reason; the
	// group with the newest pod is first.
	Skipped []Skipped `json:"skipped"`
	// Undecided are pods that ask, or have cores, and were neither partitioned nor skipped.
	// A kube-apiserver without the plugin has created them, or a kubelet without a pinning
	// file runs them as static pods. Nil if there are none.
	Undecided *Pods `json:"undecided,omitempty"`
	// NotAllowed are the pods that have no right to the type which they claim: their namespace does not
	// allow it. They are older than the admission plugin, or got past it, or the namespace allowed the
	// type when they were created. Those that the kubelet takes as partitioned come first. Empty if it
	// is not known what namespaces allow.
	NotAllowed []PodNotAllowed `json:"notAllowed"`
	// Unbounded are the types that a namespace allows, and whose cores no quota of it bounds.
	Unbounded []Unbounded `json:"unbounded"`
	// Autoscalers cannot work with the partitioned workload that they scale.
	Autoscalers []Autoscaler `json:"autoscalers"`
	// Unknown is what could not be found out.
	Unknown []Unknown `json:"unknown"`
}

// Plugin says whether a kube-apiserver has the admission plugin.
type Plugin string

// A kube-apiserver without the plugin lets anyone forge a partitioned pod.
const (
	Present     Plugin = "present"
	Absent      Plugin = "absent"
	Unreachable Plugin = "unknown"
)

// Server is a kube-apiserver.
type Server struct {
	URL string `json:"url"`
	// Configured is true for the address of the client's configuration. It may be that of a
	// load balancer, and is then the answer of any kube-apiserver.
	Configured bool   `json:"configured,omitempty"`
	Plugin     Plugin `json:"plugin"`
	// Error says why it is not known whether the plugin is there.
	Error string `json:"error,omitempty"`
	// Types are the states of the types that this kube-apiserver knows.
	Types map[string]ServerType `json:"types,omitempty"`
	// Metrics are the plugin's, as kube-apiserver writes them.
	Metrics string `json:"-"`
}

// ServerType is the state of a type in one kube-apiserver, from the plugin's metrics.
type ServerType struct {
	Active bool `json:"active"`
	// Unlatched: the type is active, and could not be written to the enabled annotation.
	Unlatched bool `json:"unlatched,omitempty"`
}

// Type is the state of a workload type in the cluster.
type Type struct {
	Name string `json:"name"`
	// Active is what all kube-apiservers that answered agree on. Without an answer, a type
	// that is latched is active. Nil means that it is not known, or that they disagree.
	Active *bool `json:"active,omitempty"`
	// Disagree: some kube-apiservers partition pods of the type, and some do not.
	Disagree bool `json:"disagree,omitempty"`
	// Latched: the enabled annotation lists the type.
	Latched bool `json:"latched"`
	// Since is when the enabled annotation was last written, if managed fields say so: a
	// latched type has been active since then at the latest.
	Since *metav1.Time `json:"since,omitempty"`
	// NodesReporting is the number of nodes that count and report the type's cores. Missing
	// are those that count and do not: they keep an inactive type inactive, and pods of an
	// active one do not run there.
	NodesReporting int      `json:"nodesReporting"`
	Missing        []string `json:"missing,omitempty"`
	// Pods are the partitioned pods that have not ended; Unscheduled are those of them that
	// have no node.
	Pods        int `json:"pods"`
	Unscheduled int `json:"unscheduled,omitempty"`
	// RequestedMillicores is what the pods on nodes request; CoresMillicores is what the
	// nodes have.
	RequestedMillicores int64 `json:"requestedMillicores"`
	CoresMillicores     int64 `json:"coresMillicores"`
}

// Node is a type on a node.
type Node struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Pods are the partitioned pods on the node that have not ended, and RequestedMillicores
	// what they request of the type's cores.
	Pods                int   `json:"pods"`
	RequestedMillicores int64 `json:"requestedMillicores"`
	// CoresMillicores are the node's allocatable cores of the type: all CPUs of the host.
	CoresMillicores int64 `json:"coresMillicores"`
	// ReservedMillicores is the node's cpu capacity less what is allocatable: the reserved
	// CPUs, of which the pools of all types are a part. Where pools hold every CPU, nothing
	// is reserved for them.
	ReservedMillicores int64 `json:"reservedMillicores"`
	// PoolCPUs is the size of the type's pool, which only the kubelet knows; zero means that
	// the type is not confined. Nil means that the kubelet was not asked, or did not say.
	PoolCPUs *int `json:"poolCPUs,omitempty"`
	// Largest is the pod that requests most; nil where none requests anything.
	Largest *Largest `json:"largest,omitempty"`

	// reports: the node's capacity has cores of the type.
	reports bool
}

// Overcommitment returns the requested millicores as a share of the pool. Without the size of
// the pool it is a share of the reserved CPUs, and so the least that it can be, unless the type
// is not confined: then there is no pool, which only the kubelet knows. It returns zero where
// neither is known.
func (n Node) Overcommitment() (share float64, least bool) {
	switch {
	case n.PoolCPUs != nil && *n.PoolCPUs > 0:
		return float64(n.RequestedMillicores) / float64(1000**n.PoolCPUs), false
	case n.PoolCPUs == nil && n.ReservedMillicores > 0:
		return float64(n.RequestedMillicores) / float64(n.ReservedMillicores), true
	}
	return 0, false
}

// Exceeds reports whether a pod on the node requests more than its pool has. Without the size of the
// pool it goes by the reserved CPUs, as [Node.Overcommitment] does, and is not certain.
func (n Node) Exceeds() (exceeds, certain bool) {
	switch {
	case n.Largest == nil:
	case n.PoolCPUs != nil:
		return *n.PoolCPUs > 0 && n.Largest.Millicores > int64(1000**n.PoolCPUs), true
	case n.ReservedMillicores > 0:
		return n.Largest.Millicores > n.ReservedMillicores, false
	}
	return false, false
}

// Largest is a pod, and the millicores of its type that it requests.
type Largest struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Millicores int64  `json:"millicores"`
}

// PodNotAllowed is a pod that claims a type which its namespace does not allow.
type PodNotAllowed struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Node is empty for a pod that is not scheduled.
	Node string `json:"node,omitempty"`
	Type string `json:"type"`
	// Partitioned: a kubelet that has the type takes the pod as partitioned, and runs it in the pool.
	// Otherwise it has a target annotation or cores, and runs as an ordinary pod.
	Partitioned bool `json:"partitioned"`
}

// Unbounded is a type that a namespace allows.
type Unbounded struct {
	Namespace string `json:"namespace"`
	Type      string `json:"type"`
}

// Pods are counted, and the newest of them named.
type Pods struct {
	Count  int   `json:"count"`
	Newest []Pod `json:"newest"`
}

// Pod names a pod.
type Pod struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Created   metav1.Time `json:"created"`
	// Detail is what the warning adds to its reason: the container with its CPU, or the object
	// that constrains the namespace.
	Detail string `json:"detail,omitempty"`
}

// Skipped are the pods of one type that were skipped for one reason.
type Skipped struct {
	// Type is empty for pods with an invalid target.
	Type   string           `json:"type"`
	Reason partition.Reason `json:"reason"`
	// Text is the reason in words, from the core's table of reasons.
	Text string `json:"text"`
	Pods `json:",inline"`
}

// Intended reports whether nothing is wrong with that: nodes that do not count never have a pool.
func (s Skipped) Intended() bool { return s.Reason == partition.ReasonNodeDoesNotCount }

// Autoscaler is one that cannot work with the partitioned workload that it scales.
type Autoscaler struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Target is the workload, such as Deployment/web.
	Target  string `json:"target"`
	Problem string `json:"problem"`
}

// Unknown is something that could not be found out.
type Unknown struct {
	// Right is the missing one, as "list pods". It is empty if something else went wrong.
	Right string `json:"right,omitempty"`
	// What is unknown for want of it.
	What string `json:"what"`
	// Error is what kube-apiserver or the kubelet said.
	Error string `json:"error"`
}

// Found reports whether something is wrong in what is known: a kube-apiserver without the
// plugin, kube-apiservers that disagree, a type that cannot be latched, nodes that lack a
// type of which it is known whether it is active, pods that were skipped, never decided on, or have no
// right to their type, pods that request more than their pool is known to have, or autoscalers that cannot work.
func (s *Status) Found() bool {
	return slices.ContainsFunc(s.Skipped, func(group Skipped) bool { return !group.Intended() }) || s.Undecided != nil || len(s.NotAllowed) > 0 || len(s.Autoscalers) > 0 ||
		slices.ContainsFunc(s.Nodes, func(n Node) bool { exceeds, certain := n.Exceeds(); return exceeds && certain }) ||
		slices.ContainsFunc(s.Types, func(t Type) bool { return t.Disagree || len(t.Missing) > 0 && t.Active != nil }) ||
		slices.ContainsFunc(s.Servers, func(server Server) bool {
			if server.Plugin == Absent {
				return true
			}
			for _, state := range server.Types {
				if state.Unlatched {
					return true
				}
			}
			return false
		})
}

// Gate answers whether pods are partitioned as a type in the cluster. What is unknown is taken
// for the best: without an answer of a kube-apiserver that has the plugin, a type is active.
func (s *Status) Gate() partition.Gate {
	answered := slices.ContainsFunc(s.Servers, func(server Server) bool { return server.Plugin == Present })
	return func(workloadType string) partition.Reason {
		i := slices.IndexFunc(s.Types, func(t Type) bool { return t.Name == workloadType })
		if i < 0 && answered || i >= 0 && s.Types[i].Active != nil && !*s.Types[i].Active {
			return partition.ReasonTypeInactive
		}
		return partition.NoReason
	}
}

// WithoutPlugin returns the address of a kube-apiserver without the plugin, if none is known that has it: whatever
// the nodes have, a pod that asks stays as it is. It returns nothing otherwise.
func (s *Status) WithoutPlugin() (url string) {
	for _, server := range s.Servers {
		switch server.Plugin {
		case Present:
			return ""
		case Absent:
			url = cmp.Or(url, server.URL)
		}
	}
	return url
}

// Incomplete reports whether something could not be found out.
func (s *Status) Incomplete() bool {
	return len(s.Unknown) > 0 || slices.ContainsFunc(s.Servers, func(server Server) bool { return server.Plugin == Unreachable })
}
