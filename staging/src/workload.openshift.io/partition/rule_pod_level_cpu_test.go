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

package partition

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestPodsWithPodLevelCPUAreNotPartitioned(t *testing.T) {
	with := func(requests, limits string, containers ...v1.Container) *v1.Pod {
		p := pod(nil, containers...)
		p.Spec.Resources = &v1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
		return p
	}
	expectRule(t, ReasonPodLevelCPU, map[string]ruleTest{
		"a request": {pod: with("cpu=1", "", container("a", "memory=1Mi", "")), holds: true},
		"a limit":   {pod: with("", "cpu=1", container("a", "memory=1Mi", "")), holds: true},
		"a request of zero, which the containers' gives by default": {pod: with("cpu=0 memory=1Mi", "", container("a", "cpu=0 memory=1Mi", ""))},
		"memory, and a container's cpu":                             {pod: with("memory=1Mi", "memory=1Mi", container("a", "cpu=1 memory=1Mi", "cpu=1")), holds: true},
		"memory alone":                                              {pod: with("memory=1Mi", "memory=1Mi", container("a", "memory=1Mi", ""))},
		"none in it, and containers' cpu":                           {pod: with("", "", container("a", "cpu=1 memory=1Mi", ""))},
	})
}
