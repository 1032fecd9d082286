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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// On cgroup v1 the kernel would refuse what the runtime writes after that.
func TestCgroupsBelowAContainerMoveBeforeIt(t *testing.T) {
	for name, test := range map[string]struct {
		pools       partition.Pools // nil means that the file has gone
		partitioned bool
		static      string // what the CPU manager chose, under the policy static
		v2          bool
		noted       string
		online      string
		has, want   map[string]string
	}{
		"an ordinary container leaves the pool":              {pools: management, has: map[string]string{"": "0-3", "/docker": "0-3"}, want: map[string]string{"": "2-3", "/docker": "2-3"}},
		"the pool moves, and it gets the previous one":       {pools: management, noted: "0-1", has: map[string]string{"": "0-1", "/docker": "0-1"}, want: map[string]string{"": "2-3", "/docker": "2-3"}},
		"a container in it keeps the CPUs that it asked for": {pools: management, has: map[string]string{"": "0-3", "/docker": "0-3", "/docker/a": "1-2"}, want: map[string]string{"": "2-3", "/docker": "2-3", "/docker/a": "2"}},
		"a partitioned container follows its pool":           {pools: management, partitioned: true, noted: "2-3", has: map[string]string{"": "2-3", "/docker": "2-3"}, want: map[string]string{"": "0-1", "/docker": "0-1"}},
		"the file has gone":                                  {noted: "2-3", has: map[string]string{"": "2-3", "/docker": "2-3"}, want: map[string]string{"": "0-3", "/docker": "0-3"}},
		"the policy static shares more":                      {pools: management, static: "2-3", noted: "3", has: map[string]string{"": "3", "/docker": "3"}, want: map[string]string{"": "2-3", "/docker": "2-3"}},
		"it is where it belongs":                             {pools: management, noted: "2-3", has: map[string]string{"": "2-3", "/docker": "2-3", "/docker/a": "3"}, want: map[string]string{"": "2-3", "/docker": "2-3", "/docker/a": "3"}},
		"another tool has narrowed it":                       {pools: management, static: "2-3", noted: "2-3", has: map[string]string{"": "3", "/docker": "3"}, want: map[string]string{"": "3", "/docker": "3"}},
		"a CPU is offline":                                   {pools: management, online: "0-2", has: map[string]string{"": "0-2", "/docker": "0-2"}, want: map[string]string{"": "2", "/docker": "2"}},
		"cgroup v2 needs none of it":                         {pools: management, v2: true, has: map[string]string{"": "0-3", "/docker": "0-3"}, want: map[string]string{"": "0-3", "/docker": "0-3"}},
	} {
		t.Run(name, func(t *testing.T) {
			inPod := func(sets map[string]string) map[string]string {
				all := map[string]string{"": "0-3", "burstable": "0-3", "besteffort": "0-3", "burstable/poda": "0-3"}
				for path, cpus := range sets {
					all["burstable/poda/new"+path] = cpus
				}
				return all
			}
			cgroupFiles(t, !test.v2, inPod(test.has))
			if test.pools != nil {
				on(t, test.pools)
			}
			restarted(t, &fakeRuntime{})
			onlineFile(t, "0-3")
			if test.online != "" {
				onlineFile(t, test.online)
			}
			useClasses(t)
			shim.host.podCgroups, shim.host.static, shim.host.previous.confined = true, test.static != "", true
			shim.host.previous.sets = []cpuset.CPUSet{parse(t, test.noted)}
			shim.observed.state = newMemoryState(shim.host.log)
			shim.observed.state.SetDefaultCPUSet(cpuset.New(2, 3))
			pod := withUID(ordinaryPod(), "a")
			if test.partitioned {
				pod = withUID(partitionedPod(), "a")
			}
			note(pod, "c", parse(t, test.noted))
			RunningContainerCPUs(pod, "c", "new", parse(t, test.static))
			expectSets(t, inPod(test.want))
		})
	}
}

// An exclusive container that ends before the CPU manager has looked: it knows of no change.
func TestContainersGetBackWhatTheyLostForAMoment(t *testing.T) {
	cgroupFiles(t, true, map[string]string{"": "0-3", "burstable": "0-3", "besteffort": "0-3", "burstable/poda": "0-3", "burstable/poda/id": "2-3", "burstable/poda/id/docker": "2-3"})
	on(t, management)
	restarted(t, &fakeRuntime{linux: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpusetCpus: "2-3"}})
	onlineFile(t, "0-3")
	useClasses(t)
	shim.host.podCgroups, shim.host.static = true, true
	shim.observed.state = newMemoryState(shim.host.log)
	pod := withUID(ordinaryPod(), "a")
	for _, test := range []struct{ exclusive, want string }{{"", "2-3"}, {"3", "2"}, {"", "2-3"}} {
		exclusive := parse(t, test.exclusive)
		shared := cpuset.New(2, 3).Difference(exclusive)
		shim.observed.state.SetDefaultCPUSet(shared)
		if shim.observed.state.Delete("x", "c"); !exclusive.IsEmpty() {
			shim.observed.state.SetCPUSet("x", "c", exclusive)
		}
		if err := shim.classes.update(); err != nil {
			t.Fatal(err)
		}
		if exclusive.IsEmpty() { // while it runs, the CPU manager does not look
			if got := RunningContainerCPUs(pod, "c", "id", shared); !got.Equals(shared) {
				t.Errorf("the container gets %s, want %s", got, shared)
			}
		}
		expectSets(t, map[string]string{"burstable/poda/id": test.want, "burstable/poda/id/docker": test.want})
	}
	if len(shim.classes.narrowed) > 0 {
		t.Errorf("in the end, %v are narrowed", shim.classes.narrowed)
	}
}
