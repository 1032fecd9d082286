// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/workloadclasses"
)

// The sets of the sample are valid by the CRDs of both APIs, and each class has one, whose nodes are the class's.
func TestTheSetsOfTheSample(t *testing.T) {
	w := &world{companiontest.Install(t, Name), t, MachineSet, ""}
	w.installMachines()
	w.installClusterAPI()
	if err := w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: machineNamespace}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, file := range []string{"machinesets.yaml", "machinedeployments.yaml"} {
		path := filepath.Join(companiontest.Base(Name), "machines", file)
		w.eventually(func() error { // the kinds are served a moment after their definitions
			out, err := exec.Command(testenv.Kubectl(t), "--kubeconfig="+w.Kubeconfig, "apply", "--server-side", "--dry-run=server", "-f", path).CombinedOutput()
			if err != nil {
				return fmt.Errorf("kubectl apply -f %s: %w: %s", file, err, out)
			}
			return nil
		})
	}

	rules, err := os.ReadFile(filepath.Join(companiontest.Base(Name), "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := workloadclasses.ReadConfig(rules)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(companiontest.Base(Name), "machines", "machinesets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var set struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct {
						Metadata metav1.ObjectMeta
						Taints   []corev1.Taint
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &set); err != nil {
			t.Fatal(err)
		}
		if set.Kind != "MachineSet" {
			continue
		}
		node := set.Spec.Template.Spec
		class := config.ClassOfNode(node.Metadata.Labels)
		if class == nil {
			t.Errorf("nodes with the labels %v are of no class", node.Metadata.Labels)
			continue
		}
		have[class.Name] = true
		for i := range node.Taints {
			tolerated := false
			for _, toleration := range class.Tolerations {
				tolerated = tolerated || toleration.ToleratesTaint(klog.Background(), &node.Taints[i], false)
			}
			if !tolerated {
				t.Errorf("pods of class %s do not tolerate %s", class.Name, node.Taints[i].ToString())
			}
		}
	}
	if len(have) != len(config.Classes) {
		t.Errorf("of %d classes these have a MachineSet: %v", len(config.Classes), have)
	}
}

// The script posts pods of each class to the webhook.
func TestPostPods(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	w := newPlane(t)
	out, err := exec.Command(filepath.Join("..", "testing", "post-pods.sh"), w.Webhooks()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, want := range []struct{ pod, part string }{
		{"ci-op-x/e2e-aws-", `"ci-workload":"tests"`}, {"ci-op-x/src-build", `"builds"`}, {"ci-op-x/e2e-upgrade-aws-", `"longtests"`},
		{"ci/prowjob", `"prowjobs"`}, {"default/other", "left as it is"},
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want.pod+": ") || !strings.Contains(lines[i], want.part) {
			t.Fatalf("want pod %s with %s:\n%s", want.pod, want.part, out)
		}
	}
}
