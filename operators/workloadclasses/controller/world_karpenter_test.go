// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"workload.openshift.io/operators/internal/testenv"
)

// What Karpenter knows by name.
const (
	doNotDisrupt      = "karpenter.sh/do-not-disrupt"
	unregisteredTaint = "karpenter.sh/unregistered"
	disruptedTaint    = "karpenter.sh/disrupted"
)

// karpenters are the nodes of the class if Karpenter orders them and gives them back.
type karpenters struct {
	*world
	// annotations are those of the pods of the wave.
	annotations map[string]string
}

// Karpenter and its own provider for kwok take the place of the companion's controllers, of the controllers of Machines and of the
// autoscaler. Its one type of machine has the size and the start of the others, and pods get their class by the companion's webhook.
// Settings are its defaults, except that all nodes may be disrupted at a time, and that its batches of pods last a tenth: it looks
// every 10 seconds and waits 15 seconds before it disrupts, which no setting compresses, and with a budget these waits would add up.
// A pod that it evicts begins again, so that the same work gets done.
func karpenterInAWave(t *testing.T, wave *played, annotations map[string]string) {
	program := asset(t, "TEST_ASSET_KARPENTER", "")
	w := newWorldWithoutMachines(t)
	w.evictByTaint()
	w.start(func(s *Settings) { s.Machines = NoMachines }).Kill() // its webhooks go on
	n := &karpenters{w, annotations}
	n.install(wave)
	k := &kubelets{world: w, wave: wave, program: n.run(program), karpenter: n, by: map[types.UID]*run{}, seen: map[string]bool{}}
	k.play()
	if k.gone() == 0 {
		t.Error("no node was given back")
	}
}

// install installs Karpenter's CRDs, and a NodePool with the nodes of the class.
func (n *karpenters) install(wave *played) {
	n.t.Helper()
	at := filepath.Join(testenv.SourceOf(n.t, filepath.Join("..", "build", "karpenter"), "sigs.k8s.io/karpenter"), "kwok")
	if _, err := envtest.InstallCRDs(n.Config, envtest.CRDInstallOptions{Paths: []string{filepath.Join(at, "apis", "crds"), filepath.Join(at, "charts", "crds")}}); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(n.remove)
	for kind, spec := range map[string]map[string]any{
		"KWOKNodeClass": {"nodeRegistrationDelay": wave.Boot.String()},
		"NodePool": {
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"ci-workload": "tests"}},
				"spec": map[string]any{
					"nodeClassRef": map[string]any{"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": setName},
					"requirements": []any{map[string]any{"key": "karpenter.sh/capacity-type", "operator": "In", "values": []any{"on-demand"}}},
					"taints":       []any{map[string]any{"key": "node-role.kubernetes.io/ci-tests-worker", "value": "ci-tests-worker", "effect": "NoSchedule"}},
				},
			},
			"disruption": map[string]any{"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s", "budgets": []any{map[string]any{"nodes": "100%"}}},
		},
	} {
		object := karpenterObject(kind)
		object.SetName(setName)
		object.Object["spec"] = spec
		n.eventually(func() error { return n.Client.Create(n.t.Context(), object.DeepCopy()) })
	}
}

// run starts Karpenter with one type of machine: its provider for kwok takes 100m of CPU and 10Mi from each for the kubelet.
func (n *karpenters) run(program string) *testenv.Process {
	n.t.Helper()
	in := func(key, value string) map[string]any {
		return map[string]any{"key": key, "operator": "In", "values": []string{value}}
	}
	machines, err := json.Marshal([]any{map[string]any{
		"name": "tests", "architecture": "amd64", "operatingSystems": []string{"linux"},
		"resources": map[string]string{"cpu": "4100m", "memory": "16394Mi", "pods": "110"},
		"offerings": []any{map[string]any{"Price": 1, "Available": true, "Requirements": []any{in("karpenter.sh/capacity-type", "on-demand"), in(corev1.LabelTopologyZone, "zone")}}},
	}})
	if err != nil {
		n.t.Fatal(err)
	}
	file := filepath.Join(n.t.TempDir(), "machines.json")
	if err := os.WriteFile(file, machines, 0o600); err != nil {
		n.t.Fatal(err)
	}
	ports, err := testenv.FreePorts(2)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Setenv("KUBECONFIG", n.Kubeconfig)
	return testenv.RunFile(n.t, program, "--disable-leader-election=true", "--instance-types-file-path="+file, "--batch-max-duration=1s", "--batch-idle-duration=100ms",
		fmt.Sprintf("--metrics-port=%d", ports[0]), fmt.Sprintf("--health-probe-port=%d", ports[1]), "--log-output-paths=stderr")
}

// look returns how many machines are paid for, and reports new nodes as their kubelets do.
func (n *karpenters) look(nodes map[string]corev1.Node) int {
	n.t.Helper()
	for name, node := range nodes {
		if len(node.Status.Conditions) > 0 {
			continue
		}
		before := node.DeepCopy()
		node.Status.Capacity = node.Status.Allocatable
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		if err := n.Client.Status().Patch(n.t.Context(), &node, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			n.t.Fatal(err)
		}
		if cpu, memory := node.Status.Allocatable.Cpu().String(), node.Status.Allocatable.Memory().String(); cpu != "4" || memory != "16Gi" {
			n.t.Fatalf("node %s has %s CPUs and %s, and the nodes of Machines have 4 and 16Gi", name, cpu, memory)
		}
	}
	return len(n.claims().Items)
}

func karpenterObject(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if object.SetAPIVersion("karpenter.sh/v1"); kind == "KWOKNodeClass" {
		object.SetAPIVersion("karpenter.kwok.sh/v1alpha1")
	}
	object.SetKind(kind)
	return object
}

// claims are Karpenter's machines.
func (n *karpenters) claims() *unstructured.UnstructuredList {
	n.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("karpenter.sh/v1")
	list.SetKind("NodeClaim")
	if err := n.Client.List(context.Background(), list); err != nil {
		n.t.Fatal(err)
	}
	return list
}

// remove removes all of it. Karpenter has ended, so nobody else removes the finalizers.
func (n *karpenters) remove() {
	ctx := context.Background()
	_ = n.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("ci-op-x"), client.GracePeriodSeconds(0))
	for _, kind := range []string{"NodePool", "KWOKNodeClass"} {
		object := karpenterObject(kind)
		object.SetName(setName)
		n.drop(object)
	}
	n.eventually(func() error {
		claims, nodes := n.claims(), &corev1.NodeList{}
		if err := n.Client.List(ctx, nodes, client.HasLabels{"ci-workload"}); err != nil {
			return err
		}
		for i := range claims.Items {
			n.drop(&claims.Items[i])
		}
		for i := range nodes.Items {
			n.drop(&nodes.Items[i])
		}
		if left := len(claims.Items) + len(nodes.Items); left > 0 {
			return fmt.Errorf("%d objects are left", left)
		}
		return nil
	})
}

func (n *karpenters) drop(object client.Object) {
	err := errors.Join(
		client.IgnoreNotFound(n.Client.Patch(context.Background(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))),
		client.IgnoreNotFound(n.Client.Delete(context.Background(), object)),
	)
	if err != nil && !apierrors.IsConflict(err) {
		n.t.Error(err)
	}
}
