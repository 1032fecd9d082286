// SPDX-License-Identifier: Apache-2.0

package scheduled

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"
	kubelettypes "k8s.io/kubelet/pkg/types"
	"k8s.io/utils/cpuset"
)

// recorder is a container runtime that runs nothing. It knows which CPUs and NUMA nodes a kubelet gives to containers.
type recorder struct {
	*fake.RemoteRuntime
	mutex sync.Mutex
	// containers are all so far, by their identifiers.
	containers map[string]*given
}

// given is what a container has.
type given struct {
	pod, name  string
	cpus, mems cpuset.CPUSet
	// from and to are when it was created and has ended. The second is zero while it lives.
	from, to time.Time
}

// record serves a runtime at a socket until the end of the test.
func record(t *testing.T, socket string) *recorder {
	t.Helper()
	r := &recorder{RemoteRuntime: fake.NewFakeRemoteRuntime(), containers: map[string]*given{}}
	r.RuntimeService.FakeStatus = &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true}}}
	r.RuntimeService.FakeLinuxConfiguration = &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return r
}

func (r *recorder) CreateContainer(ctx context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	answer, err := r.RemoteRuntime.CreateContainer(ctx, request)
	if err != nil {
		return nil, err
	}
	of := &given{pod: kubelettypes.GetPodName(request.Config.Labels), name: kubelettypes.GetContainerName(request.Config.Labels), from: time.Now()}
	if err := of.set(request.Config.GetLinux().GetResources()); err != nil {
		return nil, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.containers[answer.ContainerId] = of
	r.RuntimeService.Lock()
	defer r.RuntimeService.Unlock()
	// A kubelet that is told of no log removes all files of its working directory when the container has ended (pkg/kubelet/logs, Clean).
	r.RuntimeService.Containers[answer.ContainerId].LogPath = filepath.Join(request.SandboxConfig.LogDirectory, request.Config.LogPath)
	return answer, nil
}

// set is what a kubelet gives when it creates a container, and later. What it does not name stays.
func (g *given) set(resources *runtimeapi.LinuxContainerResources) error {
	for of, text := range map[*cpuset.CPUSet]string{&g.cpus: resources.GetCpusetCpus(), &g.mems: resources.GetCpusetMems()} {
		if text == "" {
			continue
		}
		parsed, err := cpuset.Parse(text)
		if err != nil {
			return err
		}
		*of = parsed
	}
	return nil
}

func (r *recorder) UpdateContainerResources(ctx context.Context, request *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	of, found := r.containers[request.ContainerId]
	if !found {
		return nil, fmt.Errorf("there is no container %s", request.ContainerId)
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, of.set(request.Linux)
}

// StartContainer starts one that runs until it is told to end; but init containers end at once.
func (r *recorder) StartContainer(ctx context.Context, request *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	answer, err := r.RemoteRuntime.StartContainer(ctx, request)
	if err == nil {
		r.end(func(id string, of *given) bool { return id == request.ContainerId && of.name == initContainer })
	}
	return answer, err
}

func (r *recorder) StopContainer(ctx context.Context, request *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r.end(func(id string, _ *given) bool { return id == request.ContainerId })
	return &runtimeapi.StopContainerResponse{}, nil
}

// finish has a pod's containers end by themselves.
func (r *recorder) finish(pod string) {
	r.end(func(_ string, of *given) bool { return of.pod == pod })
}

// end has some containers end, unless they have.
func (r *recorder) end(which func(id string, of *given) bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.RuntimeService.Lock()
	defer r.RuntimeService.Unlock()
	for id, of := range r.containers {
		if of.to.IsZero() && which(id, of) {
			of.to = time.Now()
			if container, found := r.RuntimeService.Containers[id]; found {
				container.State, container.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, of.to.UnixNano()
			}
		}
	}
}

// given returns what containers had at last, in the order in which they were created.
func (r *recorder) given() []*given {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.SortedFunc(maps.Values(r.containers), func(a, b *given) int { return a.from.Compare(b.from) })
}
