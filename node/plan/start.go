// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// start is what a kubelet makes of a pinning file and of its configuration, before it looks at
// its checkpoint and its pods (managed.Configure).
type start struct {
	// known is false if nothing is known of the file.
	known bool
	// read are the pools that the file names; nil without a file. pools are those that the
	// kubelet goes by.
	read, pools partition.Pools
	// beyond are CPUs of pools that the host may lack: nothing known of the node shows them.
	beyond   cpuset.CPUSet
	settings partition.KubeletSettings
	found    partition.Reservation
	// reserved are the reserved CPUs; reservedKnown is false if upstream chooses them. millicores
	// is what allocatable lacks.
	reserved      cpuset.CPUSet
	reservedKnown bool
	millicores    int64
	division      partition.Division
	// refusal is the error with which the kubelet ends; empty if it does not.
	refusal string
}

// start returns what the kubelet makes of a pinning file.
func (n Node) start(file File) start {
	s := start{known: file.Known, settings: n.settings(), reserved: cpuset.New(), beyond: cpuset.New()}
	if file.Data != nil {
		online := n.Online
		if n.OnlineCounted {
			online = allCPUs
		}
		var err error
		if s.read, err = partition.Parse(file.Data, online); err != nil {
			s.refusal = fmt.Sprintf("pinning file %s: %v", partition.PinningFilePath, err)
			return s
		}
		if n.OnlineCounted {
			s.beyond = s.read.Union().Difference(n.Shown)
		}
	}
	if s.pools = s.read; s.read.HoldEvery(n.Online) {
		s.pools = s.read.Unconfined()
	}
	var err error
	if s.found, err = s.pools.Reserve(&s.settings, n.release()); err == nil {
		s.millicores, err = s.settings.ReservedMillicores()
	}
	if err == nil {
		s.reserved, err = partition.ParseCPUs(s.settings.ReservedSystemCPUs)
	}
	switch {
	case err != nil:
		s.refusal = err.Error()
		return s
	case s.found.Unstartable != "":
		s.refusal = s.found.Unstartable
		return s
	case s.settings.ReservedSystemCPUs != "" && (s.settings.KubeReservedCgroup != "" || s.settings.SystemReservedCgroup != ""):
		// pkg/kubelet/apis/config/validation, ValidateKubeletConfiguration
		s.refusal = "invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
	case !n.OnlineCounted && !s.reserved.IsSubsetOf(n.Online):
		// cmd/kubelet/app, getReservedCPUs
		s.refusal = fmt.Sprintf("reserved-cpus: %s is not a subset of online-cpus: %s", s.settings.ReservedSystemCPUs, n.Online)
	}
	s.reservedKnown = true
	if static := s.settings.CPUManagerPolicy == partition.StaticPolicy; static && s.settings.ReservedSystemCPUs == "" {
		// Upstream takes whole cores first (pkg/kubelet/cm/cpumanager/policy_static.go,
		// NewStaticPolicy). If one CPU is enough, it is the first.
		count := int((s.millicores + 999) / 1000)
		s.reservedKnown = count == 1
		if online := n.Online.List(); s.reservedKnown && len(online) > 0 {
			s.reserved = cpuset.New(online[0])
		}
	}
	s.division = s.pools.Divide(n.Online, n.Isolated, s.reserved)
	return s
}

// allCPUs are all that a pinning file may name.
var allCPUs, _ = partition.ParseCPUs("0-8191")

// file reports whether there is a file.
func (s start) file() bool { return s.read != nil }

// confines reports whether a pool has a CPU.
func (s start) confines() bool { return !s.division.Pooled.IsEmpty() }

// static reports whether the CPU manager gives exclusive CPUs.
func (s start) static() bool { return s.settings.CPUManagerPolicy == partition.StaticPolicy }

// sharable are the CPUs that the static policy shares while none is held exclusively.
func (s start) sharable(online cpuset.CPUSet) cpuset.CPUSet {
	if s.settings.Strict() {
		return online.Difference(s.reserved)
	}
	return online
}

// state returns what the kubelet makes of the file, for readers.
func (s start) state() State {
	state := State{ReservedCPUs: s.settings.ReservedSystemCPUs}
	if s.read != nil {
		state.Pools = map[string]string{}
	}
	for workloadType, pool := range s.read {
		state.Pools[workloadType] = pool.String()
	}
	return state
}

// notes are problems that need no pod: what the kubelet sends Events about at its start.
func (s start) notes(n Node) (notes []Problem) {
	if !s.known || s.refusal != "" {
		return nil
	}
	if s.read.HoldEvery(n.Online) {
		notes = append(notes, Problem{Severity: Warning, Code: partition.EventEveryCPU,
			Text: fmt.Sprintf("The pools hold every CPU of the host (%s), so they confine nothing and reserve nothing", n.Online)})
	}
	onIsolated := s.pools.OnIsolated(n.Isolated)
	for _, workloadType := range slices.Sorted(maps.Keys(onIsolated)) {
		notes = append(notes, Problem{Severity: Warning, Code: partition.EventPoolOnIsolated, Object: workloadType,
			Text: partition.OnIsolatedMessage(workloadType, s.pools[workloadType], onIsolated[workloadType])})
	}
	if n.Topology != nil && s.static() && partition.GivesReservedAway(n.release()) {
		cores, sockets := n.Topology.Groups()
		if given := s.pools.GivenAway(s.reserved, cores, sockets); !given.IsEmpty() {
			notes = append(notes, Problem{Severity: Warning, Code: partition.EventPoolSplitsCore, Text: partition.GivenAwayMessage(given)})
		}
	}
	if s.found.Differs != "" {
		notes = append(notes, Problem{Severity: Warning, Code: partition.EventReservedDiffer, Text: s.found.Differs})
	}
	for _, dropped := range s.found.Dropped {
		notes = append(notes, Problem{Severity: Warning, Code: partition.EventReservationDropped, Object: dropped, Text: partition.DroppedMessage})
	}
	return notes
}
