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
	"strings"
	"testing"
)

func TestAnnotationsStayWithinUpstreamsLimit(t *testing.T) {
	with := func(ours int) ruleTest {
		own := maxAnnotations - len("mine") - ours
		return ruleTest{pod: pod(map[string]string{"mine": strings.Repeat("x", own)}, container("a", "cpu=400m memory=1Mi", ""))}
	}
	for effect, value := range map[string]string{"soft": soft, "hard": hard} {
		fits := len(target) + len(value) + len(ResourcesPrefix+"a") + len(`{"cpushares":400}`)
		for name, test := range map[string]struct {
			ruleTest
			want Outcome
		}{
			"as large as upstream accepts": {with(fits), Partitioned},
			"a byte larger":                {with(fits - 1), map[string]Outcome{"soft": Skipped, "hard": Refused}[effect]},
		} {
			p := test.pod
			p.Annotations[target] = value
			if d := Mutate(V1(p), Policy{Gate: AnyType}); d.Outcome != test.want || (d.Reason == ReasonAnnotationsTooLarge) != (test.want != Partitioned) {
				t.Errorf("%s, %s: decided %q because of %q", effect, name, d.Outcome, d.Reason)
			}
			if _, warned := p.Annotations[WarningAnnotation]; warned {
				t.Errorf("%s, %s: a warning was written for which there is no room", effect, name)
			}
		}
	}
}
