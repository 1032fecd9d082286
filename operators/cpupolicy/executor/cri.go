// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/types"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/cri"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/partition"
)

// runtimeLimit is how long the container runtime may take for all that is asked at once.
const runtimeLimit = 10 * time.Second

// askRuntime calls ask with the container runtime of an endpoint, which is that of the kubelet.
func askRuntime(ctx context.Context, disk hostDisk, endpoint string, ask func(context.Context, runtimeapi.RuntimeServiceClient) error) error {
	path, isUnix := strings.CutPrefix(endpoint, "unix://")
	if !isUnix && !strings.HasPrefix(endpoint, "/") {
		return fmt.Errorf("runtime endpoint %q: is not a socket of the host", endpoint)
	}
	client, closeConnection, err := cri.Dial(disk.follow(path))
	if err != nil {
		return fmt.Errorf("runtime endpoint %q: %w", endpoint, err)
	}
	defer func() { _ = closeConnection() }()
	ctx, cancel := context.WithTimeout(ctx, runtimeLimit)
	defer cancel()
	return ask(ctx, client)
}

func runningContainers(ctx context.Context, client runtimeapi.RuntimeServiceClient) ([]*runtimeapi.Container, error) {
	response, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, fmt.Errorf("containers of the runtime: %w", err)
	}
	return response.Containers, nil
}

// exclusiveHolders returns a sentence for each running container with exclusive CPUs.
func (h host) exclusiveHolders(ctx context.Context, endpoint string, checkpoint *kubeletstate.Checkpoint) (holders []string, err error) {
	err = askRuntime(ctx, h.disk, endpoint, func(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
		containers, err := runningContainers(ctx, client)
		for _, c := range containers {
			if cpus, _, holds := checkpoint.Exclusive(c.Labels[types.KubernetesPodUIDLabel], c.Labels[types.KubernetesContainerNameLabel]); holds {
				holders = append(holders, fmt.Sprintf("container %s of pod %s/%s has CPU %s exclusively", c.Labels[types.KubernetesContainerNameLabel], c.Labels[types.KubernetesPodNamespaceLabel], c.Labels[types.KubernetesPodNameLabel], cpus))
			}
		}
		return err
	})
	slices.Sort(holders)
	return holders, err
}

// ordinary is a running container in no pool that has not all CPUs.
type ordinary struct {
	id, name string
	// has are its CPUs, and given those that the kubelet means it to have, by its checkpoint.
	has, given cpuset.CPUSet
}

// ordinaryContainers returns all of them. An error is about those that are missing. cpus are all CPUs in no pool.
func ordinaryContainers(ctx context.Context, client runtimeapi.RuntimeServiceClient, checkpoint *kubeletstate.Checkpoint, cpus cpuset.CPUSet) (found []ordinary, err error) {
	containers, err := runningContainers(ctx, client)
	if err != nil {
		return nil, err
	}
	sandboxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("pods of the runtime: %w", err)
	}
	partitioned := map[string]bool{}
	for _, sandbox := range sandboxes.Items {
		for key := range maps.Keys(sandbox.Annotations) {
			if strings.HasPrefix(key, partition.TargetPrefix) {
				partitioned[sandbox.Id] = true
			}
		}
	}
	var errs []error
	for _, c := range containers {
		if partitioned[c.PodSandboxId] {
			continue
		}
		given, _, holds := checkpoint.Exclusive(c.Labels[types.KubernetesPodUIDLabel], c.Labels[types.KubernetesContainerNameLabel])
		if !holds {
			given = checkpoint.Shared
		}
		name := fmt.Sprintf("container %s of pod %s/%s", c.Labels[types.KubernetesContainerNameLabel], c.Labels[types.KubernetesPodNamespaceLabel], c.Labels[types.KubernetesPodNameLabel])
		response, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		if status.Code(err) == codes.NotFound {
			continue // it has ended since
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		// A runtime that does not report CPUs gives an empty list, which is no set of a kubelet's.
		has, err := cpuset.Parse(response.GetStatus().GetResources().GetLinux().GetCpusetCpus())
		if err == nil && !has.IsEmpty() && !has.Equals(cpus) {
			found = append(found, ordinary{c.Id, name, has, given})
		}
	}
	return found, errors.Join(errs...)
}

// due returns what the next reconciliation of the CPU manager has to do, as a sentence; empty if that is nothing. What an
// NRI plugin or a DRA driver gave looks the same.
//
// Exclusive CPUs of a container that has ended are due as well, although no container has other CPUs than the checkpoint
// says: they become shared with the next pod that is admitted, and the kubelet may stop before the others have them.
func (h host) due(ctx context.Context, plan *Plan) (what string, err error) {
	checkpoint, err := readCheckpoint(h.disk, plan.Checkpoint)
	if err != nil || checkpoint == nil {
		return "", err
	}
	for _, a := range checkpoint.Assignments {
		if !a.CPUs.IsEmpty() {
			return fmt.Sprintf("container %q of the pod with the UID %s has ended, and still has CPU %s exclusively", a.Container, a.Pod, a.CPUs), nil
		}
	}
	cpus, err := cpuset.Parse(plan.CPUs)
	if err != nil {
		return "", err
	}
	err = askRuntime(ctx, h.disk, plan.Runtime, func(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
		containers, err := ordinaryContainers(ctx, client, checkpoint, cpus)
		for _, c := range containers {
			if !c.has.Equals(c.given) {
				what = fmt.Sprintf("%s has CPU %s, and not yet %s", c.name, c.has, c.given)
			}
		}
		return err
	})
	return what, err
}

// widenContainers gives containers the CPUs that the policy static kept from them, where the policy
// none leaves them what they have: upstream's kubelet then sets no container's CPUs. It touches
// those alone that have exactly what the previous kubelet gave them, by its checkpoint: what an NRI
// plugin or a DRA driver gave is something else. Partitioned containers keep their pool.
func widenContainers(ctx context.Context, client runtimeapi.RuntimeServiceClient, before *kubeletstate.Checkpoint, cpus cpuset.CPUSet) (widened int, err error) {
	containers, err := ordinaryContainers(ctx, client, before, cpus)
	errs := []error{err}
	for _, c := range containers {
		if !c.has.Equals(c.given) {
			continue
		}
		// As the kubelet does it (pkg/kubelet/cm/cpumanager, updateContainerCPUSet): what is not
		// named stays.
		_, err = client.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: c.id, Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: cpus.String()},
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			continue
		}
		widened++
	}
	return widened, errors.Join(errs...)
}

// widen is the step of that name: it returns what it did as a sentence. checkpoint is the previous
// one.
func (h host) widen(ctx context.Context, plan *Plan, checkpoint *File) (note string, err error) {
	if checkpoint == nil {
		return "", nil
	}
	before := kubeletstate.ParseCheckpoint(checkpoint.Content)
	cpus, err := cpuset.Parse(plan.CPUs)
	if err != nil {
		return "", err
	}
	err = askRuntime(ctx, h.disk, plan.Runtime, func(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
		widened, err := widenContainers(ctx, client, before, cpus)
		note = fmt.Sprintf("%d containers may use CPU %s again", widened, cpus)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("the policy is in force, but not all containers may use all CPUs again: %w", err)
	}
	return note, nil
}
