// SPDX-License-Identifier: Apache-2.0

// Package autoscaler says which autoscalers cannot work with partitioned pods: those that go by a
// request of cpu, which these pods do not have.
package autoscaler

import (
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
)

// NeedsCPURequest reports whether the target of a HorizontalPodAutoscaler's metric is relative to
// a request of cpu, and which field of the metric has that target.
func NeedsCPURequest(metric autoscalingv2.MetricSpec) (field string, needs bool) {
	var name v1.ResourceName
	var target autoscalingv2.MetricTarget
	switch {
	case metric.Resource != nil:
		name, target, field = metric.Resource.Name, metric.Resource.Target, "resource"
	case metric.ContainerResource != nil:
		name, target, field = metric.ContainerResource.Name, metric.ContainerResource.Target, "containerResource"
	}
	return field, name == v1.ResourceCPU && (target.Type == autoscalingv2.UtilizationMetricType || target.AverageUtilization != nil)
}

// Vertical is what matters of a VerticalPodAutoscaler (kubernetes/autoscaler,
// vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1/types.go).
type Vertical struct {
	Spec struct {
		TargetRef    autoscalingv1.CrossVersionObjectReference `json:"targetRef"`
		UpdatePolicy struct {
			UpdateMode string `json:"updateMode"`
		} `json:"updatePolicy"`
		ResourcePolicy struct {
			ContainerPolicies []ContainerPolicy `json:"containerPolicies"`
		} `json:"resourcePolicy"`
	} `json:"spec"`
}

// ContainerPolicy is what matters of the policy for a container. The name "*" stands for all
// containers without a policy of their own.
type ContainerPolicy struct {
	ContainerName       string            `json:"containerName"`
	Mode                string            `json:"mode"`
	ControlledResources []v1.ResourceName `json:"controlledResources"`
}

// Effect is what a VerticalPodAutoscaler does that controls the cpu of a container.
type Effect int

const (
	// Nothing: it does not control cpu, or it only recommends.
	Nothing Effect = iota
	// Ignored: it writes cpu into new pods, where it changes nothing.
	Ignored
	// Evicts: it evicts pods again and again, since they never have what it recommends.
	Evicts
)

// Effect returns what it does to pods with the container. The defaults are the API's: all
// containers, cpu and memory.
func (v *Vertical) Effect(container string) Effect {
	const off = "Off" // of the whole autoscaler, or of a container
	if v.Spec.UpdatePolicy.UpdateMode == off {
		return Nothing
	}
	for _, name := range []string{container, "*"} {
		policies := v.Spec.ResourcePolicy.ContainerPolicies
		i := slices.IndexFunc(policies, func(p ContainerPolicy) bool { return p.ContainerName == name })
		if i < 0 {
			continue
		}
		if p := policies[i]; p.Mode == off || p.ControlledResources != nil && !slices.Contains(p.ControlledResources, v1.ResourceCPU) {
			return Nothing
		}
		break
	}
	if v.Spec.UpdatePolicy.UpdateMode == "Initial" {
		return Ignored
	}
	return Evicts
}
