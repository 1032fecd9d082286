/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package managed

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file defines what a kubelet does after the pinning file was added, changed or removed.
// Two things decide, and Configure reads both before anything else uses CPUs: the file, and
// the record that a previous kubelet with a file left (record.go).
//
//	file  record
//	no    no      The feature is off: each hook returns what upstream would have without it.
//	yes   no      It was added. Running containers move to where they belong.
//	yes   yes     It is unchanged or changed. What previous pools confined moves, too.
//	no    yes     It was removed. What was confined is freed, once; then the record is removed.
//
// A record that cannot be read counts as a record: it may then name any cpuset that a
// container has.
//
// The state belongs to the process: a kubelet reads both once, and never again.

// partitions returns the node's partitions; nil without a pinning file. It returns false if
// the feature is off.
func partitions() (n *node, on bool) {
	n = shim.current.Load()
	return n, !off(n != nil)
}

// off reports whether the feature is off: there is neither a pinning file nor a record.
func off(file bool) bool { return !file && !shim.host.previous.mayHaveNarrowed() }

// previousKubelet is what the record says about previous kubelets.
type previousKubelet struct {
	// confined means that there is a record: a previous kubelet gave cpusets to containers.
	confined bool
	// sets are the cpusets that it gave.
	sets []cpuset.CPUSet
	// pooled are the CPUs of all its pools, and before those of the pools that were last
	// different.
	pooled, before cpuset.CPUSet
	// unreadable means that the record does not reveal which.
	unreadable bool
}

// mayHaveNarrowed reports whether a previous kubelet may have left cpusets that are narrower than
// those of upstream. If none has, a cpuset needs no attention unless this kubelet's pools require it.
func (p previousKubelet) mayHaveNarrowed() bool { return p.confined }

// gave reports whether a previous kubelet may have given this cpuset to a container.
func (p previousKubelet) gave(set cpuset.CPUSet) bool {
	return p.unreadable || slices.ContainsFunc(p.sets, set.Equals)
}

// node is what the kubelet knows of its partitions. It never changes after Configure.
type node struct {
	pools partition.Pools
	// Division is how the pools divide the CPUs of the host.
	partition.Division
	// before are the CPUs of all pools before these last changed, and known the pods that a
	// previous kubelet knew; see reportRejected.
	before cpuset.CPUSet
	known  []types.UID
}

// shim is all that this kubelet has found and learned. There is one in a process, since patches call hooks by name.
var shim struct {
	// current is the node that Configure found; nil without a pinning file.
	current atomic.Pointer[node]
	// host is what else Configure found. It is set with or without a pinning file.
	host host
	// recordPath is set by Configure, from the kubelet's root directory. Until then it names no
	// file, so there is no record, as in upstream's own tests.
	recordPath string
	// observed is what the hooks have learned about the kubelet around them.
	observed observation
	// classes is what is known about the classes' cgroups.
	classes classes
	// weighedBefore remembers whether the class Burstable had pods when this kubelet started.
	weighedBefore weighedBefore
	// lastOnline are the CPUs that reportOnline last found online; nil before it has looked.
	lastOnline atomic.Pointer[cpuset.CPUSet]
	// reporting keeps the Events in the order of what they report: admission and the workers of pods
	// set cores, too, while the kubelet has no node from kube-apiserver.
	reporting sync.Mutex
}

// host is a host and how its kubelet is configured.
type host struct {
	online cpuset.CPUSet
	// isolated are the CPUs that the kernel argument isolcpus names.
	isolated cpuset.CPUSet
	// static means that the CPU manager's policy is static, and strict that it keeps reserved
	// CPUs out of the shared CPUs.
	static, strict bool
	previous       previousKubelet
	// podCgroups means that pods have their own cgroups (cgroupsPerQOS).
	podCgroups bool
	// quotaPeriod is the period of CPU limits; zero means that the kubelet enforces none.
	quotaPeriod time.Duration
	log         klog.Logger
	// podLogs is the directory of the pods' log directories, which are named after the pods.
	podLogs string
}

func newNode(pools partition.Pools, online, isolated, reserved cpuset.CPUSet) *node {
	return &node{pools: pools, Division: pools.Divide(online, isolated, reserved)}
}
