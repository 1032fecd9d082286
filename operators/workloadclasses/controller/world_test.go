// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
)

const (
	patience         = time.Minute
	machineNamespace = "openshift-machine-api"
	setName          = "tests"
)

// world is a control plane with the companion, the real scheduler, and OpenShift's own controllers of
// machines. Nodes are objects, and pods run nowhere.
type world struct {
	*companiontest.Installed
	t testing.TB
	// api is that of its machines, and version that of their kinds.
	api     MachineAPI
	version string
}

// asset returns a program beside kube-apiserver, or of a variable; it skips the test without it.
func asset(t testing.TB, variable, beside string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path := filepath.Join(filepath.Dir(os.Getenv("TEST_ASSET_KUBE_APISERVER")), beside)
	if _, err := os.Stat(path); beside == "" || err != nil {
		companiontest.Skip(t, "%s does not name a binary; make operators-test does", variable)
	}
	return path
}

// newWorld starts what has not been started, with a class of some nodes, whose set has a minimum.
func newWorld(t testing.TB, replicas, minimum int) *world {
	t.Helper()
	program := asset(t, "TEST_ASSET_MACHINES", "")
	w := newWorldWithoutMachines(t)
	w.installMachines()
	testenv.RunFile(t, program, "--kubeconfig="+w.Kubeconfig, "-v=1")
	w.create("MachineAutoscaler", "autoscaling.openshift.io/v1beta1", map[string]any{
		"minReplicas": int64(minimum), "maxReplicas": int64(80),
		"scaleTargetRef": map[string]any{"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": setName},
	})
	set := map[string]any{"set": setName, "machine.openshift.io/cluster-api-cluster": "test"}
	w.create("MachineSet", "machine.openshift.io/v1beta1", map[string]any{
		"replicas": int64(replicas),
		"selector": map[string]any{"matchLabels": set},
		"template": map[string]any{
			"metadata": map[string]any{"labels": set},
			"spec": map[string]any{
				"metadata":     map[string]any{"labels": map[string]any{"ci-workload": "tests"}},
				"taints":       []any{map[string]any{"key": "node-role.kubernetes.io/ci-tests-worker", "value": "ci-tests-worker", "effect": "NoSchedule"}},
				"providerSpec": map[string]any{"value": map[string]any{"kind": "Test"}},
			},
		},
	})
	t.Cleanup(w.empty)
	w.eventually(func() error {
		if n := len(w.running()); n != replicas {
			return fmt.Errorf("%d of %d machines run", n, replicas)
		}
		return nil
	})
	return w
}

// newWorldWithoutMachines starts the rest of what has not been started.
func newWorldWithoutMachines(t testing.TB) *world {
	t.Helper()
	scheduler := asset(t, "TEST_ASSET_KUBE_SCHEDULER", "kube-scheduler")
	w := &world{companiontest.Install(t, Name), t, MachineSet, "machine.openshift.io/v1beta1"}
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	testenv.RunFile(t, scheduler, "--kubeconfig="+w.Kubeconfig, "--leader-elect=false", "--authentication-skip-lookup", fmt.Sprintf("--secure-port=%d", ports[0]), "--bind-address=127.0.0.1", "--cert-dir="+t.TempDir())
	for _, name := range []string{machineNamespace, "ci-op-x"} {
		if err := w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return w
}

// installMachines installs OpenShift's CRDs, from the module that the test's controllers are of.
func (w *world) installMachines() {
	w.t.Helper()
	crds := filepath.Join(testenv.SourceOf(w.t, filepath.Join("test", "machines"), "github.com/openshift/api"), "machine", "v1beta1", "zz_generated.crd-manifests")
	_, err := envtest.InstallCRDs(w.Config, envtest.CRDInstallOptions{Paths: []string{
		filepath.Join(crds, "0000_10_machine-api_01_machines-Default.crd.yaml"),
		filepath.Join(crds, "0000_10_machine-api_01_machinesets-Default.crd.yaml"),
		filepath.Join("testdata", "machineautoscalers.yaml"),
	}})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(kind, version string, spec map[string]any) {
	w.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"namespace": machineNamespace, "name": setName}, "spec": spec}}
	w.eventually(func() error { return w.Client.Create(w.t.Context(), object.DeepCopy()) })
}

// empty removes all that a test leaves, so that the next begins with nothing. The controllers of machines may make some meanwhile.
func (w *world) empty() {
	ctx := context.Background()
	kinds := []string{"MachineAutoscaler", "MachineSet", "Machine"}
	if w.api == MachineDeployment {
		kinds = []string{"MachineDeployment", "MachineSet", "Machine"}
	}
	_ = w.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("ci-op-x"), client.GracePeriodSeconds(0))
	quiet := 0
	w.eventually(func() error {
		left := 0
		for _, kind := range kinds {
			list := w.list(kind)
			left += len(list)
			for i := range list {
				object := &list[i]
				if len(object.GetFinalizers()) > 0 {
					_ = w.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
				}
				_ = w.Client.Delete(ctx, object)
			}
		}
		var nodes corev1.NodeList
		if err := w.Client.List(ctx, &nodes, client.HasLabels{"ci-workload"}); err != nil {
			return err
		}
		for i := range nodes.Items {
			_ = w.Client.Delete(ctx, &nodes.Items[i])
		}
		if left += len(nodes.Items); left > 0 {
			quiet = 0
			return fmt.Errorf("%d objects are left", left)
		}
		if quiet++; quiet < 10 {
			return errors.New("more may come")
		}
		return nil
	})
}

func (w *world) list(kind string) []unstructured.Unstructured {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(w.version)
	if kind == "MachineAutoscaler" {
		list.SetAPIVersion("autoscaling.openshift.io/v1beta1")
	}
	list.SetKind(kind)
	if err := w.Client.List(context.Background(), list, client.InNamespace(machineNamespace)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// letGo removes a finalizer from all Machines.
func (w *world) letGo(finalizer string) {
	w.t.Helper()
	w.eventually(func() error {
		for _, machine := range w.list("Machine") {
			before := machine.GetFinalizers()
			after := slices.DeleteFunc(slices.Clone(before), func(has string) bool { return has == finalizer })
			if machine.SetFinalizers(after); len(after) < len(before) {
				if err := w.Client.Update(w.t.Context(), &machine); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// running returns the Machines that run and are not deleted.
func (w *world) running() (names []string) {
	for _, machine := range w.list("Machine") {
		phase, _, _ := unstructured.NestedString(machine.Object, "status", "phase")
		if phase == "Running" && machine.GetDeletionTimestamp() == nil {
			names = append(names, machine.GetName())
		}
	}
	return names
}

func (w *world) replicas() int {
	w.t.Helper()
	sets := w.list(string(w.api))
	if len(sets) != 1 {
		w.t.Fatalf("there are %d of %s", len(sets), w.api)
	}
	n, _, _ := unstructured.NestedInt64(sets[0].Object, "spec", "replicas")
	return int(n)
}

// start starts the companion with times that suit a test.
func (w *world) start(change func(*Settings)) *testenv.Process {
	w.t.Helper()
	settings := &Settings{RulesFile: filepath.Join(companiontest.Base(Name), "rules.yaml"), Machines: MachineSet, MachineNamespace: machineNamespace}
	settings.Period.Duration, settings.MinNodeAge.Duration, settings.DrainGrace.Duration = 2*time.Second, time.Second, 2*time.Second
	settings.MaxCordon.Duration, settings.DrainPatience.Duration = time.Minute, time.Minute
	if change != nil {
		change(settings)
	}
	text, err := json.Marshal(settings)
	if err != nil {
		w.t.Fatal(err)
	}
	process := w.Start(w.t, func(config *configv1alpha1.ControllerConfiguration) { config.Settings.Raw = text })
	w.RouteWebhooks(w.t)
	w.eventually(func() error { return w.Ready(w.t) })
	// kube-apiserver learns of the webhook's CA a moment later.
	w.eventually(func() error {
		pod := w.pod("asks", "100m")
		if err := w.Client.Create(w.t.Context(), pod, client.DryRunAll); err != nil || pod.Labels["ci-workload"] == "" {
			return fmt.Errorf("the webhook does not answer: %w", errors.Join(err))
		}
		return nil
	})
	return process
}

func (w *world) eventually(check func() error) {
	w.t.Helper()
	testenv.Eventually(w.t, patience, check)
}

func (w *world) pod(prefix, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci-op-x", GenerateName: prefix + "-"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "registry.example.com/test",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
}

// wave creates pods, and waits until all have a node.
func (w *world) wave(prefix string, n int, cpu string) (pods []corev1.Pod) {
	w.t.Helper()
	for range n {
		pod := w.pod(prefix, cpu)
		if err := w.Client.Create(w.t.Context(), pod); err != nil {
			w.t.Fatal(err)
		}
		pods = append(pods, *pod)
	}
	w.eventually(func() error {
		for i := range pods {
			if err := w.Client.Get(w.t.Context(), client.ObjectKeyFromObject(&pods[i]), &pods[i]); err != nil {
				return err
			}
			if pods[i].Spec.NodeName == "" {
				return fmt.Errorf("pod %s has no node: %v", pods[i].Name, pods[i].Status.Conditions)
			}
		}
		return nil
	})
	return pods
}

func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	var pods corev1.PodList
	if err := w.Client.List(w.t.Context(), &pods, client.InNamespace("ci-op-x")); err != nil {
		w.t.Fatal(err)
	}
	return pods.Items
}

// end removes pods, as if they had ended long ago.
func (w *world) end(keep func(*corev1.Pod) bool) {
	w.t.Helper()
	for _, pod := range w.pods() {
		if !keep(&pod) {
			if err := client.IgnoreNotFound(w.Client.Delete(w.t.Context(), &pod, client.GracePeriodSeconds(0))); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

func (w *world) nodes() map[string]corev1.Node {
	w.t.Helper()
	var nodes corev1.NodeList
	if err := w.Client.List(w.t.Context(), &nodes, client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(labels.Set{"ci-workload": "tests"})}); err != nil {
		w.t.Fatal(err)
	}
	result := map[string]corev1.Node{}
	for _, node := range nodes.Items {
		result[node.Name] = node
	}
	return result
}

func hasTaint(node corev1.Node, key string) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == key {
			return true
		}
	}
	return false
}
