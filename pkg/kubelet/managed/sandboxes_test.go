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
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// vm gives a pod the UID "a", and a RuntimeClass with an overhead.
func vm(pod *v1.Pod) *v1.Pod {
	class := "kata"
	pod.UID, pod.Spec.RuntimeClassName = "a", &class
	pod.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	return pod
}

func TestVirtualMachinesArePlacedByTheirPodsCgroup(t *testing.T) {
	without := func(change func(*v1.PodSpec)) *v1.Pod {
		pod := vm(ordinaryPod())
		change(&pod.Spec)
		return pod
	}
	guaranteed := func(spec *v1.PodSpec) {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}
		for i := range spec.Containers {
			spec.Containers[i].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		}
	}
	typeWithoutCPUs := partition.Pools{"management": cpuset.New(), "other": cpuset.New(0, 1)}
	for name, test := range map[string]struct {
		pod               *v1.Pod
		pools             partition.Pools // nil means management
		v1, static, noQOS bool
		// chosen is what the CPU manager chose.
		chosen             string
		container, wantPod string
	}{
		"partitioned":                                            {pod: vm(partitionedPod()), wantPod: "0-1"},
		"ordinary":                                               {pod: vm(ordinaryPod()), wantPod: "2-3"},
		"of a type without CPUs":                                 {pod: vm(partitionedPod()), pools: typeWithoutCPUs, wantPod: "2-3"},
		"ordinary, and there is no pool":                         {pod: vm(ordinaryPod()), pools: partition.Pools{"management": cpuset.New()}},
		"v1: partitioned, as all others":                         {pod: vm(partitionedPod()), v1: true, container: "0-1", wantPod: "0-1"},
		"v1: ordinary, as all others":                            {pod: vm(ordinaryPod()), v1: true, container: "2-3"},
		"policy static: partitioned, as all others":              {pod: vm(partitionedPod()), static: true, container: "0-1", wantPod: "0-1"},
		"policy static: ordinary, on what the CPU manager chose": {pod: vm(ordinaryPod()), static: true, chosen: "2", container: "2", wantPod: "2-3"},
		"policy static: guaranteed, as upstream makes it":        {pod: without(guaranteed), static: true, chosen: "2", container: "2"},
		"guaranteed":                                             {pod: without(guaranteed), wantPod: "2-3"},
		"pods have no cgroups of their own":                      {pod: vm(ordinaryPod()), noQOS: true, container: "2-3"},
		"a RuntimeClass without an overhead, such as gVisor's":   {pod: without(func(spec *v1.PodSpec) { spec.Overhead = nil }), container: "2-3", wantPod: "2-3"},
		"v1: a RuntimeClass without an overhead":                 {pod: without(func(spec *v1.PodSpec) { spec.Overhead = nil }), v1: true, container: "2-3"},
		"an overhead without a RuntimeClass":                     {pod: without(func(spec *v1.PodSpec) { spec.RuntimeClassName = nil }), container: "2-3"},
	} {
		t.Run(name, func(t *testing.T) {
			cgroupFiles(t, test.v1, nil)
			on(t, management)
			if test.pools != nil {
				on(t, test.pools)
			}
			runtime := &fakeRuntime{}
			restarted(t, runtime)
			useClasses(t)
			shim.host.static, shim.host.podCgroups = test.static, !test.noQOS
			config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpusetCpus: test.chosen}}}
			PlaceContainer(test.pod, config)
			if got := config.Linux.Resources.CpusetCpus; got != test.container {
				t.Errorf("the container starts with the cpuset %q, want %q", got, test.container)
			}
			_, workloadType := WithOriginalCPUAndType(test.pod)
			if got := PodCgroupCPUs(workloadType).String(); got != test.wantPod {
				t.Errorf("the pod's cgroup starts with the cpuset %q, want %q", got, test.wantPod)
			}
			if test.static {
				return
			}
			// The container runs now, and the CPU manager looks after it.
			for range 2 {
				set := RunningContainerCPUs(test.pod, "c", "new", cpuset.New())
				if has := noted(test.pod, "c"); set.IsEmpty() || !set.Equals(has) || runtime.asked > 0 {
					t.Errorf("a container that is noted on %q is moved to %q", has, set)
				}
			}
		})
	}
}

// A container without a cpuset stays without one, whatever becomes of the pools. One to which a
// kubelet gave a cpuset, say on cgroup v1, moves like any other.
func TestPreviousContainersOfVirtualMachinesStayWithoutACpuset(t *testing.T) {
	right := &runtimeapi.LinuxContainerResources{CpuShares: 409, CpuQuota: 50000, CpuPeriod: 100000}
	with := func(cpus string) *runtimeapi.LinuxContainerResources {
		return &runtimeapi.LinuxContainerResources{CpuShares: 409, CpuQuota: 50000, CpuPeriod: 100000, CpusetCpus: cpus}
	}
	for name, test := range map[string]struct {
		pools       partition.Pools // nil means that the file has gone
		partitioned bool
		has, want   *runtimeapi.LinuxContainerResources
	}{
		"partitioned":                                  {pools: management, partitioned: true, has: right},
		"partitioned, with a wrong weight":             {pools: management, partitioned: true, has: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuQuota: 50000, CpuPeriod: 100000}, want: &runtimeapi.LinuxContainerResources{CpuShares: 409}},
		"partitioned, and it has a cpuset":             {pools: management, partitioned: true, has: with("3"), want: &runtimeapi.LinuxContainerResources{CpusetCpus: "0-1"}},
		"partitioned, and the runtime reports nothing": {pools: management, partitioned: true},
		"ordinary": {pools: management, has: right},
		"ordinary, and the runtime reports nothing":          {pools: management},
		"ordinary, with what a previous pool left":           {pools: management, has: with("3"), want: &runtimeapi.LinuxContainerResources{CpusetCpus: "2-3"}},
		"the file has gone":                                  {has: right},
		"the file has gone, and the runtime reports nothing": {},
		"the file has gone, and it has a cpuset":             {has: with("3"), want: &runtimeapi.LinuxContainerResources{CpusetCpus: "0-3"}},
		"the type has lost its CPUs":                         {pools: partition.Pools{"management": cpuset.New()}, partitioned: true, has: right},
	} {
		t.Run(name, func(t *testing.T) {
			cgroupFiles(t, false, nil)
			if test.pools != nil {
				on(t, test.pools)
			}
			runtime := &fakeRuntime{linux: test.has}
			restarted(t, runtime)
			useClasses(t)
			shim.host.podCgroups, shim.host.previous = true, previousKubelet{confined: true, sets: []cpuset.CPUSet{cpuset.New(3)}}
			pod := vm(ordinaryPod())
			if test.partitioned {
				pod = vm(partitionedPod())
			}
			for range 3 {
				reconcile(pod, runtime, cpuset.New())
			}
			runtime.expectUpdate(t, test.want)
		})
	}
	t.Run("a runtime that does not answer is asked again", func(t *testing.T) {
		cgroupFiles(t, false, nil)
		on(t, management)
		runtime := &fakeRuntime{err: errors.New("busy")}
		restarted(t, runtime)
		useClasses(t)
		shim.host.podCgroups = true
		pod := vm(partitionedPod())
		reconcile(pod, runtime, cpuset.New())
		runtime.err, runtime.linux = nil, right
		reconcile(pod, runtime, cpuset.New())
		if len(runtime.updates) > 0 || runtime.asked != 2 {
			t.Errorf("the runtime was asked %d times, and the updates are %v", runtime.asked, runtime.updates)
		}
	})
}

func TestPreviousPodCgroupsOfVirtualMachinesFollowThePools(t *testing.T) {
	for name, test := range map[string]struct {
		pools      partition.Pools // nil means that the file has gone
		v1, static bool
		has        string
		// written is the cpuset that upstream's manager must write; empty means none.
		written string
	}{
		"created without a pool":                           {pools: management, written: "2-3"},
		"the pool has moved":                               {pools: management, has: "3", written: "2-3"},
		"the file has gone":                                {has: "3", written: "0-3"},
		"the file has gone, and nothing was confined":      {},
		"the type has lost its CPUs":                       {pools: partition.Pools{"management": cpuset.New()}, has: "3", written: "0-3"},
		"policy static, and the pool has moved":            {pools: management, static: true, has: "3", written: "2-3"},
		"policy static, and nothing was confined":          {pools: management, static: true, written: "2-3"},
		"v1: the cgroups of ordinary pods are as they are": {pools: management, v1: true, has: "3"},
	} {
		t.Run(name, func(t *testing.T) {
			cgroupFiles(t, test.v1, map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": test.has})
			if test.pools != nil {
				on(t, test.pools)
			}
			restarted(t, &fakeRuntime{})
			onlineFile(t, "0-3")
			shim.host.podCgroups, shim.host.static, shim.host.previous.confined = true, test.static, true
			pod, manager := vm(ordinaryPod()), &fakePodCgroups{}
			shim.observed.activePods, shim.observed.ready = func() []*v1.Pod { return []*v1.Pod{pod} }, func() bool { return true }
			if needs := !shim.observed.noneNeedsRepair(); needs == test.v1 {
				t.Errorf("before its first sync the record may go: %v", !needs)
			}
			for range 2 {
				RepairPodCgroup[resourceConfig](pod, manager, computeConfig)
			}
			written := ""
			for _, config := range manager.written {
				written += config.CPUSet.String()
				if config.CPUShares != nil || config.Memory != nil || len(config.HugePageLimit) != 1 {
					t.Errorf("upstream's manager is given %+v, want CPUs alone", config)
				}
			}
			if written != test.written {
				t.Errorf("upstream's manager is given the CPUs %q, want %q", written, test.written)
			}
			if !shim.observed.noneNeedsRepair() {
				t.Error("after its first sync the record may not go")
			}
		})
	}
}
