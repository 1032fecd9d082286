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
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ReasonHugePagesNeedCPU: a container has huge pages and cpu, but no memory. Upstream would
// refuse it without its cpu (pkg/apis/core/validation, validateResourceRequirements:
// "HugePages require cpu or memory").
const ReasonHugePagesNeedCPU Reason = "hugepages_need_cpu"

var hugePagesNeedCPURule = Rule{
	Reason:    ReasonHugePagesNeedCPU,
	Condition: "a container has huge pages and `cpu`, but no memory: Kubernetes accepts no huge pages alone",
	Text:      "Kubernetes refuses a container that has huge pages and neither cpu nor memory; give it a memory request to have the pod partitioned: ",
	Soft:      Warning,
	Hard:      Forbidden,
}

// hugePagesNeedCPU names the first such container; the empty string means that there is none.
func (p Pod[L, N]) hugePagesNeedCPU(found findings) string {
	for i := range p.Containers {
		if c := &p.Containers[i]; found.amounts[i].requested && (hasHugePages(*c.Requests) || hasHugePages(*c.Limits)) && !hasMemory(*c.Requests) && !hasMemory(*c.Limits) {
			return fmt.Sprintf("container %q", c.Name)
		}
	}
	return ""
}

func hasMemory[L ~map[N]resource.Quantity, N ~string](list L) bool {
	_, has := list[memory]
	return has
}

func hasHugePages[L ~map[N]resource.Quantity, N ~string](list L) bool {
	if hasOnly(list, cpu, memory) {
		return false
	}
	for name := range list {
		if strings.HasPrefix(string(name), hugePagesPrefix) {
			return true
		}
	}
	return false
}
