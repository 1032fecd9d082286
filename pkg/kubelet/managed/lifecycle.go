package managed

import (
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file says what a kubelet has to do after the pinning file came, changed or went. That
// follows from two things, which Configure reads before anything else uses CPUs: the file, and
// the record that an earlier kubelet with a file has left (record.go).
//
//	file  record
//	no    no      The feature is off: each hook returns what upstream would have without it.
//	yes   no      It came. Containers that run already move to where they belong.
//	yes   yes     It is as it was, or changed. What earlier pools confined moves, too.
//	no    yes     It went. What was confined is freed, once, and then the record is removed.
//
// A record that cannot be read counts as one: every set of CPUs that a container has may then
// be one that it names.
//
// The state is the process's: a kubelet reads both once, and never again.

// partitions returns the node's partitions, nil if there is no pinning file, and false if the
// feature is off.
func partitions() (n *node, on bool) {
	n = current.Load()
	return n, n != nil || host.earlier.confined
}

// earlierKubelet is what the record says.
type earlierKubelet struct {
	// confined tells that there is a record: an earlier kubelet gave sets of CPUs to containers.
	confined bool
	// sets are the ones that it gave.
	sets []cpuset.CPUSet
	// unreadable means that it is not known which.
	unreadable bool
}

// gave reports whether the set may be one that an earlier kubelet gave to a container.
func (e earlierKubelet) gave(set cpuset.CPUSet) bool {
	return e.unreadable || slices.ContainsFunc(e.sets, set.Equals)
}

// node is what the kubelet knows of its partitions. It never changes after Configure.
type node struct {
	pools partition.Pools
	// pooled are the CPUs of all pools, and others those of the host that are in none.
	pooled, others cpuset.CPUSet
	// ordinary are the CPUs on which the policy none puts containers of no partition: the
	// others, less those that the kernel keeps everything off which does not ask for them.
	ordinary cpuset.CPUSet
	// fallback is where containers without exclusive CPUs run when these have taken all
	// others; see unshared.
	fallback cpuset.CPUSet
}

// current is nil without a pinning file.
var current atomic.Pointer[node]

// host is what Configure found, with a pinning file or without one.
var host struct {
	online cpuset.CPUSet
	// isolated are the CPUs of the kernel's argument isolcpus.
	isolated cpuset.CPUSet
	// static and strict tell the CPU manager's policy, and whether that keeps
	// reserved CPUs out of its shared pool.
	static, strict bool
	earlier        earlierKubelet
	// podCgroups tells that pods have cgroups of their own (cgroupsPerQOS).
	podCgroups bool
	// quotaPeriod is that of CPU limits; zero means that the kubelet enforces none.
	quotaPeriod time.Duration
	log         klog.Logger
	// podLogs is the directory in which each pod has one of its own, named after it.
	podLogs string
}

func newNode(pools partition.Pools, online, isolated, reserved cpuset.CPUSet) *node {
	n := &node{pools: pools, pooled: pools.Union()}
	n.others = online.Difference(n.pooled)
	n.ordinary = without(n.others, isolated)
	if n.fallback = reserved.Intersection(n.others); n.fallback.IsEmpty() && !n.others.IsEmpty() {
		n.fallback = cpuset.New(slices.Max(n.others.UnsortedList()))
	}
	return n
}
