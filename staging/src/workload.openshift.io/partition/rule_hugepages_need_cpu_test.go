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

func TestHugePagesKeepTheCPUThatTheyNeed(t *testing.T) {
	burstable := container("b", "memory=1Mi", "")
	expectRule(t, ReasonHugePagesNeedCPU, map[string]ruleTest{
		"huge pages and cpu":            {pod: pod(nil, container("a", "cpu=100m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"), burstable), holds: true, detail: `container "a"`},
		"huge pages as a limit alone":   {pod: pod(nil, container("a", "cpu=100m", "hugepages-1Gi=1Gi"), burstable), holds: true, detail: `container "a"`},
		"huge pages with memory":        {pod: pod(nil, container("a", "cpu=100m memory=1Mi hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"))},
		"a memory limit is memory, too": {pod: pod(nil, container("a", "cpu=100m hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi memory=1Mi"))},
		"in different containers":       {pod: pod(nil, container("a", "hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"), container("b", "cpu=100m memory=1Mi", ""))},
	})
}
