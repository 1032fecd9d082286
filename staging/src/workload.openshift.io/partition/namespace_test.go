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

import "testing"

func TestNamespaceMustListTheType(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        Reason
	}{
		"no annotations":                 {nil, ReasonNamespaceNotAnnotated},
		"annotations of others":          {map[string]string{EnabledAnnotation: "management"}, ReasonNamespaceNotAnnotated},
		"an empty list allows no type":   {map[string]string{AllowedAnnotation: ""}, ReasonNamespaceOtherTypes},
		"a list of other types":          {map[string]string{AllowedAnnotation: "infra, managements"}, ReasonNamespaceOtherTypes},
		"a list that has the type in it": {map[string]string{AllowedAnnotation: "infra , management"}, NoReason},
	} {
		if got := NamespaceReason(test.annotations, "management"); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestBlanksInListsOfTypesAreIgnored(t *testing.T) {
	for value, want := range map[string]bool{"management": true, " a , management ": true, "a,,management": true, "": false, "managements": false, "a management": false} {
		if got := ListsType(value, "management"); got != want {
			t.Errorf("%q allows management: %v, want %v", value, got, want)
		}
	}
	if ListsType(",", "") {
		t.Error("the empty name is allowed")
	}
	if got := ParseTypes(" a ,,b"); len(got) != 2 || got[0] != "a" || got[1] != "b" {
		t.Errorf("got %q", got)
	}
}
