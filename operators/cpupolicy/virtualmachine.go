// SPDX-License-Identifier: Apache-2.0

package cpupolicy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// Label says on a Node whether its CPU manager's policy is static: "true" or "false". KubeVirt keeps
// it, and sends VMs with dedicated CPUs to nodes that have "true".
const Label = virtv1.DeprecatedCPUManager

// static is what a node must have so that a VM gets CPUs of its own there.
var static = corev1.NodeSelectorRequirement{Key: Label, Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}}

func isStaticRequirement(r corev1.NodeSelectorRequirement) bool {
	return r.Key == static.Key && r.Operator == static.Operator && slices.Equal(r.Values, static.Values)
}

// dedicated reports whether a VM asks for CPUs of its own. One that has them from an instance
// type is KubeVirt's concern: its template says nothing of them.
func dedicated(vm *virtv1.VirtualMachine) bool {
	return vm != nil && vm.Spec.Template != nil && vm.Spec.Template.Spec.Domain.CPU != nil && vm.Spec.Template.Spec.Domain.CPU.DedicatedCPUPlacement
}

// changesDedication reports whether a request changes dedicatedCpuPlacement. Nothing else is looked
// at, so that no update of a status or a finalizer, and no deletion, ever meets these rules. before
// is nil when a VM is created.
func changesDedication(before, after *virtv1.VirtualMachine) bool {
	return after.DeletionTimestamp == nil && dedicated(before) != dedicated(after)
}

// MutateVirtualMachine makes a VM that is given dedicatedCpuPlacement fit for it, and reports
// whether it changed anything. before is nil when the VM is created.
//
//   - Its requests become its limits, for CPU and memory, since only a Guaranteed pod gets CPUs of
//     its own. Where there is only a request, that becomes the limit, too. Where there is neither,
//     KubeVirt derives both from the cores or the guest's memory.
//   - Each term of its required node affinity, of which one is enough, asks for the label
//     cpumanager=true.
//
// A VM that loses dedicatedCpuPlacement may run everywhere again; its requests stay.
func MutateVirtualMachine(before, after *virtv1.VirtualMachine) (changed bool) {
	if !changesDedication(before, after) {
		return false
	}
	spec := &after.Spec.Template.Spec
	if !dedicated(after) {
		return removeStaticRequirement(spec)
	}
	changed = equalise(&spec.Domain.Resources)
	return addStaticRequirement(spec) || changed
}

func equalise(resources *virtv1.ResourceRequirements) (changed bool) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit, limited := resources.Limits[name]
		request, requested := resources.Requests[name]
		switch {
		case limited && requested && request.Cmp(limit) == 0, !limited && !requested:
		case limited:
			set(&resources.Requests, name, limit)
			changed = true
		default:
			set(&resources.Limits, name, request)
			changed = true
		}
	}
	return changed
}

func addStaticRequirement(spec *virtv1.VirtualMachineInstanceSpec) (changed bool) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil || len((*required).NodeSelectorTerms) == 0 {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{static}}}}
		return true
	}
	for i := range (*required).NodeSelectorTerms {
		term := &(*required).NodeSelectorTerms[i]
		// An empty term matches no node, and must not begin to.
		empty := len(term.MatchExpressions)+len(term.MatchFields) == 0
		if !empty && !slices.ContainsFunc(term.MatchExpressions, isStaticRequirement) {
			term.MatchExpressions = append(term.MatchExpressions, static)
			changed = true
		}
	}
	return changed
}

func removeStaticRequirement(spec *virtv1.VirtualMachineInstanceSpec) (changed bool) {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		before := len(term.MatchExpressions)
		term.MatchExpressions = slices.DeleteFunc(term.MatchExpressions, isStaticRequirement)
		if len(term.MatchExpressions) == before {
			continue
		}
		changed = true
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			// This term asked for nothing else. It would match no node now, and should match all.
			spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			return true
		}
	}
	return changed
}

func set(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}

// ValidateVirtualMachine returns what is wrong with a change of dedicatedCpuPlacement. before is nil
// when the VM is created. runs means that there is a VirtualMachineInstance of it: its pod has
// the CPUs that it has, so the VM must be stopped first.
func ValidateVirtualMachine(before, after *virtv1.VirtualMachine, runs bool) field.ErrorList {
	if !changesDedication(before, after) {
		return nil
	}
	domain := field.NewPath("spec", "template", "spec", "domain")
	if before != nil && runs {
		return field.ErrorList{field.Forbidden(domain.Child("cpu", "dedicatedCpuPlacement"), "the machine has a VirtualMachineInstance; stop it before you change this")}
	}
	if !dedicated(after) {
		return nil
	}
	var errs field.ErrorList
	resources := after.Spec.Template.Spec.Domain.Resources
	for _, list := range []struct {
		name string
		list corev1.ResourceList
	}{{"limits", resources.Limits}, {"requests", resources.Requests}} {
		if cpu, has := list.list[corev1.ResourceCPU]; has && (cpu.Sign() <= 0 || cpu.MilliValue()%1000 != 0) {
			errs = append(errs, field.Invalid(domain.Child("resources", list.name, "cpu"), cpu.String(), "must be whole CPUs, at least 1, with dedicatedCpuPlacement"))
		}
	}
	return errs
}
