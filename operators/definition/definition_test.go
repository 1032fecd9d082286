// SPDX-License-Identifier: Apache-2.0

package definition

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

const things = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  versions:
  - name: v1
    served: true
    schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              names: {type: array, items: {type: object, properties: {name: {type: string}}}}
              anything: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            properties:
              text: {type: string}
  - name: v2
    served: false
    schema: {openAPIV3Schema: {properties: {spec: {}}}}
`

func TestCheck(t *testing.T) {
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(things), &definition.Object); err != nil {
		t.Fatal(err)
	}
	reader := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(definition).Build()
	for name, test := range map[string]struct {
		definition, version string
		fields              []string
		want                string // of the error; empty is that there is none
	}{
		"all fields are there":                   {"things.example.com", "v1", []string{"spec.names[].name", "status.text", "spec.names"}, ""},
		"what takes anything takes a field":      {"things.example.com", "v1", []string{"spec.anything.at.all"}, ""},
		"a field is missing":                     {"things.example.com", "v1", []string{"spec.names[].name", "status.conditions[].type"}, "things.example.com, version v1, has no status.conditions[].type,"},
		"two fields are missing":                 {"things.example.com", "v1", []string{"spec.x", "spec.names[].y"}, "spec.x, spec.names[].y"},
		"a list that is none has no such field":  {"things.example.com", "v1", []string{"status.text[].x"}, "status.text[].x"},
		"a version that is not served is none":   {"things.example.com", "v2", nil, "serves no version v2"},
		"a version that is not there is none":    {"things.example.com", "v3", nil, "serves no version v3"},
		"a definition that is missing is no one": {"others.example.com", "v1", nil, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(t.Context(), reader, test.definition, test.version, test.fields...)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}
