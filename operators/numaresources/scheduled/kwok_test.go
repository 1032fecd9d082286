// SPDX-License-Identifier: Apache-2.0

package scheduled

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/testenv"
)

// kwok plays the kubelets, which takes any pod. kube-scheduler places by the nodes alone, so what it places fits a node.
func TestOnNodesOfKwokAPodThatFitsANodeAndNoZoneIsPending(t *testing.T) {
	file, kwok := program(t, "TEST_ASSET_SCHEDULER"), program(t, "TEST_ASSET_KWOK")
	plane := testenv.Start(t)
	k := &kubelets{t: t, client: plane.Client, nodes: map[string]*node{}}
	k.clear()
	t.Cleanup(k.clear)
	t.Setenv("KWOK_WORKDIR", t.TempDir()) // a user may have settings elsewhere
	testenv.RunFile(t, kwok, "--kubeconfig="+plane.Kubeconfig, "--config="+filepath.Join(filepath.Dir(kwok), "kwok-stages.yaml"), "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake")
	for _, name := range []string{"worker-0", "worker-1"} {
		k.add(name, []int64{8, 8}, func(n *corev1.Node) {
			n.Annotations = map[string]string{"kwok.x-k8s.io/node": "fake"}
			n.Status.Conditions = nil
		})
	}
	testenv.RunFile(t, file, "--config="+configuration(t, plane.Kubeconfig), "--secure-port=0")

	// Two pods on a node cannot share a zone, so it is known which CPUs are free.
	for _, of := range []struct {
		name, node string
		zone       int
		cpus       int64
	}{{"five", "worker-0", 0, 5}, {"six", "worker-0", 1, 6}, {"six-too", "worker-1", 0, 6}, {"five-too", "worker-1", 1, 5}} {
		k.pod(of.name, fmt.Sprint(of.cpus), func(pod *corev1.Pod) {
			pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: of.node}
		})
		k.runs(of.name)
		n := k.nodes[of.node]
		n.free[of.zone] -= of.cpus
		n.pods[of.name] = placed{of.zone, of.cpus}
		k.report(t.Context(), of.node, time.Now())
	}
	k.pod("four", "4")
	k.eventually(func() error {
		why := waits(k.read("four"))
		for _, want := range []string{"0/2 nodes are available", "node-0 lacks 1 of cpu", "node-1 lacks 1 of cpu"} {
			if !strings.Contains(why, want) {
				return fmt.Errorf("the pod waits since %q, without %q", why, want)
			}
		}
		return nil
	})
	t.Run("kubectl partition explain names zone and amount", func(t *testing.T) {
		plugin := program(t, "TEST_ASSET_PLUGIN")
		text, _ := exec.CommandContext(t.Context(), plugin, "explain", "--kubeconfig="+plane.Kubeconfig, "--namespace="+namespace, "--output=json", "four").Output() // its exit code is 1, since a pod waits
		type zone struct{ Node, Zone, Resource, Missing string }
		var said struct{ Items []struct{ Zones []zone } }
		if err := json.Unmarshal(text, &said); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		want := []zone{{"worker-0", "node-0", "cpu", "1"}, {"worker-1", "node-1", "cpu", "1"}}
		if len(said.Items) != 1 || !reflect.DeepEqual(said.Items[0].Zones, want) {
			t.Errorf("it says %+v, want %+v", said.Items, want)
		}
	})
	t.Run("kube-scheduler places such a pod, for it fits the node", func(t *testing.T) {
		testenv.RunBeside(t, "kube-scheduler", "--config="+plainConfiguration(t, plane.Kubeconfig), "--secure-port=0")
		k.pod("by-kube-scheduler", "4", func(pod *corev1.Pod) { pod.Spec.SchedulerName = corev1.DefaultSchedulerName })
		k.runs("by-kube-scheduler")
		k.must(k.client.Delete(t.Context(), k.read("by-kube-scheduler"), client.GracePeriodSeconds(0)))
	})
	if pod := k.read("four"); pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending {
		t.Fatalf("the pod is %s, on %q", pod.Status.Phase, pod.Spec.NodeName)
	}
	t.Run("it runs once a pod has ended, and the node reports that", func(t *testing.T) {
		k.must(k.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "five"}}, client.GracePeriodSeconds(0)))
		n := k.nodes["worker-0"]
		n.free[0] += 5
		delete(n.pods, "five")
		k.report(t.Context(), "worker-0", time.Now())
		k.runs("four")
		if on := k.read("four").Spec.NodeName; on != "worker-0" {
			t.Errorf("the pod is on %q", on)
		}
	})
}
