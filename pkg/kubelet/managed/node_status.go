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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/partition"
)

// SetCores sets the cores resource of each workload type to the host's CPUs in millicores, in
// capacity and allocatable alike, and removes the resource of types that the node lacks
// (design, section 6, node). It must run after the setter that reports the host's CPUs.
// Without a pinning file it removes all of them, as long as there is a record of a previous
// file. It never returns an error.
func SetCores(_ context.Context, apiNode *v1.Node) error {
	n, on := partitions()
	if !on {
		return nil
	}
	var pools partition.Pools
	if n != nil {
		pools = n.pools
		shim.reporting.Lock()
		n.reportOnline()
		n.reportShared()
		shim.reporting.Unlock()
	}
	capacity := apiNode.Status.Capacity.Cpu().MilliValue()
	for _, list := range []v1.ResourceList{apiNode.Status.Capacity, apiNode.Status.Allocatable} {
		for name := range list {
			if workloadType, ok := partition.TypeOfCores(string(name)); ok {
				if _, ours := pools[workloadType]; !ours {
					delete(list, name)
				}
			}
		}
		if list == nil {
			continue
		}
		for workloadType := range pools {
			list[v1.ResourceName(partition.CoresResource(workloadType))] = *resource.NewQuantity(capacity, resource.DecimalSI)
		}
	}
	return nil
}

// SetAdmissionCores sets the cores by which upstream admits pods, whatever the Node says: set is that
// of what upstream takes for allocatable. A kubelet without this project, which ran here in between,
// leaves zero cores on the Node, and the first static pods come before this kubelet has written its
// status. Upstream would reject them for good (pkg/kubelet/lifecycle/predicate.go, generalFilter).
func SetAdmissionCores(apiNode *v1.Node, set func(name v1.ResourceName, millicores int64)) {
	n := shim.current.Load()
	if n == nil || apiNode == nil {
		return
	}
	for workloadType := range n.pools {
		set(v1.ResourceName(partition.CoresResource(workloadType)), apiNode.Status.Capacity.Cpu().MilliValue())
	}
}
