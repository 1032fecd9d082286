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
	"strconv"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/autoscaler"
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
		if field, needs := autoscaler.NeedsCPURequest(metric); needs {
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
	var vpa autoscaler.Vertical
	if err := o.read(&vpa); err != nil {
		return err
	}
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
			return nil
		}
	}
	return nil
}
