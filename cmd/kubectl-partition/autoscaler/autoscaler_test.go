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

package autoscaler

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
)

func TestOnlySharesOfTheRequestedCPUNeedARequest(t *testing.T) {
	metric := func(name v1.ResourceName, kind autoscalingv2.MetricTargetType) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: autoscalingv2.MetricTarget{Type: kind}}}
	}
	for name, test := range map[string]struct {
		metric autoscalingv2.MetricSpec
		want   bool
	}{
		"a share of the requested cpu":    {metric("cpu", autoscalingv2.UtilizationMetricType), true},
		"the same of one container":       {autoscalingv2.MetricSpec{ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType}}}, true},
		"an amount of cpu":                {metric("cpu", autoscalingv2.AverageValueMetricType), false},
		"a share of the requested memory": {metric("memory", autoscalingv2.UtilizationMetricType), false},
		"a metric of the application":     {autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType}, false},
	} {
		if _, got := NeedsCPURequest(test.metric); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
