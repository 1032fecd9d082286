// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime has a container of each sandbox's name, which has ended.
type runtime struct {
	runtimeapi.RuntimeServiceClient
	sandboxes []*runtimeapi.PodSandbox
	removed   []string
}

func (r *runtime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: r.sandboxes}, nil
}

func (r *runtime) ListContainers(_ context.Context, request *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "of " + request.Filter.PodSandboxId}}}, nil
}

func (r *runtime) RemoveContainer(_ context.Context, request *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	r.removed = append(r.removed, request.ContainerId)
	return nil, nil
}

func TestContainersOfPodsThatAreGoneAreRemoved(t *testing.T) {
	cgroups := t.TempDir()
	for _, dir := range []string{"kubepods.slice/kubepods-pod1_a.slice", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2.slice"} {
		if err := os.MkdirAll(filepath.Join(cgroups, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := &runtime{}
	for _, uid := range []string{"1-a", "2", "3-b"} {
		r.sandboxes = append(r.sandboxes, &runtimeapi.PodSandbox{Id: uid, Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}})
	}
	if err := collect(t.Context(), r, cgroups); err != nil || !slices.Equal(r.removed, []string{"of 3-b"}) {
		t.Errorf("removed are the containers %q, %v", r.removed, err)
	}
}
