// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"workload.openshift.io/partition"
)

// readNamespaces lists the namespaces, and keeps what the annotated ones allow.
func (r *reader) readNamespaces(ctx context.Context) error {
	list := pages(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.client.CoreV1().Namespaces().List(ctx, options)
	})
	allowed := map[string]string{}
	err := list(ctx, func(object runtime.Object) error {
		namespace := object.(*v1.Namespace)
		if types, annotated := namespace.Annotations[partition.AllowedAnnotation]; annotated {
			allowed[namespace.Name] = types
		}
		return nil
	})
	if r.allowed = allowed; err != nil {
		r.allowed = nil
	}
	return Note(&r.unknown, "list namespaces", "which pods have no right to their partition, and which namespaces have no quota on cores", err)
}

// readQuotas lists the quotas, and keeps the types that a namespace allows and no quota of it bounds.
func (r *reader) readQuotas(ctx context.Context) error {
	if len(r.allowed) == 0 {
		return nil
	}
	list := pages(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.client.CoreV1().ResourceQuotas(metav1.NamespaceAll).List(ctx, options)
	})
	bounded := map[Unbounded]bool{}
	err := list(ctx, func(object runtime.Object) error {
		quota := object.(*v1.ResourceQuota)
		if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			return nil // it bounds some of the pods only
		}
		for _, workloadType := range partition.ParseTypes(r.allowed[quota.Namespace]) {
			if _, bounds := quota.Spec.Hard[QuotaOnCores(workloadType)]; bounds {
				bounded[Unbounded{quota.Namespace, workloadType}] = true
			}
		}
		return nil
	})
	if err == nil {
		for namespace, types := range r.allowed {
			for _, workloadType := range partition.ParseTypes(types) {
				if of := (Unbounded{namespace, workloadType}); !bounded[of] && partition.ValidateType(workloadType) == nil {
					r.unbounded = append(r.unbounded, of)
				}
			}
		}
		slices.SortFunc(r.unbounded, func(a, b Unbounded) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Namespace, b.Namespace))
		})
		r.unbounded = slices.Compact(r.unbounded)
	}
	return Note(&r.unknown, "list resourcequotas", "which namespaces have no quota on cores", err)
}

// QuotaOnCores is what a ResourceQuota has to bound so that it bounds the cores of a type. Of extended
// resources, quotas know the requests only (pkg/quota/v1/evaluator/core, pods.go).
func QuotaOnCores(workloadType string) v1.ResourceName {
	return v1.ResourceName(v1.DefaultResourceRequestsPrefix + partition.CoresResource(workloadType))
}

// claimed returns the types that a pod claims: those for which it asks, and those of its cores.
func claimed(pod *v1.Pod) (types []string) {
	for key := range pod.Annotations {
		if workloadType, asks := strings.CutPrefix(key, partition.TargetPrefix); asks {
			types = append(types, workloadType)
		}
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, list := range []v1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				for name := range list {
					if workloadType, isCores := partition.TypeOfCores(string(name)); isCores {
						types = append(types, workloadType)
					}
				}
			}
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// judge keeps a pod that claims a type which its namespace does not allow, and reports whether it did.
// A mirror pod never runs: its static pod comes from a file of its node, whose owner is root.
func (r *reader) judge(pod *v1.Pod, partitioned bool, types ...string) (notAllowed bool) {
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror || r.allowed == nil || Ended(pod) {
		return false
	}
	for _, workloadType := range types {
		if !partition.ListsType(r.allowed[pod.Namespace], workloadType) {
			r.notAllowed = append(r.notAllowed, PodNotAllowed{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, Type: workloadType, Partitioned: partitioned})
			return true
		}
	}
	return false
}

// judgeAgain drops the pods of namespaces that have come to allow the type since they were read.
func (r *reader) judgeAgain(ctx context.Context) error {
	if len(r.notAllowed) == 0 {
		return nil
	}
	if err := r.readNamespaces(ctx); err != nil {
		return err
	}
	r.notAllowed = slices.DeleteFunc(r.notAllowed, func(pod PodNotAllowed) bool {
		return partition.ListsType(r.allowed[pod.Namespace], pod.Type)
	})
	slices.SortFunc(r.notAllowed, func(a, b PodNotAllowed) int {
		byPartition := 0
		if a.Partitioned != b.Partitioned {
			byPartition = 1
			if a.Partitioned {
				byPartition = -1
			}
		}
		return cmp.Or(byPartition, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return nil
}
