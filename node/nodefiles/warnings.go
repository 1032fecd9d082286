// SPDX-License-Identifier: Apache-2.0

package nodefiles

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/partition"
)

// warnings says what could not be checked, and what the kubelet accepts and a careful operator
// would not do. host is nil if the topology is unknown.
func (n Node) warnings(host *topology.Topology) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	union, reserved := n.Pools.Union(), n.SetAside()
	if n.CPUs.IsEmpty() && !union.IsEmpty() {
		warn("The host's CPUs are not known, so it was not checked that the host has CPUs %s, nor that any are left to ordinary pods.", union)
	}
	if host != nil && !host.Online.Equals(n.CPUs) {
		warn("The configuration says that the host has CPUs %s, and this host has %s.", n.CPUs, host.Online)
	}
	if host == nil && !union.IsEmpty() {
		warn("The host's physical cores are not known, so it was not checked that the pools have whole cores.")
	}
	if union.IsEmpty() && len(n.Host) > 0 {
		warn("No pool has a CPU to keep the host on, so this is left out: %s.", listed(n.Host))
	}
	if !union.IsEmpty() && reserved.IsEmpty() {
		warn("The pools have every CPU of the host, %s. Then the kubelet confines and reserves nothing, and sends an Event PoolsHoldEveryCPU. Leave some CPUs to ordinary pods.", n.CPUs)
	}
	if n.Reserved().IsEmpty() && n.CPUManagerPolicy == "static" {
		warn("The pools reserve no CPU. With the policy static the kubelet does not start without a reservation: set reservedSystemCPUs, or cpu in kubeReserved or systemReserved.")
	}
	if !reserved.IsEmpty() && !reserved.Contains(0) && (n.CPUs.IsEmpty() || n.CPUs.Contains(0)) {
		warn("CPU 0 is in no pool. The kernel has work that it can do only there, and that disturbs an application on CPU 0.")
	}
	for _, workloadType := range n.Pools.Types() {
		pool := n.Pools[workloadType]
		if pool.Size() == 1 {
			warn("The pool of %q has one CPU, %s. That is too little for a control plane, which usually gets four.", workloadType, pool)
		}
		if beyond := pool.Difference(below1024); !beyond.IsEmpty() {
			warn("The pool of %q has CPU %s. runc 1.3.1 to 1.4.0 keeps containers off CPUs from 1024 on.", workloadType, beyond)
		}
	}
	if host != nil {
		warnings = append(warnings, n.oddSiblings(host)...)
		cores, sockets := host.Groups()
		if given := n.Pools.GivenAway(n.Reserved(), cores, sockets); n.CPUManagerPolicy != "none" && !given.IsEmpty() {
			warn("%s", sentence(partition.GivenAwayMessage(given)))
		}
		onIsolated := n.Pools.OnIsolated(host.Isolated)
		for _, workloadType := range slices.Sorted(maps.Keys(onIsolated)) {
			warn("%s", sentence(partition.OnIsolatedMessage(workloadType, n.Pools[workloadType], onIsolated[workloadType])))
		}
	}
	if reserved.IsEmpty() {
		return warnings
	}
	if slices.Contains(n.Host, Affinity) {
		warn("On Linux 6.2 and later, containers inherit CPUAffinity from runc before 1.2.7 or 1.3.1, and from crun before 1.25. When a pool moves, they then stay on its old CPUs.")
	}
	if slices.Contains(n.Host, Slices) && !n.SystemCPUs.IsEmpty() {
		warn("AllowedCPUs keeps all services of system.slice on the pools. Give the one that is to run on CPU %s a slice of its own at the top, with AllowedCPUs=%[1]s.", n.SystemCPUs)
	}
	if n.CPUs.IsEmpty() {
		for _, part := range n.Host {
			if lacking := needsRest[part]; lacking != "" {
				warn("Without the host's CPUs, %s leaves out %s.", part, lacking)
			}
		}
	}
	return warnings
}

// sentence makes a sentence of a message.
func sentence(message string) string { return strings.ToUpper(message[:1]) + message[1:] + "." }

// needsRest is what a part of the host's configuration cannot say without the CPUs in no pool.
var needsRest = map[HostPart]string{
	Slices:          "the weight of system.slice relative to all pods",
	IRQBalance:      "everything: irqbalance's setting says where interrupts must not go",
	KernelArguments: "isolcpus and rcu_nocbs",
}

// oddSiblings names the physical cores that a pool does not have as a whole.
func (n Node) oddSiblings(host *topology.Topology) (warnings []string) {
	for _, workloadType := range n.Pools.Types() {
		pool := n.Pools[workloadType]
		for _, core := range host.Split(pool) {
			outside := core.CPUs.Difference(pool)
			where := "in no pool"
			for _, other := range n.Pools.Types() {
				if shared := outside.Intersection(n.Pools[other]); !shared.IsEmpty() {
					// The other pool would repeat this.
					if other < workloadType {
						outside = outside.Difference(shared)
						continue
					}
					where = fmt.Sprintf("in that of %q", other)
				}
			}
			if !outside.IsEmpty() {
				warnings = append(warnings, fmt.Sprintf("CPU %s is in the pool of %q, and its sibling CPU %s is %s. They are threads of one physical core, and slow each other down.", core.CPUs.Intersection(pool), workloadType, outside, where))
			}
		}
	}
	return warnings
}

func listed[S ~string](names []S) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}
