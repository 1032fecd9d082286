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
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"workload.openshift.io/partition"
)

// This file reports the pods that no longer fit the node because its pools have grown. The
// pools' CPUs are subtracted from cpu allocatable. A kubelet that starts admits all pods of its node again,
// and rejects those that do not fit, running or not; upstream decides so (pkg/kubelet/kubelet.go,
// HandlePodAdditions; kubernetes/kubernetes issue 123980). At the first start after a change it
// may still go by what the Node had before, so the pods may fall out at the second.

// outOfCPU is upstream's reason for rejecting a pod (pkg/kubelet/lifecycle/predicate.go).
const outOfCPU = "OutOfcpu"

// knownPods returns the UIDs of the pods that a previous kubelet has synced and whose objects
// have not gone: each has a directory (pkg/kubelet/kubelet_getters.go, getPodDir).
func knownPods(rootDirectory string) (uids []types.UID) {
	entries, _ := os.ReadDir(filepath.Join(rootDirectory, "pods")) // a new kubelet has none
	for _, entry := range entries {
		uids = append(uids, types.UID(entry.Name()))
	}
	return uids
}

// warnOfPods logs, when the pools have changed, that the known pods ask for more cpu than the
// pools leave. Which of them fall out is known when all are: upstream admits static pods first,
// then the oldest.
func (n *node) warnOfPods(rootDirectory string, allocatableMillicores int64) {
	if n.Pooled.IsEmpty() || n.Pooled.Equals(shim.host.previous.pooled) {
		return
	}
	allocated, err := allocatedCPU(rootDirectory)
	if err != nil {
		shim.host.log.Error(err, "Cannot read the pods' allocated CPU, so it is not yet known which pods no longer fit")
		return
	}
	var sum int64
	var pods []string
	for _, uid := range n.known {
		if millicores := allocated[uid]; millicores > 0 {
			sum += millicores
			pods = append(pods, fmt.Sprintf("%s: %dm", podName(string(uid)), millicores))
		}
	}
	if sum > allocatableMillicores {
		shim.host.log.Info("The pools leave less cpu than the pods of this node request; the newest pods may be rejected with "+outOfCPU+" at this start or the next, even if they are running. The sum includes pods that have ended, and static pods about to be partitioned; the kubelet will not count those",
			"pools", n.Pooled.String(), "allocatableMillicores", allocatableMillicores, "requestedMillicores", sum, "pods", pods)
	}
}

// allocatedCPU returns the CPU requests that upstream's checkpoint has of each pod's containers, in
// millicores; none if there is no checkpoint (pkg/kubelet/allocation, allocatedPodsStateFile).
func allocatedCPU(rootDirectory string) (map[types.UID]int64, error) {
	const name = "allocated_pods_state"
	if _, err := os.Stat(filepath.Join(rootDirectory, name)); os.IsNotExist(err) {
		return nil, nil
	}
	manager, err := checkpointmanager.NewCheckpointManager(rootDirectory)
	if err != nil {
		return nil, err
	}
	var checkpoint state.Checkpoint
	if err := manager.GetCheckpoint(name, &checkpoint); err != nil {
		return nil, err
	}
	// From v1.38 on, upstream writes its pods as well. At the first start after an upgrade it is as before.
	var info state.PodResourceCheckpointInfo
	if err := json.Unmarshal([]byte(checkpoint.Data), &info); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	millicores := map[types.UID]int64{}
	for uid, pod := range info.Entries {
		for _, resources := range pod.ContainerResources {
			millicores[uid] += resources.Requests.Cpu().MilliValue()
		}
	}
	return millicores, nil
}

// reportRejected waits until the sources of pods are ready, and then looks for known pods that this
// kubelet rejects. If there are any, it sends one Event that names them. It looks often, and for
// looks times: as soon as the containers of a rejected pod have ended, upstream computes its status
// from these, and the reason is gone.
func (n *node) reportRejected(ready func() bool, statuses PodStatuses, looks int, pause time.Duration) {
	found := map[types.UID]bool{}
	for looks > 0 {
		time.Sleep(pause)
		if !ready() {
			continue
		}
		looks--
		for _, uid := range n.known {
			status, known := statuses.GetPodStatus(uid)
			// This kubelet has rejected it, and no previous one: it then knows nothing of its containers
			// (pkg/kubelet/kubelet.go, rejectPod).
			if known && status.Phase == v1.PodFailed && status.Reason == outOfCPU && len(status.ContainerStatuses) == 0 {
				found[uid] = true
			}
		}
	}
	if len(found) == 0 {
		return
	}
	var rejected []string
	for uid := range found {
		rejected = append(rejected, podName(string(uid)))
	}
	slices.Sort(rejected)
	shim.host.log.Error(nil, "Pods were rejected because they no longer fit the node", "reason", outOfCPU, "pods", rejected, "poolsBefore", n.before.String(), "pools", n.Pooled.String())
	nodeEvent(v1.EventTypeWarning, partition.EventPodsNoLongerFit, "The pools went from the CPUs %q to %q and leave too little cpu. Rejected when the kubelet started (%s): %s. Delete these pods; the next time, drain the node or partition its pods before its pools grow",
		n.before.String(), n.Pooled.String(), outOfCPU, strings.Join(rejected, ", "))
}
