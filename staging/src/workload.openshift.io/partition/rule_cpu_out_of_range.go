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
	"slices"
)

// ReasonCPUOutOfRange: a quantity of CPU is negative, or beyond [MaxCPUs], or a request above
// its limit. Upstream refuses a pod with the first or the last, and finds no node for one
// with the second (design, section 5).
const ReasonCPUOutOfRange Reason = "cpu_out_of_range"

var cpuOutOfRangeRule = Rule{
	Reason:    ReasonCPUOutOfRange,
	Condition: "a container's CPU is negative, above its limit, or more than 1,000,000 CPUs",
	Text:      fmt.Sprintf("the CPU of a container is negative, above its limit, or more than %d CPUs: ", MaxCPUs),
	Soft:      Warning,
	SoftNote:  "spec untouched",
	Hard:      Forbidden,
}

// MaxCPUs is more than any host has. A quantity of CPU beyond it is a mistake, and some
// such quantities do not fit 64 bits in millicores.
const MaxCPUs = 1_000_000

const maxMillicores = MaxCPUs * 1000

// cpuOutOfRange names the first container with such a quantity, and what it has; the empty
// string means that there is none.
func (p Pod[L, N]) cpuOutOfRange(found findings) string {
	if i := slices.IndexFunc(found.amounts, amount.outOfRange); i >= 0 {
		return p.Containers[i].describe()
	}
	return ""
}

// outOfRange reports whether no container may ask for the amount.
func (a amount) outOfRange() bool {
	return a.request < 0 || a.request > maxMillicores || a.limit < 0 || a.limit > maxMillicores || (a.limit != 0 && a.request > a.limit)
}
