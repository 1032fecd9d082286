// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
)

// The kustomization in docs/user/companions.md of a companion for a second hosted cluster.
func TestASecondHostedClusterTakesNothingFromTheFirst(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testenv.Module(), "..", "docs", "user", "companions.md"))
	if err != nil {
		t.Fatal(err)
	}
	const begin = "namespace: partition-tuning-second\n"
	_, text, _ := strings.Cut(string(page), "```yaml\n"+begin)
	text, _, found := strings.Cut(begin+text, "```\n")
	if !found {
		t.Fatalf("docs/user/companions.md has no kustomization that begins with %q", begin)
	}
	for _, name := range []string{"tuning", "hostedconfig"} {
		t.Run(name, func(t *testing.T) {
			i := companiontest.Install(t, "nodepool") // for kubectl alone
			directory := t.TempDir()
			base, err := filepath.Rel(directory, companiontest.Base(name))
			if err != nil {
				t.Fatal(err)
			}
			config, err := os.ReadFile(filepath.Join(companiontest.Base(name), "config.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for file, content := range map[string]string{
				"kustomization.yaml": strings.NewReplacer("../../../../operators/deploy/tuning", base, "tuning", name).Replace(text),
				"config.yaml":        string(config),
			} {
				if err := os.WriteFile(filepath.Join(directory, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			key := func(object *unstructured.Unstructured) string {
				return strings.Join([]string{object.GetKind(), object.GetNamespace(), object.GetName()}, " ")
			}
			first := map[string]bool{}
			for _, object := range rendered(t, i, name) {
				first[key(object)] = true
			}
			second, bindings := renderedFrom(t, i, directory), 0
			for _, object := range second {
				namespaces := []string{object.GetNamespace()}
				switch object.GetKind() {
				case "Namespace":
					namespaces = []string{object.GetName()}
				case "RoleBinding", "ClusterRoleBinding":
					bindings++
					binding := convert[rbacv1.RoleBinding](t, object)
					for _, subject := range binding.Subjects {
						namespaces = append(namespaces, subject.Namespace)
					}
					if binding.Namespace == "" {
						namespaces = namespaces[1:]
						if role := "ClusterRole  " + binding.RoleRef.Name; !first[role] {
							t.Errorf("%s is of the role %s, which the first has not", key(object), binding.RoleRef.Name)
						}
					}
				}
				for _, namespace := range namespaces {
					if first[key(object)] || namespace != "partition-"+name+"-second" {
						t.Errorf("%s is the first's: %t, and of the namespace %q", key(object), first[key(object)], namespace)
					}
				}
			}
			if bindings != 2 || len(second) < 10 {
				t.Errorf("there are %d bindings among %d objects", bindings, len(second))
			}
		})
	}
}
