// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/autoscaler"
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
		if _, partitioned := r.workloads[target]; partitioned && slices.ContainsFunc(hpa.Spec.Metrics, needsCPURequest) {
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

func needsCPURequest(metric autoscalingv2.MetricSpec) bool {
	_, needs := autoscaler.NeedsCPURequest(metric)
	return needs
}

func (r *reader) addVertical(object *unstructured.Unstructured) {
	var vpa autoscaler.Vertical
	// One that does not have this form does not work either.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &vpa); err != nil {
		return
	}
	target := workload{object.GetNamespace(), vpa.Spec.TargetRef.Kind, vpa.Spec.TargetRef.Name}
	effect := autoscaler.Nothing
	for _, container := range r.workloads[target] {
		effect = max(effect, vpa.Effect(container))
	}
	if effect == autoscaler.Nothing {
		return
	}
	problem := "it evicts them again and again"
	if effect == autoscaler.Ignored {
		problem = "what it writes at their creation changes nothing"
	}
	r.autoscalers = append(r.autoscalers, Autoscaler{Kind: "VerticalPodAutoscaler", Namespace: object.GetNamespace(), Name: object.GetName(), Target: target.kind + "/" + target.name,
		Problem: "it controls cpu, which partitioned pods do not have: " + problem + "; set controlledResources to [memory]"})
}
