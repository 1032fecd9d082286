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
	"k8s.io/apimachinery/pkg/types"
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
			cgroupFiles(t, test.v1, map[string]string{"": test.allPods})
			restarted(t, &fakeRuntime{})
			recorder := recordEvents(t)
			shim.host.podCgroups = !test.noQOS
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

func TestPreviousPodCgroupsAreConfinedOrFreed(t *testing.T) {
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
			cgroupFiles(t, test.v1, test.has)
			restarted(t, &fakeRuntime{})
			onlineFile(t, "0-3")
			shim.host.podCgroups, shim.host.previous.confined = true, true
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

func TestPreviousPodCgroupIsWrittenOnce(t *testing.T) {
	cgroupFiles(t, false, map[string]string{"burstable/poda": ""})
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
	shim.host.podCgroups = true
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
	shim.observed.activePods = func() []*v1.Pod { return []*v1.Pod{withUID(partitionedPod(), "b")} }
	manager.absent = true
	for i := range 3 * maxPods {
		repair(withUID(partitionedPod(), types.UID(fmt.Sprint(i))))
	}
	if manager.absent = false; len(shim.observed.pods) > maxPods || repair(withUID(partitionedPod(), "b")) != 0 {
		t.Errorf("%d pods are remembered, or an active one was forgotten", len(shim.observed.pods))
	}
}
