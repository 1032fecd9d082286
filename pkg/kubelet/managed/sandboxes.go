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
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"workload.openshift.io/partition"
)

// This file places pods of a RuntimeClass, whose code may run elsewhere than in their containers'
// cgroups (design, section 6, runtimes with their own sandbox): in a virtual machine, or in a
// kernel such as gVisor's, which is one process for all containers and ignores their cpusets. Either is
// in the cgroup of the pod. So an ordinary pod's is confined, too. This needs cgroup v2, on which the
// kernel intersects a cgroup's cpuset with its parent's.
//
// Guaranteed pods are left alone under the policy static. They are in no class, so what CRI-O keeps on the
// pool in such a pod, its sandbox and its monitor, would be spread over CPUs that others hold exclusively.
//
// A runtime with virtual machines also sizes the machine by the cpusets of its containers, so a cpuset on
// a container that asked for none makes the machine grow: such containers get none. Under the policy
// static the CPU manager gives every container a cpuset in any case.

// ordinarySandbox stands in place of the workload type of a pod that is in no pool, and whose cgroup
// is confined. It is not a valid workload type.
const ordinarySandbox = "(sandbox)"

// inVM reports whether a pod runs in a virtual machine, as far as anything but the runtime can
// tell: its RuntimeClass has an overhead.
func inVM(pod *v1.Pod) bool {
	return pod.Spec.RuntimeClassName != nil && len(pod.Spec.Overhead) > 0
}

// byPodCgroup reports whether a pod's cgroup is confined in place of its containers, which get
// no cpuset.
func byPodCgroup(pod *v1.Pod) bool {
	return inVM(pod) && !shim.host.static && shim.host.podCgroups && !hierarchy().v1
}

// isOrdinarySandbox reports whether ordinarySandbox stands for the pod.
func (n *node) isOrdinarySandbox(pod *v1.Pod) bool {
	if n == nil || n.Pooled.IsEmpty() || pod.Spec.RuntimeClassName == nil || !shim.host.podCgroups || hierarchy().v1 {
		return false
	}
	if shim.host.static && qos.GetPodQOS(pod) == v1.PodQOSGuaranteed {
		return false
	}
	_, confined := n.pool(pod)
	return !confined
}

// mayBeConfined reports whether this kubelet or a previous one may have given a cpuset to the
// pod's cgroup. (On cgroup v1 the cgroups of ordinary pods are the business of freePods.)
func mayBeConfined(pod *v1.Pod) bool {
	_, partitioned := partition.PartitionedType(pod)
	return partitioned || (pod.Spec.RuntimeClassName != nil && !hierarchy().v1)
}
