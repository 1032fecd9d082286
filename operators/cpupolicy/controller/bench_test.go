// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/internal/testenv"
)

// BenchmarkFiveThousandNodes measures what each judged request and each look cost on a cluster of that size,
// where a hundred nodes of a paused group wait.
func BenchmarkFiveThousandNodes(b *testing.B) {
	controlPlane := testenv.Start(b)
	restConfig := rest.CopyConfig(controlPlane.Config)
	restConfig.QPS = -1
	config := &configv1alpha1.ControllerConfiguration{}
	configv1alpha1.SetDefaults(config)
	settings := Settings{AgentNamespace: "default"}
	settings.Default()
	needs := (&Companion{settings}).Needs(config)
	scheme := testenv.Scheme()
	if err := needs.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	mgr, err := manager.New(restConfig, manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: needs.Home.Cache, DefaultTransform: cache.TransformStripManagedFields(), ReaderFailOnMissingInformer: true},
	})
	if err != nil {
		b.Fatal(err)
	}
	var nodes []*corev1.Node
	for i := range 5000 {
		node := worker(fmt.Sprintf("node-%d", i))
		node.Labels = map[string]string{cpupolicy.Label: "true"}
		if i < 3 {
			node.Labels["node-role.kubernetes.io/control-plane"] = ""
		}
		node.Status.NodeInfo.BootID = "boot"
		(&nodestatus.Observed{Observation: operation.Observation{Policy: cpupolicy.None}, BootID: "boot", At: time.Now()}).Put(node)
		if 100 <= i && i < 200 {
			node.Annotations[nodestatus.StatusAnnotation] = nodestatus.Status{State: nodestatus.Requested, Policy: cpupolicy.Static, ID: fmt.Sprint("static-", i), Group: "all", Since: time.Now()}.String()
		}
		for image := range 50 {
			name := fmt.Sprintf("registry.example.com/some/where/an-image-of-a-usual-name@sha256:%064d", image)
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{name}, SizeBytes: 1 << 24})
		}
		nodes = append(nodes, node)
	}
	group := &v1alpha1.CPUManagerPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "all", Annotations: map[string]string{nodegroup.PausedAnnotation: ""}},
		Spec:       v1alpha1.CPUManagerPolicySpec{Nodes: v1alpha1.NodeSelection{Selector: &metav1.LabelSelector{}}, Policy: v1alpha1.PolicyStatic},
	}
	c, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Create(b.Context(), group); err != nil {
		b.Fatal(err)
	}
	var all sync.WaitGroup
	for part := range 10 {
		all.Go(func() {
			for i := part; i < len(nodes); i += 10 {
				if err := c.Create(b.Context(), nodes[i]); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := indexRoles(b.Context(), mgr.GetFieldIndexer()); err != nil {
		b.Fatal(err)
	}
	r, err := newNodesReconciler(mgr, "default", settings)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var cached sync.WaitGroup
	defer cached.Wait()
	defer cancel()
	for object := range needs.Home.Cache {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			b.Fatal(err)
		}
	}
	cached.Go(func() { _ = mgr.GetCache().Start(ctx) })
	mgr.GetCache().WaitForCacheSync(ctx)

	for _, policy := range operation.Policies() {
		b.Run(fmt.Sprintf("a judged request for %s", policy), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.situations.of(ctx, nodes[0].DeepCopy(), policy); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("a look", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Reconcile(ctx, reconcile.Request{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
