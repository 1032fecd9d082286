// SPDX-License-Identifier: Apache-2.0

// Package reported is what the API's objects say of workload types: a Node of those it has, a pod
// of the one in whose pool it is.
package reported

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"workload.openshift.io/partition"
)

// Types returns the types of which a Node reports cores, in alphabetical order. A kubelet without
// the type leaves 0 of them in a Node that had it.
func Types(node *v1.Node) (types []string) {
	for name, cores := range node.Status.Capacity {
		if workloadType, is := partition.TypeOfCores(string(name)); is && cores.Sign() > 0 {
			types = append(types, workloadType)
		}
	}
	slices.Sort(types)
	return types
}

// PartitionedType is [partition.PartitionedType], and knows the mirror pods whose cores
// kube-apiserver has turned back into cpu: their static pods are in the pool all the same
// (openshift-kube-apiserver/admission/partitioning, mirror). The kubelet leaves a target and
// resources annotations only where it has partitioned the pod.
func PartitionedType(pod *v1.Pod) (workloadType string, ok bool) {
	if workloadType, ok = partition.PartitionedType(pod); ok {
		return workloadType, true
	}
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	target, _ := partition.ParseTarget(pod.Annotations)
	if !mirror || target.Type == "" {
		return "", false
	}
	for key := range pod.Annotations {
		if strings.HasPrefix(key, partition.ResourcesPrefix) {
			return target.Type, true
		}
	}
	return "", false
}
