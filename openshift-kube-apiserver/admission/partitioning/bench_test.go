/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package partitioning

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/apis/core"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest"

	corev1listers "k8s.io/client-go/listers/core/v1"
)

// benchmarked is a plugin that has seen a cluster of a size, without an API server.
func benchmarked(b *testing.B, nodes int) *plugin {
	b.Helper()
	p := newPlugin(config.Configuration{})
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := namespaces.Add(partitiontest.Namespace("open", partition.AllowedAnnotation, "management")); err != nil {
		b.Fatal(err)
	}
	p.gate.SetNamespaces(corev1listers.NewNamespaceLister(namespaces))
	p.activation.SetSynced(func() bool { return true })
	constrainNothing(b.Context(), p)
	for i := range nodes {
		p.activation.NodeChanged(nil, partitiontest.Node(fmt.Sprintf("node-%d", i), "management"))
	}
	return p
}

// constrainNothing gives the plugin empty caches of LimitRanges and ResourceQuotas.
func constrainNothing(ctx context.Context, p *plugin) {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	p.constraints.SetClient(client)
	p.constraints.SetInformers(factory)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

func admit(ctx context.Context, b *testing.B, p *plugin, attributes admission.Attributes) {
	if err := p.Admit(ctx, attributes, nil); err != nil {
		b.Fatal(err)
	}
	if err := p.Validate(ctx, attributes, nil); err != nil {
		b.Fatal(err)
	}
}

var clusterSizes = []int{1, 5000, 15000}

// BenchmarkOrdinaryPod is both phases of the admission of a pod with four annotations
// and none of ours, as nearly every pod is.
func BenchmarkOrdinaryPod(b *testing.B) {
	annotations := map[string]string{"example.com/a": "1", "example.com/b": "2", "example.com/c": "3", "example.com/d": "4"}
	for _, nodes := range clusterSizes {
		p := benchmarked(b, nodes)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			request := attributes(newPod(annotations), nil, "open", "", admission.Create)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				admit(ctx, b, p, request)
			}
		})
		b.Run(fmt.Sprintf("nodes=%d/parallel", nodes), func(b *testing.B) {
			ctx := b.Context()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				request := attributes(newPod(annotations), nil, "open", "", admission.Create)
				for pb.Next() {
					admit(ctx, b, p, request)
				}
			})
		})
	}
}

// BenchmarkPartitionedPod is both phases of the admission of a pod with two containers
// that asks for a type and gets it; building the pod is not counted.
func BenchmarkPartitionedPod(b *testing.B) {
	for _, nodes := range clusterSizes {
		p := benchmarked(b, nodes)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			const batch = 512
			requests := make([]admission.Attributes, batch)
			ctx := b.Context()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if i%batch == 0 {
					b.StopTimer()
					for j := range requests {
						pod := newPod(map[string]string{managementTarget: ""})
						second := *pod.Spec.Containers[0].DeepCopy()
						second.Name = "d"
						pod.Spec.Containers = append(pod.Spec.Containers, second)
						requests[j] = attributes(pod, nil, "open", "", admission.Create)
					}
					b.StartTimer()
				}
				admit(ctx, b, p, requests[i%batch])
			}
			b.StopTimer()
			if pod := requests[0].GetObject().(*core.Pod); !partitionedAlready(pod) {
				b.Fatalf("the pod is %v", pod)
			}
		})
	}
}

func partitionedAlready(pod *core.Pod) bool {
	_, has := pod.Spec.Containers[0].Resources.Requests["management.workload.openshift.io/cores"]
	return has
}
