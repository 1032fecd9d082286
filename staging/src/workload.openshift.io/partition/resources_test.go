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

func TestOnlyALimitThatMutateCouldHaveWrittenCounts(t *testing.T) {
	for value, want := range map[string]int64{
		`{"cpushares":400,"cpulimit":500}`: 500, `{"cpushares": 400, "cpulimit": 500}`: 500, `{"cpulimit":7,"cpuset":"0"}`: 7, `{"cpushares":400}`: 0,
		`{"cpulimit":"7"}`: 0, `{"CPULIMIT":7}`: 0, `{"cpuLimit":7}`: 0, `{"cpulimit":7,"cpulimit":7}`: 0, `{"cpulimit":7.5}`: 0, `{"cpulimit":-7}`: 0,
		`{"cpushares":2,"cpulimit":+7}`: 0, `{"cpushares":2,"cpulimit":07}`: 0, `{"cpushares":,"cpulimit":7}`: 0, `{"cpulimit":null}`: 0, `{"cpulimit":7}}`: 0,
		`{"cpushares":2,"cpulimit":1000000000}`: 1000000000, `{"cpushares":2,"cpulimit":1000000001}`: 0, `{"cpushares":2,"cpulimit":9223372036854775807}`: 0, `[]`: 0, ``: 0,
	} {
		if got := cpuLimitOf(value); got != want {
			t.Errorf("%s has the limit %d, want %d", value, got, want)
		}
	}
}

func TestResourcesAreReadAsMutateWritesThem(t *testing.T) {
	for value, want := range map[string]ContainerResources{
		`{"cpushares":400,"cpulimit":500}`: {400, 500}, `{"cpushares": 2}`: {2, 0},
	} {
		if got, ok := ParseContainerResources(value); !ok || got != want {
			t.Errorf("%s reads as %v (%t), want %v", value, got, ok, want)
		}
	}
	for _, value := range []string{
		``, `[]`, `{}`, `{"cpushares":1}`, `{"cpushares":-2}`, `{"cpushares":"400"}`, `{"CPUSHARES":400}`, `{"cpushares":400,"cpuset":"0"}`,
		`{"cpushares":400,"cpushares":400}`, `{"cpushares":400,"cpulimit":-1}`, `{"cpushares":1000000001}`, `{"cpushares":400,"cpulimit":1000000001}`, `{"cpushares":400}}`,
	} {
		if got, ok := ParseContainerResources(value); ok {
			t.Errorf("%s reads as %v, want nothing", value, got)
		}
	}
}
