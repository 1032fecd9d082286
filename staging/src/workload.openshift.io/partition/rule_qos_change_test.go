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

func TestQoSClassDoesNotChange(t *testing.T) {
	expectRule(t, ReasonQoSChange, map[string]ruleTest{
		"cpu is the only request":                    {pod: pod(nil, container("a", "cpu=100m", "")), holds: true},
		"cpu is the only request of two containers":  {pod: pod(nil, container("a", "cpu=100m", ""), container("b", "", "")), holds: true},
		"cpu is the only request besides huge pages": {pod: pod(nil, container("a", "cpu=100m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")), holds: true},
		"a container has a memory request":           {pod: pod(nil, container("a", "cpu=100m", ""), container("b", "memory=1Mi", ""))},
		"a BestEffort pod":                           {pod: pod(nil, container("a", "", ""))},
		"a request of zero, which counts nowhere":    {pod: pod(nil, container("a", "cpu=0", ""))},
	})
}
