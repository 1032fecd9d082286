// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"os"
	"strings"
	"testing"
)

const sample = "../deploy/workloadclasses/rules.yaml"

func readSample(t testing.TB) *Config {
	t.Helper()
	data, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	config, err := ReadConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestReadConfig(t *testing.T) {
	const header = "apiVersion: workloadclasses.workload.openshift.io/v1alpha1\nkind: WorkloadClasses\n"
	const class = "classes:\n- name: a\n  nodeSelector: {c: a}\n"
	for name, test := range map[string]struct{ file, want string }{
		"the sample is read":                       {"", ""},
		"an empty file is an error":                {"# nothing\n", "the rules file is empty"},
		"another version is named":                 {"apiVersion: workloadclasses.workload.openshift.io/v2\nkind: WorkloadClasses\n", `"workloadclasses.workload.openshift.io/v2"`},
		"an unknown field is named":                {header + class + "rules:\n- name: r\n  match: {namespacePrefix: [x]}\n", `unknown field "rules[0].match.namespacePrefix"`},
		"a field that occurs twice is named":       {header + class + class, `"classes" already set`},
		"two documents are refused":                {header + class + "---\n" + header + class, "more than one YAML document"},
		"no class is an error":                     {header, "classes: Required value"},
		"a class without nodes is an error":        {header + "classes:\n- name: a\n", "classes[0].nodeSelector: Required value"},
		"a name that is no label's value is named": {header + "classes:\n- name: A\n  nodeSelector: {c: a}\n", `classes[0].name: Invalid value: "A"`},
		"two classes of one name are named":        {header + class + "- name: a\n  nodeSelector: {c: b}\n", `classes[1].name: Duplicate value: "a"`},
		"classes that share nodes are named":       {header + class + "- name: b\n  nodeSelector: {c: a, d: e}\n", "classes[1].nodeSelector: Invalid value"},
		"a rule of an unknown class is named":      {header + class + "rules:\n- name: r\n  class: b\n", `rules[0].class: Not found: "b"`},
		"two rules of one name are named":          {header + class + "rules:\n- {name: r, class: a}\n- {name: r, class: a}\n", `rules[1].name: Duplicate value: "r"`},
		"an empty prefix is named":                 {header + class + "rules:\n- {name: r, class: a, match: {namePrefixes: ['']}}\n", "rules[0].match.namePrefixes[0]: Invalid value"},
		"a toleration of everything is refused":    {header + class + "  tolerations: [{operator: Exists}]\n", "classes[0].tolerations[0].key: Required value"},
		"a toleration of avoidance is refused":     {header + class + "  tolerations: [{key: ci-workload-avoid, operator: Exists}]\n", "classes[0].tolerations[0].key: Invalid value"},
		"an operator that nobody knows is named":   {header + class + "rules:\n- {name: r, match: {annotations: {matchExpressions: [{key: k, operator: Has}]}}}\n", `operator: Unsupported value: "Has"`},
		"a floor of nothing is named":              {header + class + "  requestFloors: {cpu: '0'}\n", "classes[0].requestFloors[cpu]: Invalid value"},
		"a class that writes the label is told":    {header + class + "  labels: {ci-workload: b}\n", "classes[0].labels[ci-workload]: Invalid value"},
		"a file that is too large is not read":     {header + class + strings.Repeat("# x\n", MaxFileSize/4), "at most 1048576 are read"},
		"an init container without image is named": {header + class + "  initContainers: [{name: wait}]\n", "classes[0].initContainers[0].image: Required value"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.file == "" {
				readSample(t)
				return
			}
			_, err := ReadConfig([]byte(test.file))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, and should have %q", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines: %v", err)
			}
		})
	}
}
