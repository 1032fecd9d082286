// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// classed is the part that most rows below have.
const classed = `
metadata:
  labels: {ci-workload: tests, ci-workload-namespace: ci-op-x}
  annotations: {workloadclasses.workload.openshift.io/rule: tests}
spec:
  runtimeClassName: ci-scheduler-runtime-tests
  nodeSelector: {ci-workload: tests}
  tolerations: [{key: node-role.kubernetes.io/ci-tests-worker, operator: Equal, value: ci-tests-worker, effect: NoSchedule}]
`

func TestMutate(t *testing.T) {
	for name, test := range map[string]struct {
		namespace, pod string
		// want is merged over classed; "as it is" is the pod.
		want     string
		reason   Reason
		rule     string
		precl    string
		missing  bool // no RuntimeClass
		warnings string
	}{
		"a pod without maps and lists gets its class": {
			pod: "{}", want: "{}", rule: "tests",
		},
		"a build gets a whole CPU by its RuntimeClass alone": {
			pod:  "metadata: {labels: {openshift.io/build.name: b}}",
			rule: "builds",
			want: `
metadata:
  labels: {openshift.io/build.name: b, ci-workload: builds}
  annotations: {workloadclasses.workload.openshift.io/rule: builds}
spec:
  runtimeClassName: ci-scheduler-runtime-builds
  nodeSelector: {ci-workload: builds}
  tolerations: [{key: node-role.kubernetes.io/ci-builds-worker, operator: Equal, value: ci-builds-worker, effect: NoSchedule}]`,
		},
		"the first rule that matches decides": {
			pod:  "metadata: {generateName: e2e-upgrade-x, labels: {openshift.io/build.name: b}}",
			rule: "builds",
			want: `
metadata:
  generateName: e2e-upgrade-x
  labels: {openshift.io/build.name: b, ci-workload: builds}
  annotations: {workloadclasses.workload.openshift.io/rule: builds}
spec:
  runtimeClassName: ci-scheduler-runtime-builds
  nodeSelector: {ci-workload: builds}
  tolerations: [{key: node-role.kubernetes.io/ci-builds-worker, operator: Equal, value: ci-builds-worker, effect: NoSchedule}]`,
		},
		"a pod in another namespace is left":         {namespace: "default", pod: "{}", want: "as it is", reason: NoRule},
		"a prow job is one by its label":             {namespace: "ci", pod: "{}", want: "as it is", reason: NoRule},
		"a pod of another class is left":             {pod: "metadata: {labels: {ci-workload: builds}}", want: "as it is", reason: OtherClass, rule: "tests"},
		"a pod with another RuntimeClass is left":    {pod: "spec: {runtimeClassName: kata}", want: "as it is", reason: OtherRuntimeClass, rule: "tests"},
		"a pod with an overhead is left":             {pod: "spec: {overhead: {cpu: 1}}", want: "as it is", reason: OtherOverhead, rule: "tests"},
		"a pod that wants other nodes is left":       {pod: "spec: {nodeSelector: {ci-workload: mine}}", want: "as it is", reason: OtherNodeSelector, rule: "tests"},
		"a pod on a node is left":                    {pod: "spec: {nodeName: a}", want: "as it is", reason: BoundToNode},
		"a mirror of a static pod is left":           {pod: "metadata: {annotations: {kubernetes.io/config.mirror: a}}", want: "as it is", reason: MirrorPod},
		"a DaemonSet's pod is left":                  {pod: "metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]}", want: "as it is", reason: DaemonSetPod},
		"a Job's pod gets its class":                 {pod: "metadata: {ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: u, controller: true}]}", want: "metadata: {ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: u, controller: true}]}", rule: "tests"},
		"one with the host's network gets its class": {pod: "spec: {hostNetwork: true}", want: "spec: {hostNetwork: true}", rule: "tests"},
		"one that asks for its RuntimeClass gets it": {pod: "spec: {runtimeClassName: ci-scheduler-runtime-tests, overhead: {cpu: 300m, memory: 600Mi}}", want: "spec: {overhead: {cpu: 300m, memory: 600Mi}}", rule: "tests"},
		"what is tolerated is not added again":       {pod: "spec: {tolerations: [{key: node-role.kubernetes.io/ci-tests-worker, operator: Equal, value: ci-tests-worker, effect: NoSchedule}]}", want: "{}", rule: "tests"},
		"a partitioned pod gets no overhead":         {pod: "metadata: {annotations: {target.workload.openshift.io/management: '{}'}}", want: "{metadata: {annotations: {target.workload.openshift.io/management: '{}'}}, spec: {runtimeClassName: null}}", rule: "tests", warnings: "partitioned"},
		"a RuntimeClass that is missing is left out": {pod: "{}", want: "spec: {runtimeClassName: null}", rule: "tests", missing: true, warnings: "there is no RuntimeClass ci-scheduler-runtime-tests"},
		"a node is precluded for a pod without affinity": {
			pod: "{}", precl: "n1", rule: "tests",
			want: `
metadata: {annotations: {workloadclasses.workload.openshift.io/precluded: n1}}
spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}]}}}}`,
		},
		"a node is precluded in each term, but not in one that matches nothing": {
			pod:   `spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, values: [n2]}]}, {}]}}}}`,
			precl: "n1", rule: "tests",
			want: `
metadata: {annotations: {workloadclasses.workload.openshift.io/precluded: n1}}
spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: a, operator: Exists}], matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]},
  {matchFields: [{key: metadata.name, operator: In, values: [n2]}, {key: metadata.name, operator: NotIn, values: [n1]}]}, {}]}}}}`,
		},
		"a preferred affinity stays": {
			pod:   `spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}}`,
			precl: "n1", rule: "tests",
			want: `
metadata: {annotations: {workloadclasses.workload.openshift.io/precluded: n1}}
spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}]}, preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := readSample(t)
			namespace := test.namespace
			if namespace == "" {
				namespace = "ci-op-x"
			}
			precluded := test.precl
			cluster := Cluster{
				RuntimeClass: func(name string) (corev1.ResourceList, bool) {
					return corev1.ResourceList{"cpu": resource.MustParse("300m"), "memory": resource.MustParse("600Mi")}, !test.missing
				},
				Precluded: func(string) string { return precluded },
			}
			pod := parse(t, test.pod)
			outcome := config.Mutate(pod, namespace, cluster)
			if outcome.Reason != test.reason || outcome.Rule != test.rule || (outcome.Class == nil) != (test.want == "as it is") {
				t.Errorf("the outcome is %+v", outcome)
			}
			if text := strings.Join(outcome.Warnings, "; "); (text == "") != (test.warnings == "") || !strings.Contains(text, test.warnings) {
				t.Errorf("the warnings are %q", text)
			}
			want := parse(t, test.pod)
			if test.want != "as it is" {
				want = parse(t, merge(t, classed, test.want))
			}
			if !equality.Semantic.DeepEqual(pod, want) {
				t.Errorf("the pod is\n%s\nand should be\n%s", toYAML(t, pod), toYAML(t, want))
			}
			// What upstream's plugin writes in between, and another node that is precluded since.
			if outcome.Class != nil && pod.Spec.RuntimeClassName != nil {
				pod.Spec.Overhead, _ = cluster.RuntimeClass("")
			}
			precluded = precluded + "other"
			if test.precl == "" {
				precluded = ""
			}
			again := pod.DeepCopy()
			config.Mutate(again, namespace, cluster)
			if !equality.Semantic.DeepEqual(pod, again) {
				t.Errorf("the second time it becomes\n%s", toYAML(t, again))
			}
		})
	}
}

func TestRequestFloorsAndInitContainers(t *testing.T) {
	config, err := ReadConfig([]byte(`
apiVersion: workloadclasses.workload.openshift.io/v1alpha1
kind: WorkloadClasses
classes:
- name: a
  nodeSelector: {c: a}
  requestFloors: {cpu: 100m, memory: 100Mi}
  initContainers: [{name: wait, image: i}]
rules:
- {name: all, class: a, match: {requestsAtLeast: {cpu: 1m}}}
- {name: nothing}
`))
	if err != nil {
		t.Fatal(err)
	}
	pod := parse(t, `
spec:
  initContainers: [{name: first}]
  containers:
  - {name: less, resources: {requests: {cpu: 10m}}}
  - {name: more, resources: {requests: {cpu: 200m, memory: 1Gi}}}
  - {name: limited, resources: {limits: {cpu: 50m}}}
  - {name: both, resources: {requests: {cpu: 10m}, limits: {cpu: 50m}}}
`)
	for range 2 {
		if outcome := config.Mutate(pod, "x", Cluster{}); outcome.Class == nil {
			t.Fatalf("%+v", outcome)
		}
		want := parse(t, `
metadata:
  labels: {ci-workload: a, ci-workload-namespace: x}
  annotations: {workloadclasses.workload.openshift.io/rule: all}
spec:
  nodeSelector: {c: a}
  initContainers: [{name: wait, image: i}, {name: first}]
  containers:
  - {name: less, resources: {requests: {cpu: 100m, memory: 100Mi}}}
  - {name: more, resources: {requests: {cpu: 200m, memory: 1Gi}}}
  - {name: limited, resources: {requests: {memory: 100Mi}, limits: {cpu: 50m}}}
  - {name: both, resources: {requests: {cpu: 50m, memory: 100Mi}, limits: {cpu: 50m}}}
`)
		if !equality.Semantic.DeepEqual(pod, want) {
			t.Errorf("the pod is\n%s", toYAML(t, pod))
		}
	}
	// kube-apiserver refuses a pod whose containers ask for more than it does as a whole.
	whole := parse(t, `spec: {resources: {requests: {cpu: 150m}}, containers: [{name: a}, {name: b, resources: {requests: {cpu: 10m}}}]}`)
	config.Mutate(whole, "x", Cluster{})
	for i, want := range []string{`{name: a, resources: {requests: {memory: 100Mi}}}`, `{name: b, resources: {requests: {cpu: 10m, memory: 100Mi}}}`} {
		if got := whole.Spec.Containers[i]; !equality.Semantic.DeepEqual(got, parse(t, "spec: {containers: ["+want+"]}").Spec.Containers[0]) {
			t.Errorf("of a pod that asks for CPU as a whole, a container is\n%s", toYAML(t, got))
		}
	}
	if outcome := config.Mutate(&corev1.Pod{}, "x", Cluster{}); outcome.Rule != "nothing" || outcome.Reason != RuleWithoutClass {
		t.Errorf("a rule without a class: %+v", outcome)
	}
}

func TestSelectorsOfAnnotations(t *testing.T) {
	for i, test := range []struct {
		selector string
		has      map[string]string
		want     bool
	}{
		{"matchLabels: {a: 'any value, {}'}", map[string]string{"a": "any value, {}"}, true},
		{"matchLabels: {a: b}", nil, false},
		{"matchExpressions: [{key: a, operator: In, values: [x, z]}]", map[string]string{"a": "z"}, true},
		{"matchExpressions: [{key: a, operator: In, values: ['']}]", nil, false},
		{"matchExpressions: [{key: a, operator: NotIn, values: [x]}]", nil, true},
		{"matchExpressions: [{key: a, operator: NotIn, values: [x]}]", map[string]string{"a": "x"}, false},
		{"matchExpressions: [{key: a, operator: DoesNotExist}]", map[string]string{"a": "x"}, false},
	} {
		match := Match{}
		if err := yaml.Unmarshal([]byte("annotations: {"+test.selector+"}"), &match); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{}
		pod.Annotations = test.has
		if got := match.matches(pod, "x"); got != test.want {
			t.Errorf("row %d: %v", i, got)
		}
	}
}

func parse(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, text))
	}
	return pod
}

// merge lays one YAML text over another: maps are joined, and a null removes a key.
func merge(t testing.TB, under, over string) string {
	t.Helper()
	var a, b map[string]any
	for text, into := range map[string]*map[string]any{under: &a, over: &b} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	var join func(a, b map[string]any)
	join = func(a, b map[string]any) {
		for key, value := range b {
			if below, ok := a[key].(map[string]any); ok {
				if above, ok := value.(map[string]any); ok {
					if key == "nodeSelector" {
						a[key] = above
						continue
					}
					join(below, above)
					continue
				}
			}
			if value == nil {
				delete(a, key)
				continue
			}
			a[key] = value
		}
	}
	join(a, b)
	return toYAML(t, a)
}

func toYAML(t testing.TB, value any) string {
	t.Helper()
	data, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestMissed(t *testing.T) {
	config := readSample(t)
	for name, test := range map[string]struct{ namespace, pod, want string }{
		"a pod that runs without its class":        {"ci-op-x", "{spec: {nodeName: n}}", "tests"},
		"one that still waits for a node":          {"ci-op-x", "{}", "tests"},
		"one that has its class":                   {"ci-op-x", "{metadata: {labels: {ci-workload: tests}}, spec: {nodeName: n}}", ""},
		"one that has ended":                       {"ci-op-x", "{spec: {nodeName: n}, status: {phase: Succeeded}}", ""},
		"one that no rule is about":                {"default", "{spec: {nodeName: n}}", ""},
		"one of a DaemonSet":                       {"ci-op-x", "{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: a, uid: a, controller: true}]}}", ""},
		"a mirror of a static pod":                 {"ci-op-x", "{metadata: {annotations: {kubernetes.io/config.mirror: a}}, spec: {nodeName: n}}", ""},
		"one that keeps a RuntimeClass of its own": {"ci-op-x", "{spec: {nodeName: n, runtimeClassName: kata}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if err := yaml.Unmarshal([]byte(test.pod), pod); err != nil {
				t.Fatal(err)
			}
			pod.Namespace = test.namespace
			got := ""
			if class := config.Missed(pod); class != nil {
				got = class.Name
			}
			if got != test.want {
				t.Errorf("class %q, want %q", got, test.want)
			}
		})
	}
}
