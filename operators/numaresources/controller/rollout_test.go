// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
)

// kubelets play those of all nodes, and the default scheduler: each pod gets to its node, and is ready or gone a moment later.
type kubelets struct {
	i *companiontest.Installed
	// images are those of the pods that are ready, by node.
	images map[string]string
	// most is how many nodes had no ready exporter at once, once all had had one.
	all, most int
	since     map[string]time.Time
}

// moment is how long a pod takes to become ready, and to end.
const moment = 300 * time.Millisecond

// play does what kubelets would do now.
func (k *kubelets) play(ctx context.Context) error {
	var pods corev1.PodList
	if err := k.i.Client.List(ctx, &pods, client.InNamespace(exporters)); err != nil {
		return err
	}
	k.images = map[string]string{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		node := pod.Spec.NodeName
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			k.images[node] = pod.Spec.Containers[0].Image
			continue
		}
		if k.since[string(pod.UID)+node].IsZero() {
			k.since[string(pod.UID)+node] = time.Now()
		}
		switch {
		case time.Since(k.since[string(pod.UID)+node]) < moment:
		case pod.DeletionTimestamp != nil:
			if err := k.i.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				return err
			}
		case node == "":
			// The DaemonSet controller says to which node.
			terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			if err := k.i.Client.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: terms[0].MatchFields[0].Values[0]}}); err != nil {
				return err
			}
		default:
			pod.Status = corev1.PodStatus{
				Phase: corev1.PodRunning, StartTime: ptr.To(metav1.Now()),
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
			}
			if err := k.i.Client.Status().Update(ctx, pod); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	k.all = max(k.all, len(k.images))
	k.most = max(k.most, k.all-len(k.images))
	return nil
}

// until plays until something is true.
func (k *kubelets) until(t *testing.T, check func() error) {
	t.Helper()
	testenv.Eventually(t, 2*time.Minute, func() error {
		if err := k.play(t.Context()); err != nil {
			return err
		}
		return check()
	})
}

// has returns an error unless these nodes have ready exporters of an image.
func (k *kubelets) has(image string, nodes ...string) error {
	for _, node := range nodes {
		if k.images[node] != image {
			return fmt.Errorf("the ready exporters are %q, want %s on %q", k.images, image, nodes)
		}
	}
	if len(k.images) != len(nodes) {
		return fmt.Errorf("the ready exporters are %q, want %q", k.images, nodes)
	}
	return nil
}

// TestExportersAreUpdatedOneNodeAtATime has Kubernetes' own DaemonSet controller and garbage collector.
func TestExportersAreUpdatedOneNodeAtATime(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs kube-controller-manager")
	}
	i := companiontest.Install(t, Name)
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	testenv.RunBeside(t, "kube-controller-manager", "--kubeconfig="+i.Kubeconfig, "--leader-elect=false", "--authentication-skip-lookup",
		fmt.Sprintf("--secure-port=%d", ports[0]), "--bind-address=127.0.0.1", "--cert-dir="+t.TempDir(), "--controllers=daemonset-controller,garbage-collector-controller")
	const first, second = "registry.example.com/partition-node:1", "registry.example.com/partition-node:2"
	before := startWith(t, i, map[string]any{"exporterImage": first})
	nodes := []string{"n1", "n2", "n3", "n4"}
	for _, name := range nodes {
		node(t, i, name, map[string]string{"pool": "a"})
		worker := &corev1.Node{}
		if err := i.Client.Get(t.Context(), client.ObjectKey{Name: name}, worker); err != nil {
			t.Fatal(err)
		}
		ready(t, i, worker, corev1.ConditionTrue)
		// kube-apiserver has put a taint there, which goes with a node lifecycle controller.
		worker.Spec.Taints = nil
		if err := i.Client.Update(t.Context(), worker); err != nil {
			t.Fatal(err)
		}
	}
	object := write(t, i, nodetopologyv1.NodeGroup{NodeSelector: selecting("pool", "a")})
	k := &kubelets{i: i, since: map[string]time.Time{}}
	k.until(t, func() error { return k.has(first, nodes...) })
	for _, name := range nodes {
		owner := &corev1.Node{}
		if err := i.Client.Get(t.Context(), client.ObjectKey{Name: name}, owner); err != nil {
			t.Fatal(err)
		}
		report(t, i, name, time.Now(), running("single-numa-node", "pod")...)
		// As the exporter writes it.
		written := &v1alpha2.NodeResourceTopology{}
		if err := i.Client.Get(t.Context(), client.ObjectKey{Name: name}, written); err != nil {
			t.Fatal(err)
		}
		written.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: owner.UID}}
		if err := i.Client.Update(t.Context(), written); err != nil {
			t.Fatal(err)
		}
	}
	condition(t, i, nodetopologyv1.ConditionAvailable, metav1.ConditionTrue)
	condition(t, i, nodetopologyv1.ConditionProgressing, metav1.ConditionFalse)

	if err := before.Terminate(t, patience); err != nil {
		t.Fatal(err)
	}
	after := startWith(t, i, map[string]any{"exporterImage": second})
	k.most = 0
	var order []string
	told := false
	k.until(t, func() error {
		for _, name := range nodes {
			if k.images[name] == second && !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
		if !told {
			now := &nodetopologyv1.NUMAResourcesOperator{}
			if err := i.Client.Get(t.Context(), client.ObjectKeyFromObject(object), now); err != nil {
				return err
			}
			for _, c := range now.Status.Conditions {
				told = told || c.Type == nodetopologyv1.ConditionProgressing && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "of 4 nodes")
			}
		}
		return k.has(second, nodes...)
	})
	if t.Logf("updated in the order %v, with %d nodes at most without an exporter", order, k.most); k.most != 1 {
		t.Errorf("%d nodes had no exporter at once, want 1", k.most)
	}
	if !told {
		t.Error("meanwhile Progressing has not said how many of the 4 nodes have the newest pod")
	}
	condition(t, i, nodetopologyv1.ConditionProgressing, metav1.ConditionFalse)
	// The reports stayed, and one goes with its Node (C4).
	for _, name := range nodes {
		if err := i.Client.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha2.NodeResourceTopology{}); err != nil {
			t.Error(err)
		}
	}
	gone(t, i, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n4"}})
	c := &cluster{Installed: i}
	c.mustBeGone(t, &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "n4"}})
	// What the companion made goes with the object, although the companion has ended.
	if err := after.Terminate(t, patience); err != nil {
		t.Fatal(err)
	}
	gone(t, i, object)
	k.until(t, func() error {
		var sets appsv1.DaemonSetList
		if err := i.Client.List(t.Context(), &sets, client.InNamespace(exporters)); err != nil || len(sets.Items) > 0 {
			return fmt.Errorf("%d DaemonSets are left: %w", len(sets.Items), err)
		}
		return k.has(second)
	})
}
