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

func TestPodsOfInactiveTypesAreNotPartitioned(t *testing.T) {
	only := func(active string) Policy {
		return Policy{Gate: func(workloadType string) Reason {
			if workloadType != active {
				return ReasonTypeInactive
			}
			return NoReason
		}}
	}
	expectRule(t, ReasonTypeInactive, map[string]ruleTest{
		"another type is active":                  {pod: pod(nil, container("a", "cpu=100m memory=1Mi", "")), policy: only("infra"), holds: true},
		"a Guaranteed pod, which has two reasons": {pod: pod(nil, container("a", "cpu=1 memory=1Mi", "cpu=1 memory=1Mi")), policy: only("infra"), holds: true},
		"the pod's type is active":                {pod: pod(nil, container("a", "cpu=100m memory=1Mi", "")), policy: only("management")},
	})
}
