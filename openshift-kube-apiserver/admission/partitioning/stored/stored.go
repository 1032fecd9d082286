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

// Package stored finds pods that a kubelet takes for partitioned although their namespace does
// not allow the workload type (design, section 4.3). The plugin never judged a pod that was
// stored before it was there, and a kubelet believes what a pod says.
//
// It knows stored pods and their namespaces. Requests, nodes and active types it must not know;
// it imports nothing of k8s.io/kubernetes.
package stored

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"workload.openshift.io/partition"
)

// Pods are those of a cluster. Make them with [New].
type Pods struct {
	byType     cache.Indexer
	namespaces corev1listers.NamespaceLister
	synced     []cache.InformerSynced
}

// index is the name of the index of pods by the type of their partition.
const index = "workload.openshift.io/partition"

// New follows pods and namespaces. kube-apiserver caches both for its own plugins
// (PodSecurity, NamespaceLifecycle), so an index is all that this adds. It returns an error if an informer has
// started already, or has such an index.
func New(pods coreinformers.PodInformer, namespaces coreinformers.NamespaceInformer) (*Pods, error) {
	informer := pods.Informer()
	if err := informer.AddIndexers(cache.Indexers{index: typesOf}); err != nil {
		return nil, err
	}
	return &Pods{informer.GetIndexer(), namespaces.Lister(), []cache.InformerSynced{informer.HasSynced, namespaces.Informer().HasSynced}}, nil
}

// typesOf returns the workload type in whose partition a kubelet would put the pod. A mirror pod runs no containers, and
// its static pod needs no namespace's leave; an ended pod runs none any more.
func typesOf(object any) ([]string, error) {
	pod, ok := object.(*v1.Pod)
	if !ok || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return nil, nil
	}
	workloadType, ok := partition.PartitionedType(pod)
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; !ok || mirror {
		return nil, nil
	}
	return []string{workloadType}, nil
}

// AwaitNotAllowed is NotAllowed as soon as all pods and namespaces have been seen. It returns nil if the context ends before.
func (p *Pods) AwaitNotAllowed(ctx context.Context, workloadType string) []string {
	if !cache.WaitForCacheSync(ctx.Done(), p.synced...) {
		return nil
	}
	names, _ := p.NotAllowed(workloadType)
	return names
}

// NotAllowed returns the pods of the type's partition whose namespace does not allow the type, as NAMESPACE/NAME in
// alphabetical order. They are not known before all pods and namespaces have been seen.
func (p *Pods) NotAllowed(workloadType string) (names []string, known bool) {
	for _, synced := range p.synced {
		if !synced() {
			return nil, false
		}
	}
	pods, err := p.byType.ByIndex(index, workloadType)
	if err != nil {
		return nil, false // there is such an index
	}
	for _, object := range pods {
		pod, ok := object.(*v1.Pod)
		if !ok {
			continue
		}
		// A namespace that the cache lacks is being deleted, and its pods with it.
		if namespace, err := p.namespaces.Get(pod.Namespace); err == nil && partition.NamespaceReason(namespace.Annotations, workloadType) != partition.NoReason {
			names = append(names, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(names)
	return names, true
}
