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

func TestTargetIsReadStrictly(t *testing.T) {
	for value, want := range map[string]Effect{
		``: Preferred, ` `: Preferred, `{}`: Preferred, `{"effect": ""}`: Preferred, soft: Preferred,
		` { "effect" : "RequiredDuringScheduling" } `: Required,
	} {
		got, errs := ParseTarget(map[string]string{target: value, "x": "y"})
		if len(errs) > 0 || got != (Target{"management", want}) {
			t.Errorf("%q gave %v, %v", value, got, errs)
		}
	}
	for value, wantError := range map[string]string{
		`null`: "must be a JSON object", `[]`: "must be a JSON object", `"x"`: "must be a JSON object", `{`: "must be a JSON object",
		`{"effect": "x"}`: "unknown effect", `{"effect": null}`: "unknown effect", `{"effect": {}}`: "unknown effect",
		`{"effect": ` + strings.Repeat("9", 1000) + `}`: "cannot unmarshal", `{"effect": "` + strings.Repeat("x", 1000) + `"}`: "unknown effect",
		strings.Repeat(" ", 1025): "is longer than 1024 bytes; must be a JSON object", `{"effect": [` + strings.Repeat("[],", 400) + `[]]}`: "is longer than 1024 bytes",
		`{"Effect": ""}`: `unknown key "Effect"`, `{"effect": "", "effect": ""}`: "more than once", soft + "x": "after top-level value", soft + soft: "after top-level value",
	} {
		_, errs := ParseTarget(map[string]string{target: value})
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), wantError) || len(errs[0].Error()) > 600 || errs[0].Field != "metadata.annotations["+target+"]" {
			t.Errorf("%q gave %v, want %q with the field", value, errs, wantError)
		}
	}
	for _, key := range []string{TargetPrefix, TargetPrefix + "A", TargetPrefix + "a/b", TargetPrefix + strings.Repeat("a", 64)} {
		if _, errs := ParseTarget(map[string]string{key: ""}); len(errs) != 1 {
			t.Errorf("%s gave %v, want an error", key, errs)
		}
	}
	if got, errs := ParseTarget(map[string]string{"Target.workload.openshift.io/management": "", AllowedAnnotation: ""}); got.Type != "" || errs != nil {
		t.Errorf("other annotations gave %v, %v", got, errs)
	}
	if _, errs := ParseTarget(map[string]string{target: strings.Repeat("x", 1<<18)}); len(errs[0].Error()) > 1000 {
		t.Errorf("a large value makes an error of %d bytes", len(errs[0].Error()))
	}
}
