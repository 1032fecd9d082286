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
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// resourceConfig has the fields of upstream's that matter here.
type resourceConfig struct {
	Memory        *int64
	CPUShares     *uint64
	CPUQuota      *int64
	CPUPeriod     *uint64
	CPUSet        cpuset.CPUSet
	HugePageLimit map[int64]int64
}

// fakePodCgroups is upstream's manager as it was up to v1.34. All its pods are Burstable.
type fakePodCgroups struct {
	absent  bool
	err     error
	written []*resourceConfig
}

func (f *fakePodCgroups) Exists(*v1.Pod) bool { return !f.absent }

func (f *fakePodCgroups) GetPodContainerName(pod *v1.Pod) (names []string, path string) {
	return nil, "/kubepods/burstable/pod" + string(pod.UID)
}

func (f *fakePodCgroups) SetPodCgroupConfig(_ *v1.Pod, config *resourceConfig) error {
	f.written = append(f.written, config)
	return f.err
}

func computeConfig(_ *v1.Pod, _ bool, period uint64, _ bool, _ string) *resourceConfig {
	memory, shares, quota := int64(1), uint64(409), int64(50000)
	return &resourceConfig{Memory: &memory, CPUShares: &shares, CPUQuota: &quota, CPUPeriod: &period, HugePageLimit: map[int64]int64{2 << 20: 1 << 30}}
}

// cgroups makes cgroups with the given cpusets, by their paths below kubepods, for the time of a
// test. They are ordinary files, so no kernel refuses a write.
func cgroups(t *testing.T, v1 bool, sets map[string]string) {
	t.Helper()
	before := cgroupRoot
	cgroupRoot = t.TempDir()
	t.Cleanup(func() { cgroupRoot = before })
	if v1 {
		if err := os.Mkdir(filepath.Join(cgroupRoot, "cpuset"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, cpus := range sets {
		directory := filepath.Join(hierarchy().root, "kubepods", path)
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.cpus.effective"} {
			if err := os.WriteFile(filepath.Join(directory, file), []byte(cpus+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func expectSets(t *testing.T, want map[string]string) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if has, err := hierarchy().cpus(filepath.Join("kubepods", path)); err != nil || has.String() != want[path] {
			t.Errorf("cgroup %s has the CPUs %q (%v), want %q", path, has, err, want[path])
		}
	}
}

func TestPodCgroupIsConfined(t *testing.T) {
	two := partition.Pools{"management": cpuset.New(0, 1), "other": cpuset.New(2)}
	for name, test := range map[string]struct {
		pools    partition.Pools
		v1       bool
		ordinary bool
		noQOS    bool
		allPods  string
		want     string
	}{
		"the feature is off":                                      {v1: true},
		"v2: its own pool":                                        {pools: two, want: "0-1"},
		"v1: the union of the pools":                              {pools: two, v1: true, want: "0-2"},
		"an ordinary pod gets no cpuset":                          {pools: two, ordinary: true},
		"a pod of a type without CPUs gets no cpuset":             {pools: partition.Pools{"management": cpuset.New()}},
		"pods have no cgroups of their own":                       {pools: two, noQOS: true},
		"v1: no more than the cgroup of all pods has":             {pools: two, v1: true, allPods: "1-3", want: "1-2"},
		"v1: the cgroup of all pods has nothing of the pool":      {pools: two, v1: true, allPods: "3"},
		"v1: the cgroup of all pods has only another type's pool": {pools: two, v1: true, allPods: "2-3"},
		"v2: its own pool, whatever the cgroup of all pods has":   {pools: two, allPods: "1-3", want: "0-1"},
	} {
		t.Run(name, func(t *testing.T) {
			cgroups(t, test.v1, map[string]string{"": test.allPods})
			restarted(t, &fakeRuntime{})
			recorder := recordEvents(t)
			host.podCgroups = !test.noQOS
			if test.pools != nil {
				on(t, test.pools)
			}
			pod := withUID(partitionedPod(), "a")
			if test.ordinary {
				pod = ordinaryPod()
			}
			if test.allPods != "" {
				for range 2 {
					RepairPodCgroup[resourceConfig](pod, &fakePodCgroups{absent: true}, computeConfig)
				}
				lacks := "CPU 0"
				if test.allPods != "1-3" {
					lacks = "CPU 0-1"
				}
				expectEvent(t, recorder, fmt.Sprintf("PodCgroupLacksPoolCPUs The cgroup /kubepods has the CPUs %q, but the pool of workload type management has \"0-1\": its pods cannot run on %s", test.allPods, lacks))
			}
			expectEvent(t, recorder, "")
			same, workloadType := WithOriginalCPUAndType(pod)
			if got := PodCgroupCPUs(workloadType); got.String() != test.want || (test.pools == nil && same != pod) {
				t.Errorf("its cgroup has %q, want %q", got, test.want)
			}
		})
	}
}

func TestPreviousPodCgroups(t *testing.T) {
	for name, test := range map[string]struct {
		pools partition.Pools // nil means that the file has gone
		v1    bool
		has   map[string]string
		want  map[string]string
		// written is the cpuset that upstream's manager must write.
		written string
	}{
		"v1: created without a cpuset": {v1: true, pools: management,
			has:     map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/sandbox": "0-3", "burstable/poda/container": "0-1"},
			want:    map[string]string{"burstable": "0-3", "burstable/poda": "0-1", "burstable/poda/sandbox": "0-1", "burstable/poda/container": "0-1"},
			written: "0-1"},
		"v1: the pool has moved": {v1: true, pools: management,
			has:     map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "2-3", "burstable/poda/sandbox": "2-3", "burstable/poda/container": "2-3"},
			want:    map[string]string{"burstable/poda": "0-1", "burstable/poda/sandbox": "0-1", "burstable/poda/container": "0-1"},
			written: "0-1"},
		"v1: the pool has moved by one": {v1: true, pools: management,
			has:     map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "1-2", "burstable/poda/sandbox": "1-2", "burstable/poda/container": "1-2"},
			want:    map[string]string{"burstable/poda": "0-1", "burstable/poda/sandbox": "1", "burstable/poda/container": "1"},
			written: "0-1"},
		"v1: another pod had the CPU exclusively": {v1: true, pools: management,
			has:     map[string]string{"": "0-3", "burstable": "0,2-3", "burstable/poda": "0", "burstable/podb": "0,2-3"},
			want:    map[string]string{"burstable": "0-3", "burstable/poda": "0-1", "burstable/podb": "0,2-3"},
			written: "0-1"},
		"v1: the file has gone": {v1: true,
			has:  map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-1", "burstable/poda/scope-sandbox": "0-1", "burstable/poda/container": "0-1"},
			want: map[string]string{"burstable/poda": "0-3", "burstable/poda/scope-sandbox": "0-3", "burstable/poda/container": "0-1"}},
		"v1: the type has lost its CPUs": {v1: true, pools: partition.Pools{"management": cpuset.New()},
			has:  map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-1", "burstable/poda/sandbox": "0-1"},
			want: map[string]string{"burstable/poda": "0-3", "burstable/poda/sandbox": "0-3"}},
		"v2: created without a cpuset": {pools: management,
			has: map[string]string{"burstable": "", "burstable/poda": "", "burstable/poda/container": "0-1"}, written: "0-1"},
		"v2: the pool has moved": {pools: management,
			has: map[string]string{"burstable": "", "burstable/poda": "2-3"}, written: "0-1"},
		"v2: the file has gone": {
			has: map[string]string{"burstable": "", "burstable/poda": "2-3"}, written: "0-3"},
		"v2: the file has gone, and nothing was confined": {
			has: map[string]string{"burstable": "", "burstable/poda": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			cgroups(t, test.v1, test.has)
			restarted(t, &fakeRuntime{})
			onlineFile(t, "0-3")
			host.podCgroups, host.previous.confined = true, true
			if test.pools != nil {
				on(t, test.pools)
			}
			manager := &fakePodCgroups{}
			for range 2 {
				RepairPodCgroup[resourceConfig](withUID(partitionedPod(), "a"), manager, computeConfig)
			}
			expectSets(t, test.want)
			if len(manager.written) != 1 || manager.written[0].CPUSet.String() != test.written || len(manager.written[0].HugePageLimit) != 1 || manager.written[0].Memory != nil {
				t.Fatalf("upstream's manager is given %v, want one update with the CPUs %q", manager.written, test.written)
			}
			if weighed := manager.written[0].CPUShares != nil; weighed != (test.pools != nil) {
				t.Errorf("the weight is written: %v", weighed)
			}
		})
	}
}

// onlineFile sets the CPUs that the host has, online and possible, for the time of a test.
func onlineFile(t *testing.T, cpus string) {
	t.Helper()
	online, possible := onlineCPUsFile, possibleCPUsFile
	onlineCPUsFile = filepath.Join(t.TempDir(), "online")
	possibleCPUsFile = onlineCPUsFile
	t.Cleanup(func() { onlineCPUsFile, possibleCPUsFile = online, possible })
	if err := os.WriteFile(onlineCPUsFile, []byte(cpus+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRepairPodCgroup(t *testing.T) {
	cgroups(t, false, map[string]string{"burstable/poda": ""})
	manager := &fakePodCgroups{}
	repair := func(pod *v1.Pod) int {
		manager.written = nil
		RepairPodCgroup[resourceConfig](pod, manager, func(pod *v1.Pod, enforce bool, period uint64, memoryQoS bool, policy string) *resourceConfig {
			if !enforce || period != 100000 || memoryQoS {
				t.Errorf("called with %v, %d, %v", enforce, period, memoryQoS)
			}
			return computeConfig(pod, enforce, period, memoryQoS, policy)
		})
		return len(manager.written)
	}
	if repair(withUID(partitionedPod(), "a")) != 0 {
		t.Error("with the feature off, a cgroup was written")
	}
	on(t, management)
	restarted(t, &fakeRuntime{})
	if repair(withUID(partitionedPod(), "a")) != 0 {
		t.Error("pods have no cgroups, but one was written")
	}
	host.podCgroups = true
	if repair(ordinaryPod()) != 0 {
		t.Error("an ordinary pod's cgroup was written")
	}
	manager.err = errors.New("busy")
	for range 2 {
		if repair(withUID(partitionedPod(), "a")) != 1 {
			t.Error("a failed write was not tried again")
		}
	}
	manager.err = nil
	if repair(withUID(partitionedPod(), "a")) != 1 || repair(withUID(partitionedPod(), "a")) != 0 {
		t.Error("a cgroup from before this kubelet was not written exactly once")
	}
	manager.absent = true
	if repair(withUID(partitionedPod(), "b")) != 0 {
		t.Error("a cgroup that does not exist was written")
	}
	if manager.absent = false; repair(withUID(partitionedPod(), "b")) != 0 {
		t.Error("a cgroup that upstream created was written")
	}
	observed.activePods = func() []*v1.Pod { return []*v1.Pod{withUID(partitionedPod(), "b")} }
	manager.absent = true
	for i := range 3 * maxPods {
		repair(withUID(partitionedPod(), types.UID(fmt.Sprint(i))))
	}
	if manager.absent = false; len(observed.pods) > maxPods || repair(withUID(partitionedPod(), "b")) != 0 {
		t.Errorf("%d pods are remembered, or an active one was forgotten", len(observed.pods))
	}
}

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
			cgroups(t, test.v1, test.has)
			on(t, management)
			restarted(t, &fakeRuntime{})
			host.podCgroups = true
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
			observed.activePods = func() []*v1.Pod { return []*v1.Pod{pod} }
			if exclusive := parse(t, test.exclusive); !exclusive.IsEmpty() {
				host.static = true
				observed.state = newMemoryState(host.log)
				observed.state.SetDefaultCPUSet(cpuset.New(2, 3).Difference(exclusive))
				observed.state.SetCPUSet("x", "c", exclusive)
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

// A kubelet that is killed while it fits cpusets leaves a container with one that the runtime
// does not know.
func TestCpusetThatTheRuntimeDoesNotKnow(t *testing.T) {
	for actual, want := range map[string]string{"0": "0-1", "0-1": "", "": ""} {
		cgroups(t, true, map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/scope-id": actual})
		on(t, management)
		runtime := &fakeRuntime{linux: &runtimeapi.LinuxContainerResources{CpusetCpus: "0-1", CpuShares: 409, CpuQuota: 50000, CpuPeriod: 100000}}
		restarted(t, runtime)
		host.podCgroups = true
		useClasses(t)
		for range 2 {
			reconcile(withUID(partitionedPod(), "a"), runtime, cpuset.New())
		}
		got := ""
		if len(runtime.updates) == 1 {
			got = runtime.updates[0].CpusetCpus
		}
		if got != want || len(runtime.updates) > 1 {
			t.Errorf("the cgroup has %q, and the runtime reports 0-1: the updates are %v, want %q", actual, runtime.updates, want)
		}
	}
}

func useClasses(t *testing.T) {
	classes.names = []string{"/kubepods/burstable", "/kubepods/besteffort"}
	classes.update = func() error { // as upstream does
		var sets [2]cpuset.CPUSet
		ConfineClasses(classes.update, classes.names[0], &sets[0], classes.names[1], &sets[1])
		for i, set := range sets {
			if !set.IsEmpty() {
				if err := hierarchy().set(classes.names[i], set); err != nil {
					return err
				}
			}
		}
		return nil
	}
	t.Cleanup(func() { classes.names, classes.update, classes.kept, classes.freed = nil, nil, false, false })
}

func TestClassesHaveNoExclusiveCPUs(t *testing.T) {
	for name, test := range map[string]struct {
		v1, off, none, wasOn, notReady bool
		exclusive, online              string
		// notes is the cpuset that the CPU manager has noted for the container c in the ordinary
		// pod a.
		notes string
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
		"v2: nothing is left to share, and the pods are not known yet":       {exclusive: "2-3", notReady: true, has: map[string]string{"burstable": "0-2"}},
		"v1: all cgroups below lose the CPU, except partitioned pods":        {v1: true, exclusive: "2", has: map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/c": "2-3", "burstable/poda/sandbox": "0-3", "burstable/podb": "0-1", "burstable/podb/c": "0-1"}, want: map[string]string{"burstable": "0-1,3", "burstable/poda": "0-1,3", "burstable/poda/c": "3", "burstable/poda/sandbox": "0-1,3", "burstable/podb": "0-1", "burstable/podb/c": "0-1"}},
		"v1: a container with no CPU left gets the shared ones":              {v1: true, exclusive: "2", has: map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/c": "2"}, want: map[string]string{"burstable": "0-1,3", "burstable/poda": "0-1,3", "burstable/poda/c": "3"}},
		"v1: exclusive CPUs come back to the class":                          {v1: true, has: map[string]string{"": "0-3", "burstable": "0-1", "burstable/poda": "0-1"}, want: map[string]string{"burstable": "0-3", "burstable/poda": "0-1"}},
		"v1: no more than the cgroup of all pods has":                        {v1: true, exclusive: "2", has: map[string]string{"": "1-3", "burstable": "1-3"}, want: map[string]string{"burstable": "1,3"}},
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
			cgroups(t, test.v1, test.has)
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
			host.static, host.previous.confined = !test.none, test.wasOn
			exclusive := parse(t, test.exclusive)
			observed.state = newMemoryState(host.log)
			observed.state.SetDefaultCPUSet(cpuset.New(2, 3).Difference(exclusive))
			if !exclusive.IsEmpty() {
				observed.state.SetCPUSet("x", "c", exclusive)
			}
			observed.ready = func() bool { return !test.notReady }
			observed.activePods = func() []*v1.Pod { return []*v1.Pod{withUID(ordinaryPod(), "a")} }
			if notes := parse(t, test.notes); !notes.IsEmpty() {
				observed.lastUpdates.SetCPUSet("a", "c", notes)
			}
			if giving := parse(t, test.giving); !giving.IsEmpty() {
				observed.noteGiving("a", "c", giving)
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

// On cgroup v1 the kernel refuses a cpuset that is not within the parent's, and one that does not
// hold the children's. Here the real kernel decides, on a tree of cgroups like the kubelet's.
func TestKernelRefusesNoCpuset(t *testing.T) {
	sets := hierarchy()
	all, err := sets.effective("/")
	if !sets.v1 || err != nil || all.Size() < 2 {
		t.Skip("needs cgroup v1, and two CPUs")
	}
	top := fmt.Sprintf("/workload-partitioning-test-%d", os.Getpid())
	var made []string
	t.Cleanup(func() {
		for _, path := range slices.Backward(made) {
			if err := os.Remove(filepath.Join(sets.root, path)); err != nil {
				t.Error(err)
			}
		}
	})
	add := func(path string) string {
		if err := os.Mkdir(filepath.Join(sets.root, path), 0o755); err != nil {
			t.Skip("needs to be root: ", err)
		}
		made = append(made, path)
		if err := sets.set(path, all); err != nil {
			t.Fatal(err)
		}
		return path
	}
	add(top)
	class := add(top + "/class")
	var pods []string
	for i := range 3 {
		pod := add(fmt.Sprintf("%s/pod%d", class, i))
		pods = append(pods, pod)
		for _, name := range []string{"sandbox", "c", "d"} {
			add(pod + "/" + name)
		}
	}
	random := newRandom(t)
	some := func(of cpuset.CPUSet) cpuset.CPUSet {
		list := of.List()
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return cpuset.New(list[:1+random.Intn(len(list))]...)
	}
	for round := range 200 {
		cpus := some(all)
		if err := sets.fit(class, cpus, some(cpus)); err != nil {
			t.Fatalf("round %d, class on %s: %v", round, cpus, err)
		}
		pod := pods[random.Intn(len(pods))]
		switch random.Intn(3) {
		case 0: // a partitioned pod whose pool moves
			pool := some(all)
			if err := errors.Join(sets.widen(class, pool), sets.fit(pod, pool, some(pool))); err != nil {
				t.Fatalf("round %d, %s on %s: %v", round, pod, pool, err)
			}
		case 1: // shared CPUs come back
			back := some(all)
			if err := errors.Join(sets.widen(class, back), sets.widenToParent(pod, func(child string, _, _ cpuset.CPUSet) bool { return filepath.Base(child) == "sandbox" }), sets.set(pod+"/c", back)); err != nil {
				t.Fatalf("round %d, %s back on %s: %v", round, pod, back, err)
			}
		}
		for _, path := range made {
			if has, err := sets.cpus(path); err != nil || has.IsEmpty() {
				t.Fatalf("round %d: %s is left with %q (%v)", round, path, has, err)
			}
		}
	}
}

// newRandom logs its seed, so that a failure can be reproduced.
func newRandom(t *testing.T) *rand.Rand {
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	return rand.New(rand.NewSource(seed))
}
