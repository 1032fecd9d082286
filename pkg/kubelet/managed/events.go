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
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"workload.openshift.io/partition"
)

// SendEventsTo takes the recorder of Events. It sends the pending Events, and one for each
// workload type of the node.
func SendEventsTo(recorder record.EventRecorder, nodeName types.NodeName) {
	n, on := partitions()
	if !on {
		return
	}
	shim.observed.Lock()
	shim.observed.recorder, shim.observed.node = recorder, nodeName
	pending := shim.observed.pending
	shim.observed.pending = nil
	shim.observed.Unlock()
	for _, send := range pending {
		send(recorder, nodeReference(nodeName))
	}
	if n == nil {
		return
	}
	for _, workloadType := range n.pools.Types() {
		nodeEvent(v1.EventTypeNormal, partition.EventEnabled, "The pool of workload type %s has the CPUs %q", workloadType, n.pools[workloadType].String())
	}
}

// nodeReference refers to the Node as the kubelet itself does (pkg/kubelet/kubelet.go,
// nodeRef).
func nodeReference(name types.NodeName) *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Node", Name: string(name), UID: types.UID(name)}
}

// nodeEvent sends an Event about the Node, once there is a recorder.
func nodeEvent(eventType, reason, format string, args ...any) {
	send := func(recorder record.EventRecorder, node *v1.ObjectReference) {
		recorder.Eventf(node, eventType, reason, format, args...)
	}
	shim.observed.Lock()
	recorder, node := shim.observed.recorder, shim.observed.node
	if recorder == nil {
		shim.observed.pending = append(shim.observed.pending, send)
	}
	shim.observed.Unlock()
	if recorder != nil {
		send(recorder, nodeReference(node))
	}
}
