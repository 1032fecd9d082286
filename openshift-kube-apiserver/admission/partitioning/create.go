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
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/constraint"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// create decides on a new pod, in the first run and in each further one: a webhook may have
// added a container, or taken the target.
func (p *plugin) create(ctx context.Context, a admission.Attributes, pod *core.Pod) error {
	again := a.GetReinvocationContext().IsReinvoke()
	if again {
		restoreTarget(a, pod)
	}
	if !concerns(pod) {
		return nil
	}
	if p.isMirror(a, pod) {
		return p.mirror(a, pod, again)
	}
	earlier, _ := a.GetReinvocationContext().Value(PluginName).(run)
	before := earlier
	var ignored []string
	var constraints constraint.Constraints
	carried := internalpod.CarriesCores(pod)
	if carried {
		var err error
		if constraints, err = p.constraints.Of(a); err != nil {
			return err
		}
		constraints.DropDefaultCores(pod, earlier.left)
		if again {
			ignored = cpuBesideCores(constraints, pod)
		}
	}
	if !again {
		// In a later run the warning may be our own.
		delete(pod.Annotations, partition.WarningAnnotation)
	}
	decision, err := p.decide(ctx, a, pod, again)
	if err != nil {
		return err
	}
	if carried && !internalpod.CarriesCores(pod) {
		constraints.GiveDefaultCPU(pod)
	}
	// What is not refused may change with a later run, and is told and counted by Validate.
	switch {
	case decision.Outcome == partition.Refused:
		if !earlier.counted {
			p.count(a, decision)
		}
		if len(decision.Errors) > 0 {
			return apierrors.NewInvalid(core.Kind("Pod"), name(pod), decision.Errors)
		}
		return admission.NewForbidden(a, errors.New(decision.Message()))
	case decision.Outcome == partition.Skipped && pod.Annotations[partition.WarningAnnotation] == "" && !earlier.counted:
		// No one must be told, or the pod has no room for the annotation: nothing is left for
		// Validate to warn of and to count.
		earlier.counted = true
		p.count(a, decision)
		if message := decision.Message(); message != "" {
			warn(ctx, a, message)
		}
	case decision.Outcome == partition.Partitioned && len(ignored) > 0:
		warn(ctx, a, fmt.Sprintf("the cpu that was set in %s after the pod had been partitioned is ignored; its cores count instead", strings.Join(ignored, ", ")))
	}
	earlier.taken = partition.Target{}
	if decision.Outcome == partition.Skipped {
		earlier.taken = decision.Target
	}
	if constraints.GivesCores() {
		earlier.left = pod.DeepCopy()
	}
	// A pod that is partitioned in its only run leaves nothing, which is what is there already.
	if earlier != before {
		a.GetReinvocationContext().SetValue(PluginName, earlier)
	}
	return nil
}

// run is what a run leaves to the next one, which decides again: a webhook may have added a
// container.
type run struct {
	// taken is the target that it took from the pod. Its zero value is none.
	taken partition.Target
	// counted: the pod has been counted.
	counted bool
	// left is the pod as it left it, where a LimitRange gives cores to pods: LimitRanger may run in between.
	left *core.Pod
}

// restoreTarget gives a pod back what an earlier run took. A target that a webhook has
// removed or written since is the webhook's word.
func restoreTarget(a admission.Attributes, pod *core.Pod) {
	earlier, _ := a.GetReinvocationContext().Value(PluginName).(run)
	if earlier.taken.Type == "" {
		return
	}
	for key := range pod.Annotations {
		if strings.HasPrefix(key, partition.TargetPrefix) {
			return
		}
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[partition.TargetAnnotation(earlier.taken.Type)] = earlier.taken.AnnotationValue()
}

// decide runs the core on a pod of the request's namespace, which is looked at only if
// the pod asks for a workload type. After an error the pod is of no use.
func (p *plugin) decide(ctx context.Context, a admission.Attributes, pod *core.Pod, again bool) (partition.Decision, error) {
	policy := partition.Policy{Gate: partition.AnyType}
	if target, errs := partition.ParseTarget(pod.Annotations); target.Type != "" && len(errs) == 0 {
		reason, err := p.gate.Ask(ctx, a.GetNamespace(), target.Type)
		if err != nil {
			return partition.Decision{}, err
		}
		reason = cmp.Or(reason, p.onNodes(pod, target.Type))
		policy.Gate = partition.Always(reason)
		if reason == partition.NoReason {
			constraints, err := p.constraints.Of(a)
			if err != nil {
				return partition.Decision{}, err
			}
			constraints.Complete(pod, again, &policy)
		}
	}
	return partition.Mutate(internalpod.View(pod), policy), nil
}

// cpuBesideCores names the containers of a partitioned pod to which a webhook has given cpu:
// what LimitRanger has put there is not a request of the pod.
func cpuBesideCores(constraints constraint.Constraints, pod *core.Pod) (containers []string) {
	for _, of := range internalpod.View(pod).Containers {
		if partition.CarriesCores(*of.Requests) && constraints.NamesCPU(of) {
			containers = append(containers, fmt.Sprintf("container %q", of.Name))
		}
	}
	return containers
}

// validateCreate refuses a pod that something has changed after the last run of Admit, so
// that it is no longer what the core makes of it: a webhook that runs again
// after that, for example. The kubelet would not know such a pod as partitioned. Such a
// webhook may also make a whole partitioned pod of one that may not be one, so the gate
// is asked again. What was decided of the others is told and counted here.
func (p *plugin) validateCreate(ctx context.Context, a admission.Attributes, pod *core.Pod) error {
	if !concerns(pod) || p.isMirror(a, pod) {
		return nil
	}
	target, _ := partition.ParseTarget(pod.Annotations)
	if changed := partition.Unsettled(internalpod.View(pod)); changed != "" {
		decision := partition.Decision{Outcome: partition.Refused, Target: target, Reason: partition.ReasonChangedLater, Detail: changed}
		p.count(a, decision)
		return admission.NewForbidden(a, errors.New(decision.Message()))
	}
	if target.Type == "" {
		if message, told := pod.Annotations[partition.WarningAnnotation]; told {
			warn(ctx, a, message)
			if decision, ok := partition.ParseMessage(message); ok {
				p.count(a, decision)
			}
		}
		return nil
	}
	decision := partition.Decision{Outcome: partition.Partitioned, Target: target}
	var err error
	if decision.Reason, err = p.gate.Ask(ctx, a.GetNamespace(), target.Type); err != nil {
		return err
	}
	if decision.Reason != partition.NoReason {
		decision.Outcome = partition.Refused
		err = admission.NewForbidden(a, errors.New(decision.Message()+"; the pod was partitioned after the plugin had decided this, probably by a mutating webhook"))
	}
	p.count(a, decision)
	return err
}
