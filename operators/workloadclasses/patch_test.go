// SPDX-License-Identifier: Apache-2.0

package workloadclasses

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
)

// kube-apiserver may be newer than the types of this program: what they do not know must not get lost.
func TestAPatchKeepsWhatTheTypesDoNotKnow(t *testing.T) {
	config, err := ReadConfig([]byte(`
apiVersion: workloadclasses.workload.openshift.io/v1alpha1
kind: WorkloadClasses
classes:
- name: a
  nodeSelector: {c: a}
  tolerations: [{key: a, operator: Exists}, {key: d, operator: Exists}]
  requestFloors: {cpu: 100m}
  initContainers: [{name: wait, image: i}, {name: fetch, image: i}]
rules: [{name: all, class: a}]
`))
	if err != nil {
		t.Fatal(err)
	}
	tolerations := slices.Repeat([]string{`{"key":"b","operator":"Exists","some":5}`}, 9)
	for name, posted := range map[string]string{
		"a pod with nine tolerations":   `{"new":1,"metadata":{"name":"p","newer":2},"spec":{"newest":3,"containers":[{"name":"main","resources":{},"other":4}],"tolerations":[` + strings.Join(tolerations, ",") + `]}}`,
		"a pod without init containers": `{"new":1,"metadata":{"name":"p","newer":2},"spec":{"newest":3,"containers":[{"name":"main","resources":{},"other":4}],"tolerations":[{"key":"b","operator":"Exists","some":5}]}}`,
		"a pod with init containers":    `{"new":1,"metadata":{"name":"p","newer":2},"spec":{"newest":3,"initContainers":[{"name":"first","resources":{},"other":6}],"containers":[{"name":"main","resources":{},"other":4}],"tolerations":[{"key":"b","operator":"Exists","some":5}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if err := json.Unmarshal([]byte(posted), pod); err != nil {
				t.Fatal(err)
			}
			before := pod.DeepCopy()
			config.Mutate(pod, "x", Cluster{Precluded: func(string) string { return "n1" }})
			operations, err := Patch(before, pod)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(operations)
			if err != nil {
				t.Fatal(err)
			}
			patch, err := jsonpatch.DecodePatch(text)
			if err != nil {
				t.Fatal(err)
			}
			patched, err := patch.Apply([]byte(posted))
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			// As the types see it, it is the pod that was wanted.
			after := &corev1.Pod{}
			if err := json.Unmarshal(patched, after); err != nil {
				t.Fatal(err)
			}
			want, _ := json.Marshal(pod)
			if got, _ := json.Marshal(after); string(got) != string(want) {
				t.Errorf("the patched pod is\n%s\nand should be\n%s", got, want)
			}
			var is map[string]any
			if err := json.Unmarshal(patched, &is); err != nil {
				t.Fatal(err)
			}
			spec := is["spec"].(map[string]any)
			kept := is["new"] == 1.0 && is["metadata"].(map[string]any)["newer"] == 2.0 && spec["newest"] == 3.0 &&
				spec["containers"].([]any)[0].(map[string]any)["other"] == 4.0 && spec["tolerations"].([]any)[0].(map[string]any)["some"] == 5.0
			if inits := spec["initContainers"].([]any); len(inits) == 3 {
				kept = kept && inits[2].(map[string]any)["other"] == 6.0
			}
			if !kept {
				t.Errorf("a field is gone: %s", patched)
			}
		})
	}
}
