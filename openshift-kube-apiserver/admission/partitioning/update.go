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
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// update keeps the stored pod's annotations, whichever subresource the request
// goes to: no pod enters or leaves a partition after creation.
func (p *plugin) update(ctx context.Context, a admission.Attributes, pod *core.Pod) error {
	stored, ok := a.GetOldObject().(*core.Pod)
	if !ok {
		return nil
	}
	if changed := partition.KeepAnnotations(&pod.Annotations, stored.Annotations); changed != "" {
		warning.AddWarning(ctx, "", "the workload partitioning annotations of a pod do not change after its creation; it keeps those that it had: "+changed)
	}
	switch a.GetSubresource() {
	case "":
		if isPartitioned(stored) {
			partition.KeepCPU(internalpod.View(pod), internalpod.View(stored))
		}
	case "resize":
		return p.resize(a, pod, stored)
	}
	return nil
}

// resize takes out what LimitRanger, which runs before, has put into a resize as well: the client did not ask for it. It
// refuses to give CPU to a partitioned pod.
func (p *plugin) resize(a admission.Attributes, pod, stored *core.Pod) error {
	partitioned := isPartitioned(stored)
	if !partitioned && !internalpod.CarriesCores(pod) {
		return nil
	}
	constraints, err := p.constraints.Of(a)
	if err != nil {
		return err
	}
	constraints.DropDefaultCores(pod, stored)
	if !partitioned {
		return nil
	}
	// A manifest that is sent again may ask for as much as a default.
	partition.KeepCPU(internalpod.View(pod), internalpod.View(stored))
	constraints.DropDefaultCPU(pod)
	partition.KeepCPU(internalpod.View(pod), internalpod.View(stored))
	return refuseCPU(pod, stored)
}

// isPartitioned reports whether a stored pod is partitioned. Its target annotation does not say so: a pod that
// was created by a kube-apiserver without this plugin may have one, and is ordinary.
func isPartitioned(stored *core.Pod) bool {
	if target, errs := partition.ParseTarget(stored.Annotations); len(errs) > 0 || target.Type == "" {
		return false
	}
	var external v1.Pod
	if err := corev1.Convert_core_Pod_To_v1_Pod(stored, &external, nil); err != nil {
		return false // it has none that would be of a stored pod
	}
	_, is := partition.PartitionedType(&external)
	return is
}

// validateUpdate refuses what a webhook has done since: one may run again after the last
// Admit.
func validateUpdate(a admission.Attributes, pod, stored *core.Pod) error {
	if changed := partition.ChangedAnnotation(pod.Annotations, stored.Annotations); changed != "" {
		return admission.NewForbidden(a, fmt.Errorf("the pod's workload partitioning annotations were changed after its creation, probably by a mutating webhook: %q is %q, and was %q",
			changed, pod.Annotations[changed], stored.Annotations[changed]))
	}
	if a.GetSubresource() == "resize" && isPartitioned(stored) {
		return refuseCPU(pod, stored)
	}
	return nil
}

// validateBinding refuses annotations that a webhook or policy has added since Admit removed them: those of a binding
// become the pod's, and nothing validates the pod again.
func validateBinding(a admission.Attributes, binding *core.Binding) error {
	if changed := partition.ChangedAnnotation(binding.Annotations, nil); changed != "" {
		return admission.NewForbidden(a, fmt.Errorf("a binding must not have the workload partitioning annotation %q, which would become the pod's; a mutating webhook or policy has probably added it", changed))
	}
	return nil
}

// refuseCPU refuses to give CPU to a partitioned pod in place (design, section 4.3).
func refuseCPU(pod, stored *core.Pod) error {
	target, _ := partition.ParseTarget(stored.Annotations)
	var refused field.ErrorList
	refuse := func(path *field.Path, list core.ResourceList) {
		if asked, has := list[core.ResourceCPU]; has && !asked.IsZero() {
			refused = append(refused, field.Invalid(path.Key("cpu"), asked.String(),
				fmt.Sprintf("the CPU of a partitioned pod does not change after its creation; it is counted as %s. Its memory can change", partition.CoresResource(target.Type))))
		}
	}
	refuseIn := func(path *field.Path, resources *core.ResourceRequirements) {
		refuse(path.Child("requests"), resources.Requests)
		refuse(path.Child("limits"), resources.Limits)
	}
	if resources := pod.Spec.Resources; resources != nil {
		// It had none, or it would not be partitioned, and would weigh as much as this says.
		refuseIn(field.NewPath("spec", "resources"), resources)
	}
	for i := range pod.Spec.InitContainers {
		refuseIn(field.NewPath("spec", "initContainers").Index(i).Child("resources"), &pod.Spec.InitContainers[i].Resources)
	}
	for i := range pod.Spec.Containers {
		refuseIn(field.NewPath("spec", "containers").Index(i).Child("resources"), &pod.Spec.Containers[i].Resources)
	}
	if len(refused) > 0 {
		return apierrors.NewInvalid(core.Kind("Pod"), name(pod), refused)
	}
	return nil
}
