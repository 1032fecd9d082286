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

package status

import (
	"context"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var verticalPodAutoscalers = schema.GroupVersionResource{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalers"}

// readAutoscalers lists autoscalers, and keeps those on the cpu of a workload with partitioned
// pods.
func (r *reader) readAutoscalers(ctx context.Context) error {
	horizontal := pages(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.client.AutoscalingV2().HorizontalPodAutoscalers(metav1.NamespaceAll).List(ctx, options)
	})
	err := horizontal(ctx, func(object runtime.Object) error {
		hpa := object.(*autoscalingv2.HorizontalPodAutoscaler)
		target := workload{hpa.Namespace, hpa.Spec.ScaleTargetRef.Kind, hpa.Spec.ScaleTargetRef.Name}
		if _, partitioned := r.workloads[target]; partitioned && slices.ContainsFunc(hpa.Spec.Metrics, ofRequestedCPU) {
			r.autoscalers = append(r.autoscalers, Autoscaler{Kind: "HorizontalPodAutoscaler", Namespace: hpa.Namespace, Name: hpa.Name, Target: target.kind + "/" + target.name,
				Problem: "its target for cpu is relative to a request that partitioned pods do not have: it never scales them by cpu"})
		}
		return nil
	})
	if err := Note(&r.unknown, "list horizontalpodautoscalers.autoscaling", "which HorizontalPodAutoscalers scale partitioned workloads by cpu", err); err != nil {
		return err
	}
	vertical := pages(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.custom.Resource(verticalPodAutoscalers).List(ctx, options)
	})
	err = vertical(ctx, func(object runtime.Object) error {
		r.addVertical(object.(*unstructured.Unstructured))
		return nil
	})
	if apierrors.IsNotFound(err) { // the cluster does not have the kind
		return nil
	}
	return Note(&r.unknown, "list verticalpodautoscalers.autoscaling.k8s.io", "which VerticalPodAutoscalers control the cpu of partitioned workloads", err)
}

// ofRequestedCPU reports whether a metric is cpu as a share of the request.
func ofRequestedCPU(metric autoscalingv2.MetricSpec) bool {
	switch {
	case metric.Resource != nil:
		return metric.Resource.Name == v1.ResourceCPU && metric.Resource.Target.Type == autoscalingv2.UtilizationMetricType
	case metric.ContainerResource != nil:
		return metric.ContainerResource.Name == v1.ResourceCPU && metric.ContainerResource.Target.Type == autoscalingv2.UtilizationMetricType
	}
	return false
}

// verticalPodAutoscaler is what matters of that kind (kubernetes/autoscaler,
// vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1).
type verticalPodAutoscaler struct {
	Spec struct {
		TargetRef    autoscalingv1.CrossVersionObjectReference `json:"targetRef"`
		UpdatePolicy struct {
			UpdateMode string `json:"updateMode"`
		} `json:"updatePolicy"`
		ResourcePolicy struct {
			ContainerPolicies []containerPolicy `json:"containerPolicies"`
		} `json:"resourcePolicy"`
	} `json:"spec"`
}

type containerPolicy struct {
	ContainerName       string            `json:"containerName"`
	Mode                string            `json:"mode"`
	ControlledResources []v1.ResourceName `json:"controlledResources"`
}

// off is a mode in which nothing is updated, of the whole autoscaler or of one container.
const off = "Off"

// initial is the mode in which only new pods are updated, so that none is evicted.
const initial = "Initial"

// controlsCPU reports whether the autoscaler updates the cpu of a container.
func (a *verticalPodAutoscaler) controlsCPU(container string) bool {
	policies := a.Spec.ResourcePolicy.ContainerPolicies
	i := slices.IndexFunc(policies, func(p containerPolicy) bool { return p.ContainerName == container })
	if i < 0 {
		i = slices.IndexFunc(policies, func(p containerPolicy) bool { return p.ContainerName == "*" })
	}
	if i < 0 {
		return true
	}
	return policies[i].Mode != off && (policies[i].ControlledResources == nil || slices.Contains(policies[i].ControlledResources, v1.ResourceCPU))
}

func (r *reader) addVertical(object *unstructured.Unstructured) {
	var vpa verticalPodAutoscaler
	// One that does not have this form does not work either.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &vpa); err != nil || vpa.Spec.UpdatePolicy.UpdateMode == off {
		return
	}
	problem := "it controls cpu, which partitioned pods do not have: it evicts them again and again; set controlledResources to [memory]"
	if vpa.Spec.UpdatePolicy.UpdateMode == initial {
		problem = "it controls cpu, which partitioned pods do not have: what it recommends is not what they request; set controlledResources to [memory]"
	}
	target := workload{object.GetNamespace(), vpa.Spec.TargetRef.Kind, vpa.Spec.TargetRef.Name}
	if slices.ContainsFunc(r.workloads[target], vpa.controlsCPU) {
		r.autoscalers = append(r.autoscalers, Autoscaler{Kind: "VerticalPodAutoscaler", Namespace: object.GetNamespace(), Name: object.GetName(), Target: target.kind + "/" + target.name,
			Problem: problem})
	}
}
