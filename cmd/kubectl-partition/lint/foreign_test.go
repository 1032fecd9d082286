// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strings"
	"testing"
)

// A JobSet has several pod templates, in a list.
const jobSet = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: app
  namespace: ours
spec:
  replicatedJobs:
  - name: leader
    template:
      spec:
        template:
          metadata:
            annotations:
              target.workload.openshift.io/management: ""
          spec:
            containers:
            - name: c
              resources: {requests: {cpu: 100m, memory: 1Gi}}
  - name: workers
    template:
      spec:
        template:
          spec:
            containers:
            - name: c
              resources: {requests: {cpu: 1, memory: 1Gi}}
`

const prometheus = `
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata:
  name: k8s
  namespace: ours
spec:
  podMetadata:
    labels: {a: b}
  resources:
    requests: {cpu: 70m, memory: 1Gi}
  containers:
  - name: proxy
    resources: {requests: {cpu: 1m}}
`

func TestPodTemplatesInsideOtherKinds(t *testing.T) {
	required := Options{Require: "management"}
	for name, test := range map[string]struct {
		text      string
		options   Options
		want      []string
		workloads int
	}{
		"a template in a list":                               {documents(plain, jobSet), Options{}, []string{"19 namespace_not_annotated warning"}, 2},
		"a template that does not ask is found by line":      {jobSet, required, []string{"23 target_missing error"}, 2},
		"an annotation above several templates is told once": {strings.Replace(jobSet, "  name: app\n", "  name: app\n  annotations: {"+asks+"}\n", 1), Options{}, []string{"6 misplaced_annotation warning"}, 2},
		"a value that is no string":                          {strings.Replace(jobSet, `management: ""`, "management: {}", 1), Options{}, []string{"15 annotation_not_a_string error"}, 1},
		"podMetadata of the Prometheus operator":             {prometheus, required, []string{"8 target_missing error"}, 1},
		"podMetadata that asks":                              {strings.Replace(prometheus, "labels: {a: b}", "annotations: {"+asks+"}", 1), required, nil, 1},
		"a container whose resources guarantee the pod": {
			documents(allowed, strings.NewReplacer("labels: {a: b}", "annotations: {"+asks+"}", "requests: {cpu: 70m, memory: 1Gi}", "requests: {cpu: 1, memory: 1Gi}\n    limits: {cpu: 1, memory: 1Gi}", "resources: {requests: {cpu: 1m}}", "resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}").Replace(prometheus)),
			Options{}, []string{"16 guaranteed warning"}, 1,
		},
		"a Prometheus of another group":            {strings.Replace(prometheus, "monitoring.coreos.com", "example.com", 1), required, nil, 0},
		"an object inside another":                 {"apiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {name: t}\nobjects:\n- apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: a}\n  spec:\n    template:\n      spec: {containers: [{name: c}]}\n", required, []string{"9 target_missing error"}, 1},
		"a schema that describes containers":       {"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\nspec: {versions: [{schema: {properties: {spec: {properties: {containers: {type: array}}}}}}]}\n", required, nil, 0},
		"a list of containers that are only names": {"apiVersion: example.com/v1\nkind: Policy\nmetadata: {name: a}\nspec: {match: {spec: {containers: [a, b]}}}\n", required, nil, 0},
		"a status": {"apiVersion: example.com/v1\nkind: App\nmetadata: {name: a}\nstatus: {template: {spec: {containers: [{name: c}]}}}\n", required, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := lintText(test.text, test.options)
			if got := briefly(r); !slices.Equal(got, test.want) || r.Workloads != test.workloads || len(r.Problems) > 0 {
				t.Errorf("got %v in %d workloads, want %v in %d; problems: %v; %v", got, r.Workloads, test.want, test.workloads, r.Problems, r.Findings)
			}
		})
	}
}

func TestFixReachesTemplatesInsideOtherKinds(t *testing.T) {
	for name, text := range map[string]string{"a template in a list": jobSet, "podMetadata": prometheus, "no podMetadata": strings.Replace(prometheus, "  podMetadata:\n    labels: {a: b}\n", "", 1)} {
		t.Run(name, func(t *testing.T) {
			options := Options{Require: "management"}
			fixed, problems := fixText(t, text, options)
			if r := lintText(fixed, options); len(problems) > 0 || !r.Clean() || len(r.Problems) > 0 {
				t.Errorf("after the correction: %v, %v in\n%s", problems, briefly(r), fixed)
			}
		})
	}
}
