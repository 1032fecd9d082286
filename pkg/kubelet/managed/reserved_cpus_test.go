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
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// validate refuses what upstream's static policy refuses at its start
// (pkg/kubelet/cm/cpumanager/policy_static.go, validateState), whose package cannot be imported
// here.
func validate(s state.State, online, reserved cpuset.CPUSet, strict bool) error {
	shared, known := s.GetDefaultCPUSet(), s.GetDefaultCPUSet()
	for _, a := range assignmentsOf(s) {
		if !a.CPUs.Intersection(shared).IsEmpty() {
			return fmt.Errorf("%s overlaps with the shared CPUs", holder(a))
		}
		known = known.Union(a.CPUs)
	}
	held := shared.Intersection(reserved)
	if strict {
		online = online.Difference(reserved)
	}
	switch {
	case shared.IsEmpty():
		return errors.New("default cpuset cannot be empty")
	case strict && !held.IsEmpty():
		return errors.New("some of strictly reserved cpus are shared")
	case !strict && !held.Equals(reserved):
		return errors.New("not all reserved cpus are shared")
	case !known.Equals(online):
		return fmt.Errorf("%s are known, and there are %s", known, online)
	}
	return nil
}

// The kubelet starts although the reserved CPUs are not the pools, and an assignment that holds a
// reserved CPU in no pool stays, whether or not its container runs.
func TestReservedCPUsNeedNotBeThePools(t *testing.T) {
	online := cpuset.New(0, 1, 2, 3)
	running, exited := []runtimeapi.ContainerState{runtimeapi.ContainerState_CONTAINER_RUNNING}, []runtimeapi.ContainerState{runtimeapi.ContainerState_CONTAINER_EXITED}
	for name, test := range map[string]struct {
		pool, reserved cpuset.CPUSet // the pool's CPUs are reserved, too
		noFile         bool
		shared         cpuset.CPUSet
		// exclusive are assignments, by the name of the container in the pod "uid".
		exclusive  map[string]cpuset.CPUSet
		containers []runtimeapi.ContainerState
		want       cpuset.CPUSet
		// wantDropped means that the pod has lost its CPUs.
		wantDropped bool
		// wantError means that the kubelet does not start, for what upstream says.
		wantError bool
	}{
		"more is reserved than the pool":                                                 {pool: cpuset.New(0), reserved: cpuset.New(1), shared: cpuset.New(1, 2, 3), want: cpuset.New(2, 3)},
		"less is reserved than before":                                                   {pool: cpuset.New(0), shared: cpuset.New(2, 3), want: cpuset.New(1, 2, 3)},
		"more is reserved, and an exclusive container elsewhere":                         {pool: cpuset.New(0), reserved: cpuset.New(1), shared: cpuset.New(1, 2), exclusive: map[string]cpuset.CPUSet{"c": cpuset.New(3)}, containers: running, want: cpuset.New(2)},
		"a running container holds a CPU that is reserved now":                           {pool: cpuset.New(0), reserved: cpuset.New(1), shared: cpuset.New(2, 3), exclusive: map[string]cpuset.CPUSet{"c": cpuset.New(1)}, containers: running, want: cpuset.New(2, 3)},
		"a container that has ended holds a CPU that is reserved now":                    {pool: cpuset.New(0), reserved: cpuset.New(1), shared: cpuset.New(2, 3), exclusive: map[string]cpuset.CPUSet{"c": cpuset.New(1)}, containers: exited, want: cpuset.New(2, 3)},
		"the pool is empty, and a container holds the CPU that is reserved in its place": {reserved: cpuset.New(0), shared: cpuset.New(1, 2, 3), exclusive: map[string]cpuset.CPUSet{"c": cpuset.New(0)}, containers: running, want: cpuset.New(1, 2, 3)},
		"the file has gone, and a container held the CPU that is reserved in its place":  {noFile: true, reserved: cpuset.New(0), shared: cpuset.New(1, 2, 3), exclusive: map[string]cpuset.CPUSet{"c": cpuset.New(0)}, containers: exited, want: online, wantDropped: true},
		"the file has gone, and a container holds the CPU that is reserved in its place": {noFile: true, reserved: cpuset.New(0), shared: cpuset.New(1, 2, 3), exclusive: map[string]cpuset.CPUSet{"c": cpuset.New(0)}, containers: running, want: cpuset.New(1, 2, 3), wantError: true},
		"two containers of a pod hold the same CPU, as an init container's may be":       {pool: cpuset.New(0), shared: cpuset.New(1, 2), exclusive: map[string]cpuset.CPUSet{"init": cpuset.New(3), "c": cpuset.New(3)}, containers: running, want: cpuset.New(1, 2)},
		"a CPU was shared again while another container still held it":                   {pool: cpuset.New(0), shared: cpuset.New(1, 2, 3), exclusive: map[string]cpuset.CPUSet{"c": cpuset.New(3)}, containers: running, want: cpuset.New(1, 2)},
		"an absent CPU is neither shared nor kept for a container that has ended":        {pool: cpuset.New(0), reserved: cpuset.New(1), shared: cpuset.New(2, 3, 5), exclusive: map[string]cpuset.CPUSet{"c": cpuset.New(4)}, containers: exited, want: cpuset.New(2, 3), wantDropped: true},
	} {
		t.Run(name, func(t *testing.T) {
			startedIn(t, t.TempDir())
			shim.host.log, _ = ktesting.NewTestContext(t)
			shim.host.static, shim.host.strict = true, !test.pool.IsEmpty()
			shim.observed.runtime = &fakeRuntime{states: test.containers}
			t.Cleanup(func() { shim.observed = observation{} })
			if !test.noFile {
				on(t, partition.Pools{"management": test.pool})
			}
			reserved := test.reserved.Union(test.pool)
			s := newMemoryState(shim.host.log)
			s.SetDefaultCPUSet(test.shared)
			for container, cpus := range test.exclusive {
				s.SetCPUSet("uid", container, cpus)
			}
			skip, err := deriveSharedCPUs(shim.current.Load(), s, online, reserved)
			if err == nil && !skip {
				err = validate(s, online, reserved, shim.host.strict)
			}
			if (err != nil) != test.wantError {
				t.Errorf("the start ended with %v, want an error: %v", err, test.wantError)
			}
			if got := s.GetDefaultCPUSet(); !got.Equals(test.want) {
				t.Errorf("the shared CPUs are %q, want %q", got, test.want)
			}
			if dropped := len(assignmentsOf(s)) < len(test.exclusive); dropped != test.wantDropped {
				t.Errorf("the assignment was dropped: %v, want %v", dropped, test.wantDropped)
			}
		})
	}
}

// On a small host, pools and reserved CPUs may together be all of its CPUs.
func TestEveryCPUMayBeReserved(t *testing.T) {
	restarted(t, &fakeRuntime{})
	shim.host.static = true
	shim.current.Store(newNode(partition.Pools{"management": cpuset.New(0)}, cpuset.New(0, 1), cpuset.New(), cpuset.New(0, 1)))
	t.Cleanup(func() { shim.current.Store(nil) })
	recorder := recordEvents(t)
	shim.observed.activePods = func() []*v1.Pod { return nil }
	shim.observed.state = newMemoryState(shim.host.log)
	shim.current.Load().reportShared()
	expectEvent(t, recorder, "Warning NoSharedCPUs Every CPU is reserved: containers without exclusive CPUs run on the CPUs 1, which are in no pool")
	config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{}}}
	if PlaceContainer(ordinaryPod(), config); config.Linux.Resources.CpusetCpus != "1" {
		t.Errorf("an ordinary container starts on the CPUs %q, want 1", config.Linux.Resources.CpusetCpus)
	}
}

// A CPU that was reserved while an exclusive container held it is that container's alone, and
// free once the container has ended.
func TestSharedContainersStayOffCPUsThatWereReservedLater(t *testing.T) {
	restarted(t, &fakeRuntime{})
	shim.host.static, shim.host.strict, shim.host.online = true, true, cpuset.New(0, 1, 2, 3, 4, 5)
	// The pool is CPU 0, and 0-3 are reserved.
	n := newNode(partition.Pools{"management": cpuset.New(0)}, cpuset.New(0, 1, 2, 3, 4, 5), cpuset.New(), cpuset.New(0, 1, 2, 3))
	shim.current.Store(n)
	t.Cleanup(func() { shim.current.Store(nil) })
	shim.observed.state = newMemoryState(shim.host.log)
	holder, sharing := withUID(ordinaryPod(), "holder"), withUID(ordinaryPod(), "sharing")
	expect := func(what string, pod *v1.Pod, chosen, want cpuset.CPUSet) {
		t.Helper()
		if got := n.chooseFor(pod, "c", reported, chosen); !got.Equals(want) {
			t.Errorf("%s: the container has CPUs %s, want %s", what, got, want)
		}
		config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpusetCpus: chosen.String()}}}
		if PlaceContainer(pod, config); config.Linux.Resources.CpusetCpus != want.String() {
			t.Errorf("%s: the container starts on CPUs %s, want %s", what, config.Linux.Resources.CpusetCpus, want)
		}
	}
	shim.observed.state.SetCPUSet("holder", "c", cpuset.New(2))
	expect("the holder", holder, cpuset.New(2), cpuset.New(2))
	expect("with the holder", sharing, cpuset.New(4, 5), cpuset.New(4, 5))
	expect("with the holder, and nothing left to share", sharing, cpuset.New(), cpuset.New(1, 3))
	shim.observed.state.Delete("holder", "c")
	expect("after the holder, whose CPU upstream shares", sharing, cpuset.New(2, 4, 5), cpuset.New(4, 5))
	expect("after the holder, whose CPU is all that upstream shares", sharing, cpuset.New(2), cpuset.New(1, 2, 3))
}

// Upstream shares the CPU of an exclusive container that ends, even if that CPU is offline. On
// cgroup v1 the kernel refuses a cpuset with it.
func TestSharedContainersStayOffCPUsThatAreOffline(t *testing.T) {
	for name, test := range map[string]struct {
		v1   bool
		want cpuset.CPUSet
	}{
		"v1": {true, cpuset.New(3, 4)},
		"v2": {false, cpuset.New(3, 4, 5)},
	} {
		t.Run(name, func(t *testing.T) {
			cgroupFiles(t, test.v1, map[string]string{"": "0-4"})
			restarted(t, &fakeRuntime{})
			shim.host.static, shim.host.strict, shim.host.online = true, true, cpuset.New(0, 1, 2, 3, 4)
			n := newNode(management, shim.host.online, cpuset.New(), cpuset.New())
			shim.current.Store(n)
			t.Cleanup(func() { shim.current.Store(nil) })
			shim.observed.state = newMemoryState(shim.host.log)
			if got := n.unreserved(withUID(ordinaryPod(), "sharing"), "c", cpuset.New(3, 4, 5)); !got.Equals(test.want) {
				t.Errorf("the container has CPUs %s, want %s", got, test.want)
			}
			shim.observed.state.SetCPUSet("holder", "c", cpuset.New(5))
			if got := n.unreserved(withUID(ordinaryPod(), "holder"), "c", cpuset.New(5)); !got.Equals(cpuset.New(5)) {
				t.Errorf("the holder has CPUs %s, want 5", got)
			}
		})
	}
}
