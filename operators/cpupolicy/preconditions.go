// SPDX-License-Identifier: Apache-2.0

package cpupolicy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"workload.openshift.io/kubernetes/node/readmission"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/nodegroup"
)

// Request is what somebody asks of a node.
type Request struct {
	// ID is the operation's, once the controller has taken the request up. Empty means that the Node
	// does not show this request yet.
	ID     string
	Policy Policy
	// AllowEvicted accepts that pods end because they no longer fit.
	AllowEvicted bool
}

// Situation is what is known when somebody asks. What the controller cannot know, an agent looks at
// again on the node.
type Situation struct {
	Node *corev1.Node
	// InForce is the policy that was observed, in the checkpoint or in configz, and never concluded
	// from a label; empty if nobody has looked.
	InForce Policy
	// Seen is the policy that was observed too long ago to be believed; empty if that is not so. What
	// only the node can tell is then a warning: it is observed again before it is switched.
	Seen Policy
	// Pods are those of the node; MorePods means that it has more.
	Pods     []corev1.Pod
	MorePods bool
	// Kubelet is how the kubelet would start. Its Policy is that of the request.
	Kubelet readmission.Kubelet
	// ForeignClaims has the nodes that another companion has claimed, and its name and operation.
	ForeignClaims map[string]string
	// Refused is why the agent on the node would refuse the policy, with file and line: what would keep
	// the kubelet down or leave it as it is. Empty means that it would not, or that nobody has asked it.
	Refused operation.Refusals
	// CPUDriver is the DRA driver that gives the node's CPUs to pods, such as dra.cpu; empty if none does. Only the policy static asks for it.
	CPUDriver string
	// Nodes are those of the cluster.
	Nodes []corev1.Node
	// Lock is the operation that holds the lock of the control plane; the zero value means none.
	Lock Lock
	// KubeVirt is nil where there is none. VMs are those of the cluster that are pinned ([IsPinned]);
	// others are ignored.
	KubeVirt *virtv1.KubeVirt
	VMs      []virtv1.VirtualMachineInstance
	// Machines are the VirtualMachines of the cluster that are to be pinned ([IsToBePinned]), where
	// [Situation.IsLastStatic]. Others are ignored.
	Machines []virtv1.VirtualMachine
}

// Lock names an operation and its node. Owner is another companion, whose operation it is; empty means this one.
type Lock struct{ Owner, Operation, Node string }

// Code names a precondition.
type Code string

const (
	// AlreadyInForce: the node has that policy.
	AlreadyInForce Code = "AlreadyInForce"
	// OperationUnderWay: the annotation of the node is about another operation.
	OperationUnderWay Code = "OperationUnderWay"
	// FeatureGateOff: KubeVirt's feature gate CPUManager is off, so that KubeVirt neither labels nodes
	// nor pins VMs. That keeps nobody from going back to none.
	FeatureGateOff Code = "FeatureGateOff"
	// PinnedMachine: none, and a VM on the node has dedicated CPUs.
	PinnedMachine Code = "PinnedMachine"
	// ExclusivePod: none, and a pod on the node may have exclusive CPUs.
	ExclusivePod Code = "ExclusivePod"
	// NoMigrationTarget: none, and a VM elsewhere has no other node left to migrate to.
	NoMigrationTarget Code = "NoMigrationTarget"
	// NoStaticNode: none, and a VM that does not run, or is not pinned yet, could start nowhere afterwards.
	NoStaticNode Code = "NoStaticNode"
	// NoReservation: static, and no CPU is reserved. The kubelet would not start.
	NoReservation Code = "NoReservation"
	// CPUDriver: static, and a DRA driver gives the node's CPUs to pods. The kubelet would give the same CPUs.
	CPUDriver Code = "CPUDriver"
	// PodRejected: the restarted kubelet would reject a pod, as far as that can be foreseen.
	PodRejected Code = "PodRejected"
	// PodMayBeRejected: only the node can tell, or not even that.
	PodMayBeRejected Code = "PodMayBeRejected"
	// ControlPlaneNotReady: the node is of the control plane, and another of these is not Ready.
	ControlPlaneNotReady Code = "ControlPlaneNotReady"
	// ControlPlaneUnderWay: the node is of the control plane, and something is under way on another.
	ControlPlaneUnderWay Code = "ControlPlaneUnderWay"
	// NodeRefuses: the agent has found something in the kubelet's configuration: the policy as a flag,
	// options beside none, no --config-dir, another operator's file.
	NodeRefuses Code = "NodeRefuses"
	// ContainersHoldCPUs: none, and the agent has found containers that have CPUs exclusively, or may have some.
	ContainersHoldCPUs Code = "ContainersHoldCPUs"
)

// Finding is a precondition that does not hold, for one object.
type Finding struct {
	Code Code
	// Object is what prevents it: a pod, a VM or a node.
	Object string
	// Text says why, and goes on from Object. Remedy says what to do.
	Text, Remedy string
	// Warning means that it does not prevent it.
	Warning bool
}

func (f Finding) String() string { return fmt.Sprintf("%s %s; %s", f.Object, f.Text, f.Remedy) }

// Preconditions returns what prevents a request, and warnings. The order is that of the
// rules, and in each rule that of the objects' names.
func Preconditions(request Request, s Situation) (findings []Finding) {
	for _, rule := range []func(Request, Situation) []Finding{
		alreadyInForce, operationUnderWay, featureGate, pinnedVMs, exclusivePods, migrationTargets, laterStarts, reservation, cpuDriver, rejectedPods, controlPlane, nodeRefuses,
	} {
		found := rule(request, s)
		slices.SortStableFunc(found, func(a, b Finding) int { return strings.Compare(a.Object, b.Object) })
		findings = append(findings, found...)
	}
	return findings
}

// Refused reports whether one of the findings is more than a warning.
func Refused(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return !f.Warning })
}

func nodeObject(name string) string { return "node " + name }

// A node that has the policy is left alone.
func alreadyInForce(request Request, s Situation) []Finding {
	if s.InForce != request.Policy {
		return nil
	}
	return []Finding{{Code: AlreadyInForce, Object: nodeObject(s.Node.Name), Text: fmt.Sprintf("has the CPU manager policy %s already", request.Policy), Remedy: "there is nothing to do"}}
}

// One operation at a time. A status that cannot be parsed is none.
func operationUnderWay(request Request, s Situation) []Finding {
	status, _, err := nodestatus.ReadStatus(s.Node.Annotations)
	if err != nil || !status.UnderWay() || request.ID != "" && request.ID == status.ID {
		return nil
	}
	return []Finding{{Code: OperationUnderWay, Object: nodeObject(s.Node.Name), Text: fmt.Sprintf("is being switched: policy %s is %s", status.Policy, status.State), Remedy: "wait until that is complete or failed"}}
}

const gate = "CPUManager"

// Where KubeVirt is, its feature gate must be on: it is off by default (KubeVirt, virt-config).
func featureGate(request Request, s Situation) []Finding {
	if s.KubeVirt == nil {
		return nil
	}
	if developer := s.KubeVirt.Spec.Configuration.DeveloperConfiguration; developer != nil &&
		slices.Contains(developer.FeatureGates, gate) && !slices.Contains(developer.DisabledFeatureGates, gate) {
		return nil
	}
	return []Finding{{Code: FeatureGateOff, Object: fmt.Sprintf("KubeVirt %s/%s", s.KubeVirt.Namespace, s.KubeVirt.Name), Text: fmt.Sprintf("has its feature gate %s off, so that nodes are not labelled and machines not pinned", gate),
		Remedy: fmt.Sprintf("add %s to spec.configuration.developerConfiguration.featureGates", gate), Warning: request.Policy == None}}
}

func vmObject(vmi *virtv1.VirtualMachineInstance) string {
	return fmt.Sprintf("VirtualMachineInstance %s/%s", vmi.Namespace, vmi.Name)
}

// isOn reports whether a VM runs on a node, or migrates to it.
func isOn(vmi *virtv1.VirtualMachineInstance, node string) bool {
	m := vmi.Status.MigrationState
	return vmi.Status.NodeName == node || m != nil && m.TargetNode == node && !m.Completed && !m.Failed
}

// IsPinned reports whether a VM has dedicated CPUs, and has not ended.
func IsPinned(vmi *virtv1.VirtualMachineInstance) bool { return vmi.IsCPUDedicated() && !vmi.IsFinal() }

func (s Situation) pinned() (vms []*virtv1.VirtualMachineInstance) {
	for i := range s.VMs {
		if vmi := &s.VMs[i]; IsPinned(vmi) {
			vms = append(vms, vmi)
		}
	}
	return vms
}

// targets returns the nodes to which a VM with dedicated CPUs could migrate, without this node.
// KubeVirt goes by the label.
func (s Situation) targets(vmi *virtv1.VirtualMachineInstance) (names []string) {
	for i := range s.Nodes {
		node := &s.Nodes[i]
		if node.Name != s.Node.Name && !isOn(vmi, node.Name) && node.Labels[Label] == "true" && !node.Spec.Unschedulable && nodegroup.IsReady(node) {
			names = append(names, node.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Under none the CPUs of a VM would be everybody's.
func pinnedVMs(request Request, s Situation) (findings []Finding) {
	if request.Policy != None {
		return nil
	}
	for _, vmi := range s.pinned() {
		if !isOn(vmi, s.Node.Name) {
			continue
		}
		remedy := "stop it: no other node has the policy static"
		if targets := s.targets(vmi); len(targets) > 0 {
			remedy = fmt.Sprintf("migrate it (to %s), or stop it", strings.Join(targets, ", "))
		}
		findings = append(findings, Finding{Code: PinnedMachine, Object: vmObject(vmi), Text: "has dedicatedCpuPlacement, and runs on the node", Remedy: remedy})
	}
	return findings
}

// So would those of a pod. Of the pod of a VM that is named, nothing is said.
func exclusivePods(request Request, s Situation) (findings []Finding) {
	if request.Policy != None || s.InForce == None {
		return nil
	}
	named := map[string]bool{}
	for _, vmi := range s.pinned() {
		named[string(vmi.UID)] = true
	}
	for i := range s.Pods {
		pod := &s.Pods[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if by := pod.Labels[virtv1.CreatedByLabel]; ended || by != "" && named[by] {
			continue
		}
		if n := readmission.WholeCPUs(pod); n > 0 {
			findings = append(findings, Finding{Code: ExclusivePod, Object: fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name), Text: fmt.Sprintf("is Guaranteed and asks for whole CPUs (%d)", n),
				Remedy: "delete it, or scale down what it belongs to, or have it scheduled to another node", Warning: s.Seen == None})
		}
	}
	return findings
}

// VMs elsewhere lose a node to migrate to. That is worth a warning once it was their last.
func migrationTargets(request Request, s Situation) (findings []Finding) {
	if request.Policy != None {
		return nil
	}
	for _, vmi := range s.pinned() {
		if vmi.Status.NodeName != "" && !isOn(vmi, s.Node.Name) && len(s.targets(vmi)) == 0 {
			findings = append(findings, Finding{Code: NoMigrationTarget, Object: vmObject(vmi), Text: fmt.Sprintf("on %s has no other node to migrate to afterwards", nodeObject(vmi.Status.NodeName)),
				Remedy: "give another node the policy static if the machine must be able to migrate", Warning: true})
		}
	}
	return findings
}

// IsLastStatic reports whether no other node is labelled as one with the policy static, Ready or not.
func (s Situation) IsLastStatic() bool {
	return !slices.ContainsFunc(s.Nodes, func(node corev1.Node) bool { return node.Name != s.Node.Name && node.Labels[Label] == "true" })
}

// IsToBePinned reports whether a VirtualMachine is given dedicated CPUs at its next start.
func IsToBePinned(vm *virtv1.VirtualMachine) bool {
	return dedicated(vm) && vm.DeletionTimestamp == nil
}

// VMs that are stopped, or whose change waits for a restart, need a node with static once they start. That
// is no reason to refuse: somebody who has no such node left may want it so.
func laterStarts(request Request, s Situation) (findings []Finding) {
	if request.Policy != None || !s.IsLastStatic() {
		return nil
	}
	named := map[string]bool{}
	for _, vmi := range s.pinned() {
		named[vmi.Namespace+"/"+vmi.Name] = true
	}
	for i := range s.Machines {
		vm := &s.Machines[i]
		name := vm.Namespace + "/" + vm.Name
		if !IsToBePinned(vm) || named[name] {
			continue
		}
		text := "has dedicatedCpuPlacement and does not run: no node with the policy static is left for it to start on"
		if vm.Status.Created {
			text = "waits for a restart to get dedicatedCpuPlacement: no node with the policy static is left for it to start on"
		}
		findings = append(findings, Finding{Code: NoStaticNode, Object: "VirtualMachine " + name, Text: text,
			Remedy: "give another node the policy static before it starts, or take dedicatedCpuPlacement from it", Warning: true})
	}
	return findings
}

// The kubelet does not start with static and no CPU reserved (pkg/kubelet/cm/cpumanager, NewManager).
func reservation(request Request, s Situation) []Finding {
	if reserved := s.Kubelet.Reservation(); request.Policy != Static || reserved.Sign() > 0 {
		return nil
	}
	return []Finding{{Code: NoReservation, Object: nodeObject(s.Node.Name), Text: "reserves no CPU, and with the policy static its kubelet would not start",
		Remedy: "set cpu in kubeReserved or systemReserved, or reservedSystemCPUs; partition-agent cpu-policy reserve computes what is usual", Warning: s.Seen != ""}}
}

// Two that give the same CPUs exclusively know nothing of each other.
func cpuDriver(request Request, s Situation) []Finding {
	if request.Policy != Static || s.CPUDriver == "" {
		return nil
	}
	return []Finding{{Code: CPUDriver, Object: nodeObject(s.Node.Name), Text: fmt.Sprintf("has ResourceSlices of the DRA driver %s, which gives its CPUs to pods, and with the policy static the kubelet would give the same ones", s.CPUDriver),
		Remedy: "remove the driver from the node first, or keep the policy none"}}
}

// afterwards returns the Node as it is after a switch: with the reservation in allocatable, and the
// policy in the labels.
func afterwards(request Request, s Situation) *corev1.Node {
	after := s.Node.DeepCopy()
	cpu := readmission.Capacity(after)
	cpu.Sub(s.Kubelet.Reservation())
	set(&after.Status.Allocatable, corev1.ResourceCPU, cpu)
	if after.Labels == nil {
		after.Labels = map[string]string{}
	}
	for _, label := range []string{Label, virtv1.CPUManager} {
		if _, has := after.Labels[label]; has || label == Label {
			after.Labels[label] = strconv.FormatBool(request.Policy == Static)
		}
	}
	return after
}

// A restarted kubelet admits all pods again. It begins with an empty checkpoint. That is looked at for none,
// too: under it more fits, but pods may ask for the label of the other policy. A label or a taint may also
// be as it is for a reason of its own, which the restart makes a reason to reject pods that run.
func rejectedPods(request Request, s Situation) (findings []Finding) {
	s.Kubelet.Policy = string(request.Policy)
	if s.MorePods {
		findings = append(findings, Finding{Code: PodMayBeRejected, Object: nodeObject(s.Node.Name), Text: fmt.Sprintf("has more than %d pods, and no others were looked at", len(s.Pods)), Remedy: "look at the rest after the switch", Warning: true})
	}
	for _, r := range readmission.Foresee(afterwards(request, s), s.Kubelet, s.Pods) {
		f := Finding{Code: PodRejected, Object: fmt.Sprintf("pod %s/%s", r.Pod.Namespace, r.Pod.Name), Text: fmt.Sprintf("%s: the restarted kubelet rejects it (%s)", r.Text, r.Reason),
			Remedy: "make room, or accept with --allow-evicted that it ends", Warning: request.AllowEvicted}
		switch {
		case r.Reason == readmission.NodeAffinity && readmission.Matches(r.Pod, s.Node):
			f.Text = fmt.Sprintf("%s after the switch: the restarted kubelet rejects it (%s)", r.Text, r.Reason)
			f.Remedy = "have it scheduled to another node, or accept with --allow-evicted that it ends"
		case r.Reason == readmission.NodeAffinity || r.Reason == readmission.TaintToleration:
			f.Remedy = "wait until the node is as the pod requires, see to it, or accept with --allow-evicted that it ends"
		}
		if r.Maybe {
			f.Code, f.Warning = PodMayBeRejected, true
			f.Text, f.Remedy = fmt.Sprintf("%s (%s)", r.Text, r.Reason), "look at it after the switch"
		}
		findings = append(findings, f)
	}
	return findings
}

// controlPlaneRoles are the labels of nodes whose restart takes a part of the control plane or of
// etcd away. The last two are RKE2's and older kubeadm's.
var controlPlaneRoles = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd", "node-role.kubernetes.io/master"}

// IsControlPlane reports whether a node is of the control plane.
func IsControlPlane(node *corev1.Node) bool {
	return slices.ContainsFunc(controlPlaneRoles, func(role string) bool { _, is := node.Labels[role]; return is })
}

// With one node of the control plane under way and another down, too little may be left of it. The
// lock decides between requests, whose status says nothing here: two would wait for each other.
func controlPlane(request Request, s Situation) (findings []Finding) {
	if !IsControlPlane(s.Node) {
		return nil
	}
	underWay := func(node, text string) {
		findings = append(findings, Finding{Code: ControlPlaneUnderWay, Object: nodeObject(node), Text: text, Remedy: "ask again when that has ended"})
	}
	for i := range s.Nodes {
		other := &s.Nodes[i]
		if other.Name == s.Node.Name || !IsControlPlane(other) {
			continue
		}
		if !nodegroup.IsReady(other) {
			findings = append(findings, Finding{Code: ControlPlaneNotReady, Object: nodeObject(other.Name), Text: "is of the control plane, too, and is not Ready", Remedy: "bring it back first"})
		}
		if status, _, err := nodestatus.ReadStatus(other.Annotations); err == nil && status.State == nodestatus.Running && s.Lock.Node != other.Name {
			underWay(other.Name, fmt.Sprintf("is of the control plane, too, and is being switched: policy %s is %s", status.Policy, status.State))
		}
		// One that takes no lock of the control plane is kept apart by its claim.
		if claim := s.ForeignClaims[other.Name]; claim != "" {
			underWay(other.Name, "is of the control plane, too, and is claimed by "+claim)
		}
	}
	if s.Lock != (Lock{}) && (request.ID == "" || s.Lock.Owner != "" || s.Lock.Operation != request.ID) {
		text := "holds the lock of the control plane for the operation " + s.Lock.Operation
		if s.Lock.Owner != "" {
			text += " of " + s.Lock.Owner
		}
		underWay(s.Lock.Node, text)
	}
	return findings
}

// The agent has read the files and flags of the kubelet, and says what to do.
func nodeRefuses(_ Request, s Situation) (findings []Finding) {
	for _, each := range []struct {
		code     Code
		refusals operation.Refusals
	}{
		{NodeRefuses, s.Refused.Without(operation.ContainersHoldCPUs)},
		{ContainersHoldCPUs, s.Refused.Without("")},
	} {
		if len(each.refusals) > 0 {
			findings = append(findings, Finding{Code: each.code, Object: nodeObject(s.Node.Name), Text: "refuses: " + each.refusals.String(), Remedy: "partition-agent cpu-policy observe says on the node whether that is done"})
		}
	}
	return findings
}
