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
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/partition"
)

// reporting keeps the Events in the order of what they report: admission and the workers of pods
// set cores, too, while the kubelet has no node from kube-apiserver.
var reporting sync.Mutex

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
		reporting.Lock()
		n.reportOnline()
		n.reportShared()
		reporting.Unlock()
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

// AdmissionNode returns the node by which upstream admits pods: with the cores of its types, whatever
// the Node says. A kubelet without this project, which ran here in between, leaves them at zero, and
// the first static pods come before this kubelet has written its status. Upstream would reject them
// for good (pkg/kubelet/lifecycle/predicate.go, generalFilter). The node that it is given belongs to
// an informer, and is not changed.
func AdmissionNode(apiNode *v1.Node) *v1.Node {
	n := current.Load()
	if n == nil || apiNode == nil || !n.lacksCores(apiNode.Status) {
		return apiNode
	}
	with := *apiNode
	with.Status.Capacity, with.Status.Allocatable = maps.Clone(with.Status.Capacity), maps.Clone(with.Status.Allocatable)
	_ = SetCores(context.TODO(), &with)
	return &with
}

// lacksCores reports whether a type's cores are not what SetCores sets.
func (n *node) lacksCores(status v1.NodeStatus) bool {
	want := status.Capacity.Cpu().MilliValue()
	for workloadType := range n.pools {
		for _, list := range []v1.ResourceList{status.Capacity, status.Allocatable} {
			if has := list[v1.ResourceName(partition.CoresResource(workloadType))]; has.CmpInt64(want) != 0 {
				return true
			}
		}
	}
	return false
}
