// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"

	"os/exec"
)

var write = flag.Bool("write", false, "write the files that are rendered from kustomizations")

// steps are the files of workloadclasses in the order in which they are applied, with the kinds in each.
var steps = []struct {
	file  string
	kinds []string
}{
	{"admin.yaml", []string{"Namespace", "RuntimeClass"}},
	{"rbac.yaml", []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}},
	{"deployment.yaml", []string{"ConfigMap", "Secret", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}},
	{"webhook.yaml", []string{"MutatingWebhookConfiguration"}},
}

// Users of openshift/ci-tools' webhook apply files one after another. Each is what the kustomization renders, so that there are not
// two descriptions; go test -run TestTheFilesOfWorkloadClasses -write ./deploy writes them.
func TestTheFilesOfWorkloadClasses(t *testing.T) {
	base := companiontest.Base("workloadclasses")
	all, err := exec.Command(testenv.Kubectl(t), "kustomize", base).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]string{}
	for document := range strings.SplitSeq(string(all), "\n---\n") {
		var object struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, step := range steps {
			if found = slices.Contains(step.kinds, object.Kind); found {
				files[step.file] = append(files[step.file], strings.TrimSpace(document))
				break
			}
		}
		if !found {
			t.Errorf("no file has the kind %s", object.Kind)
		}
	}
	for name, documents := range files {
		path := filepath.Join(base, name)
		want := "# Rendered from kustomization.yaml; TestTheFilesOfWorkloadClasses in operators/deploy writes it.\n" + strings.Join(documents, "\n---\n") + "\n"
		if *write {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if has, err := os.ReadFile(path); err != nil || string(has) != want {
			t.Errorf("%s is not what the kustomization renders (%v): go test -run TestTheFilesOfWorkloadClasses -write ./deploy", path, err)
		}
	}
}
