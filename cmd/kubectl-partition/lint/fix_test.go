// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// fixText returns the text with everything corrected that can be.
func fixText(t *testing.T, text string, options Options) (string, []Problem) {
	t.Helper()
	fixed, problems := lintText(text, options).Fix()
	if len(fixed) == 0 {
		return text, problems
	}
	if len(fixed) > 1 {
		t.Fatalf("got %d sources of one", len(fixed))
	}
	return string(fixed[0].Source.Data), problems
}

func TestFixWritesAnnotationsAndNothingElse(t *testing.T) {
	const target = `target.workload.openshift.io/management: '{"effect": "PreferredDuringScheduling"}'`
	const quoted = `"target.workload.openshift.io/management": "{\"effect\": \"PreferredDuringScheduling\"}"`
	for name, test := range map[string]struct{ before, after string }{
		"below other annotations, whose comments stay": {
			"kind: Job\napiVersion: batch/v1\nspec:\n  template:\n    metadata:\n        annotations: # ours\n            # of b\n            b: c   # why\n\n    spec: {}\n",
			"kind: Job\napiVersion: batch/v1\nspec:\n  template:\n    metadata:\n        annotations: # ours\n            " + target + "\n            # of b\n            b: c   # why\n\n    spec: {}\n",
		},
		"without annotations": {
			"kind: Job\napiVersion: batch/v1\nspec:\n  template:\n    metadata:\n      labels: {a: b}\n",
			"kind: Job\napiVersion: batch/v1\nspec:\n  template:\n    metadata:\n      annotations:\n        " + target + "\n      labels: {a: b}\n",
		},
		"without metadata": {
			"kind: Job\napiVersion: batch/v1\nspec:\n  template:\n    spec: {}",
			"kind: Job\napiVersion: batch/v1\nspec:\n  template:\n    metadata:\n      annotations:\n        " + target + "\n    spec: {}",
		},
		"with empty annotations at the end of the file": {
			"kind: Pod\napiVersion: v1\nmetadata:\n  annotations:",
			"kind: Pod\napiVersion: v1\nmetadata:\n  annotations:\n    " + target,
		},
		"with annotations in braces": {
			"kind: Pod\napiVersion: v1\nmetadata: {name: ünïcödé, annotations: {}}\n",
			"kind: Pod\napiVersion: v1\nmetadata: {name: ünïcödé, annotations: {" + quoted + "}}\n",
		},
		"with metadata in braces": {
			"kind: Pod\napiVersion: v1\nmetadata: {name: a}\n",
			"kind: Pod\napiVersion: v1\nmetadata: {\"annotations\": {" + quoted + "}, name: a}\n",
		},
		"in JSON that is indented by tabs": {
			"{\n\t\"kind\": \"Pod\", \"apiVersion\": \"v1\",\n\t\"metadata\": {\n\t\t\"annotations\": {\n\t\t\t\"a\": \"b\"\n\t\t}\n\t}\n}\n",
			"{\n\t\"kind\": \"Pod\", \"apiVersion\": \"v1\",\n\t\"metadata\": {\n\t\t\"annotations\": {\n\t\t\t" + quoted + ",\n\t\t\t\"a\": \"b\"\n\t\t}\n\t}\n}\n",
		},
		"in an element of a list without metadata": {
			"kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n",
			"kind: List\napiVersion: v1\nitems:\n- metadata:\n    annotations:\n      " + target + "\n  apiVersion: v1\n  kind: Pod\n",
		},
		"with line ends of Windows": {
			"kind: Pod\r\napiVersion: v1\r\nmetadata:\r\n  name: a\r\n",
			"kind: Pod\r\napiVersion: v1\r\nmetadata:\r\n  annotations:\r\n    " + target + "\r\n  name: a\r\n",
		},
		"by a new name for an old form": {
			"kind: Pod\napiVersion: v1\nmetadata:\n  annotations:\n    \"workload.openshift.io/management\": | # old\n      {\"effect\": \"PreferredDuringScheduling\"}\n    b: c\n",
			"kind: Pod\napiVersion: v1\nmetadata:\n  annotations:\n    \"target.workload.openshift.io/management\": | # old\n      {\"effect\": \"PreferredDuringScheduling\"}\n    b: c\n",
		},
		"in several documents, around one that is broken": {
			"kind: Pod\napiVersion: v1\nmetadata:\n  name: a\n---\n{broken\n--- # b\nkind: Pod\napiVersion: v1\nmetadata:\n  name: b\n",
			"kind: Pod\napiVersion: v1\nmetadata:\n  annotations:\n    " + target + "\n  name: a\n---\n{broken\n--- # b\nkind: Pod\napiVersion: v1\nmetadata:\n  annotations:\n    " + target + "\n  name: b\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := fixText(t, test.before, Options{Require: "management"})
			if got != test.after || len(problems) > 0 {
				t.Errorf("got\n%s\nwant\n%s\nproblems: %v", got, test.after, problems)
			}
			if again, _ := fixText(t, got, Options{Require: "management"}); again != got {
				t.Errorf("a second time it becomes\n%s", again)
			}
			if r := lintText(got, Options{Require: "management"}); len(r.Findings) > 0 {
				t.Errorf("left: %v", r.Findings)
			}
		})
	}
}

func TestFixAllowsTypesInANamespace(t *testing.T) {
	for name, test := range map[string]struct{ before, after string }{
		"one":     {documents(plain, deployment(asks, burstable)), "metadata: {\"annotations\": {\"workload.openshift.io/allowed\": \"management\"}, name: ours,"},
		"two":     {documents(deployment(asks, burstable), deployment(`target.workload.openshift.io/infra: ""`, burstable), deployment(asks, burstable), plain), "metadata: {\"annotations\": {\"workload.openshift.io/allowed\": \"infra,management\"}, name: ours,"},
		"another": {documents(strings.Replace(allowed, ": management", ": infra", 1), deployment(asks, burstable)), "workload.openshift.io/allowed: infra\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, problems := fixText(t, test.before, Options{}); !strings.Contains(got, test.after) || len(problems) > 0 {
				t.Errorf("got %s, %v, want %s in it", got, problems, test.after)
			}
		})
	}
}

// As a target, the value would have kube-apiserver refuse every pod.
func TestFixKeepsAnOldFormWhoseValueWouldBeRefused(t *testing.T) {
	text := deployment(`workload.openshift.io/management: "true"`, burstable)
	if got, problems := fixText(t, text, Options{}); got != text || len(problems) > 0 {
		t.Errorf("got %v and\n%s", problems, got)
	}
}

func TestFixRefusesWhatItWouldSpoil(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"an anchor that is used twice":  {"kind: List\napiVersion: v1\nitems:\n- kind: Pod\n  apiVersion: v1\n  metadata: &m\n    name: a\n- kind: PodTemplate\n  apiVersion: v1\n  template:\n    metadata: *m\n", "m.yaml:6: Pod a: cannot write the annotation target.workload.openshift.io/management: something else would change with it"},
		"an explicit null":              {"kind: Pod\napiVersion: v1\nmetadata: null\n", "metadata is not a mapping"},
		"JSON that is not YAML":         {"{\"kind\": \"Pod\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"\\ud83d\\ude00\"}}", "where it belongs is not known"},
		"a key that comes from a merge": {"x: &x {annotations: {workload.openshift.io/management: ''}}\nkind: Pod\napiVersion: v1\nmetadata:\n  <<: *x\n", "it is not written where it is used"},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := fixText(t, test.text, Options{Require: "management"})
			if got != test.text || len(problems) == 0 || !strings.Contains(problems[0].Error(), test.want) {
				t.Errorf("got %v, want %q; the text is\n%s", problems, test.want, got)
			}
		})
	}
}

// FuzzLint reads, corrects and reads again whatever it is given.
func FuzzLint(f *testing.F) {
	for _, text := range []string{documents(plain, deployment("", burstable), hpa("autoscaling/v2", ""), vpa("")), "kind: List\nitems: [{kind: Pod, apiVersion: v1}]", "{\"kind\": \"Pod\"", "---\n...\n%YAML\n--- {}", deployment(`workload.openshift.io/management: ""`, burstable),
		tuned, configMap("tuning", "|", tuned), configMap("config", "|", static), machineConfigWith(partition.PinningFilePath, "data:,"+splitFile), "variant: fcos\nkernel_arguments: {should_exist: [isolcpus=0-3]}\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		options := Options{Require: "management", Pools: cpuset.New(0, 1), Host: &twoKinds}
		before := lintText(text, options)
		after, _ := fixText(t, text, options)
		if again := lintText(after, options); len(again.Problems) > len(before.Problems) || again.Workloads != before.Workloads {
			t.Errorf("%q became %q, with %v, %d workloads and %d before", text, after, again.Problems, again.Workloads, before.Workloads)
		}
	})
}
