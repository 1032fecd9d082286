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
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
)

// MinShares is the weight of a container that asks for no CPU: the smallest that the kernel
// accepts (Linux, kernel/sched/sched.h, MIN_SHARES).
const MinShares = 2

// ContainerResources is the value of a container's resources annotation: what the spec no
// longer says, since it has no cpu any more. There is no key for a cpuset: a pod never
// chooses its own CPUs.
type ContainerResources struct {
	// CPUShares is the CPU request in millicores, at least [MinShares]. (It is not in the
	// kernel's 1024ths of a CPU: the source document has it so.)
	CPUShares int64
	// CPULimit is the CPU limit in millicores. Zero means that there is none.
	CPULimit int64
}

// String returns the canonical value of the annotation.
func (r ContainerResources) String() string {
	return string(r.appendTo(make([]byte, 0, 48)))
}

func (r ContainerResources) appendTo(b []byte) []byte {
	b = append(b, `{"cpushares":`...)
	b = strconv.AppendInt(b, r.CPUShares, 10)
	if r.CPULimit > 0 {
		b = append(b, `,"cpulimit":`...)
		b = strconv.AppendInt(b, r.CPULimit, 10)
	}
	return append(b, '}')
}

// resourcesOf returns a container's resources annotation. If the container's name is a
// DNS-1123 label, as valid names are, the key fits the buffer and is not allocated.
func resourcesOf(annotations map[string]string, container string) (value string, ok bool) {
	var buffer [len(ResourcesPrefix) + validation.DNS1123LabelMaxLength]byte
	value, ok = annotations[string(append(append(buffer[:0], ResourcesPrefix...), container...))]
	return value, ok
}

// ParseContainerResources reads a container's resources annotation from a place where the spec
// is not known, such as a runtime: there the shares cannot follow from the spec. ok is false for
// a value that [Mutate] could not have written.
func ParseContainerResources(value string) (r ContainerResources, ok bool) {
	var keys struct {
		CPUShares int64 `json:"cpushares"`
		CPULimit  int64 `json:"cpulimit"`
	}
	if len(value) > maxResourcesValue {
		return r, false
	}
	if strict, err := kjson.UnmarshalStrict([]byte(value), &keys); err != nil || len(strict) > 0 {
		return r, false
	}
	r = ContainerResources(keys)
	return r, r.CPUShares >= MinShares && r.CPUShares <= maxMillicores && r.CPULimit >= 0 && r.CPULimit <= maxMillicores
}

// maxResourcesValue is the largest value that is worth parsing, in bytes. A canonical value
// has at most 63.
const maxResourcesValue = 256

// cpuLimitOf returns the CPU limit of a resources annotation in millicores; zero if there is
// none. Where the spec is known, nothing else is ever read from such an annotation, since a user may have written it:
// the shares follow from the spec, and all other keys are dropped. The limit counts only if
// this package could have written it: an integer under exactly that key, which appears once.
func cpuLimitOf(value string) int64 {
	// The form that this package writes needs no JSON decoder.
	if rest, ok := strings.CutPrefix(value, `{"cpushares":`); ok {
		shares, limit, _ := strings.Cut(strings.TrimSuffix(rest, "}"), `,"cpulimit":`)
		canonical := ContainerResources{CPUShares: number(shares), CPULimit: number(limit)}
		var buffer [64]byte
		if string(canonical.appendTo(buffer[:0])) == value && canonical.CPULimit <= maxMillicores {
			return canonical.CPULimit
		}
	}
	if len(value) > maxResourcesValue {
		return 0
	}
	var keys struct {
		CPULimit int64 `json:"cpulimit"`
	}
	// Unlike encoding/json, this decoder is case-sensitive.
	if strict, err := kjson.UnmarshalStrict([]byte(value), &keys, kjson.DisallowDuplicateFields); err != nil || len(strict) > 0 {
		return 0
	}
	if keys.CPULimit < 0 || keys.CPULimit > maxMillicores {
		return 0
	}
	return keys.CPULimit
}

// number parses an integer. It returns zero for any other text: for the empty one, which is that
// of most limits, without the allocation of an error.
func number(text string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
