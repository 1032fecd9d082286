// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/types"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/cri"
	"workload.openshift.io/partition"
)

// Runtime is the part of the CRI that this package needs. All of it only reads.
type Runtime interface {
	Version(ctx context.Context, in *runtimeapi.VersionRequest, opts ...grpc.CallOption) (*runtimeapi.VersionResponse, error)
	ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error)
	ListContainers(ctx context.Context, in *runtimeapi.ListContainersRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error)
	ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, opts ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error)
}

// endpoints are where runtimes listen unless they are told otherwise.
var endpoints = []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock"}

// Dial connects to the runtime. close ends the connection.
func (h Host) Dial() (runtime Runtime, close func() error, err error) {
	endpoint, err := h.endpoint()
	if err != nil {
		return nil, nil, err
	}
	return cri.Dial(h.at(endpoint))
}

// endpoint returns the path of the runtime's socket on the host.
func (h Host) endpoint() (string, error) {
	asked := h.RuntimeEndpoint
	var unknown error
	if asked == "" {
		kubelet, err := h.withDefaults().kubelet()
		if unknown = err; err == nil {
			asked = kubelet.endpoint()
		}
	}
	if asked != "" {
		path := strings.TrimPrefix(asked, "unix://")
		if !strings.HasPrefix(path, "/") {
			return "", fmt.Errorf("runtime endpoint %q is not a socket of this host; name one such as unix://%s", asked, endpoints[0])
		}
		// On the host /var/run is a link to /run, which is what a pod has mounted.
		if below, is := strings.CutPrefix(path, "/var/run/"); is && h.Root != "" {
			path = "/run/" + below
		}
		return path, nil
	}
	for _, path := range endpoints {
		if info, err := os.Stat(h.at(path)); err == nil && info.Mode().Type() == os.ModeSocket {
			return path, nil
		}
	}
	err := fmt.Errorf("no runtime listens at %s; name its socket", strings.Join(endpoints, ", "))
	if unknown != nil {
		err = fmt.Errorf("%w, since the kubelet's is not known: %w", err, unknown)
	}
	return "", err
}

// pod is a pod as the runtime knows it.
type pod struct {
	namespace, name, uid string
	// sandbox is the ID of the sandbox that is ready; empty if none is.
	sandbox string
	// handler is that of the pod's RuntimeClass; empty if it has none.
	handler string
	// workloadType is empty for an ordinary pod.
	workloadType string
	annotations  map[string]string
	containers   []container
}

// seen is what the runtime says of a container besides its name. It may say nothing.
type seen struct {
	// pid is that of its first process.
	pid int
	// given are the CPUs that a DRA driver for CPUs gave it, by its environment, and recorded those that the runtime was
	// last asked to give it.
	given, recorded cpuset.CPUSet
}

// container is a running container as the runtime knows it.
type container struct {
	id, name string
	seen
	// asked is what its annotation says; nil for one that has none, such as an ephemeral container.
	asked *partition.ContainerResources
}

func (p *pod) String() string { return p.namespace + "/" + p.name }

// annotated returns what all containers of the pod asked for, by their names.
func (p *pod) annotated() map[string]partition.ContainerResources {
	all := map[string]partition.ContainerResources{}
	for key, value := range p.annotations {
		if name, found := strings.CutPrefix(key, partition.ResourcesPrefix); found {
			if asked, ok := partition.ParseContainerResources(value); ok {
				all[name] = asked
			}
		}
	}
	return all
}

// typeOf returns the workload type of the pod with these annotations; empty for an ordinary one.
// A sandbox has all annotations of its pod (upstream pkg/kubelet/kuberuntime/labels.go,
// newPodAnnotations), but nothing of the spec, so the containers are those that the annotations
// name.
func typeOf(annotations map[string]string) string {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if name, found := strings.CutPrefix(key, partition.ResourcesPrefix); found {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name})
		}
	}
	if len(pod.Spec.Containers) == 0 {
		return "" // it asked, and was not partitioned
	}
	workloadType, _ := partition.PartitionedType(pod)
	return workloadType
}

// listPods returns the pods that have a sandbox which is ready, or containers that run, in the order
// of their names, with these containers.
func listPods(ctx context.Context, runtime Runtime) ([]*pod, error) {
	sandboxes, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	var running []*runtimeapi.Container
	runs := map[string]bool{} // by sandbox
	for _, c := range containers.GetContainers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running = append(running, c)
			runs[c.GetPodSandboxId()] = true
		}
	}
	bySandbox := map[string]*pod{}
	var pods []*pod
	for _, s := range sandboxes.GetItems() {
		if s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY && !runs[s.GetId()] {
			continue
		}
		p := &pod{
			namespace: s.GetMetadata().GetNamespace(), name: s.GetMetadata().GetName(), uid: s.GetMetadata().GetUid(),
			sandbox: s.GetId(), handler: s.GetRuntimeHandler(), annotations: s.GetAnnotations(), workloadType: typeOf(s.GetAnnotations()),
		}
		bySandbox[p.sandbox] = p
		pods = append(pods, p)
	}
	for _, c := range running {
		p, known := bySandbox[c.GetPodSandboxId()]
		if !known {
			continue
		}
		found := container{id: c.GetId(), name: cmp.Or(c.GetLabels()[types.KubernetesContainerNameLabel], c.GetMetadata().GetName())}
		if asked, ok := p.annotated()[found.name]; ok {
			found.asked = &asked
		}
		if found.seen, err = inspect(ctx, runtime, found.id); err != nil {
			return nil, fmt.Errorf("container %s of pod %s: %w", found.name, p, err)
		}
		p.containers = append(p.containers, found)
	}
	slices.SortFunc(pods, func(a, b *pod) int { return strings.Compare(a.String(), b.String()) })
	return pods, nil
}

// givenCPUs begins the variable by which dra-driver-cpu tells its NRI plugin the CPUs of a claim, whose UID follows
// (kubernetes-sigs/dra-driver-cpu, pkg/driver/cdi.go). Who writes a container may set it, too.
const givenCPUs = "DRA_CPUSET_"

// inspect asks for a container. containerd and CRI-O both have its first process and its runtime's specification in
// the verbose part of the status (containerd internal/cri/types, ContainerInfo; CRI-O
// server/container_status.go). It knows nothing if the container has ended.
func inspect(ctx context.Context, runtime Runtime, id string) (found seen, err error) {
	status, err := runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if grpcstatus.Code(err) == grpccodes.NotFound {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	var info struct {
		PID         int `json:"pid"`
		RuntimeSpec struct {
			Process struct {
				Env []string `json:"env"`
			} `json:"process"`
			Linux struct {
				Resources struct {
					CPU struct {
						CPUs string `json:"cpus"`
					} `json:"cpu"`
				} `json:"resources"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil {
		return found, nil
	}
	found.pid = info.PID
	found.recorded, _ = partition.ParseCPUs(info.RuntimeSpec.Linux.Resources.CPU.CPUs)
	for _, variable := range info.RuntimeSpec.Process.Env {
		if name, list, ok := strings.Cut(variable, "="); ok && strings.HasPrefix(name, givenCPUs) {
			if cpus, err := partition.ParseCPUs(list); err == nil {
				found.given = found.given.Union(cpus)
			}
		}
	}
	return found, nil
}
