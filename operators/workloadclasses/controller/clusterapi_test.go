// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
)

// installClusterAPI installs its CRDs, from the module that the test's controllers are of, and those of an infrastructure.
func (w *world) installClusterAPI() {
	t := w.t
	t.Helper()
	bases := envtest.CRDInstallOptions{Paths: []string{filepath.Join(testenv.SourceOf(t, filepath.Join("test", "clusterapi"), "sigs.k8s.io/cluster-api"), "core", "config", "crd", "bases")}}
	if err := envtest.ReadCRDFiles(&bases); err != nil {
		t.Fatal(err)
	}
	var used []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range bases.CRDs {
		switch crd.Spec.Names.Kind {
		case "Cluster", "Machine", "MachineSet", "MachineDeployment":
			crd.Spec.Conversion = nil // its webhooks are not here, and no test reads an older version
			for i := range crd.Spec.Versions {
				crd.Spec.Versions[i].Served = crd.Spec.Versions[i].Name == "v1beta2"
			}
			used = append(used, crd)
		}
	}
	for _, kind := range []string{"TestMachine", "TestMachineTemplate"} {
		plural := strings.ToLower(kind) + "s"
		used = append(used, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + ".infrastructure.cluster.x-k8s.io", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "infrastructure.cluster.x-k8s.io", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				}}},
			},
		})
	}
	if _, err := envtest.InstallCRDs(w.Config, envtest.CRDInstallOptions{CRDs: used}); err != nil {
		t.Fatal(err)
	}
}

// newClusterAPIWorld is newWorld with a MachineDeployment, and Cluster API's own controllers of
// MachineDeployments and MachineSets. The test plays the controller of Machines.
func newClusterAPIWorld(t testing.TB, replicas, minimum int) *world {
	t.Helper()
	program := asset(t, "TEST_ASSET_CLUSTER_API", "")
	w := &world{companiontest.Install(t, Name), t, MachineDeployment, "cluster.x-k8s.io/v1beta2"}
	w.installClusterAPI()
	for _, name := range []string{machineNamespace, "ci-op-x"} {
		if err := w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	testenv.RunFile(t, program, "--kubeconfig="+w.Kubeconfig, "-v=1")
	infrastructure := func(kind string) map[string]any {
		return map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": "test"}
	}
	for _, object := range []map[string]any{
		{"apiVersion": w.version, "kind": "Cluster", "metadata": map[string]any{"name": "test"}, "spec": map[string]any{"infrastructureRef": infrastructure("TestCluster")}},
		{"apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "TestMachineTemplate", "metadata": map[string]any{"name": "test"}, "spec": map[string]any{"template": map[string]any{"spec": map[string]any{"a": "b"}}}},
		{
			"apiVersion": w.version, "kind": "MachineDeployment",
			"metadata": map[string]any{"name": setName, "annotations": map[string]any{"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": fmt.Sprint(minimum)}},
			"spec": map[string]any{
				"clusterName": "test", "replicas": int64(replicas),
				// What its webhooks would write.
				"rollout":  map[string]any{"strategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(0)}}},
				"selector": map[string]any{"matchLabels": map[string]any{"ci-workload": "tests", "cluster.x-k8s.io/cluster-name": "test"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"ci-workload": "tests", "cluster.x-k8s.io/cluster-name": "test"}},
					"spec": map[string]any{
						"clusterName": "test", "bootstrap": map[string]any{"dataSecretName": "none"}, "infrastructureRef": infrastructure("TestMachineTemplate"),
					},
				},
			},
		},
	} {
		u := &unstructured.Unstructured{Object: object}
		u.SetNamespace(machineNamespace)
		w.eventually(func() error {
			if err := w.Client.Create(t.Context(), u.DeepCopy()); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
	t.Cleanup(w.empty)
	w.eventually(func() error {
		if n := len(w.running()); n != replicas {
			return fmt.Errorf("%d of %d machines run", n, replicas)
		}
		return nil
	})
	return w
}

// The same with a MachineDeployment, whose controllers choose by another annotation.
func TestKilledAfterEveryWriteOnClusterAPI(t *testing.T) {
	newClusterAPIWorld(t, 4, 1).killAfterEveryWrite(4)
}
