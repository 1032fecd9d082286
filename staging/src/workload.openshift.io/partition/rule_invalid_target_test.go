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

// The test of ParseTarget says what is invalid.
func TestInvalidTargetsAreRefused(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"two targets":       {target: soft, TargetPrefix + "other": ""},
		"two, a hard one":   {target: hard, TargetPrefix + "other": ""},
		"an invalid type":   {TargetPrefix + "Management": soft},
		"an unknown effect": {target: `{"effect":"Wished"}`},
	} {
		for _, static := range []bool{false, true} {
			p := pod(annotations, container("a", "cpu=100m memory=1Mi", "")).DeepCopy()
			before := p.DeepCopy()
			d := Mutate(V1(p), Policy{Gate: AnyType, NeverRefuse: static})
			if d.Reason != ReasonInvalidTarget || len(d.Errors) == 0 || d.Target.Type != "" || (d.Outcome == Refused) == static {
				t.Errorf("%s, static: %v: got %+v", name, static, d)
			}
			if !static {
				expectEqual(t, p, before)
			} else if len(p.Annotations) != 1 || p.Annotations[WarningAnnotation] != d.Message() {
				t.Errorf("%s: a static pod has %v", name, p.Annotations)
			}
		}
	}
}
