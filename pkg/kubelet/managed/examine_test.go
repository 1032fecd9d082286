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
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
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
		list = append(list, &runtimeapi.Container{Id: "id", State: state})
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

// expectUpdate checks that the container was given these resources, once, or nothing at all.
func (r *fakeRuntime) expectUpdate(t *testing.T, want *runtimeapi.LinuxContainerResources) {
	t.Helper()
	if want == nil && len(r.updates) == 0 {
		return
	}
	if want == nil || len(r.updates) != 1 || r.updates[0].String() != want.String() {
		t.Errorf("the updates are %v, want %v", r.updates, want)
	}
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
	shim.host.log, _ = ktesting.NewTestContext(t)
	shim.host.online, shim.host.quotaPeriod = cpuset.New(0, 1, 2, 3), 100*time.Millisecond
	shim.host.previous.confined = shim.host.previous.confined || shim.current.Load() == nil
	FollowPods(nil, nil, nil, runtime, found("id"), newMemoryState(shim.host.log))
	t.Cleanup(func() { shim.observed = observation{} })
}

// reconcile does what upstream's CPU manager does: it updates the container if the cpuset is not
// the one that it has noted.
func reconcile(pod *v1.Pod, runtime *fakeRuntime, chosen cpuset.CPUSet) {
	set := RunningContainerCPUs(pod, "c", "id", chosen)
	if known, _ := shim.observed.lastUpdates.GetCPUSet(string(pod.UID), "c"); set.IsEmpty() || set.Equals(known) {
		return
	}
	if runtime.UpdateContainerResources(context.Background(), "id", &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: set.String()}}) == nil {
		shim.observed.lastUpdates.SetCPUSet(string(pod.UID), "c", set)
	}
}

// Under either policy.
func TestPreviousContainersAreUpdatedOnceAndOnlyIfWrong(t *testing.T) {
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
		"an ordinary container that another tool put off the pools":       {pools: management, has: "3"},
		"an ordinary container that another tool put half on the pool":    {pools: management, has: "1-2", want: "2"},
		"an ordinary container that another tool put on the pool":         {pools: management, has: "0", want: "2-3"},
		"an ordinary container gets no isolated CPU":                      {pools: management, isolated: "3", want: "2"},
		"an ordinary container gets isolated CPUs if there are no others": {pools: management, isolated: "2-3", want: "2-3"},
		"the type has lost its CPUs":                                      {pools: partition.Pools{"management": cpuset.New()}, gave: "0-1", partitioned: true, has: "0-1", want: "0-3"},
		"the type never had CPUs, and the container has no cpuset":        {pools: partition.Pools{"management": cpuset.New()}},
		"the file has gone":                                               {gave: "0-1", partitioned: true, has: "0-1", want: "0-3"},
		"the file has gone, and there are isolated CPUs":                  {gave: "0-1", isolated: "3", has: "0-1", want: "0-2"},
		"the file has gone, but another tool gave the cpuset":             {gave: "0-1", has: "2"},
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
			shim.host.static = test.static
			shim.host.isolated = parse(t, test.isolated)
			if test.pools != nil {
				shim.current.Store(newNode(test.pools, shim.host.online, shim.host.isolated, cpuset.New()))
			}
			shim.host.previous.unreadable = test.unreadable
			if test.gave != "" {
				shim.host.previous = previousKubelet{confined: true, sets: []cpuset.CPUSet{parse(t, test.gave)}}
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

// A kubelet that is killed while it fits cpusets leaves a container with one that the runtime
// does not know.
func TestCpusetThatTheRuntimeDoesNotKnowIsCorrected(t *testing.T) {
	for actual, want := range map[string]string{"0": "0-1", "0-1": "", "": ""} {
		cgroupFiles(t, true, map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/scope-id": actual})
		on(t, management)
		runtime := &fakeRuntime{linux: &runtimeapi.LinuxContainerResources{CpusetCpus: "0-1", CpuShares: 409, CpuQuota: 50000, CpuPeriod: 100000}}
		restarted(t, runtime)
		shim.host.podCgroups = true
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

// The kubelet writes a container's cgroup on cgroup v1 before the runtime does, and may be killed
// between the two.
func TestCpusetThatTheRuntimeWasNeverToldIsTakenBack(t *testing.T) {
	for name, test := range map[string]struct {
		pools              partition.Pools // nil means that the file has gone
		actual, gave, want string
	}{
		"the file has gone": {actual: "2-3", gave: "2-3", want: "0-3"},
		"the file has gone, and the kernel has narrowed it":     {actual: "0-2", gave: "2-3"},
		"the type has lost its CPUs":                            {pools: partition.Pools{"management": cpuset.New()}, actual: "2-3", gave: "2-3", want: "0-3"},
		"the type never had CPUs, and it needs no explicit set": {pools: partition.Pools{"management": cpuset.New()}, actual: "0-3", gave: "0-3"},
	} {
		t.Run(name, func(t *testing.T) {
			cgroupFiles(t, true, map[string]string{"": "0-3", "burstable": "0-3", "burstable/poda": "0-3", "burstable/poda/id": test.actual})
			if test.pools != nil {
				on(t, test.pools)
			}
			runtime := &fakeRuntime{linux: &runtimeapi.LinuxContainerResources{CpuShares: 2}}
			restarted(t, runtime)
			onlineFile(t, "0-3")
			shim.host.podCgroups, shim.host.previous = true, previousKubelet{confined: true, sets: []cpuset.CPUSet{parse(t, test.gave)}}
			useClasses(t)
			reconcile(withUID(ordinaryPod(), "a"), runtime, cpuset.New())
			var want *runtimeapi.LinuxContainerResources
			if test.want != "" {
				want = &runtimeapi.LinuxContainerResources{CpusetCpus: test.want}
			}
			runtime.expectUpdate(t, want)
		})
	}
}

// containerd does not report what an NRI plugin gave, only what the kubelet had asked for.
func TestCpusetThatSomebodyElseGaveIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		pools       partition.Pools // nil means that the file has gone
		partitioned bool
		actual, has string
		gave, want  string
	}{
		"with what this project gives in the runtime's word": {pools: management, actual: "3", has: "2-3"},
		"without any in the runtime's word":                  {pools: management, actual: "3"},
		"half on the pool":                                   {pools: management, actual: "1-2", has: "2-3", want: "2"},
		"what a previous pool left":                          {pools: management, actual: "3", has: "2-3", gave: "3", want: "2-3"},
		"a partitioned container":                            {pools: management, partitioned: true, actual: "3", has: "0-1", want: "0-1"},
		"the file has gone":                                  {actual: "3", has: "2-3", gave: "2-3"},
		"the file has gone, and a pool is left":              {actual: "0-1", gave: "0-1", want: "0-3"},
	} {
		t.Run(name, func(t *testing.T) {
			cgroupFiles(t, false, map[string]string{"": "", "burstable": "", "burstable/poda": "", "burstable/poda/scope-id": test.actual})
			if test.pools != nil {
				on(t, test.pools)
			}
			runtime := &fakeRuntime{linux: &runtimeapi.LinuxContainerResources{CpusetCpus: test.has, CpuShares: 409, CpuQuota: 50000, CpuPeriod: 100000}}
			restarted(t, runtime)
			shim.host.podCgroups = true
			useClasses(t)
			if test.gave != "" {
				shim.host.previous = previousKubelet{confined: true, sets: []cpuset.CPUSet{parse(t, test.gave)}}
			}
			pod := withUID(ordinaryPod(), "a")
			if test.partitioned {
				pod = withUID(partitionedPod(), "a")
			}
			for range 2 {
				reconcile(pod, runtime, cpuset.New())
			}
			var got []string
			for _, update := range runtime.updates {
				got = append(got, update.CpusetCpus)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("the updates are %q, want %q", got, test.want)
			}
		})
	}
}

func TestContainersThatUpstreamCouldNotListAreKnown(t *testing.T) {
	for name, test := range map[string]struct {
		states []runtimeapi.ContainerState
		err    error
		want   outcome
	}{
		"the runtime names them the second time": {[]runtimeapi.ContainerState{runtimeapi.ContainerState_CONTAINER_RUNNING}, nil, reported},
		"the runtime names them the third time":  {[]runtimeapi.ContainerState{runtimeapi.ContainerState_CONTAINER_RUNNING}, errors.New("busy"), reported},
		"there are none":                         {nil, nil, notPrevious},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, management)
			runtime := &fakeRuntime{states: test.states, err: test.err, linux: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpusetCpus: "0-1"}}
			restarted(t, runtime)
			FollowPods(nil, nil, nil, runtime, none{}, newMemoryState(shim.host.log))
			if test.err != nil {
				if got := RunningContainerCPUs(ordinaryPod(), "c", "id", cpuset.New()); !got.IsEmpty() {
					t.Errorf("while this is unknown, the container is kept on %s", got)
				}
			}
			runtime.err = nil
			if got := shim.current.Load().examine(ordinaryPod(), "c", "id"); got != test.want {
				t.Errorf("the container is examined with the outcome %v, want %v", got, test.want)
			}
		})
	}
}

func TestRuntimeThatFailsIsAskedAgain(t *testing.T) {
	on(t, management)
	runtime := &fakeRuntime{linux: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpusetCpus: "0-1"}, err: errors.New("busy")}
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
}

func TestRuntimeThatFailsIsNotAskedForever(t *testing.T) {
	on(t, management)
	runtime := &fakeRuntime{err: errors.New("broken")}
	restarted(t, runtime)
	for i := range 2 * mostQuestions {
		got, want := RunningContainerCPUs(ordinaryPod(), "c", "id", cpuset.New()), i+1 < mostQuestions
		if got.IsEmpty() != want {
			t.Errorf("after %d questions an ordinary container is kept on %q", i+1, got)
		}
		note(ordinaryPod(), "c", got) // as upstream does
	}
	if runtime.asked != mostQuestions {
		t.Errorf("the runtime was asked %d times, want %d", runtime.asked, mostQuestions)
	}
}
