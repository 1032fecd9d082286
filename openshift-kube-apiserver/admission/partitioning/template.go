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
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// templateOf returns the pod template of a workload, and nil for every other object.
func templateOf(object runtime.Object) *core.PodTemplateSpec {
	switch object := object.(type) {
	case *apps.Deployment:
		return &object.Spec.Template
	case *apps.DaemonSet:
		return &object.Spec.Template
	case *apps.StatefulSet:
		return &object.Spec.Template
	case *apps.ReplicaSet:
		return &object.Spec.Template
	case *batch.Job:
		return &object.Spec.Template
	case *batch.CronJob:
		return &object.Spec.JobTemplate.Spec.Template
	case *core.ReplicationController:
		return object.Spec.Template
	}
	return nil
}

// warnOfTemplate tells the author of a workload at once what would become of its
// pods (design, section 4.4). It waits for no cache of this plugin's: pods are
// decided when they are created. Upstream's LimitRanger, which it asks as for a pod,
// may list a namespace's LimitRanges when its cache has none, at most once in 30 s.
func (p *plugin) warnOfTemplate(ctx context.Context, a admission.Attributes) {
	template := templateOf(a.GetObject())
	if template == nil || a.GetSubresource() != "" {
		return
	}
	target, errs := partition.ParseTarget(template.Annotations)
	if target.Type == "" && len(errs) == 0 {
		return
	}
	pod := &core.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	policy := partition.Policy{Gate: partition.AnyType}
	if len(errs) == 0 {
		// A no of the cache will do here: a warning is not a decision.
		reason, known := p.gate.AskCache(a.GetNamespace(), target.Type)
		if !known {
			return
		}
		reason = cmp.Or(reason, p.onNodes(pod, target.Type))
		policy.Gate = partition.Always(reason)
		if reason == partition.NoReason && !p.complete(a, pod, &policy) {
			return
		}
	}
	decision := partition.Mutate(internalpod.View(pod), policy)
	if message := decision.Message(); message != "" {
		warning.AddWarning(ctx, "", fmt.Sprintf("pods of this template: %s", message))
	}
}

// complete makes of a template's pod, and of the policy, what they are when such a pod is
// created. It is false if that cannot be known now.
func (p *plugin) complete(a admission.Attributes, pod *core.Pod, policy *partition.Policy) bool {
	constraints, err := p.constraints.Of(a)
	if err != nil || constraints.SetDefaults(pod) != nil {
		return false
	}
	constraints.Complete(pod, false, policy)
	return true
}
