// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"

	"golang.org/x/tools/go/packages"
)

// The module operators, and its Go package of the configuration. Each companion's settings are in its own controller.
const (
	modulePath    = "workload.openshift.io/operators"
	configPackage = modulePath + "/api/config/v1alpha1"
)

// configurations returns the schema of each companion's configuration, by its name. Like a CRD's, it comes from the Go
// types and their comments.
func configurations(operators string) (map[string]any, error) {
	roots, err := loader.LoadRootsWithConfig(&packages.Config{Dir: operators}, configPackage, "./...")
	if err != nil {
		return nil, err
	}
	registry := &markers.Registry{}
	if err := crdmarkers.Register(registry); err != nil {
		return nil, err
	}
	parser := &crd.Parser{Collector: &markers.Collector{Registry: registry}, Checker: &loader.TypeChecker{}, AllowDangerousTypes: true}
	crd.AddKnownTypes(parser)
	schemaOf := func(pkg *loader.Package, name string) (map[string]any, error) {
		parser.NeedPackage(pkg)
		ident := crd.TypeIdent{Package: pkg, Name: name}
		parser.NeedFlattenedSchemaFor(ident)
		return plain(parser.FlattenedSchemata[ident])
	}
	var config map[string]any
	settings := map[string]map[string]any{}
	for _, root := range roots {
		companion, ok := strings.CutPrefix(root.PkgPath, modulePath+"/")
		companion, isController := strings.CutSuffix(companion, "/controller")
		switch {
		case root.PkgPath == configPackage:
			if config, err = schemaOf(root, "ControllerConfiguration"); err != nil {
				return nil, err
			}
		case ok && isController:
			parser.NeedPackage(root)
			if parser.LookupType(root, "Settings") == nil {
				settings[companion] = nil
				continue
			}
			if settings[companion], err = schemaOf(root, "Settings"); err != nil {
				return nil, err
			}
		}
	}
	if loader.PrintErrors(roots, packages.TypeError) {
		return nil, fmt.Errorf("%s does not compile", operators)
	}
	schemas := map[string]any{}
	for companion, own := range settings {
		properties := maps.Clone(config["properties"].(map[string]any))
		for _, field := range fixed {
			delete(properties, field)
		}
		delete(properties, "settings")
		if own != nil {
			properties["settings"] = own
		}
		schemas[companion] = object(properties)
	}
	return schemas, nil
}

// plain returns a schema in JSON Schema's own words. A user writes some fields, so none is required.
func plain(schema apiextensionsv1.JSONSchemaProps) (map[string]any, error) {
	data, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	var result map[string]any
	if err := json.Unmarshal(data, &result); err != nil {
		return nil, err
	}
	var walk func(schema map[string]any)
	walk = func(schema map[string]any) {
		delete(schema, "required")
		for key := range schema {
			if strings.HasPrefix(key, "x-kubernetes-") {
				delete(schema, key)
			}
		}
		if properties, ok := schema["properties"].(map[string]any); ok {
			for _, property := range properties {
				walk(property.(map[string]any))
			}
			schema["additionalProperties"] = false
		}
		for _, key := range []string{"items", "additionalProperties"} {
			if below, ok := schema[key].(map[string]any); ok {
				walk(below)
			}
		}
	}
	walk(result)
	return result, nil
}

// object is the schema of an object with these fields and no others.
func object(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// schemaOf returns the schema of the chart's values.
func schemaOf(parts []*part, common, configs map[string]any) (map[string]any, error) {
	boolean, text, anything := map[string]any{"type": "boolean"}, map[string]any{"type": "string"}, map[string]any{"type": "object"}
	// What kube-apiserver would refuse must be refused before: Helm leaves a release whose installation fails halfway.
	texts, list := map[string]any{"type": "object", "additionalProperties": text}, func(of map[string]any) map[string]any { return map[string]any{"type": "array", "items": of} }
	secret := object(map[string]any{"name": map[string]any{"type": "string", "minLength": 1}})
	secret["required"] = []string{"name"}
	images := map[string]any{"registry": text}
	for _, name := range imagesOf(parts) {
		images[name] = text
	}
	properties, hosted := map[string]any{
		"global":           anything, // Helm adds it
		"images":           object(images),
		"imagePullSecrets": list(secret),
		"keepCRDs":         boolean,
		"networkPolicy":    object(map[string]any{"enabled": boolean, "from": list(anything)}),
		"monitoring": object(map[string]any{
			"serviceMonitors": boolean, "rules": boolean, "dashboard": boolean, "labels": texts,
			"serviceAccount": object(map[string]any{"name": text, "namespace": text}),
		}),
	}, map[string]any{}
	for name, value := range common {
		switch value.(type) {
		case map[string]any:
			properties[name] = anything
		case []any:
			properties[name] = list(anything)
		case string:
			properties[name] = text
		default:
			properties[name] = map[string]any{"type": "integer", "minimum": 1}
		}
	}
	properties["nodeSelector"], properties["imagePullPolicy"] = texts, map[string]any{"enum": []string{"Always", "IfNotPresent", "Never"}}
	// With a request of zero as GOMEMLIMIT, Go would collect garbage all the time.
	properties["resources"] = map[string]any{"type": "object", "required": []string{"requests"}, "properties": map[string]any{
		"requests": map[string]any{"type": "object", "required": []string{"memory"}, "properties": map[string]any{
			"memory": map[string]any{"type": []string{"string", "integer"}, "pattern": "[1-9]", "minimum": 1},
		}},
	}}
	values := valuesOf(parts, common)
	for _, p := range parts {
		of := map[string]any{}
		given := values[p.name]
		if p.hosted {
			given = values["hosted"].(map[string]any)[p.name]
		}
		for name := range given.(map[string]any) {
			of[name] = boolean
		}
		for name := range p.texts {
			of[name] = text
		}
		if p.hosted {
			hosted[p.name] = object(of)
			continue
		}
		if configs[p.companion] == nil {
			return nil, fmt.Errorf("deploy/%s has the companion %q, but there is no package %s/controller", p.dir, p.companion, p.companion)
		}
		of["config"] = configs[p.companion]
		properties[p.name] = object(of)
	}
	properties["hosted"] = object(hosted)
	schema := object(properties)
	schema["required"] = []string{"resources"}
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	return schema, nil
}
