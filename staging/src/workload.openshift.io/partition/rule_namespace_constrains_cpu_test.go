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
	"strings"
	"testing"
)

func TestConstrainedPodsAreNotPartitioned(t *testing.T) {
	policy := func(says string) Policy { return Policy{Constraint: func() string { return says }} }
	ordinary := pod(nil, container("a", "cpu=400m memory=1Mi", ""))
	expectRule(t, ReasonNamespaceConstrainsCPU, map[string]ruleTest{
		"an object constrains cpu": {pod: ordinary, policy: policy("LimitRange \"least\": minimum cpu"), holds: true},
		"no object does":           {pod: ordinary, policy: policy("")},
		"nothing can be asked":     {pod: ordinary},
	})
	d := Mutate(V1(pod(map[string]string{target: soft}, ordinary.Spec.Containers...)), Policy{Gate: AnyType, Constraint: func() string { return `LimitRange "least": minimum cpu` }})
	if !strings.HasSuffix(d.Message(), `constrains the cpu of its pods: LimitRange "least": minimum cpu`) {
		t.Errorf("the message is %q", d.Message())
	}
	// It stands in an annotation of the pod and in the audit log.
	d = Mutate(V1(pod(map[string]string{target: soft}, ordinary.Spec.Containers...)), Policy{Gate: AnyType, Constraint: func() string { return strings.Repeat("minimum cpu ", 10_000) }})
	if len(d.Detail) > 1100 || !strings.HasSuffix(d.Message(), "…") {
		t.Errorf("the message of a namespace that says much has %d bytes", len(d.Message()))
	}
	// The answer costs a look into caches, so the question is not asked about a pod that is not partitioned
	// anyway.
	Mutate(V1(pod(map[string]string{target: soft}, container("a", "cpu=100m", ""))), Policy{Gate: AnyType, Constraint: func() string {
		t.Error("asked of a pod that another rule keeps from being partitioned")
		return ""
	}})
}
