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

func TestCPUThatNoHostHasIsNotPartitioned(t *testing.T) {
	expectRule(t, ReasonCPUOutOfRange, map[string]ruleTest{
		"more than any host has":                  {pod: pod(nil, container("a", "cpu=9E memory=1Mi", "")), holds: true, detail: `container "a" has requests.cpu 9E`},
		"more than 64 bits hold":                  {pod: pod(nil, container("a", "memory=1Mi", "cpu=9223372036854776")), holds: true, detail: `container "a" has limits.cpu 9223372036854776`},
		"a millicore too many":                    {pod: pod(nil, container("a", "cpu=1000000001m memory=1Mi", "")), holds: true, detail: `container "a" has requests.cpu 1000000001m`},
		"a negative request":                      {pod: pod(nil, container("a", "cpu=-1 memory=1Mi", "")), holds: true, detail: `container "a" has requests.cpu -1`},
		"a negative limit":                        {pod: pod(nil, container("a", "memory=1Mi", "cpu=-1")), holds: true, detail: `container "a" has limits.cpu -1`},
		"a request above its limit":               {pod: pod(nil, container("a", "cpu=2 memory=1Mi", "cpu=1")), holds: true, detail: `container "a" has requests.cpu 2, limits.cpu 1`},
		"the second container is out of range":    {pod: pod(nil, container("a", "cpu=1 memory=1Mi", ""), container("b", "cpu=9E", "")), holds: true, detail: `container "b" has requests.cpu 9E`},
		"a Guaranteed pod, which has two reasons": {pod: pod(nil, container("a", "cpu=9E memory=1Mi", "cpu=9E memory=1Mi")), holds: true, detail: `container "a" has requests.cpu 9E, limits.cpu 9E`},
		"the largest quantity":                    {pod: pod(nil, container("a", "cpu=1M memory=1Mi", ""))},
		"a request as large as its limit":         {pod: pod(nil, container("a", "cpu=1 memory=1Mi", "cpu=1"))},
		"none":                                    {pod: pod(nil, container("a", "memory=1Mi", ""))},
	})
}
