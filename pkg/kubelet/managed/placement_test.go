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
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

func TestContainersStartWhereTheyBelong(t *testing.T) {
	on(t, management)
	for name, test := range map[string]struct {
		pod          *v1.Pod
		chosen, want string
	}{
		"a partitioned container starts on its pool":                                 {partitionedPod(), "", "0-1"},
		"a partitioned container starts on its pool, whatever the CPU manager chose": {partitionedPod(), "2-3", "0-1"},
		"a shared container starts on the CPUs in no pool":                           {ordinaryPod(), "", "2-3"},
		"an exclusive container starts on what the CPU manager gave it":              {ordinaryPod(), "3", "3"},
	} {
		config := creating("c", test.chosen)
		PlaceContainer(test.pod, config)
		if got := config.Linux.Resources.CpusetCpus; got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	// A container without Linux resources is left alone.
	PlaceContainer(ordinaryPod(), &runtimeapi.ContainerConfig{})
}

func TestRunningContainersAreKeptWhereTheyBelong(t *testing.T) {
	on(t, management)
	t.Cleanup(func() { shim.observed = observation{} })
	chosen := cpuset.New(2, 3)
	if got := RunningContainerCPUs(partitionedPod(), "c", "id", chosen).String(); got != "0-1" {
		t.Errorf("a partitioned pod is kept on %s", got)
	}
	if got := RunningContainerCPUs(ordinaryPod(), "c", "id", chosen).String(); got != "2-3" {
		t.Errorf("an ordinary pod is kept on %s", got)
	}
	forged := ordinaryPod()
	forged.Annotations = partitionedPod().Annotations
	if got := RunningContainerCPUs(forged, "c", "id", chosen).String(); got != "2-3" {
		t.Errorf("a pod with forged annotations is kept on %s", got)
	}
	on(t, partition.Pools{"management": cpuset.New(), "other": cpuset.New(0)})
	if got := RunningContainerCPUs(withUID(partitionedPod(), "b"), "c", "id", chosen).String(); got != "2-3" {
		t.Errorf("a pod of a type without CPUs is kept on %s", got)
	}
}

// Containers that this kubelet created stay where they are, even after the file has gone.
func TestContainersOfThisKubeletStay(t *testing.T) {
	for name, pools := range map[string]partition.Pools{"the file has gone": nil, "the type has lost its CPUs": {"management": cpuset.New()}, "with a pool": management} {
		if pools != nil {
			on(t, pools)
		}
		runtime := &fakeRuntime{}
		restarted(t, runtime)
		shim.host.previous.confined = true
		for _, pod := range []*v1.Pod{ordinaryPod(), partitionedPod()} {
			pod.UID = types.UID(fmt.Sprint("uid-", len(pod.Annotations)))
			config := creating("c", "")
			PlaceContainer(pod, config)
			set := RunningContainerCPUs(pod, "c", "new", cpuset.New())
			if has := noted(pod, "c"); !set.Equals(has) || runtime.asked > 0 {
				t.Errorf("%s: a container that was created on %q and noted on %s is moved to %s", name, config.Linux.Resources.CpusetCpus, has, set)
			}
		}
		shim.current.Store(nil)
	}
}

// A CPU that was offline does not come back to the cgroup of all pods on cgroup v1, and the kernel
// refuses a cpuset with it.
func TestContainersStartWithinTheCgroupOfAllPodsOnCgroupV1(t *testing.T) {
	for _, test := range []struct {
		v1        bool
		all, want string
	}{
		{true, "0-3", "2-3"},
		{true, "0-2", "2"},
		{true, "0-1", "2-3"}, // nothing would be left
		{false, "0-2", "2-3"},
	} {
		cgroupFiles(t, test.v1, map[string]string{"": test.all, "burstable": test.all, "burstable/poda": test.all})
		on(t, management)
		restarted(t, &fakeRuntime{})
		shim.host.podCgroups = true
		useClasses(t)
		shim.current.Store(newNode(management, shim.host.online, cpuset.New(), cpuset.New()))
		config := creating("c", "")
		PlaceContainer(withUID(ordinaryPod(), "a"), config)
		if got := config.Linux.Resources.CpusetCpus; got != test.want {
			t.Errorf("v1: %v, all pods on %s: an ordinary container starts on %q, want %q", test.v1, test.all, got, test.want)
		}
	}
}

// Upstream chose CPUs 0 and 1 for a container, of which 0 was reserved, on a host where some cores have one
// thread and others two (kubernetes/kubernetes issue 140495).
func TestACPUOfAPoolIsGivenToNobody(t *testing.T) {
	pod := withUID(ordinaryPod(), "a")
	pod.Namespace, pod.Name = "n", "exclusive"
	for name, test := range map[string]struct {
		pool, chosen cpuset.CPUSet
		wholePod     bool
		want         string
	}{
		"a container was given a CPU of the pool":          {cpuset.New(0), cpuset.New(0, 1), false, "container c of pod n/exclusive was given CPU 0 exclusively, which " + partition.PinningFilePath},
		"a pod as a whole was given a CPU of the pool":     {cpuset.New(0), cpuset.New(0, 1), true, "pod n/exclusive was given CPU 0 exclusively"},
		"a container was given CPUs in no pool":            {cpuset.New(0), cpuset.New(2, 3), false, ""},
		"a pod as a whole was given CPUs that are in none": {cpuset.New(0), cpuset.New(2, 3), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, partition.Pools{"management": test.pool})
			restarted(t, &fakeRuntime{})
			shim.host.static, shim.host.strict = true, true
			s := newMemoryState(shim.host.log)
			s.SetDefaultCPUSet(shim.host.online.Difference(test.pool).Difference(test.chosen))
			shim.observed.state = s
			if test.wholePod {
				setPodAssignment(t, s, "a", test.chosen)
			} else {
				s.SetCPUSet("a", "c", test.chosen)
			}
			// No container of the pod starts, whatever it was given itself.
			for _, container := range []string{"c", "another"} {
				err := PlaceContainer(pod, creating(container, "3"))
				if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("container %s: the error is %v, want %q", container, err, test.want)
				}
			}
			if err := PlaceContainer(withUID(ordinaryPod(), "b"), creating("c", "3")); err != nil {
				t.Error("another pod is refused: ", err)
			}
			// So the next kubelet starts, and drops the assignment.
			start := func(state.State) error { return nil }
			if err := StartPolicy(start, s, shim.host.online, shim.host.online.Difference(test.pool)); err != nil {
				t.Error(err)
			}
			if left := shim.observed.assignments(); (len(left) == 0) != (test.want != "") {
				t.Errorf("after a restart the assignments are %v", left)
			}
		})
	}
}
