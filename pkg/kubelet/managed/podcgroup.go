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
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// This file confines the cgroups of partitioned pods to their pool (design, section 6, the
// pod's cgroup). The kernel then holds everything in such a pod from its first instruction:
// the sandbox, the runtime's init, exec, and whatever a container leaves behind when it ends.
// Ordinary pods keep the cgroups that upstream gives them, except those of a RuntimeClass
// (sandboxes.go).
//
// Upstream writes a pod's cgroup only when it creates it. PodCgroupCPUs adds the CPUs to that
// write; RepairPodCgroup writes the cgroups that existed before this kubelet started.

// WithOriginalCPUAndType returns the pod as WithOriginalCPU does, together with its workload
// type, which the returned pod no longer reveals. If the pod is in none of this node's
// partitions, the type is empty, or ordinarySandbox, and the pod is the given one.
func WithOriginalCPUAndType(pod *v1.Pod) (_ *v1.Pod, workloadType string) {
	original := pod
	if of, partitioned := typeOf(pod); partitioned {
		original, workloadType = partition.AsOrdinary(pod, of), of
	}
	if shim.current.Load().isOrdinarySandbox(pod) {
		workloadType = ordinarySandbox
	}
	return original, workloadType
}

// PodCgroupCPUs returns the CPUs that upstream writes to the cgroup of a pod of this workload
// type when it creates the cgroup. It returns the zero value for a pod that is not confined;
// upstream then writes no cpuset.
func PodCgroupCPUs(workloadType string) cpuset.CPUSet {
	return shim.current.Load().podCPUs(workloadType)
}

// podCPUs returns the CPUs for the cgroup of a pod of this workload type; the zero value if
// it is not confined.
//
// On cgroup v2 that is the pool. On v1 it is the union of the pools: the cpuset of a sandbox
// must lie within its pod's, and CRI-O has one cpuset for all sandboxes. On v1 the kernel
// also refuses CPUs that the cgroup of all pods lacks, so those are left out.
func (n *node) podCPUs(workloadType string) cpuset.CPUSet {
	if workloadType == ordinarySandbox {
		return n.Others
	}
	pool, confined := n.poolOf(workloadType)
	if !confined || !shim.host.podCgroups {
		return cpuset.CPUSet{}
	}
	if !hierarchy().v1 {
		return pool
	}
	available := shim.observed.cpusOfAllPods()
	switch {
	case available.IsEmpty():
		return n.Pooled
	case pool.Intersection(available).IsEmpty():
		return cpuset.CPUSet{} // the pod's containers cannot start in any case
	}
	return n.Pooled.Intersection(available)
}

// podCgroups is the part of upstream's PodContainerManager (pkg/kubelet/cm/types.go) that all
// supported releases share. N is its CgroupName.
type podCgroups[N any] interface {
	Exists(pod *v1.Pod) bool
	// GetPodContainerName also returns the cgroup as a path below the root of a hierarchy.
	GetPodContainerName(pod *v1.Pod) (N, string)
}

// RepairPodCgroup writes the CPUs, the weight and the CPU quota of a partitioned pod's cgroup
// that existed before this kubelet started, once: upstream writes them only when it creates
// the cgroup (pkg/kubelet/kubelet.go, SyncPod). Of an ordinary pod in a virtual machine it
// writes the CPUs alone. A pod that is no longer confined gets all CPUs back. If the write
// fails, RepairPodCgroup tries again at the pod's next sync.
//
// configFor is upstream's ResourceConfigForPod, which computes the values, and R the type of
// what it returns.
func RepairPodCgroup[R, N any](pod *v1.Pod, manager podCgroups[N], configFor any) {
	n, on := partitions()
	if !on || !shim.host.podCgroups {
		return
	}
	if !mayBeConfined(pod) {
		return
	}
	workloadType, partitioned := partition.PartitionedType(pod)
	_, path := manager.GetPodContainerName(pod)
	if partitioned {
		// At every sync, since the cgroup of all pods may lose CPUs at any time. It is two levels up: a
		// partitioned pod is in a class, never Guaranteed.
		n.checkCgroupOfAllPods(workloadType, filepath.Dir(filepath.Dir(path)))
	}
	if n.isOrdinarySandbox(pod) {
		workloadType = ordinarySandbox
	}
	if shim.observed.repaired(pod) {
		return
	}
	// A cgroup that does not exist yet is upstream's to create, with the right values. Upstream only
	// logs if that fails. For containers with their own cpuset that is enough.
	exists := manager.Exists(pod)
	if !exists && (workloadType == ordinarySandbox || n != nil && byPodCgroup(pod)) {
		return
	}
	if exists {
		if err := n.repairPodCgroup(pod, workloadType, path, func(cpus cpuset.CPUSet) error {
			if !partitioned && cpus.IsEmpty() {
				return nil // it was not confined, and will not be
			}
			config := callResourceConfigForPod[R](configFor, pod, shim.host.quotaPeriod)
			fields := []string{hugePages}
			if n != nil && partitioned { // without a pinning file only the CPUs are taken back
				fields = append(fields, weightAndQuota...)
			}
			return callSetPodCgroup(manager, pod, onlyCPU(config, cpus, fields...))
		}); err != nil {
			shim.host.log.Error(err, "Cannot write a pod's cgroup; trying again at the pod's next sync", "pod", klog.KObj(pod), "cgroup", path)
			return
		}
	}
	shim.observed.noteRepaired(pod)
}

// repairPodCgroup gives a pod's cgroup its CPUs. It calls write last, through which
// upstream's manager of cgroups writes the CPUs and the rest of the configuration.
//
// On cgroup v1 it first widens the cpuset, then fits those below, then narrows it. In that
// order the kernel refuses none of the writes.
func (n *node) repairPodCgroup(pod *v1.Pod, workloadType, path string, write func(cpus cpuset.CPUSet) error) error {
	sets := hierarchy()
	cpus := n.podCPUs(workloadType)
	confined := !cpus.IsEmpty()
	// On v2 the write alone frees a pod's cgroup.
	widens := sets.v1 && !confined && shim.host.previous.mayHaveNarrowed()
	var isSandbox func(child string, has, before cpuset.CPUSet) bool
	if widens {
		isSandbox = sandboxesOf(pod) // asks the runtime, so do it before taking the lock
	}
	shim.classes.Lock()
	defer shim.classes.Unlock()
	has, err := sets.cpus(path)
	if err != nil {
		return err
	}
	shim.host.log.Info("Repairing a pod's cgroup", "pod", klog.KObj(pod), "cgroup", path, "cpusBefore", has.String(), "cpus", cpus.String())
	switch {
	case sets.v1 && confined:
		// The class may lack CPUs of the pool that were exclusive until now.
		if err := sets.widen(filepath.Dir(path), cpus); err != nil {
			return err
		}
		pool, _ := n.poolOf(workloadType)
		if err := sets.fit(path, cpus, pool.Intersection(cpus), 1); err != nil {
			return err
		}
	case widens:
		if err := sets.widenToParent(path, isSandbox); err != nil {
			return err
		}
	case !sets.v1 && !confined && !has.IsEmpty():
		// systemd cannot unset a cpuset (systemd/systemd issue 43846).
		cpus = sets.all()
	}
	return write(cpus)
}

// sandboxesOf returns a function that reports whether a child of the pod's cgroup belongs to
// a sandbox. If the runtime does not answer, the function reports false for all.
func sandboxesOf(pod *v1.Pod) func(child string, _, _ cpuset.CPUSet) bool {
	var ids []string
	isSandbox := func(child string, _, _ cpuset.CPUSet) bool {
		return slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(filepath.Base(child), id) })
	}
	shim.observed.Lock()
	runtime, ok := shim.observed.runtime.(interface {
		ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	})
	shim.observed.Unlock()
	if !ok {
		return isSandbox
	}
	list, err := runtime.ListPodSandbox(context.Background(), &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{podUIDLabel: string(pod.UID)}})
	if err != nil {
		shim.host.log.Error(err, "Cannot list the sandboxes of a pod; they keep their CPUs", "pod", klog.KObj(pod))
	}
	for _, sandbox := range list {
		ids = append(ids, sandbox.Id)
	}
	return isSandbox
}

// checkCgroupOfAllPods reports that the cgroup of all pods lacks CPUs of the workload type's
// pool: once, and again whenever the CPUs of that cgroup change. cgroup is its path.
func (n *node) checkCgroupOfAllPods(workloadType, cgroup string) {
	if n == nil {
		return
	}
	available, err := hierarchy().effective(cgroup)
	if err != nil || !shim.observed.noteCPUsOfAllPods(workloadType, available) {
		return // there is no pod yet, or it has been checked
	}
	// reportOffline reports the CPUs that are offline.
	if lacks := n.pools[workloadType].Intersection(onlineCPUs()).Difference(available); !lacks.IsEmpty() {
		shim.host.log.Error(nil, "The cgroup of all pods lacks CPUs of a pool", "cgroup", cgroup, "cpus", available.String(), "workloadType", workloadType, "pool", n.pools[workloadType].String())
		nodeEvent(v1.EventTypeWarning, partition.EventCgroupLacksCPUs, "The cgroup %s has the CPUs %q, but the pool of workload type %s has %q: its pods cannot run on CPU %s; widen the cpuset of that cgroup, or of the cgroup above it that narrows it",
			cgroup, available.String(), workloadType, n.pools[workloadType].String(), lacks)
	}
}

// podCgroup returns the path of a pod's cgroup, and false if it has none, or upstream has not
// named the classes yet. The cgroup is in one of the classes, or directly below the cgroup of
// all pods (pkg/kubelet/cm/pod_container_manager_linux.go, GetPodContainerName). The caller
// holds the lock of classes.
func (c cpusets) podCgroup(pod *v1.Pod) (path string, found bool) {
	if len(shim.classes.names) == 0 {
		return "", false
	}
	for _, above := range append(slices.Clone(shim.classes.names), filepath.Dir(shim.classes.names[0])) {
		name := "pod" + string(pod.UID)
		if slice, systemd := strings.CutSuffix(filepath.Base(above), ".slice"); systemd {
			name = slice + "-" + strings.ReplaceAll(name, "-", "_") + ".slice"
		}
		path = filepath.Join(above, name)
		if _, err := os.Stat(filepath.Join(c.root, path)); err == nil {
			return path, true
		}
	}
	return "", false
}
