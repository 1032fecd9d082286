// SPDX-License-Identifier: Apache-2.0

// Package definition looks at CustomResourceDefinitions that other projects may have installed before: what a companion
// writes must be there, since kube-apiserver drops what a schema does not have.
//
// It knows no companion and no kind.
package definition

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is that of definitions.
var kind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Check returns an error unless the definition PLURAL.GROUP of a cluster has all fields in a version. A field is a path such as
// spec.tuningConfig[].name. The reader must not be a cache.
func Check(ctx context.Context, reader client.Reader, name, version string, fields ...string) error {
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(kind)
	if err := reader.Get(ctx, types.NamespacedName{Name: name}, definition); err != nil {
		return err
	}
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		return fmt.Errorf("CustomResourceDefinition %s: %w", name, err)
	}
	for _, each := range versions {
		each, _ := each.(map[string]any)
		if each["name"] != version || each["served"] != true {
			continue
		}
		openAPI, _, err := unstructured.NestedMap(each, "schema", "openAPIV3Schema")
		if err != nil {
			return fmt.Errorf("CustomResourceDefinition %s, version %s: %w", name, version, err)
		}
		if missing := missingOf(openAPI, fields); len(missing) > 0 {
			return fmt.Errorf("CustomResourceDefinition %s, version %s, has no %s, so that nothing could be written there; install a version that has it", name, version, strings.Join(missing, ", "))
		}
		return nil
	}
	return fmt.Errorf("CustomResourceDefinition %s serves no version %s", name, version)
}

// missingOf returns those of the fields that a schema does not have.
func missingOf(openAPI map[string]any, fields []string) (missing []string) {
	for _, field := range fields {
		at := openAPI
		for _, part := range strings.Split(field, ".") {
			if preserves, _ := at["x-kubernetes-preserve-unknown-fields"].(bool); preserves {
				at = nil
				break // anything may be there
			}
			name, list := strings.CutSuffix(part, "[]")
			next, found, _ := unstructured.NestedMap(at, "properties", name)
			if found && list {
				next, found, _ = unstructured.NestedMap(next, "items")
			}
			if !found {
				missing = append(missing, field)
				break
			}
			at = next
		}
	}
	return missing
}
