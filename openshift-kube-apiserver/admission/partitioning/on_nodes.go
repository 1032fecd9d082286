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

package partitioning

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/partition"
)

// onNodes returns [partition.ReasonNodeDoesNotCount] if the pod can run only on nodes that do not count, and so have
// no cores of the type for it.
func (p *plugin) onNodes(pod *core.Pod, workloadType string) partition.Reason {
	labels := pod.Spec.NodeSelector // every node that it can run on has these
	if name := onlyNode(pod); name != "" {
		node, err := p.nodesByName.Get(name)
		if err != nil {
			return partition.NoReason // there is no such node yet
		}
		if cores := node.Status.Capacity[v1.ResourceName(partition.CoresResource(workloadType))]; cores.Sign() > 0 {
			return partition.NoReason
		}
		labels = node.Labels
	}
	if partition.NodeCounts(labels) {
		return partition.NoReason
	}
	return partition.ReasonNodeDoesNotCount
}

// onlyNode returns the name of the only node that the pod can run on; empty if it can run on others. A DaemonSet's pod
// requires its node by name (pkg/controller/daemon/util, ReplaceDaemonSetPodNodeNameNodeAffinity).
func onlyNode(pod *core.Pod) string {
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return pod.Spec.NodeName
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, field := range required.NodeSelectorTerms[0].MatchFields {
		if field.Key == metav1.ObjectNameField && field.Operator == core.NodeSelectorOpIn && len(field.Values) == 1 {
			return field.Values[0]
		}
	}
	return ""
}
