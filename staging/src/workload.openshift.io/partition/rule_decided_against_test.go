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
)

func TestPodsOfTypesDecidedAgainstAreNotPartitioned(t *testing.T) {
	against := Policy{Gate: Always(ReasonDecidedAgainst)}
	expectRule(t, ReasonDecidedAgainst, map[string]ruleTest{
		"an installer decided so":       {pod: pod(nil, container("a", "cpu=100m memory=1Mi", "")), policy: against, holds: true},
		"of a Guaranteed pod as well":   {pod: pod(nil, container("a", "cpu=1 memory=1Mi", "cpu=1 memory=1Mi")), policy: against, holds: true},
		"of more CPU than any host has": {pod: pod(nil, container("a", "cpu=9E memory=1Mi", "")), policy: against, holds: true},
		"no decision":                   {pod: pod(nil, container("a", "cpu=100m memory=1Mi", ""))},
	})
	for name, warned := range map[string]map[string]string{
		"there is no warning":                   {},
		"an earlier run's warning is withdrawn": {WarningAnnotation: "the pod has the QoS class Guaranteed"},
	} {
		p := pod(map[string]string{"mine": "1", target: soft, ResourcesPrefix + "a": `{"cpushares":400}`}, container("a", "cores=400 memory=1Mi", "cores=400"))
		for key, value := range warned {
			p.Annotations[key] = value
		}
		d := Mutate(V1(p), against)
		if d.Outcome != Skipped || d.Message() != "" {
			t.Errorf("%s: %s because of %s, told %q", name, d.Outcome, d.Reason, d.Message())
		}
		expectEqual(t, p, pod(map[string]string{"mine": "1"}, container("a", "cpu=400m memory=1Mi", "")))
		if !Settled(V1(p)) {
			t.Errorf("%s: the pod is not settled: %v", name, p)
		}
	}
}
