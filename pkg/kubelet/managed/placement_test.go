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
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// fakeRuntime lists containers in the given states, and reports the given resources for every
// container. Each answer comes with err.
type fakeRuntime struct {
	states  []runtimeapi.ContainerState
	linux   *runtimeapi.LinuxContainerResources
	err     error
	asked   int
	updates []*runtimeapi.LinuxContainerResources
}

func (r *fakeRuntime) ListContainers(context.Context, *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	for _, state := range r.states {
		list = append(list, &runtimeapi.Container{State: state})
	}
	return list, r.err
}

// ListPodSandbox returns one sandbox, with the ID "sandbox", for every pod.
func (r *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return []*runtimeapi.PodSandbox{{Id: "sandbox"}}, nil
}

func (r *fakeRuntime) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.asked++
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Resources: &runtimeapi.ContainerResources{Linux: r.linux}}}, r.err
}

func (r *fakeRuntime) UpdateContainerResources(_ context.Context, _ string, resources *runtimeapi.ContainerResources) error {
	r.updates = append(r.updates, resources.Linux)
	return r.err
}

// found is upstream's map of containers, with one, by its ID.
type found string

func (f found) Visit(visit func(podUID, containerName, containerID string)) {
	visit("", "c", string(f))
}

// restarted gives the hooks a runtime in which the container "id" existed before this kubelet
// started.
func restarted(t *testing.T, runtime *fakeRuntime) {
	t.Helper()
	startedIn(t, t.TempDir())
	host.log, _ = ktesting.NewTestContext(t)
	host.online, host.quotaPeriod = cpuset.New(0, 1, 2, 3), 100*time.Millisecond
	host.previous.confined = host.previous.confined || current.Load() == nil
	FollowPods(nil, nil, nil, runtime, found("id"), newMemoryState(host.log))
	t.Cleanup(func() { observed = observation{} })
}

// reconcile does what upstream's CPU manager does: it updates the container if the cpuset is not
// the one that it has noted.
func reconcile(pod *v1.Pod, runtime *fakeRuntime, chosen cpuset.CPUSet) {
	set := RunningContainerCPUs(pod, "c", "id", chosen)
	if known, _ := observed.lastUpdates.GetCPUSet(string(pod.UID), "c"); set.IsEmpty() || set.Equals(known) {
		return
	}
	if runtime.UpdateContainerResources(context.Background(), "id", &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: set.String()}}) == nil {
		observed.lastUpdates.SetCPUSet(string(pod.UID), "c", set)
	}
}

// A previous container is updated only if its cpuset is wrong, and once, under either policy.
func TestPreviousContainers(t *testing.T) {
	for name, test := range map[string]struct {
		pools       partition.Pools // nil means that the file has gone
		static      bool
		gave        string
		isolated    string
		partitioned bool
		has         string
		silent      bool // the runtime reports nothing
		unreadable  bool // the record is unreadable
		want        string
	}{
		"a partitioned container on its pool":                             {pools: management, partitioned: true, has: "0-1"},
		"a partitioned container elsewhere":                               {pools: management, partitioned: true, has: "2-3", want: "0-1"},
		"a partitioned container without a cpuset":                        {pools: management, partitioned: true, want: "0-1"},
		"an ordinary container off the pools":                             {pools: management, has: "2-3"},
		"an ordinary container without a cpuset":                          {pools: management, want: "2-3"},
		"an ordinary container with what a previous pool left":            {pools: management, gave: "3", has: "3", want: "2-3"},
		"an ordinary container that somebody else put off the pools":      {pools: management, has: "3"},
		"an ordinary container that somebody else put half on the pool":   {pools: management, has: "1-2", want: "2"},
		"an ordinary container that somebody else put on the pool":        {pools: management, has: "0", want: "2-3"},
		"an ordinary container gets no isolated CPU":                      {pools: management, isolated: "3", want: "2"},
		"an ordinary container gets isolated CPUs if there are no others": {pools: management, isolated: "2-3", want: "2-3"},
		"the type has lost its CPUs":                                      {pools: partition.Pools{"management": cpuset.New()}, gave: "0-1", partitioned: true, has: "0-1", want: "0-3"},
		"the type never had CPUs, and the container has no cpuset":        {pools: partition.Pools{"management": cpuset.New()}},
		"the file has gone":                                               {gave: "0-1", partitioned: true, has: "0-1", want: "0-3"},
		"the file has gone, and there are isolated CPUs":                  {gave: "0-1", isolated: "3", has: "0-1", want: "0-2"},
		"the file has gone, but somebody else gave the cpuset":            {gave: "0-1", has: "2"},
		"the file has gone, and the container has no cpuset":              {gave: "0-1"},
		"the runtime reports nothing of a partitioned container":          {pools: management, partitioned: true, silent: true, want: "0-1"},
		"the runtime reports nothing of an ordinary container":            {pools: management, silent: true, want: "2-3"},
		"the record is unreadable, and the file has gone":                 {unreadable: true, has: "2", want: "0-3"},
		"the runtime reports nothing, and the file has gone":              {gave: "0-1", silent: true, want: "0-3"},
		"static: a shared container where it should be":                   {pools: management, static: true, has: "2-3"},
		"static: a shared container elsewhere":                            {pools: management, static: true, has: "0-3", want: "2-3"},
		"static: a partitioned container on its pool":                     {pools: management, static: true, partitioned: true, has: "0-1"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := ordinaryPod()
			if test.partitioned {
				pod = partitionedPod()
			}
			runtime := &fakeRuntime{linux: &runtimeapi.LinuxContainerResources{CpusetCpus: test.has, CpuShares: 409, CpuQuota: 50000, CpuPeriod: 100000}}
			if test.silent {
				runtime.linux = nil
			}
			if test.pools != nil {
				on(t, test.pools)
			}
			restarted(t, runtime)
			host.static = test.static
			host.isolated = parse(t, test.isolated)
			if test.pools != nil {
				current.Store(newNode(test.pools, host.online, host.isolated, cpuset.New()))
			}
			host.previous.unreadable = test.unreadable
			if test.gave != "" {
				host.previous = previousKubelet{confined: true, sets: []cpuset.CPUSet{parse(t, test.gave)}}
			}
			chosen := cpuset.New()
			if test.static {
				chosen = cpuset.New(2, 3)
			}
			for range 3 {
				reconcile(pod, runtime, chosen)
			}
			var got []string
			for _, update := range runtime.updates {
				got = append(got, update.CpusetCpus)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("the updates are %q, want %q", got, test.want)
			}
			if runtime.asked != 1 {
				t.Errorf("the runtime was asked %d times, want once", runtime.asked)
			}
		})
	}
}

// Containers that this kubelet created stay where they are, even after the file has gone.
func TestContainersOfThisKubelet(t *testing.T) {
	for name, pools := range map[string]partition.Pools{"the file has gone": nil, "the type has lost its CPUs": {"management": cpuset.New()}, "with a pool": management} {
		if pools != nil {
			on(t, pools)
		}
		runtime := &fakeRuntime{}
		restarted(t, runtime)
		host.previous.confined = true
		for _, pod := range []*v1.Pod{ordinaryPod(), partitionedPod()} {
			pod.UID = types.UID(fmt.Sprint("uid-", len(pod.Annotations)))
			config := creating("c", "")
			PlaceContainer(pod, config)
			set := RunningContainerCPUs(pod, "c", "new", cpuset.New())
			if has := noted(pod, "c"); !set.Equals(has) || runtime.asked > 0 {
				t.Errorf("%s: a container that was created on %q and noted on %s is moved to %s", name, config.Linux.Resources.CpusetCpus, has, set)
			}
		}
		current.Store(nil)
	}
}

// Notes of containers that never ran do not pile up.
func TestNotesOfContainersThatNeverRan(t *testing.T) {
	on(t, management)
	restarted(t, &fakeRuntime{})
	stays := withUID(ordinaryPod(), "stays")
	observed.activePods = func() []*v1.Pod { return []*v1.Pod{stays} }
	for i := range 3 * placedBetween {
		pod := stays
		if i > 0 {
			pod = withUID(ordinaryPod(), types.UID(fmt.Sprint(i)))
		}
		PlaceContainer(pod, creating("c", ""))
	}
	if count := len(observed.lastUpdates.GetCPUAssignments()); count > placedBetween || noted(stays, "c").IsEmpty() {
		t.Errorf("there are %d notes", count)
	}
}

func TestRepair(t *testing.T) {
	resources := func(shares, quota, period int64, cpus string) *runtimeapi.LinuxContainerResources {
		return &runtimeapi.LinuxContainerResources{CpuShares: shares, CpuQuota: quota, CpuPeriod: period, CpusetCpus: cpus}
	}
	for name, test := range map[string]struct {
		unlimited bool
		ordinary  bool
		has       *runtimeapi.LinuxContainerResources
		want      *runtimeapi.LinuxContainerResources
	}{
		"everything is right":                            {has: resources(409, 50000, 100000, "0-1")},
		"the runtime reads the annotations":              {has: resources(400, 50000, 100000, "0-1")},
		"the weight is wrong":                            {has: resources(2, 50000, 100000, "0-1"), want: resources(409, 0, 0, "0-1")},
		"the limit is missing":                           {has: resources(409, 0, 0, "0-1"), want: resources(0, 50000, 100000, "0-1")},
		"the limit has another period":                   {has: resources(409, 50000, 50000, "0-1"), want: resources(0, 50000, 100000, "0-1")},
		"everything is wrong: one update":                {has: resources(2, 0, 0, ""), want: resources(409, 50000, 100000, "0-1")},
		"the container has no limit, and asked for none": {unlimited: true, has: resources(409, 0, 0, "0-1")},
		"the container has a limit, and asked for none":  {unlimited: true, has: resources(409, 50000, 100000, "0-1")},
		"an ordinary container's weight is left alone":   {ordinary: true, has: resources(2, 0, 0, "2-3")},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, management)
			runtime := &fakeRuntime{linux: test.has}
			restarted(t, runtime)
			pod := partitionedPod()
			if test.unlimited {
				pod.Annotations[partition.ResourcesAnnotation("c")] = `{"cpushares":400}`
			}
			if test.ordinary {
				pod = ordinaryPod()
			}
			for range 3 {
				reconcile(pod, runtime, cpuset.New())
			}
			switch {
			case test.want == nil && len(runtime.updates) == 0:
			case test.want == nil || len(runtime.updates) != 1 || runtime.updates[0].String() != test.want.String():
				t.Errorf("the updates are %v, want %v", runtime.updates, test.want)
			}
		})
	}
	t.Run("a runtime that fails is asked again", func(t *testing.T) {
		on(t, management)
		runtime := &fakeRuntime{linux: resources(2, 0, 0, "0-1"), err: errors.New("busy")}
		restarted(t, runtime)
		if got := RunningContainerCPUs(partitionedPod(), "c", "id", cpuset.New()); got.String() != "0-1" {
			t.Errorf("with a runtime that fails the container is kept on %s", got)
		}
		runtime.err, runtime.updates = nil, nil
		for range 2 {
			RunningContainerCPUs(partitionedPod(), "c", "id", cpuset.New())
		}
		if len(runtime.updates) != 1 {
			t.Errorf("once the runtime answers, the updates are %v, want one", runtime.updates)
		}
	})
	t.Run("a runtime that fails is not asked forever", func(t *testing.T) {
		on(t, management)
		runtime := &fakeRuntime{err: errors.New("broken")}
		restarted(t, runtime)
		for i := range 2 * mostQuestions {
			if got, want := RunningContainerCPUs(ordinaryPod(), "c", "id", cpuset.New()), i+1 < mostQuestions; got.IsEmpty() != want {
				t.Errorf("after %d questions an ordinary container is kept on %q", i+1, got)
			}
		}
		if runtime.asked != mostQuestions {
			t.Errorf("the runtime was asked %d times, want %d", runtime.asked, mostQuestions)
		}
	})
}

// The conversions give what upstream's do, whose package cannot be imported here
// (pkg/kubelet/cm/helpers_linux_test.go has these values).
func TestConversions(t *testing.T) {
	for millicores, want := range map[int64]int64{0: 2, 1: 2, 100: 102, 400: 409, 1000: 1024, 300000: 262144} {
		if got := sharesOf(millicores); got != want {
			t.Errorf("%dm are %d shares, want %d", millicores, got, want)
		}
	}
	for millicores, want := range map[int64]int64{0: 0, 1: 1000, 10: 1000, 200: 20000, 1500: 150000} {
		if got := quotaOf(millicores, 100*time.Millisecond); got != want {
			t.Errorf("%dm are a quota of %d, want %d", millicores, got, want)
		}
	}
}

// With nothing left to share, a running container stays on its last CPU, and is never spread. Any
// other gets the fallback, which is always the same.
func TestNothingLeftToShare(t *testing.T) {
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
			host.static = true
			current.Store(newNode(current.Load().pools, host.online, cpuset.New(), test.reserved))
			pod := ordinaryPod()
			if has := parse(t, test.has); !has.IsEmpty() {
				observed.lastUpdates.SetCPUSet(string(pod.UID), "c", has)
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
			if noted, _ := observed.lastUpdates.GetCPUSet(string(pod.UID), "c"); noted.String() != want {
				t.Errorf("a container that starts is noted on %s, want %s", noted, want)
			}
		})
	}
}

func TestNothingLeftToShareIsReported(t *testing.T) {
	on(t, partition.Pools{"management": cpuset.New(0)})
	restarted(t, &fakeRuntime{})
	host.static = true
	recorder := recordEvents(t)
	exclusive, shared := ordinaryPod(), ordinaryPod()
	exclusive.Namespace, exclusive.Name, exclusive.UID = "n", "exclusive", "e"
	shared.Namespace, shared.Name, shared.UID = "n", "shared", "s"
	observed.activePods = func() []*v1.Pod { return []*v1.Pod{exclusive, shared, partitionedPod()} }
	observed.state = newMemoryState(host.log)
	observed.state.SetDefaultCPUSet(cpuset.New(3))
	observed.state.SetCPUSet("e", "c", cpuset.New(1, 2))
	report := current.Load().reportShared
	report()
	expectEvent(t, recorder, "")
	observed.state.SetDefaultCPUSet(cpuset.New())
	observed.state.SetCPUSet("gone", "c", cpuset.New(3))
	observed.lastUpdates.SetCPUSet("s", "c", cpuset.New(2))
	report()
	expectEvent(t, recorder, "Warning NoSharedCPUs Exclusive containers have every CPU that was shared: others run on CPU 2 and disturb n/exclusive there")
	report()
	expectEvent(t, recorder, "")
	if got := current.Load().shared().Size(); got != 0 {
		t.Errorf("the gauge shows %d, want 0", got)
	}
	observed.state.SetDefaultCPUSet(cpuset.New(3))
	report()
	expectEvent(t, recorder, `Normal NoSharedCPUs Containers without exclusive CPUs share the CPUs "3" again`)
	report()
	expectEvent(t, recorder, "")
}
