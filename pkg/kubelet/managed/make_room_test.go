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
	"k8s.io/utils/cpuset"
)

// The cgroups above a container have its CPUs before the container moves to them.
func TestCgroupsMakeRoomForContainers(t *testing.T) {
	for name, test := range map[string]struct {
		v1, partitioned bool
		has, want       map[string]string
		cpus            string
		// place: the container is created; otherwise it runs. stale: its CPUs have become
		// exclusive.
		place, stale bool
		exclusive    string
	}{
		"v1: exclusive CPUs come back": {v1: true, cpus: "2-3",
			has:  map[string]string{"": "0-3", "burstable": "0-2", "burstable/poda": "0-2", "burstable/poda/sandbox": "0-2", "burstable/poda/c": "2"},
			want: map[string]string{"burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/sandbox": "0-3", "burstable/poda/c": "2"}},
		"v1: the cgroups have the CPUs already": {v1: true, cpus: "2",
			has:  map[string]string{"": "0-3", "burstable": "0-2", "burstable/poda": "0-2"},
			want: map[string]string{"burstable": "0-2", "burstable/poda": "0-2"}},
		"v1: the pool has moved": {v1: true, partitioned: true, cpus: "0-1",
			has:  map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "2-3", "burstable/poda/sandbox": "2-3"},
			want: map[string]string{"burstable/poda": "0-3", "burstable/poda/sandbox": "2-3"}},
		"v2: the pool has moved, and the pod ends": {partitioned: true, cpus: "0-1",
			has:  map[string]string{"burstable": "", "burstable/poda": "2-3"},
			want: map[string]string{"burstable/poda": "0-3"}},
		"v2: the pool has gone, and the pod ends": {cpus: "2-3",
			has:  map[string]string{"burstable": "", "burstable/poda": "0-1"},
			want: map[string]string{"burstable/poda": "0-3"}},
		"v2: exclusive CPUs come back": {cpus: "2-3",
			has:  map[string]string{"burstable": "0-2", "burstable/poda": ""},
			want: map[string]string{"burstable": "0-3", "burstable/poda": ""}},
		"v1: exclusive CPUs come back before a container is created": {v1: true, place: true, cpus: "2-3",
			has:  map[string]string{"": "0-3", "burstable": "0-2", "burstable/poda": "0-2", "burstable/poda/sandbox": "0-2"},
			want: map[string]string{"burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/sandbox": "0-3"}},
		"v2: CPUs that have become exclusive again do not come back": {cpus: "2-3", exclusive: "3", stale: true,
			has: map[string]string{"burstable": "0-2", "burstable/poda": ""}, want: map[string]string{"burstable": "0-2"}},
		"v2: the class never lost any CPU": {cpus: "2-3", has: map[string]string{"burstable": ""}, want: map[string]string{"burstable": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			cgroupFiles(t, test.v1, test.has)
			on(t, management)
			restarted(t, &fakeRuntime{})
			shim.host.podCgroups = true
			pod := ordinaryPod()
			if test.partitioned {
				pod = partitionedPod()
			}
			pod.UID = "a"
			chosen := parse(t, test.cpus)
			if got := RunningContainerCPUs(pod, "c", "id", chosen); !got.IsEmpty() {
				t.Errorf("before upstream has named the classes, the container is moved to %s", got)
			}
			useClasses(t)
			onlineFile(t, "0-3")
			shim.observed.activePods = func() []*v1.Pod { return []*v1.Pod{pod} }
			if exclusive := parse(t, test.exclusive); !exclusive.IsEmpty() {
				shim.host.static = true
				shim.observed.state = newMemoryState(shim.host.log)
				shim.observed.state.SetDefaultCPUSet(cpuset.New(2, 3).Difference(exclusive))
				shim.observed.state.SetCPUSet("x", "c", exclusive)
			}
			if test.place {
				PlaceContainer(pod, creating("c", test.cpus))
			} else if got := RunningContainerCPUs(pod, "c", "new", chosen); !got.Equals(chosen) != test.stale {
				t.Errorf("the container is moved to %q, want %s unless stale", got, chosen)
			}
			expectSets(t, test.want)
		})
	}
}
