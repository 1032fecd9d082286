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
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
)

func useClasses(t *testing.T) {
	shim.classes.names = []string{"/kubepods/burstable", "/kubepods/besteffort"}
	shim.classes.update = func() error { // as upstream does
		var sets [2]cpuset.CPUSet
		ConfineClasses(shim.classes.update, shim.classes.names[0], &sets[0], shim.classes.names[1], &sets[1])
		for i, set := range sets {
			if !set.IsEmpty() {
				if err := hierarchy().set(shim.classes.names[i], set); err != nil {
					return err
				}
			}
		}
		return nil
	}
	t.Cleanup(func() {
		shim.classes.names, shim.classes.update, shim.classes.kept, shim.classes.freed = nil, nil, false, false
	})
}

func TestClassesHaveNoExclusiveCPUs(t *testing.T) {
	for name, test := range map[string]struct {
		v1, off, none, wasOn, notReady bool
		exclusive, online              string
		// notes is the cpuset that the CPU manager has noted for the container c in the ordinary
		// pod a.
		notes string
		// ended means that the status of that container says so, as of now, and placed is when it was
		// last placed, from now; 0 means that it was not.
		ended  bool
		placed time.Duration
		// waits means that it waits to be started again.
		waits bool
		// giving is the cpuset that the CPU manager is giving it.
		giving    string
		has, want map[string]string
		written   string
	}{
		"nothing is exclusive, and nothing ever was": {has: map[string]string{"burstable": ""}},
		"v2: they keep all other CPUs":               {exclusive: "2", has: map[string]string{"burstable": ""}, written: "0-1,3"},
		"v2: exclusive CPUs come back":               {has: map[string]string{"burstable": "0-1,3"}, written: "0-3"},
		"v2: a container that would be spread over the pool keeps its cpuset": {exclusive: "2", has: map[string]string{"burstable": "0-1,3", "burstable/poda": "", "burstable/poda/c": "2", "burstable/poda/d": "2-3"},
			want: map[string]string{"burstable/poda/c": "2", "burstable/poda/d": "2-3", "burstable/poda": ""}, written: "0-3"},
		"v2: a container keeps the cpuset that it is being given":            {exclusive: "2", giving: "2", has: map[string]string{"burstable": "0-1,3", "burstable/poda/c": "3"}, written: "0-3"},
		"v2: a container keeps the cpuset that it was given":                 {exclusive: "2", notes: "2", has: map[string]string{"burstable": "0-1,3", "burstable/poda/c": "3"}, written: "0-3"},
		"v2: nothing is left to share":                                       {exclusive: "2-3", has: map[string]string{"burstable": ""}, written: "0-1,3"},
		"v2: nothing is left to share, and a shared container keeps its CPU": {exclusive: "2-3", notes: "2", has: map[string]string{"burstable": "0-2", "burstable/poda/c": "2"}, want: map[string]string{"burstable/poda/c": "2"}, written: "0-3"},
		"v2: nothing is left to share, and the pods are not known yet":       {exclusive: "2-3", notReady: true, has: map[string]string{"burstable": "0-1"}, written: "0-1,3"},
		"v2: what unknown pods use stays":                                    {exclusive: "2-3", notReady: true, has: map[string]string{"burstable": "0-2"}, written: "0-3"},
		"v2: unknown pods have all CPUs":                                     {exclusive: "2-3", notReady: true, has: map[string]string{"burstable": ""}},
		"v2: a container that has ended needs nothing":                       {exclusive: "2", notes: "2", placed: -time.Minute, ended: true, has: map[string]string{"burstable": "0-1,3"}, written: "0-1,3"},
		"v2: one of a previous kubelet that has ended needs nothing":         {exclusive: "2", notes: "2", ended: true, has: map[string]string{"burstable": "0-1,3"}, written: "0-1,3"},
		"v2: one that waits to be started again needs nothing":               {exclusive: "2", notes: "2", placed: -time.Minute, ended: true, waits: true, has: map[string]string{"burstable": "0-1,3"}, written: "0-1,3"},
		"v2: one that is created again keeps what it is given":               {exclusive: "2", notes: "2", placed: time.Minute, ended: true, has: map[string]string{"burstable": "0-1,3"}, written: "0-3"},
		"v1: all cgroups below lose the CPU, except partitioned pods":        {v1: true, exclusive: "2", has: map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/c": "2-3", "burstable/poda/sandbox": "0-3", "burstable/podb": "0-1", "burstable/podb/c": "0-1"}, want: map[string]string{"burstable": "0-1,3", "burstable/poda": "0-1,3", "burstable/poda/c": "3", "burstable/poda/sandbox": "0-1,3", "burstable/podb": "0-1", "burstable/podb/c": "0-1"}},
		"v1: a container with no CPU left gets the shared ones":              {v1: true, exclusive: "2", has: map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/c": "2"}, want: map[string]string{"burstable": "0-1,3", "burstable/poda": "0-1,3", "burstable/poda/c": "3"}},
		"v1: exclusive CPUs come back to the class":                          {v1: true, has: map[string]string{"": "0-3", "burstable": "0-1", "burstable/poda": "0-1"}, want: map[string]string{"burstable": "0-3", "burstable/poda": "0-1"}},
		"v1: no more than the cgroup of all pods has":                        {v1: true, exclusive: "2", has: map[string]string{"": "1-3", "burstable": "1-3"}, want: map[string]string{"burstable": "1,3"}},
		"v2: no pool loses a CPU that upstream gave away":                    {exclusive: "1-2", has: map[string]string{"burstable": ""}, written: "0-1,3"},
		"v1: no pool loses a CPU that upstream gave away":                    {v1: true, exclusive: "1-2", has: map[string]string{"": "0-3", "burstable": "0-3", "burstable/podb": "0-1", "burstable/podb/c": "0-1"}, want: map[string]string{"burstable": "0-1,3", "burstable/podb": "0-1", "burstable/podb/c": "0-1"}},
		"policy none":              {none: true, exclusive: "2", has: map[string]string{"burstable": ""}},
		"policy none after static": {none: true, wasOn: true, has: map[string]string{"burstable": "0-1"}, written: "0-3"},
		"v2: the file has gone":    {off: true, wasOn: true, has: map[string]string{"burstable": "0-1"}, written: "0-3"},
		"v1: the file has gone":    {v1: true, off: true, wasOn: true, has: map[string]string{"": "0-3", "burstable": "0-1"}, want: map[string]string{"burstable": "0-3"}},
		"v1: the file has gone, and ordinary pods follow with their sandboxes": {v1: true, off: true, wasOn: true, has: map[string]string{"": "0-3", "burstable": "0-1", "burstable/poda": "0-1", "burstable/poda/sandbox": "0-1", "burstable/poda/c": "1"},
			want: map[string]string{"burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/sandbox": "0-3", "burstable/poda/c": "1"}},
		"v2: an offline CPU of the pool is not exclusive": {exclusive: "2", online: "0,2-3", has: map[string]string{"burstable": "", "burstable/podb": "1", "burstable/podb/c": "1"},
			want: map[string]string{"burstable/podb": "1", "burstable/podb/c": "1"}, written: "0-1,3"},
		"without a file nothing happens": {off: true, has: map[string]string{"burstable": "0-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.has["besteffort"] = test.has["burstable"]
			cgroupFiles(t, test.v1, test.has)
			if !test.off {
				on(t, management)
			}
			restarted(t, &fakeRuntime{})
			onlineFile(t, "0-3")
			if test.online != "" {
				possible := possibleCPUsFile
				onlineFile(t, test.online)
				possibleCPUsFile = possible
			}
			useClasses(t)
			shim.host.static, shim.host.previous.confined = !test.none, test.wasOn
			exclusive := parse(t, test.exclusive)
			shim.observed.state = newMemoryState(shim.host.log)
			shim.observed.state.SetDefaultCPUSet(cpuset.New(2, 3).Difference(exclusive))
			if !exclusive.IsEmpty() {
				shim.observed.state.SetCPUSet("x", "c", exclusive)
			}
			shim.observed.ready = func() bool { return !test.notReady }
			shim.observed.activePods = func() []*v1.Pod { return []*v1.Pod{withUID(ordinaryPod(), "a")} }
			if notes := parse(t, test.notes); !notes.IsEmpty() {
				shim.observed.lastUpdates.SetCPUSet("a", "c", notes)
			}
			if giving := parse(t, test.giving); !giving.IsEmpty() {
				shim.observed.noteGiving("a", "c", giving)
			}
			if test.ended {
				status := v1.ContainerStatus{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Now()}}}
				if test.waits {
					status.State, status.LastTerminationState = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, status.State
				}
				shim.observed.statuses = statuses{"a": {ContainerStatuses: []v1.ContainerStatus{status}}}
			}
			if test.placed != 0 {
				shim.observed.notePlaced("a", "c")
				shim.observed.pods["a"].placed["c"] = time.Now().Add(test.placed)
			}
			var burstable, bestEffort cpuset.CPUSet
			ConfineClasses(func() error { return nil }, "/kubepods/burstable", &burstable, "/kubepods/besteffort", &bestEffort)
			if burstable.String() != test.written || !bestEffort.Equals(burstable) {
				t.Errorf("upstream must write %q and %q, want %q for both", burstable, bestEffort, test.written)
			}
			expectSets(t, test.want)
		})
	}
}
