// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v2 "workload.openshift.io/operators/api/performance/v2"
)

const (
	tuned   = "apiVersion: tuned.openshift.io/v1\nkind: Tuned\nmetadata:\n  name: a\nspec:\n  recommend:\n  - profile: a\n    priority: 20\n"
	profile = "apiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\nmetadata:\n  name: edge\nspec:\n  cpu:\n    reserved: '0'\n    isolated: '1'\n"
)

func TestDocuments(t *testing.T) {
	for name, test := range map[string]struct {
		value string
		// want are the manifests, as DOCUMENT:LINE NAME, and problems, as DOCUMENT:LINE and a part of the text.
		want, problems []string
	}{
		"nothing":                         {"", nil, nil},
		"comments and marks":              {"---\n# none\n---\n\n...\n", nil, nil},
		"blank lines before":              {"\n \n" + tuned, []string{"1:3 a"}, nil},
		"a mark before the first":         {"---\n" + tuned, []string{"1:2 a"}, nil},
		"an empty one between is counted": {tuned + "---\n---\n" + tuned, []string{"1:1 a", "3:11 a"}, nil},
		"an end of the document":          {tuned + "...\n---\n" + tuned, []string{"1:1 a", "2:11 a"}, nil},
		"one that begins after the mark":  {"--- {apiVersion: v, kind: K, metadata: {name: x}}\n", []string{"1:1 x"}, nil},
		"carriage returns":                {strings.ReplaceAll(tuned, "\n", "\r\n"), []string{"1:1 a"}, nil},
		"a name that is an alias":         {"apiVersion: v\nkind: &k K\nmetadata: {name: *k}\n", []string{"1:1 K"}, nil},
		"a list":                          {"- a\n", nil, []string{`1:1 apiVersion and kind are required; it has "" and ""`}},
		"a kind that is an object":        {"apiVersion: v\nkind: {a: b}\n", nil, []string{`1:1 apiVersion and kind are required; it has "v" and ""`}},
		"no name":                         {"apiVersion: v\nkind: K\nmetadata: {name: null}\n", nil, []string{"1:1 the K has no metadata.name"}},
		"no YAML in the second":           {tuned + "---\n" + strings.Replace(tuned, "kind: Tuned", "kind Tuned", 1), []string{"1:1 a"}, []string{"2:11 it is no YAML: could not find expected ':'"}},
		"a tab":                           {"a: b\n\tc: d\n", nil, []string{"1:2 it is no YAML: found a tab character that violates indentation"}},
		"a reference to itself":           {"apiVersion: &a [*a]\nkind: K\n", nil, []string{"1:1 with what is before it, it has more than 20000 keys and values"}},
		"many aliases of a long text":     {tuned + "---\n" + tuned + "x: &a " + strings.Repeat("x", 4<<10) + "\ny: [" + strings.Repeat("*a, ", 300) + "]\n---\n" + tuned, []string{"1:1 a"}, []string{"2:10 with what is before it, it has more than"}},
		"many values in several":          {strings.Repeat(tuned+"x: ["+strings.Repeat("a, ", 9_000)+"]\n---\n", 5), []string{"1:1 a", "2:11 a"}, []string{"3:21 with what is before it, it has more than"}},
		"a few aliases":                   {tuned + "x: &a " + strings.Repeat("x", 4<<10) + "\ny: [*a, *a]\n", []string{"1:1 a"}, nil},
		// To look for each would take minutes for what a ConfigMap takes.
		"several are broken, and the line of the first is exact": {"a: b\n\tc: d\n---\na: b\n\tc: d\n", nil, []string{"1:2 it is no YAML", "2:4 it is no YAML"}},
		"several, one of which is broken":                        {tuned + "---\n}\n---\n" + tuned, []string{"1:1 a", "3:12 a"}, []string{"2:"}},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, problems := Split("ns/n", "key", test.value)
			var got []string
			for _, m := range manifests {
				got = append(got, fmt.Sprintf("%d:%d %s", m.At.Document, m.At.Line, m.Name))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the manifests are %q, want %q", got, test.want)
			}
			if len(problems) != len(test.problems) {
				t.Fatalf("the problems are %v, want %q", problems, test.problems)
			}
			for i, problem := range problems {
				if got := fmt.Sprintf("%d:%d %s", problem.Document, problem.Line, problem.Text); !strings.HasPrefix(got, test.problems[i]) {
					t.Errorf("the problem is %q, want %q", got, test.problems[i])
				}
			}
		})
	}
}

// Each value of another type, and each field that is not known, has its line.
func TestWhatCannotBeRead(t *testing.T) {
	for name, test := range map[string]struct{ old, replacement, want string }{
		"a field that is not known":      {"isolated:", "isolted:", "line 8: this version does nothing with the field spec.cpu.isolted of a PerformanceProfile; remove it"},
		"a field twice":                  {"    isolated: '1'\n", "    isolated: '1'\n    reserved: '2'\n", `line 9: key "reserved" already set`},
		"a number in place of a text":    {"'1'", "1", "line 8: spec.cpu.isolated: Invalid value: number where a text is expected"},
		"a list in place of an object":   {"spec:", "spec: []\nother:", `line 5: spec: Invalid value: array where an object is expected`},
		"a text in place of a list":      {"spec:", "spec:\n  additionalKernelArgs: a", "line 6: spec.additionalKernelArgs: Invalid value: string where a list is expected"},
		"a text in place of true":        {"spec:", "spec:\n  workloadHints:\n    realTime: 'on'", "line 7: spec.workloadHints.realTime: Invalid value: string where true or false is expected"},
		"a text in the second of a list": {"spec:", "spec:\n  hugepages:\n    pages:\n    - count: 1\n    - count: x", "line 9: spec.hugepages.pages.count: Invalid value: string where a whole number is expected"},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, problems := Split("ns/n", "key", strings.Replace(profile, test.old, test.replacement, 1))
			if len(manifests) != 1 || problems != nil {
				t.Fatalf("there are %d manifests, and %v", len(manifests), problems)
			}
			problems = manifests[0].Read(&v2.PerformanceProfile{})
			if len(problems) == 0 || !strings.HasPrefix(problems[0].String(), "ConfigMap ns/n, key key, document 1, "+test.want) {
				t.Errorf("the problems are %v, want %q", problems, test.want)
			}
		})
	}
}

// What one document holds as JSON has the bounds of Split.
func TestJSON(t *testing.T) {
	for name, test := range map[string]struct{ value, want, err string }{
		"YAML":                           {"a: [1, b]\n", `{"a":[1,"b"]}`, ""},
		"nothing":                        {"", "null", ""},
		"something that is no manifest":  {"\t", "", "yaml"},
		"more than a ConfigMap may have": {strings.Repeat("x", 1<<20+1), "", "it has more than"},
		"many aliases of a long text":    {"x: &a " + strings.Repeat("x", 4<<10) + "\ny: [" + strings.Repeat("*a, ", 300) + "]\n", "", "it has more than"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := JSON(test.value)
			if string(got) != test.want || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("it is %s, %v; want %s, %q", got, err, test.want, test.err)
			}
		})
	}
}

// FuzzSplit finds an answer to every text, with places that are in it.
func FuzzSplit(f *testing.F) {
	f.Add(tuned + "---\n" + profile)
	f.Add("--- {a: b}\n...\n%YAML 1.2\n---\n- x\n")
	f.Add("a: &a [*a]\n")
	f.Add("apiVersion: &a [*a]\nkind: *a\n")
	f.Fuzz(func(t *testing.T, value string) {
		manifests, problems := Split("ns/n", "key", value)
		for _, m := range manifests {
			_, wrong := m.Tuned()
			problems = append(problems, wrong...)
			_, wrong = m.PerformanceProfile()
			problems = append(problems, wrong...)
			again, broken := Split("ns/n", "key", m.Text)
			if len(again) != 1 || len(broken) > 0 || again[0].Text != m.Text || again[0].Name != m.Name {
				t.Errorf("%q becomes %+v, %v", m.Text, again, broken)
			}
		}
		lines := strings.Count(value, "\n") + 1
		for _, problem := range problems {
			if problem.Line < 1 || problem.Line > lines+1 || problem.Document < 1 {
				t.Errorf("a problem of %d lines is at document %d, line %d: %s", lines, problem.Document, problem.Line, problem.Text)
			}
		}
	})
}
