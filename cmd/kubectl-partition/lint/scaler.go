// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"fmt"
	"strconv"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/autoscaler"
)

// scaled returns the partitioned workloads that a scaler refers to.
func (l *linter) scaled(o *object, kind, name string) []*workload {
	return l.workloads[Object{Kind: kind, Namespace: o.Namespace, Name: name}]
}

// horizontalPodAutoscaler has what both versions have.
type horizontalPodAutoscaler struct {
	Spec struct {
		autoscalingv1.HorizontalPodAutoscalerSpec `json:",inline"`
		Metrics                                   []autoscalingv2.MetricSpec `json:"metrics"`
	} `json:"spec"`
}

// horizontal lints a HorizontalPodAutoscaler of either version.
func (l *linter) horizontal(o *object, hpa *horizontalPodAutoscaler) {
	workloads := l.scaled(o, hpa.Spec.ScaleTargetRef.Kind, hpa.Spec.ScaleTargetRef.Name)
	if len(workloads) == 0 {
		return
	}
	found := func(what string, path ...string) {
		l.find(o, hpaCPUUtilization, Error, fmt.Sprintf("%s is relative to a request of cpu, which the partitioned pods of %s do not have, so it never scales by it", what, workloads[0].Object), nil, path...)
	}
	for i, metric := range hpa.Spec.Metrics {
		if field, needs := autoscaler.NeedsCPURequest(metric); needs {
			found("a target of type Utilization", "spec", "metrics", strconv.Itoa(i), field, "target")
		}
	}
	switch {
	case hpa.Spec.TargetCPUUtilizationPercentage != nil:
		found("targetCPUUtilizationPercentage", "spec", "targetCPUUtilizationPercentage")
	case len(hpa.Spec.Metrics) == 0:
		// pkg/apis/autoscaling/v2, SetDefaults_HorizontalPodAutoscaler
		found("the utilisation of cpu, by which it scales without metrics,", "spec")
	}
}

// kedaScaledObject is what matters of a ScaledObject of KEDA.
type kedaScaledObject struct {
	Spec struct {
		ScaleTargetRef struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		Triggers []struct {
			Type       string `json:"type"`
			MetricType string `json:"metricType"`
			Metadata   struct {
				// Type is how older versions spell metricType.
				Type string `json:"type"`
			} `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// scaledObject lints a ScaledObject of KEDA, which makes a HorizontalPodAutoscaler of its triggers
// (kedacore/keda, apis/keda/v1alpha1/scaledobject_types.go and pkg/scalers/cpu_memory_scaler.go).
func (l *linter) scaledObject(o *object, scaled *kedaScaledObject) {
	target := scaled.Spec.ScaleTargetRef
	workloads := l.scaled(o, cmp.Or(target.Kind, "Deployment"), target.Name)
	if len(workloads) == 0 {
		return
	}
	for i, trigger := range scaled.Spec.Triggers {
		of := autoscalingv2.MetricTargetType(cmp.Or(trigger.MetricType, trigger.Metadata.Type))
		if trigger.Type == string(v1.ResourceCPU) && of == autoscalingv2.UtilizationMetricType {
			l.find(o, kedaCPUUtilization, Error, fmt.Sprintf("its trigger of type Utilization is relative to a request of cpu, which the partitioned pods of %s do not have, so it never scales by it", workloads[0].Object), nil, "spec", "triggers", strconv.Itoa(i), "metricType")
		}
	}
}

// vertical lints a VerticalPodAutoscaler.
func (l *linter) vertical(o *object, vpa *autoscaler.Vertical) {
	for _, w := range l.scaled(o, vpa.Spec.TargetRef.Kind, vpa.Spec.TargetRef.Name) {
		for _, container := range w.containers {
			var level Level
			var so string
			switch vpa.Effect(container) {
			case autoscaler.Nothing:
				continue
			case autoscaler.Ignored:
				level, so = Warning, "so what it writes at their creation changes nothing"
			case autoscaler.Evicts:
				level, so = Error, "and would evict them again and again"
			}
			l.find(o, vpaCPU, level, fmt.Sprintf("it controls the cpu of container %q in the partitioned pods of %s, which have none, %s", container, w.Object, so), nil, "spec", "resourcePolicy", "containerPolicies")
			return
		}
	}
}
