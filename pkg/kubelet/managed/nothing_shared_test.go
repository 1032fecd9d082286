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
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// With nothing left to share, a running container stays on its last CPU, and is never spread. Any
// other gets the fallback, which is always the same.
func TestContainersAreNotSpreadWhenNothingIsLeftToShare(t *testing.T) {
	for name, test := range map[string]struct {
		reserved  cpuset.CPUSet
		has, want string
	}{
		"it keeps the last CPU that it shared":                          {has: "2", want: "2"},
		"it does not keep a CPU of the pool":                            {has: "0,2", want: "2"},
		"it had several, which were taken at once":                      {has: "1-3", want: "3"},
		"it has only a CPU of the pool":                                 {has: "0", want: "3"},
		"it has no note":                                                {want: "3"},
		"it gets a reserved CPU in no pool":                             {reserved: cpuset.New(0, 1), has: "2-3", want: "1"},
		"it keeps its own, although there is a reserved CPU in no pool": {reserved: cpuset.New(0, 1), has: "2", want: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, partition.Pools{"management": cpuset.New(0)})
			restarted(t, &fakeRuntime{})
			shim.host.static = true
			shim.current.Store(newNode(shim.current.Load().pools, shim.host.online, cpuset.New(), test.reserved))
			pod := ordinaryPod()
			if has := parse(t, test.has); !has.IsEmpty() {
				shim.observed.lastUpdates.SetCPUSet(string(pod.UID), "c", has)
			}
			if got := RunningContainerCPUs(pod, "c", "new", cpuset.New()); got.String() != test.want {
				t.Errorf("a container that runs gets %s, want %s", got, test.want)
			}
			config := creating("c", "")
			want := "3"
			if !test.reserved.IsEmpty() {
				want = "1"
			}
			if PlaceContainer(pod, config); config.Linux.Resources.CpusetCpus != want {
				t.Errorf("a container that starts gets %s, want %s", config.Linux.Resources.CpusetCpus, want)
			}
			if noted, _ := shim.observed.lastUpdates.GetCPUSet(string(pod.UID), "c"); noted.String() != want {
				t.Errorf("a container that starts is noted on %s, want %s", noted, want)
			}
		})
	}
}

func TestNothingLeftToShareIsReported(t *testing.T) {
	on(t, partition.Pools{"management": cpuset.New(0)})
	restarted(t, &fakeRuntime{})
	shim.host.static = true
	recorder := recordEvents(t)
	exclusive, shared := ordinaryPod(), ordinaryPod()
	exclusive.Namespace, exclusive.Name, exclusive.UID = "n", "exclusive", "e"
	shared.Namespace, shared.Name, shared.UID = "n", "shared", "s"
	shim.observed.activePods = func() []*v1.Pod { return []*v1.Pod{exclusive, shared, partitionedPod()} }
	shim.observed.state = newMemoryState(shim.host.log)
	shim.observed.state.SetDefaultCPUSet(cpuset.New(3))
	shim.observed.state.SetCPUSet("e", "c", cpuset.New(1, 2))
	report := shim.current.Load().reportShared
	report()
	expectEvent(t, recorder, "")
	shim.observed.state.SetDefaultCPUSet(cpuset.New())
	shim.observed.state.SetCPUSet("gone", "c", cpuset.New(3))
	shim.observed.lastUpdates.SetCPUSet("s", "c", cpuset.New(2))
	report()
	expectEvent(t, recorder, "Warning NoSharedCPUs Exclusive containers have every CPU that was shared: others run on CPU 2 and disturb n/exclusive there")
	report()
	expectEvent(t, recorder, "")
	if got := shim.current.Load().shared().Size(); got != 0 {
		t.Errorf("the gauge shows %d, want 0", got)
	}
	// What has ended is not disturbed. Another container of its pod runs on the CPU that is reserved.
	init := *shared.Spec.Containers[0].DeepCopy()
	init.Name = "init"
	shared.Spec.InitContainers = []v1.Container{init}
	shim.observed.lastUpdates.SetCPUSet("s", "init", cpuset.New(2))
	shim.observed.lastUpdates.SetCPUSet("s", "c", cpuset.New(1))
	shim.observed.state.SetCPUSet("e", "c", cpuset.New(2))
	shim.observed.statuses = statuses{"s": {InitContainerStatuses: []v1.ContainerStatus{{Name: "init", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Now()}}}}}}
	report()
	expectEvent(t, recorder, "Warning NoSharedCPUs Exclusive containers have every CPU that was shared: others run on the reserved CPUs 1")
	shim.observed.state.SetDefaultCPUSet(cpuset.New(3))
	report()
	expectEvent(t, recorder, `Normal NoSharedCPUs Containers without exclusive CPUs share the CPUs "3" again`)
	report()
	expectEvent(t, recorder, "")
	// The CPU manager shares what an exclusive container had, even if it should never have had it.
	shim.observed.state.SetDefaultCPUSet(cpuset.New(0))
	report()
	expectEvent(t, recorder, "Warning NoSharedCPUs")
}
