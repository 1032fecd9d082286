// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/cpuset"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/kubernetes/node/readmission"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpudriver"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/partition"
)

// situations gathers what the preconditions are about. It reads from the API, but for other nodes:
// what is under way on them is the lock's to say.
type situations struct {
	reader client.Reader
	// others has nodes by roleIndex.
	others client.Reader
	// fresh is how long an observation is believed to prevent a request; zero means forever. A person who
	// has just repaired a node must be able to ask, since only a request has the node observed again.
	fresh time.Duration
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceslices,verbs=list
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=kube-system,resourceNames=partition-control-plane,verbs=get
// +kubebuilder:rbac:groups=kubevirt.io,resources=kubevirts;virtualmachineinstances;virtualmachines,verbs=list

// of returns what is known of a node when somebody asks for a policy there.
func (s situations) of(ctx context.Context, node *corev1.Node, policy cpupolicy.Policy) (cpupolicy.Situation, error) {
	situation := cpupolicy.Situation{Node: node}
	if err := s.addPods(ctx, &situation); err != nil {
		return situation, err
	}
	if err := s.addControlPlane(ctx, &situation); err != nil {
		return situation, err
	}
	if err := s.addVMs(ctx, &situation, policy); err != nil {
		return situation, err
	}
	if policy == cpupolicy.Static {
		var err error
		if situation.CPUDriver, err = cpudriver.OnNode(ctx, s.reader, node.Name); err != nil {
			return situation, err
		}
	}
	situation.Kubelet.Reserved = readmission.ReservedNow(node)
	o := nodestatus.ObservedOf(node)
	if o == nil {
		return situation, nil
	}
	if s.fresh > 0 && clock().Sub(o.At).Abs() > s.fresh { // replicas' clocks may differ
		situation.Seen = o.Policy
		return situation, nil
	}
	situation.InForce, situation.Refused = o.Policy, o.Refused[policy]
	if o.Kubelet == nil {
		return situation, nil
	}
	kubelet, err := kubeletOf(*o.Kubelet)
	if err != nil {
		return situation, fmt.Errorf("node %s: annotation %s: %w", node.Name, nodestatus.ObservedAnnotation, err)
	}
	situation.Kubelet = kubelet
	return situation, nil
}

// podsOfAPage is how many pods are read at a time: of each, most is thrown away at once. mostPods is how many are looked at
// of a node. Kubelets take 110 by default, and some are made to take 500, but mirror pods are as many as a kubelet writes.
const podsOfAPage, mostPods = 100, 1000

// notEnded are the terms of a field selector for pods that have not ended.
var notEnded = []string{"status.phase!=Succeeded", "status.phase!=Failed"}

// addPods adds the pods of the node that have not ended.
func (s situations) addPods(ctx context.Context, situation *cpupolicy.Situation) error {
	of, err := fields.ParseSelector(strings.Join(append([]string{fields.OneTermEqualSelector("spec.nodeName", situation.Node.Name).String()}, notEnded...), ","))
	if err != nil {
		return err
	}
	for from := ""; ; {
		var pods corev1.PodList
		if err := s.reader.List(ctx, &pods, client.MatchingFieldsSelector{Selector: of}, client.Limit(podsOfAPage), client.Continue(from)); err != nil {
			return err
		}
		for i := range pods.Items {
			if len(situation.Pods) == mostPods {
				situation.MorePods = true
				return nil
			}
			stripPod(&pods.Items[i])
			situation.Pods = append(situation.Pods, pods.Items[i])
		}
		if from = pods.Continue; from == "" {
			return nil
		}
	}
}

// stripPod drops what may be large, and what no rule reads.
func stripPod(pod *corev1.Pod) {
	pod.ManagedFields, pod.OwnerReferences = nil, nil
	annotations := map[string]string{}
	if mirror, is := pod.Annotations[corev1.MirrorPodAnnotationKey]; is {
		annotations[corev1.MirrorPodAnnotationKey] = mirror
	}
	// By these a partitioned pod is known as one (partition.PartitionedType).
	if workloadType, is := partition.PartitionedType(pod); is {
		annotations[partition.TargetAnnotation(workloadType)] = ""
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				annotations[partition.ResourcesAnnotation(containers[i].Name)] = ""
			}
		}
	}
	pod.Annotations = annotations
	pod.Spec.Volumes, pod.Spec.EphemeralContainers = nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			containers[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy, Ports: c.Ports}
		}
	}
	pod.Status.Conditions, pod.Status.EphemeralContainerStatuses = nil, nil
}

// roleIndex is the index of the cached nodes that others are judged by: those of the control plane, and those to
// which VMs with dedicated CPUs can migrate.
const (
	roleIndex        = "cpupolicy-role"
	roleControlPlane = "control-plane"
	roleStatic       = "static"
)

func indexRoles(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &corev1.Node{}, roleIndex, func(object client.Object) (roles []string) {
		if cpupolicy.IsControlPlane(object.(*corev1.Node)) {
			roles = append(roles, roleControlPlane)
		}
		if object.GetLabels()[cpupolicy.Label] == "true" {
			roles = append(roles, roleStatic)
		}
		return roles
	})
}

// addOthers adds the nodes of a role that are not there yet. They are the cache's, and nobody may change them.
func (s situations) addOthers(ctx context.Context, situation *cpupolicy.Situation, role string) error {
	var nodes corev1.NodeList
	err := s.others.List(ctx, &nodes, client.MatchingFields{roleIndex: role}, client.UnsafeDisableDeepCopy)
	known := situation.Nodes
	situation.Nodes = append(known, slices.DeleteFunc(nodes.Items, func(node corev1.Node) bool {
		return slices.ContainsFunc(known, func(other corev1.Node) bool { return other.Name == node.Name })
	})...)
	return err
}

// addControlPlane adds the other nodes of the control plane, and the lock, if the node is one of them.
func (s situations) addControlPlane(ctx context.Context, situation *cpupolicy.Situation) error {
	if !cpupolicy.IsControlPlane(situation.Node) {
		return nil
	}
	if err := s.addOthers(ctx, situation, roleControlPlane); err != nil {
		return err
	}
	situation.ForeignClaims = map[string]string{}
	for i := range situation.Nodes {
		node := &situation.Nodes[i]
		if claim, err := nodegroup.ClaimOf(node); err == nil && claim.Owner != "" && claim.Owner != Name {
			situation.ForeignClaims[node.Name] = fmt.Sprintf("%s for the operation %s", claim.Owner, claim.Operation)
		}
	}
	holders, err := s.holders(ctx)
	for _, h := range holders {
		situation.Lock = cpupolicy.Lock{Operation: h.Operation, Node: h.Node}
		if !h.OwnedBy(Name) {
			situation.Lock.Owner = h.Owner
		}
	}
	return err
}

// holders returns who holds the lock of the control plane.
func (s situations) holders(ctx context.Context) (nodegroup.Holders, error) {
	var lease coordinationv1.Lease
	err := s.reader.Get(ctx, nodegroup.ControlPlaneLock, &lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return nodegroup.HoldersOf(&lease)
}

// addVMs adds KubeVirt, where its kinds are, and for none its VMs and where they can run. Those that do not
// run are read only where this is the last node for them.
func (s situations) addVMs(ctx context.Context, situation *cpupolicy.Situation, policy cpupolicy.Policy) error {
	var kubevirts virtv1.KubeVirtList
	if err := s.reader.List(ctx, &kubevirts); isNoKind(err) {
		return nil
	} else if err != nil {
		return err
	}
	if len(kubevirts.Items) > 0 {
		situation.KubeVirt = &kubevirts.Items[0]
	}
	if policy != cpupolicy.None {
		return nil
	}
	err := pages(func(page ...client.ListOption) (next string, err error) {
		var vmis virtv1.VirtualMachineInstanceList
		err = s.reader.List(ctx, &vmis, page...)
		for i := range vmis.Items {
			if vmi := &vmis.Items[i]; cpupolicy.IsPinned(vmi) {
				situation.VMs = append(situation.VMs, *vmi)
			}
		}
		return vmis.Continue, err
	})
	if err != nil {
		return err
	}
	if err := s.addOthers(ctx, situation, roleStatic); err != nil || !situation.IsLastStatic() {
		return err
	}
	return pages(func(page ...client.ListOption) (next string, err error) {
		var vms virtv1.VirtualMachineList
		err = s.reader.List(ctx, &vms, page...)
		for i := range vms.Items {
			if vm := &vms.Items[i]; cpupolicy.IsToBePinned(vm) {
				situation.Machines = append(situation.Machines, *vm)
			}
		}
		return vms.Continue, err
	})
}

// pages lists a kind of KubeVirt a page at a time: a cluster may have thousands, and only few matter. If
// there is no such kind, there are none.
func pages(list func(page ...client.ListOption) (next string, err error)) error {
	for from := ""; ; {
		next, err := list(client.Limit(500), client.Continue(from))
		if isNoKind(err) {
			return nil
		}
		if from = next; err != nil || from == "" {
			return err
		}
	}
}

// isNoKind reports whether the error of a List, or of a Get, is that there is no such kind, or no longer:
// a client remembers the kinds that it has seen. Of a Get it may also mean that there is no such object.
func isNoKind(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// kubeletOf makes of what an agent has read what the rules know.
func kubeletOf(read operation.Kubelet) (readmission.Kubelet, error) {
	kubelet := readmission.Kubelet{
		Options:         read.CPUManagerPolicyOptions,
		Reserved:        read.Reserved,
		TopologyPolicy:  read.TopologyManagerPolicy,
		TopologyScope:   read.TopologyManagerScope,
		TopologyOptions: read.TopologyManagerPolicyOptions,
		MemoryPolicy:    read.MemoryManagerPolicy,
	}
	var err error
	if kubelet.ReservedCPUs, err = cpuset.Parse(read.ReservedCPUs); err != nil {
		return kubelet, fmt.Errorf("kubelet.reservedCPUs %q: %w", read.ReservedCPUs, err)
	}
	core := 0
	for _, place := range read.Places {
		for _, list := range place.Cores {
			cpus, err := cpuset.Parse(list)
			if err != nil {
				return kubelet, fmt.Errorf("kubelet.places: core %q: %w", list, err)
			}
			for _, cpu := range cpus.List() {
				kubelet.CPUs = append(kubelet.CPUs, readmission.CPU{ID: cpu, Core: core, NUMANode: place.NUMANode, Socket: place.Socket})
			}
			core++
		}
	}
	return kubelet, nil
}
