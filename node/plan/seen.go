// SPDX-License-Identifier: Apache-2.0

package plan

import (
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/reported"
	"workload.openshift.io/partition"
)

// Seen returns what the API shows of a node: its Node, and the configuration with which its kubelet runs,
// whose reserved CPUs must be valid, or nil. What the API does not have stays unknown: the host's CPUs but
// for their number, the pinning file but for its types, and the CPU manager's checkpoint.
func Seen(object *v1.Node, configuration *kubeletconfig.KubeletConfiguration) Node {
	n := Node{Name: object.Name, Object: object, OnlineCounted: true, Present: Absent(), Configuration: configuration, InEffect: configuration != nil}
	var online []int
	for i := range int(min(object.Status.Capacity.Cpu().Value(), int64(allCPUs.Size()))) {
		online = append(online, i)
	}
	n.Online = cpuset.New(online...)
	if len(reported.Types(object)) > 0 {
		n.Present = File{} // there is a file, and only the kubelet knows what is in it
	}
	if n.InEffect {
		n.Shown, _ = partition.ParseCPUs(configuration.ReservedSystemCPUs)
	}
	return n
}
