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

func TestGuaranteedPodsAreNotPartitioned(t *testing.T) {
	equal := container("a", "cpu=1 memory=1Mi", "cpu=1 memory=1Mi")
	expectRule(t, ReasonGuaranteed, map[string]ruleTest{
		"requests equal to limits":           {pod: pod(nil, equal), holds: true},
		"limits alone":                       {pod: pod(nil, container("a", "", "cpu=1 memory=1Mi")), holds: false},
		"limits alone, after API defaulting": {pod: pod(nil, container("a", "cpu=1 memory=1Mi", "cpu=1 memory=1Mi"), equal), holds: true},
		"apart by less than a millicore":     {pod: pod(nil, container("a", "cpu=999500u memory=1Mi", "cpu=1 memory=1Mi")), holds: true},
		"apart by a millicore":               {pod: pod(nil, container("a", "cpu=999m memory=1Mi", "cpu=1 memory=1Mi"))},
		"a sidecar that is Burstable":        {pod: pod(nil, equal, container("b", "memory=1Mi", ""))},
		"no limit of memory":                 {pod: pod(nil, container("a", "cpu=1 memory=1Mi", "cpu=1"))},
		"one that was partitioned before":    {pod: pod(map[string]string{ResourcesPrefix + "a": `{"cpushares":400,"cpulimit":500}`}, container("a", "cores=400 memory=1Mi", "cores=400 memory=1Mi"))},
	})
}
