// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	kubeversion "k8s.io/component-base/version"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/kubernetes/node/readmission"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/partition"
)

// Node is what is known of a node before its pinning file changes. Its zero value means that
// nothing is known.
type Node struct {
	Name string
	// Online are the host's CPUs. OnlineCounted means that only their number is known, so that
	// they were taken to be numbered from zero.
	Online        cpuset.CPUSet
	OnlineCounted bool
	// Shown are CPUs that the running kubelet reserves, so that the host has them; empty if none is
	// known.
	Shown cpuset.CPUSet
	// Isolated are the CPUs that the kernel argument isolcpus names.
	Isolated cpuset.CPUSet
	// Topology has the host's physical cores; nil if they are not known.
	Topology *topology.Topology
	// Boot is the boot ID of the host whose files these are; empty if it is not known.
	Boot string
	// Present is the content of the pinning file that the node has.
	Present File
	// Access is the error with which the kubelet refuses the place of the pinning file, whatever is
	// in it: others can write it, say. Nil means that there is none, or that it was not read.
	Access error
	// Configuration is the kubelet's; nil if it is not known. InEffect means that it comes from
	// a running kubelet, which shows it with the pools in it.
	Configuration *kubeletconfig.KubeletConfiguration
	InEffect      bool
	// Changing are flags of the kubelet's command line by which it has other settings than
	// Configuration says, with commas between them; empty if there are none, or they were not read.
	Changing string
	// Checkpoint is the CPU manager's; nil if it is not known.
	Checkpoint *kubeletstate.Checkpoint
	// Record is the kubelet's record; nil if there is none, or nothing is known of it. NoRecord
	// means that it was looked for: without one the kubelet runs with no pools.
	Record   *partition.Record
	NoRecord bool
	// Object is the Node of the API; nil if it is not known.
	Object *v1.Node
	// Pods are those of the node; nil if they are not known.
	Pods []v1.Pod
	// Offered are the CPUs that a DRA driver offers on the node; nil if there is no such driver, or none is known.
	Offered *Offered
	// ConfigurationDenied, PodsDenied and OfferedDenied say why the API did not give these; empty if it
	// did, or was not asked.
	ConfigurationDenied, PodsDenied, OfferedDenied string
	// Allocated are the CPU requests of the containers of the pods that the kubelet knows, by the
	// pod's UID, in millicores. It is looked at only if Pods is nil; nil if it is not known, either.
	Allocated map[string]int64
	// Names are the names of pods, namespace/name by UID, as far as Pods does not have them.
	Names map[string]string
	// Runs reports whether the runtime has a container of the pod with the UID that may run. It
	// is nil where the runtime cannot be asked.
	Runs func(uid string) Answer
}

// File is a pinning file. Its zero value means that nothing is known of it.
type File struct {
	// Known means that the file was looked for.
	Known bool
	// Data is its content; nil means that there is no file.
	Data []byte
}

// There and Absent are files that were looked for.
func There(data []byte) File { return File{Known: true, Data: slices.Concat([]byte{}, data)} }

// Absent is the file that does not exist.
func Absent() File { return File{Known: true} }

// oldestRelease is the oldest minor version of a kubelet that reads the file.
const oldestRelease = "1.33"

// release returns the kubelet's minor version; the newest that this program knows if it is
// not known.
func (n Node) release() string {
	if n.Object != nil {
		if v, err := version.ParseSemantic(n.Object.Status.NodeInfo.KubeletVersion); err == nil {
			return fmt.Sprintf("%d.%d", v.Major(), v.Minor())
		}
	}
	return kubeversion.DefaultKubeBinaryVersion
}

// podName returns namespace/name of the pod with a UID; the UID if that is not known.
func (n Node) podName(uid string) string {
	if p := n.pod(uid); p != nil {
		return nameOf(p)
	}
	return cmp.Or(n.Names[uid], uid)
}

func nameOf(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// pod returns the pod with a UID; nil if it is not known.
func (n Node) pod(uid string) *v1.Pod {
	for i := range n.Pods {
		if readmission.UID(&n.Pods[i]) == uid {
			return &n.Pods[i]
		}
	}
	return nil
}

// ended reports whether a pod has ended for good. The kubelet does not admit it again.
func ended(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// runs reports whether a container of the pod with the UID may be running.
func (n Node) runs(uid string) Answer {
	if n.Runs != nil {
		return n.Runs(uid)
	}
	p := n.pod(uid)
	if p == nil {
		return Maybe // the pod may have been deleted while its containers still run
	}
	if ended(p) {
		return No
	}
	for _, statuses := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for _, status := range statuses {
			if status.State.Running != nil {
				return Yes
			}
		}
	}
	return Maybe
}

// settings returns those of the kubelet's settings that have to do with pools.
func (n Node) settings() partition.KubeletSettings {
	if n.Configuration == nil {
		return partition.KubeletSettings{}
	}
	c := n.Configuration
	return partition.KubeletSettings{
		CPUManagerPolicy: c.CPUManagerPolicy, CPUManagerPolicyOptions: c.CPUManagerPolicyOptions, ReservedSystemCPUs: c.ReservedSystemCPUs,
		KubeReserved: c.KubeReserved, SystemReserved: c.SystemReserved, KubeReservedCgroup: c.KubeReservedCgroup, SystemReservedCgroup: c.SystemReservedCgroup,
		EnforceNodeAllocatable: c.EnforceNodeAllocatable, FeatureGates: c.FeatureGates,
	}
}

// mayHoldExclusive reports whether the static policy gives exclusive CPUs to the pod: it is
// Guaranteed, and a container asks for whole CPUs (pkg/kubelet/cm/cpumanager/policy_static.go,
// guaranteedCPUs). qosClass is that of the pod's status.
func mayHoldExclusive(p *v1.Pod) bool {
	if p.Status.QOSClass != v1.PodQOSGuaranteed || ended(p) {
		return false
	}
	whole := func(requests v1.ResourceList) bool {
		millicores := requests.Cpu().MilliValue()
		return millicores > 0 && millicores%1000 == 0
	}
	if p.Spec.Resources != nil && whole(p.Spec.Resources.Requests) {
		return true
	}
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		if slices.ContainsFunc(containers, func(c v1.Container) bool { return whole(c.Resources.Requests) }) {
			return true
		}
	}
	return false
}
