// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/types"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/partition"
)

// fakeRuntime is a container runtime that lists containers, and takes new CPUs for them.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	containers []*fakeContainer
	// mute means that it reports no resources, as runtimes without an NRI do.
	mute bool
	// looks counts how often it was asked for the CPUs of a container.
	looks int
}

type fakeContainer struct {
	namespace, pod, uid, name, cpus string
	// target is the pod's target annotation.
	target string
	exited bool
	// gone means that it is listed, and has ended since.
	gone bool
	// moved are the CPUs that the CPU manager gives it after so many looks at it, unless that is zero.
	moved string
	after int
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
			types.KubernetesPodNamespaceLabel: c.namespace, types.KubernetesPodNameLabel: c.pod, types.KubernetesPodUIDLabel: c.uid, types.KubernetesContainerNameLabel: c.name,
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
	r.looks++
	c := r.find(request.ContainerId)
	if c.gone {
		return nil, status.Errorf(codes.NotFound, "container %s: not found", request.ContainerId)
	}
	if c.after != 0 && r.looks > c.after {
		c.cpus = c.moved
	}
	status := &runtimeapi.ContainerStatus{Id: request.ContainerId}
	if !r.mute {
		status.Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: c.cpus}}
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
		"one that is gone":                            {fakeContainer{uid: "u-1", cpus: "0,3", gone: true}, "0,3"},
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

func TestWhatTheCPUManagerHasYetToDoIsFound(t *testing.T) {
	const (
		ended = `{"policyName":"static","defaultCpuSet":"0,2-3","entries":{"u-own":{"c":"1"}},"checksum":1}`
		whole = `{"policyName":"static","defaultCpuSet":"0,2-3","podEntries":{"u-own":{"cpuSet":"1"}},"checksum":1}`
		none  = `{"policyName":"static","defaultCpuSet":"0-3","entries":{"u-own":{"c":""}},"checksum":1}`
		// strict is that of a kubelet which keeps a reserved CPU from its containers.
		strict = `{"policyName":"static","defaultCpuSet":"1-3","checksum":1}`
	)
	for name, test := range map[string]struct {
		state     string
		container fakeContainer
		want      string
	}{
		"nothing, with containers on all CPUs":                {none, fakeContainer{cpus: "0-3"}, ""},
		"nothing, with containers on all that are shared":     {strict, fakeContainer{cpus: "1-3"}, ""},
		"nothing, without a checkpoint":                       {"", fakeContainer{cpus: "0"}, ""},
		"nothing for a container that reports no CPUs":        {none, fakeContainer{cpus: ""}, ""},
		"nothing for a partitioned container":                 {none, fakeContainer{cpus: "0", target: partition.TargetAnnotation("batch")}, ""},
		"nothing for a container that has ended":              {none, fakeContainer{cpus: "0", exited: true}, ""},
		"nothing for a container that ends meanwhile":         {none, fakeContainer{cpus: "0", gone: true}, ""},
		"to widen a container, once an exclusive one is gone": {none, fakeContainer{cpus: "0,2-3"}, "container c of pod v/p has CPU 0,2-3, and not yet 0-3"},
		"to narrow a container":                               {strict, fakeContainer{cpus: "0,3"}, "container c of pod v/p has CPU 0,3, and not yet 1-3"},
		"to forget an exclusive container that has ended":     {ended, fakeContainer{cpus: "0,2-3"}, `container "c" of the pod with the UID u-own has ended, and still has CPU 1 exclusively`},
		"to forget a pod that has ended":                      {whole, fakeContainer{cpus: "0,2-3"}, `container "" of the pod with the UID u-own has ended, and still has CPU 1 exclusively`},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := newTestHost(t), test.container
			c.namespace, c.pod, c.uid, c.name = "v", "p", "u-1", "c"
			(&fakeRuntime{containers: []*fakeContainer{&c}}).serve(t, h)
			if test.state == "" {
				if err := os.Remove(h.at(testState)); err != nil {
					t.Fatal(err)
				}
			} else {
				h.write(testState, test.state)
			}
			what, err := h.open().due(t.Context(), &Plan{Runtime: runtimeEndpoint, Checkpoint: testState, CPUs: "0-3"})
			if what != test.want || err != nil {
				t.Errorf("it is %q, %v, want %q", what, err, test.want)
			}
		})
	}
}

// The pod of the agent is admitted, and the CPU manager forgets an exclusive container that has ended. The others follow
// with the next reconciliation.
func TestASwitchToNoneWaitsForTheCPUManager(t *testing.T) {
	for name, test := range map[string]struct {
		container fakeContainer
		want      string
	}{
		"that has all CPUs that are shared": {fakeContainer{cpus: "1-3"}, "0-3"},
		"that gets them later":              {fakeContainer{cpus: "1", moved: "1-3", after: 5}, "0-3"},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := newTestHost(t), test.container
			c.uid, c.name = "u-1", "c"
			(&fakeRuntime{containers: []*fakeContainer{&c}}).serve(t, h)
			h.useCommands()
			if result, err := h.open().Run(quiet(t), requestOf("op-0", operation.Static), h.program()); err != nil || result.Outcome != operation.Succeeded {
				t.Fatalf("the result is %+v, %v", result, err)
			}
			if result, err := h.open().Run(quiet(t), requestOf("op-1", operation.None), h.program()); err != nil || result.Outcome != operation.Succeeded {
				t.Fatalf("the result is %+v, %v", result, err)
			}
			if c.cpus != test.want {
				t.Errorf("the container has CPU %s, want %s", c.cpus, test.want)
			}
		})
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
		"while nobody can be asked": {nil, "not known whether their containers run"},
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
