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
// shared CPUs for the checkpoint: all CPUs that exist, less the reserved ones, less those
// that are assigned exclusively. So the kubelet starts even if pools have changed, a power
// cut came between two writes, or CPUs have come or gone. Upstream would refuse to start
// until somebody deletes the checkpoint, and all exclusive assignments with it
// (pkg/kubelet/cm/cpumanager/policy_static.go, validateState).
//
// Assignments stay as they are, with two exceptions:
//
//   - If an assignment holds a CPU of a pool and a container of its pod may be running,
//     StartPolicy returns an error that names the pod, and leaves the whole checkpoint alone.
//   - If an assignment holds a CPU of a pool, or one that does not exist, and no container of
//     its pod can be running, StartPolicy drops the pod's assignments: the containers would be
//     created there. The pod gets other CPUs when it is admitted again. Without a file the
//     same goes for a reserved CPU, with which upstream would not start.
//
// online are the CPUs of the host, and allocatable those that the policy may give away.
func StartPolicy[F policyStart](start F, s state.State, online, allocatable cpuset.CPUSet) error {
	n, on := partitions()
	if !on || !host.static {
		return callStart(start, s)
	}
	reserved := online.Difference(allocatable)
	skip, err := deriveSharedCPUs(n, s, online, reserved)
	if err != nil {
		return err
	}
	observed.Lock()
	observed.state = s
	observed.Unlock()
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
// upstream's start must not run, since it would take the checkpoint for damaged. That is so
// if nothing is left to share (upstream gets into that state, and writes it, but does not
// start from it; kubernetes/kubernetes issue 141196), or if a container was given a CPU that
// is offline now and may be running there, or one that is reserved now and in no pool.
// deriveSharedCPUs then sets the metrics that upstream's start would have set.
func deriveSharedCPUs(n *node, s state.State, online, reserved cpuset.CPUSet) (skip bool, err error) {
	assignments := assignmentsOf(s)
	if len(assignments) == 0 && s.GetDefaultCPUSet().IsEmpty() {
		return false, nil // the checkpoint is new: upstream fills it
	}
	tenable := online.Difference(reserved)
	if n != nil {
		tenable = online.Difference(n.pooled)
	}
	ended := map[string]bool{}
	for _, a := range assignments {
		if a.cpus.IsSubsetOf(tenable) {
			continue
		}
		if _, asked := ended[a.pod]; !asked {
			ended[a.pod] = !mayRun(a.pod)
		}
		if n == nil || ended[a.pod] {
			continue
		}
		if held := a.cpus.Intersection(n.pooled); !held.IsEmpty() {
			return false, fmt.Errorf("%s exclusively holds CPU %s, which %s gives to a pool, and may be running; stop its containers with the runtime's own tool (crictl stopp), or start the kubelet with the previous file and delete the pod, then start it with this one",
				a, held, partition.PinningFilePath)
		}
	}
	assigned := cpuset.New()
	for _, a := range assignments {
		if ended[a.pod] {
			host.log.Info("Dropping exclusive CPUs of a pod that has no running container; it gets others when it is admitted again", "holder", a.String(), "cpus", a.cpus.String())
			a.drop(s)
			continue
		}
		assigned = assigned.Union(a.cpus)
		if absent := a.cpus.Difference(online); !absent.IsEmpty() {
			skip = true
			host.log.Error(nil, "An exclusively held CPU is offline", "holder", a.String(), "cpus", absent.String())
			nodeEvent(v1.EventTypeWarning, eventCPUOffline, "CPU %s, which %s holds exclusively, is offline: bring it online, or delete the pod", absent, a)
		}
		if held := a.cpus.Intersection(reserved); n != nil && !held.IsEmpty() {
			skip = true
			host.log.Info("An exclusively held CPU is reserved now; its container keeps it", "holder", a.String(), "cpus", held.String())
		}
	}
	shared := online.Difference(assigned)
	if host.strict {
		shared = shared.Difference(reserved)
	}
	if before := s.GetDefaultCPUSet(); !before.Equals(shared) {
		host.log.Info("Bringing the CPU manager's checkpoint up to date", "sharedBefore", before.String(), "sharedNow", shared.String())
		s.SetDefaultCPUSet(shared)
	}
	if shared.IsEmpty() && !assigned.IsEmpty() {
		host.log.Info("Exclusive containers have every CPU outside the pools", "exclusive", assigned.String())
		skip = true
	}
	if skip {
		initializeMetrics(shared.Difference(reserved), assigned)
	}
	return skip, nil
}

// assignment is a set of CPUs that a container, or a pod as a whole, holds exclusively.
type assignment struct {
	// pod is a UID. container is the name of one of its containers; empty means the whole pod.
	pod, container string
	cpus           cpuset.CPUSet
}

// assignmentsOf returns all assignments, in a fixed order.
func assignmentsOf(s state.State) (all []assignment) {
	for pod, containers := range s.GetCPUAssignments() {
		for container, cpus := range containers {
			all = append(all, assignment{pod, container, cpus})
		}
	}
	all = append(all, podAssignments(s)...)
	slices.SortFunc(all, func(a, b assignment) int {
		return strings.Compare(a.pod+"/"+a.container, b.pod+"/"+b.container)
	})
	return all
}

func (a assignment) String() string {
	if a.container == "" {
		return "pod " + podName(a.pod)
	}
	return fmt.Sprintf("container %s of pod %s", a.container, podName(a.pod))
}

// drop removes the assignment from the checkpoint.
func (a assignment) drop(s state.State) {
	if a.container == "" {
		dropPodAssignment(s, a.pod)
		return
	}
	s.Delete(a.pod, a.container)
}

// podUIDLabel is the label in which the kubelet gives each container the UID of its pod
// (k8s.io/kubelet/pkg/types).
const podUIDLabel = "io.kubernetes.pod.uid"

// mayRun reports whether a container of the pod may be running. It returns true if the runtime
// does not answer.
func mayRun(uid string) bool {
	observed.Lock()
	runtime := observed.runtime
	observed.Unlock()
	if runtime == nil {
		return true
	}
	containers, err := runtime.ListContainers(context.Background(), &runtimeapi.ContainerFilter{LabelSelector: map[string]string{podUIDLabel: uid}})
	if err != nil {
		host.log.Error(err, "Cannot list the containers of a pod; assuming that one runs", "pod", podName(uid))
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
	if directories, err := filepath.Glob(filepath.Join(host.podLogs, "*_*_"+uid)); err == nil && len(directories) == 1 {
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
