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

package lint

import (
	"fmt"
	"slices"
	"strconv"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
)

// scaled returns the partitioned workloads that a scaler refers to.
func (l *linter) scaled(o *object, kind, name string) []*workload {
	return l.workloads[Object{Kind: kind, Namespace: o.Namespace, Name: name}]
}

// horizontal lints a HorizontalPodAutoscaler. Both versions are read, whichever it has.
func (l *linter) horizontal(o *object) error {
	if o.Kind != "HorizontalPodAutoscaler" {
		return nil
	}
	var spec struct {
		Spec struct {
			autoscalingv1.HorizontalPodAutoscalerSpec `json:",inline"`
			Metrics                                   []autoscalingv2.MetricSpec `json:"metrics"`
		} `json:"spec"`
	}
	if err := o.read(&spec); err != nil {
		return err
	}
	workloads := l.scaled(o, spec.Spec.ScaleTargetRef.Kind, spec.Spec.ScaleTargetRef.Name)
	if len(workloads) == 0 {
		return nil
	}
	found := func(what string, path ...string) {
		l.find(o, hpaCPUUtilization, Error, fmt.Sprintf("%s is relative to a request of cpu, which the partitioned pods of %s do not have, so it never scales by it", what, workloads[0].Object), nil, path...)
	}
	for i, metric := range spec.Spec.Metrics {
		var name v1.ResourceName
		var target autoscalingv2.MetricTarget
		field := ""
		switch {
		case metric.Resource != nil:
			name, target, field = metric.Resource.Name, metric.Resource.Target, "resource"
		case metric.ContainerResource != nil:
			name, target, field = metric.ContainerResource.Name, metric.ContainerResource.Target, "containerResource"
		}
		if name == v1.ResourceCPU && (target.Type == autoscalingv2.UtilizationMetricType || target.AverageUtilization != nil) {
			found("a target of type Utilization", "spec", "metrics", strconv.Itoa(i), field, "target")
		}
	}
	switch {
	case spec.Spec.TargetCPUUtilizationPercentage != nil:
		found("targetCPUUtilizationPercentage", "spec", "targetCPUUtilizationPercentage")
	case len(spec.Spec.Metrics) == 0:
		// pkg/apis/autoscaling/v2, SetDefaults_HorizontalPodAutoscaler
		found("the utilisation of cpu, by which it scales without metrics,", "spec")
	}
	return nil
}

// vertical lints a VerticalPodAutoscaler.
func (l *linter) vertical(o *object) error {
	if o.Kind != "VerticalPodAutoscaler" {
		return nil
	}
	var vpa struct {
		Spec struct {
			TargetRef struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"targetRef"`
			UpdatePolicy struct {
				UpdateMode string `json:"updateMode"`
			} `json:"updatePolicy"`
			ResourcePolicy struct {
				ContainerPolicies []containerPolicy `json:"containerPolicies"`
			} `json:"resourcePolicy"`
		} `json:"spec"`
	}
	if err := o.read(&vpa); err != nil {
		return err
	}
	level, so := Error, "and would evict them again and again"
	switch vpa.Spec.UpdatePolicy.UpdateMode {
	case "Off":
		return nil // It only recommends.
	case "Initial":
		level, so = Warning, "so what it writes at their creation changes nothing"
	}
	for _, w := range l.scaled(o, vpa.Spec.TargetRef.Kind, vpa.Spec.TargetRef.Name) {
		for _, container := range w.containers {
			if policyOf(vpa.Spec.ResourcePolicy.ContainerPolicies, container).controlsCPU() {
				l.find(o, vpaCPU, level, fmt.Sprintf("it controls the cpu of container %q in the partitioned pods of %s, which have none, %s", container, w.Object, so), nil, "spec", "resourcePolicy", "containerPolicies")
				return nil
			}
		}
	}
	return nil
}

// containerPolicy is the part of the API of that name that matters
// (kubernetes/autoscaler, vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1/types.go).
type containerPolicy struct {
	ContainerName       string            `json:"containerName"`
	Mode                string            `json:"mode"`
	ControlledResources []v1.ResourceName `json:"controlledResources"`
}

// policyOf returns the policy of a container: its own, or that of all others.
func policyOf(policies []containerPolicy, container string) containerPolicy {
	for _, name := range []string{container, "*"} {
		if i := slices.IndexFunc(policies, func(p containerPolicy) bool { return p.ContainerName == name }); i >= 0 {
			return policies[i]
		}
	}
	return containerPolicy{}
}

// controlsCPU has the API's defaults: all containers, cpu and memory.
func (p containerPolicy) controlsCPU() bool {
	return p.Mode != "Off" && (p.ControlledResources == nil || slices.Contains(p.ControlledResources, v1.ResourceCPU))
}
