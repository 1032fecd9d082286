// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// collectPeriod is how often Collect looks.
const collectPeriod = 2 * time.Second

// Collect removes the ended containers of pods that are gone, until the context ends. The kubelet does so once a minute
// (upstream pkg/kubelet/kubelet.go, ContainerGCPeriod), and for most of that minute upstream's tests of the CPU manager
// wait after each pod. A pod is gone once its sandbox has ended and the kubelet has removed its cgroup, which it does last.
// Endpoint is the runtime's; cgroups is where version 2 is mounted.
func Collect(ctx context.Context, endpoint, cgroups string) error {
	connection, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(connection)
	for ctx.Err() == nil {
		if err := collect(ctx, runtime, cgroups); err != nil && ctx.Err() == nil {
			fmt.Println(err) // the runtime may be about to start
		}
		select {
		case <-ctx.Done():
		case <-time.After(collectPeriod):
		}
	}
	return nil
}

func collect(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, cgroups string) error {
	sandboxes, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY},
	}})
	if err != nil {
		return fmt.Errorf("sandboxes that have ended: %w", err)
	}
	for _, sandbox := range sandboxes.Items {
		if there, err := hasCgroup(cgroups, sandbox.Metadata.GetUid()); err != nil || there {
			continue
		}
		containers, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			PodSandboxId: sandbox.Id, State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED},
		}})
		if err != nil {
			return fmt.Errorf("containers of sandbox %s: %w", sandbox.Id, err)
		}
		for _, container := range containers.Containers {
			if _, err := runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: container.Id}); err != nil {
				return fmt.Errorf("container %s: %w", container.Id, err)
			}
		}
	}
	return nil
}

// hasCgroup reports whether a pod has a cgroup that systemd has made.
func hasCgroup(cgroups, uid string) (bool, error) {
	slice := "*-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	for _, class := range []string{"", "kubepods-*.slice"} {
		found, err := filepath.Glob(filepath.Join(cgroups, "kubepods.slice", class, slice))
		if err != nil || len(found) > 0 {
			return true, err
		}
	}
	return false, nil
}
