// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strings"
	"testing"
)

const ignoreHead = "apiVersion: cli.workload.openshift.io/v1alpha1\nkind: LintIgnore\nignore:\n"

func TestIgnoreFile(t *testing.T) {
	text := documents(plain, deployment(asks, `{requests: {cpu: 1}}`))
	for name, test := range map[string]struct {
		entries  string
		want     []string
		accepted int
	}{
		"by rule":                 {"- {rule: qos_change, reason: r}\n", []string{"14 namespace_not_annotated warning"}, 1},
		"by everything":           {"- {rule: qos_change, file: 'm.*', kind: Deployment, namespace: ours, name: a*, reason: r}\n", []string{"14 namespace_not_annotated warning"}, 1},
		"all":                     {"- {rule: qos_change, reason: r}\n- {rule: namespace_not_annotated, reason: r}\n", nil, 2},
		"an entry without effect": {"- {rule: qos_change, reason: r}\n- {rule: guaranteed, reason: r}\n", []string{"5 unused_ignore warning", "14 namespace_not_annotated warning"}, 1},
		"another object":          {"- {rule: qos_change, name: b, reason: r}\n", []string{"4 unused_ignore warning", "14 namespace_not_annotated warning", "14 qos_change warning"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ignore, err := ParseIgnore("i.yaml", []byte(ignoreHead+test.entries))
			if err != nil {
				t.Fatal(err)
			}
			r := lintText(text, Options{Ignore: ignore})
			if got := briefly(r); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 || r.Ignored != test.accepted {
				t.Errorf("got %q, %d accepted, want %q, %d", got, r.Ignored, test.want, test.accepted)
			}
		})
	}
}

func TestFilesOfAnIgnoreFile(t *testing.T) {
	for pattern, want := range map[string]bool{"": true, "m.yaml": true, "*.yaml": true, "b/m.yaml": true, "a/b/m.yaml": true, "*/b/m.yaml": true, "c/m.yaml": false, "n.yaml": false, "x/a/b/m.yaml": false} {
		if got := matchesFile(pattern, "a/b/m.yaml"); got != want {
			t.Errorf("%q: got %v", pattern, got)
		}
	}
}

func TestErrorsOfAnIgnoreFileNameTheEntry(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"without a reason":     {ignoreHead + "- {rule: qos_change}\n", `i.yaml:4: ignore[0].reason: "": say why`},
		"with a blank reason":  {ignoreHead + "- {rule: qos_change, reason: ' '}\n", `i.yaml:4: ignore[0].reason: " "`},
		"without a rule":       {ignoreHead + "- {reason: r}\n", `i.yaml:4: ignore[0].rule: "": there is no such rule`},
		"with an unknown rule": {ignoreHead + "- {rule: guaranteed, reason: r}\n- {rule: guarantee, reason: r}\n", `i.yaml:5: ignore[1].rule: "guarantee"`},
		"with a bad pattern":   {ignoreHead + "- {rule: qos_change, name: '[', reason: r}\n", `i.yaml:4: ignore[0].name: "[": syntax error in pattern`},
		"with an unknown key":  {ignoreHead + "- {rule: qos_change, because: r}\n", `unknown field "because"`},
		"of another kind":      {"apiVersion: v1\nkind: Pod\n", `i.yaml: apiVersion "v1" and kind "Pod" must be`},
		"that is not YAML":     {"a: b: c", "i.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseIgnore("i.yaml", []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
