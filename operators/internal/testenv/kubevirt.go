// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// KubeVirt brings the CRDs of KubeVirt that companions know, with the schemas of the release that build/kubevirt pins.
// They go when remove is called, or at the end of the test. newer are paths of fields of a VirtualMachine, such as
// "spec.newer", that a later release would add.
func KubeVirt(t testing.TB, c *ControlPlane, newer ...string) (remove func()) {
	t.Helper()
	schemas := kubeVirtSchemas(t)
	var crds []*apiextensionsv1.CustomResourceDefinition
	// pkg/virt-operator/resource/generate/components/crds.go, without what kubectl prints.
	for _, kind := range []struct {
		kind, singular string
		status         bool
	}{{"VirtualMachine", "virtualmachine", true}, {"VirtualMachineInstance", "virtualmachineinstance", false}, {"KubeVirt", "kubevirt", true}} {
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: kind.singular + "s.kubevirt.io"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "kubevirt.io", Scope: apiextensionsv1.NamespaceScoped, Versions: slices.Clone(virtv1.ApiSupportedVersions),
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.kind, Singular: kind.singular, Plural: kind.singular + "s"},
			},
		}
		schema := &apiextensionsv1.CustomResourceValidation{}
		if err := yaml.UnmarshalStrict([]byte(schemas[kind.singular]), schema); err != nil || schema.OpenAPIV3Schema == nil {
			t.Fatalf("the schema of KubeVirt's %s: %v: %.200s", kind.singular, err, schemas[kind.singular])
		}
		if kind.kind == "VirtualMachine" {
			for _, path := range newer {
				add(t, schema.OpenAPIV3Schema, path)
			}
		}
		for i := range crd.Spec.Versions {
			version := &crd.Spec.Versions[i]
			if version.Schema = schema; kind.status {
				version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
			}
		}
		crds = append(crds, crd)
	}
	// The test's own context has ended when Cleanup runs.
	ctx := context.WithoutCancel(t.Context())
	remove = func() {
		for _, crd := range crds {
			if err := client.IgnoreNotFound(c.Client.Delete(ctx, crd)); err != nil {
				t.Error(err)
			}
			Eventually(t, time.Minute, func() error {
				err := c.Client.Get(ctx, client.ObjectKeyFromObject(crd), &apiextensionsv1.CustomResourceDefinition{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("%s is still there: %v", crd.Name, err)
			})
		}
	}
	t.Cleanup(remove)
	if _, err := envtest.InstallCRDs(c.Config, envtest.CRDInstallOptions{CRDs: crds, MaxTime: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return remove
}

// add adds a field of any content to a schema.
func add(t testing.TB, schema *apiextensionsv1.JSONSchemaProps, path string) {
	t.Helper()
	name, below, more := strings.Cut(path, ".")
	if !more {
		schema.Properties[name] = apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: ptr.To(true)}
		return
	}
	child, is := schema.Properties[name]
	if !is {
		t.Fatalf("KubeVirt's schema has no %s", path)
	}
	add(t, &child, below) // the copy has the same map
}

// kubeVirtSchemas returns what KubeVirt publishes, as YAML by the singular names of its kinds. It is data in a Go file
// of a package that nothing here imports, because of what that imports.
func kubeVirtSchemas(t testing.TB) map[string]string {
	t.Helper()
	const file = "pkg/virt-operator/resource/generate/components/validations_generated.go"
	// go.sum there has the hash.
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "kubevirt.io/kubevirt")
	command.Dir = filepath.Join(Module(), "..", "build", "kubevirt")
	output, err := command.Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(output, &module); err != nil || jsonErr != nil || module.Dir == "" {
		t.Fatalf("go mod download in %s: %v: %s", command.Dir, err, output)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(module.Dir, file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[string]string{}
	ast.Inspect(parsed, func(node ast.Node) bool {
		pair, is := node.(*ast.KeyValueExpr)
		if !is {
			return true
		}
		var texts [2]string
		for i, side := range []ast.Expr{pair.Key, pair.Value} {
			literal, is := side.(*ast.BasicLit)
			if !is {
				t.Fatalf("%s has a pair of something else than texts", file)
			}
			if texts[i], err = strconv.Unquote(literal.Value); err != nil {
				t.Fatal(err)
			}
		}
		schemas[texts[0]] = texts[1]
		return false
	})
	return schemas
}
