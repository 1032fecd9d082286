// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const sampleRules = "../../../../operators/deploy/workloadclasses/rules.yaml"

func TestClassesTest(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		pod       string
		code      int
		want      []string
	}{
		"a pod of a test gets its class": {
			[]string{"--preclude=n1"}, "metadata: {generateName: e2e-, namespace: ci-op-x}", 0,
			[]string{"pod ci-op-x/e2e-: rule tests, class tests", "ci-workload: tests", "value: ci-scheduler-runtime-tests", "- n1"},
		},
		"a template without a namespace is of the one that is named": {
			[]string{"--namespace=ci-op-x"}, "metadata: {labels: {openshift.io/build.name: b}}", 0,
			[]string{"pod ci-op-x/: rule builds, class builds"},
		},
		"a pod that no rule matches is left": {
			nil, "metadata: {name: a}", 1, []string{"pod default/a: left as it is: NoRule"},
		},
		"a pod with another RuntimeClass is left, and the rule is named": {
			nil, "{metadata: {name: a, namespace: ci-op-x}, spec: {runtimeClassName: kata}}", 1, []string{"pod ci-op-x/a: rule tests, left as it is: OtherRuntimeClass"},
		},
		"a name cannot break the terminal": {
			nil, `metadata: {name: "a\e[2J"}`, 1, []string{`pod default/a\x1b[2J`},
		},
		"a field that no pod has is named":    {nil, "{spec: {runtimeclassname: a}}", 2, []string{"runtimeclassname"}},
		"what is not a pod is refused":        {nil, "{apiVersion: apps/v1, kind: Deployment}", 2, []string{`kind is "Deployment", not Pod`}},
		"programs get the patch as an object": {[]string{"-o=json"}, "metadata: {namespace: ci-op-x}", 0, []string{`"kind": "ClassifiedPodList"`, `"rule": "tests"`, `"path": "/spec/runtimeClassName"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			command := Command(genericiooptions.IOStreams{In: strings.NewReader(test.pod), Out: &out, ErrOut: &errOut})
			command.SetArgs(append([]string{"classes", "test", "--filename=" + sampleRules, "-"}, test.arguments...))
			code := ExitCode(command.ExecuteContext(t.Context()), &errOut)
			if code != test.code {
				t.Errorf("the exit code is %d, want %d", code, test.code)
			}
			for _, part := range test.want {
				if !strings.Contains(out.String()+errOut.String(), part) {
					t.Errorf("it does not say %q:\n%s%s", part, out.String(), errOut.String())
				}
			}
		})
	}
}
