// SPDX-License-Identifier: Apache-2.0

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
