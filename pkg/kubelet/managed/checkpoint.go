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
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// StartPolicy calls start, which starts the CPU manager's policy, after it has derived the
// shared CPUs for the checkpoint (partition.Checkpoint.Derive). Upstream would refuse to start
// until an administrator deletes the checkpoint, and all exclusive assignments with it
// (pkg/kubelet/cm/cpumanager/policy_static.go, validateState).
//
// An error names a pod that may be running and holds a CPU of a pool. The whole checkpoint then
// stays as it is.
//
// online are the CPUs of the host, and allocatable those that the policy may give away.
func StartPolicy[F policyStart](start F, s state.State, online, allocatable cpuset.CPUSet) error {
	n, on := partitions()
	if !on || !shim.host.static {
		return callStart(start, s)
	}
	reserved := online.Difference(allocatable)
	skip, err := deriveSharedCPUs(n, s, online, reserved)
	if err != nil {
		return err
	}
	shim.observed.Lock()
	shim.observed.state = s
	shim.observed.Unlock()
	if n == nil {
		go removeRecordOnceFreed(freedPeriod)
	} else {
		n.writeRecord(nil) // of these pools only: the CPU manager moves every container off previous ones
	}
	if skip {
		return nil
	}
	return callStart(start, s)
}

// deriveSharedCPUs brings the checkpoint up to date, as StartPolicy says. skip means that
// upstream's start must not run, since it would take the checkpoint for damaged.
// deriveSharedCPUs then sets the metrics that upstream's start would have set.
func deriveSharedCPUs(n *node, s state.State, online, reserved cpuset.CPUSet) (skip bool, err error) {
	before := partition.Checkpoint{Shared: s.GetDefaultCPUSet(), Assignments: assignmentsOf(s)}
	if len(before.Assignments) == 0 && before.Shared.IsEmpty() {
		return false, nil // the checkpoint is new: upstream fills it
	}
	from := partition.Derivation{Online: online, Reserved: reserved, Strict: shim.host.strict, File: n != nil, MayRun: mayRun}
	if n != nil {
		from.Pooled = n.Pooled
	}
	derived, err := before.Derive(from)
	if taken := (*partition.TakenError)(nil); errors.As(err, &taken) {
		err = errors.New(taken.Message(podName(taken.Pod)))
	}
	if err != nil {
		return false, err
	}
	for _, a := range derived.Dropped {
		shim.host.log.Info("Dropping exclusive CPUs of a pod that has no running container; it gets others when it is admitted again", "holder", holder(a), "cpus", a.CPUs.String())
		drop(s, a)
	}
	for _, a := range derived.Offline {
		shim.host.log.Error(nil, "An exclusively held CPU is offline", "holder", holder(a.Assignment), "cpus", a.Of.String())
		nodeEvent(v1.EventTypeWarning, partition.EventCPUOffline, "CPU %s, which %s holds exclusively, is offline: bring it online, or delete the pod", a.Of, holder(a.Assignment))
	}
	for _, a := range derived.Reserved {
		shim.host.log.Info("An exclusively held CPU is reserved now; its container keeps it", "holder", holder(a.Assignment), "cpus", a.Of.String())
	}
	if !before.Shared.Equals(derived.Shared) {
		shim.host.log.Info("Bringing the CPU manager's checkpoint up to date", "sharedBefore", before.Shared.String(), "sharedNow", derived.Shared.String())
		s.SetDefaultCPUSet(derived.Shared)
	}
	if derived.Shared.IsEmpty() && !derived.Exclusive.IsEmpty() {
		shim.host.log.Info("Exclusive containers have every CPU outside the pools", "exclusive", derived.Exclusive.String())
	}
	if derived.Untenable {
		initializeMetrics(derived.Shared.Difference(reserved), derived.Exclusive)
	}
	return derived.Untenable, nil
}

// assignmentsOf returns all assignments, in a fixed order.
func assignmentsOf(s state.State) (all []partition.Assignment) {
	for pod, containers := range s.GetCPUAssignments() {
		for container, cpus := range containers {
			all = append(all, partition.Assignment{Pod: pod, Container: container, CPUs: cpus})
		}
	}
	all = append(all, podAssignments(s)...)
	partition.SortAssignments(all)
	return all
}

// holder says who holds the CPUs of an assignment.
func holder(a partition.Assignment) string { return a.Holder(podName(a.Pod)) }

// drop removes an assignment from the checkpoint.
func drop(s state.State, a partition.Assignment) {
	if a.Container == "" {
		dropPodAssignment(s, a.Pod)
		return
	}
	s.Delete(a.Pod, a.Container)
}

// podUIDLabel is the label in which the kubelet gives each container the UID of its pod
// (k8s.io/kubelet/pkg/types).
const podUIDLabel = "io.kubernetes.pod.uid"

// mayRun reports whether a container of the pod may be running. It returns true if the runtime
// does not answer.
func mayRun(uid string) bool {
	shim.observed.Lock()
	runtime := shim.observed.runtime
	shim.observed.Unlock()
	if runtime == nil {
		return true
	}
	containers, err := runtime.ListContainers(context.Background(), &runtimeapi.ContainerFilter{LabelSelector: map[string]string{podUIDLabel: uid}})
	if err != nil {
		shim.host.log.Error(err, "Cannot list the containers of a pod; assuming that one runs", "pod", podName(uid))
		return true
	}
	return slices.ContainsFunc(containers, func(c *runtimeapi.Container) bool {
		return c.State != runtimeapi.ContainerState_CONTAINER_EXITED
	})
}

// podName returns namespace, name and UID of a pod, of which the checkpoint has only the UID.
// It returns the UID alone if nothing more is known. It asks no API server: the name of the
// pod's log directory has all three (pkg/kubelet/kuberuntime/helpers.go,
// BuildPodLogsDirectory).
func podName(uid string) string {
	if directories, err := filepath.Glob(filepath.Join(shim.host.podLogs, "*_*_"+uid)); err == nil && len(directories) == 1 {
		parts := strings.Split(filepath.Base(directories[0]), "_")
		return fmt.Sprintf("%s/%s (UID %s)", parts[0], parts[1], uid)
	}
	return uid
}

// numaNodes is where the kernel lists the CPUs of each NUMA node.
const numaNodes = "/sys/devices/system/node/node[0-9]*"

// initializeMetrics sets the metrics as upstream's start would
// (pkg/kubelet/cm/cpumanager/policy_static.go, initializeMetrics). shared are the shared CPUs,
// and assigned the exclusive ones.
func initializeMetrics(shared, assigned cpuset.CPUSet) {
	metrics.CPUManagerSharedPoolSizeMilliCores.Set(float64(shared.Size() * 1000))
	metrics.CPUManagerExclusiveCPUsAllocationCount.Set(float64(assigned.Size()))
	nodes, _ := filepath.Glob(numaNodes) // the pattern is well-formed
	for _, directory := range nodes {
		if cpus, err := readCPUs(filepath.Join(directory, "cpulist")); err == nil {
			id := strings.TrimPrefix(filepath.Base(directory), "node")
			metrics.CPUManagerAllocationPerNUMA.WithLabelValues(id).Set(float64(assigned.Intersection(cpus).Size()))
		}
	}
}
