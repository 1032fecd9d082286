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

package executor

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"workload.openshift.io/operators/cpupolicy/operation"
	"workload.openshift.io/partition"
)

// fakeRuntime is a container runtime that lists containers, and takes new CPUs for them.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	containers []*fakeContainer
	// mute means that it reports no resources, as runtimes without an NRI do.
	mute bool
}

type fakeContainer struct {
	namespace, pod, uid, name, cpus string
	// target is the pod's target annotation.
	target string
	exited bool
	// changed counts how often it was given other CPUs.
	changed int
}

func (r *fakeRuntime) ListContainers(_ context.Context, request *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	response := &runtimeapi.ListContainersResponse{}
	for _, c := range r.containers {
		state := runtimeapi.ContainerState_CONTAINER_RUNNING
		if c.exited {
			state = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		if request.GetFilter().GetState() != nil && request.Filter.State.State != state {
			continue
		}
		response.Containers = append(response.Containers, &runtimeapi.Container{Id: c.uid + c.name, PodSandboxId: c.uid, State: state, Labels: map[string]string{
			podNamespaceLabel: c.namespace, podNameLabel: c.pod, podUIDLabel: c.uid, containerLabel: c.name,
		}})
	}
	return response, nil
}

func (r *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	response := &runtimeapi.ListPodSandboxResponse{}
	for _, c := range r.containers {
		sandbox := &runtimeapi.PodSandbox{Id: c.uid}
		if c.target != "" {
			sandbox.Annotations = map[string]string{c.target: `{"effect":"PreferredDuringScheduling"}`}
		}
		response.Items = append(response.Items, sandbox)
	}
	return response, nil
}

func (r *fakeRuntime) find(id string) *fakeContainer {
	return r.containers[slices.IndexFunc(r.containers, func(c *fakeContainer) bool { return c.uid+c.name == id })]
}

func (r *fakeRuntime) ContainerStatus(_ context.Context, request *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	status := &runtimeapi.ContainerStatus{Id: request.ContainerId}
	if !r.mute {
		status.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: r.find(request.ContainerId).cpus}}
	}
	return &runtimeapi.ContainerStatusResponse{Status: status}, nil
}

func (r *fakeRuntime) UpdateContainerResources(_ context.Context, request *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	c := r.find(request.ContainerId)
	c.cpus = request.Linux.CpusetCpus
	c.changed++
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// serve makes the runtime answer on the host's socket of the default endpoint.
func (r *fakeRuntime) serve(t *testing.T, h *testHost) {
	t.Helper()
	if err := os.MkdirAll(h.at("/run/containerd"), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", h.at("/run/containerd/containerd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
}

const runtimeEndpoint = "unix:///run/containerd/containerd.sock"

// oldState is the checkpoint of a kubelet under the policy static.
const oldState = `{"policyName":"static","defaultCpuSet":"0,3","entries":{"u-own":{"c":"1"}},"podEntries":{"u-whole":{"cpuSet":"2"}},"checksum":1}`

func TestContainersMayUseAllCPUsAgain(t *testing.T) {
	target := partition.TargetAnnotation("management")
	for name, test := range map[string]struct {
		container fakeContainer
		// want are its CPUs afterwards.
		want string
	}{
		"one that shared CPUs":                        {fakeContainer{uid: "u-1", cpus: "0,3"}, "0-3"},
		"one that held CPUs exclusively":              {fakeContainer{uid: "u-own", cpus: "1"}, "0-3"},
		"one of a pod that held CPUs":                 {fakeContainer{uid: "u-whole", cpus: "2"}, "0-3"},
		"one with CPUs that somebody else gave":       {fakeContainer{uid: "u-1", cpus: "1-2"}, "1-2"},
		"a holder that somebody else gave other CPUs": {fakeContainer{uid: "u-own", cpus: "0,3"}, "0,3"},
		"a partitioned one":                           {fakeContainer{uid: "u-1", cpus: "0,3", target: target}, "0,3"},
		"a partitioned one of another type":           {fakeContainer{uid: "u-1", cpus: "0,3", target: partition.TargetAnnotation("batch")}, "0,3"},
		"one that has ended":                          {fakeContainer{uid: "u-1", cpus: "0,3", exited: true}, "0,3"},
		"one without a set":                           {fakeContainer{uid: "u-1", cpus: ""}, ""},
		"one with a set that is none":                 {fakeContainer{uid: "u-1", cpus: "x"}, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := newTestHost(t), test.container
			c.name = "c"
			(&fakeRuntime{containers: []*fakeContainer{&c}}).serve(t, h)
			plan := &Plan{Runtime: runtimeEndpoint, CPUs: "0-3"}
			for range 2 {
				if _, err := h.open().widen(t.Context(), plan, &File{Content: []byte(oldState)}); err != nil {
					t.Fatal(err)
				}
			}
			if c.cpus != test.want {
				t.Errorf("it has CPU %q, want %q", c.cpus, test.want)
			}
			if c.changed > 1 {
				t.Errorf("it was changed %d times", c.changed)
			}
		})
	}
}

func TestARuntimeThatReportsNoResourcesIsLeftAlone(t *testing.T) {
	h, c := newTestHost(t), &fakeContainer{uid: "u-1", name: "c", cpus: "0,3"}
	(&fakeRuntime{containers: []*fakeContainer{c}, mute: true}).serve(t, h)
	note, err := h.open().widen(t.Context(), &Plan{Runtime: runtimeEndpoint, CPUs: "0-3"}, &File{Content: []byte(oldState)})
	if err != nil || c.changed != 0 || !strings.HasPrefix(note, "0 containers") {
		t.Errorf("the note is %q (%v), and the container was changed %d times", note, err, c.changed)
	}
}

func TestNoRuntimeIsSaid(t *testing.T) {
	h := newTestHost(t)
	for endpoint, want := range map[string]string{runtimeEndpoint: "containerd.sock", "npipe://x": `runtime endpoint "npipe://x"`} {
		if _, err := h.open().widen(t.Context(), &Plan{Runtime: endpoint, CPUs: "0-3"}, &File{Content: []byte(oldState)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

func TestExclusiveCPUsKeepThePolicyStatic(t *testing.T) {
	for name, test := range map[string]struct {
		runtime *fakeRuntime
		want    string
	}{
		"of a container that runs":  {&fakeRuntime{containers: []*fakeContainer{{namespace: "vms", pod: "vm", uid: "u-own", name: "c", cpus: "1"}}}, "container c of pod vms/vm has CPU 1 exclusively; migrate or stop it first"},
		"of a pod that runs":        {&fakeRuntime{containers: []*fakeContainer{{namespace: "vms", pod: "vm", uid: "u-whole", name: "x", cpus: "2"}}}, "container x of pod vms/vm has CPU 2 exclusively"},
		"of one that has ended":     {&fakeRuntime{containers: []*fakeContainer{{uid: "u-own", name: "c", exited: true}}}, ""},
		"while nobody can be asked": {nil, "nobody says whether their containers run"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t)
			h.write(testState, oldState)
			h.write(testDropIn, kubeletDropIn(operation.Static))
			if test.runtime != nil {
				test.runtime.serve(t, h)
			}
			host := h.open()
			k, err := host.kubeletOf(h.cmdline(kubeletArgs("--cpu-manager-policy=x")...), nil, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			k.flags.policy = ""
			_, err = host.planDropIn(t.Context(), k, operation.None, "", "")
			if test.want == "" && err != nil {
				t.Errorf("it is refused: %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}
