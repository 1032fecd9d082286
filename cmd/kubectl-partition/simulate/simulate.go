// SPDX-License-Identifier: Apache-2.0

// Package simulate says, without a cluster, what admission would make of a pod.
//
// It decides nothing itself. The core decides (workload.openshift.io/partition), with the
// gate of kube-apiserver's plugin (design, section 4.1). The plugin's package constraint asks
// upstream code about defaults, LimitRanges and ResourceQuotas. It knows no file and no
// client.
package simulate

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/constraint"
	"workload.openshift.io/kubernetes/pkg/internalpod"
	"workload.openshift.io/partition"
)

// Namespace is what is known of a pod's namespace.
type Namespace struct {
	// Annotations are the namespace's own. Nil means that they are not known, and then the
	// namespace allows every type; an empty map means that it has none.
	Annotations map[string]string
	// LimitRanges and Quotas are the namespace's, also as a file has them: LimitRanges get the
	// API's defaults, and a quota without a status counts with its spec.
	LimitRanges []*v1.LimitRange
	Quotas      []*v1.ResourceQuota
}

// Types answers whether pods may be partitioned as a type in this cluster, or as a static pod
// on this node. Nil means that this is not known, and then every type is active.
type Types = partition.Gate

// Active returns the answer where exactly these types are active.
func Active(types ...string) Types {
	return func(workloadType string) partition.Reason {
		for _, active := range types {
			if active == workloadType {
				return partition.NoReason
			}
		}
		return partition.ReasonTypeInactive
	}
}

// Result is what would become of a pod.
type Result struct {
	// Decision has the outcome and its reason.
	Decision partition.Decision
	// Pod is what would be stored, or what would run. It has upstream's defaults. A refused
	// pod is as it was sent, with these defaults.
	Pod *v1.Pod
	// Messages are what the author of the pod would be told; none if all is well.
	Messages []string
}

// Pod returns what kube-apiserver would make of a pod that is created in the namespace. Its
// error is upstream's, of a pod that cannot be read or that a LimitRange cannot give its
// defaults. The given pod does not change.
func Pod(pod *v1.Pod, namespace Namespace, types Types) (Result, error) {
	internal, err := toInternal(pod)
	if err != nil {
		return Result{}, err
	}
	constraints := constraint.Given(defaulted(namespace.LimitRanges), effective(namespace.Quotas))
	if err := constraints.SetDefaults(internal); err != nil {
		return Result{}, fmt.Errorf("setting the defaults of pod %q: %w", cmp.Or(pod.Name, pod.GenerateName), err)
	}
	policy := partition.Policy{Gate: namespace.gate(types)}
	if gate := policy.Gate; !partition.NodeCounts(pod.Spec.NodeSelector) {
		policy.Gate = func(workloadType string) partition.Reason {
			return cmp.Or(gate(workloadType), partition.ReasonNodeDoesNotCount)
		}
	}
	if target, errs := partition.ParseTarget(internal.Annotations); target.Type != "" && len(errs) == 0 {
		constraints.Complete(internal, false, &policy)
	}
	return result(internal, policy)
}

// Template returns what kube-apiserver would make of the pods of a template; see [Pod].
func Template(template *v1.PodTemplateSpec, namespace Namespace, types Types) (Result, error) {
	return Pod(&v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, namespace, types)
}

// StaticPod returns what a kubelet would make of a static pod. It has upstream's defaults,
// and neither a namespace's permission nor its constraints. It is never refused (design,
// section 5).
func StaticPod(pod *v1.Pod, types Types) (Result, error) {
	internal, err := toInternal(pod)
	if err != nil {
		return Result{}, err
	}
	if err := constraint.Given(nil, nil).SetDefaults(internal); err != nil {
		return Result{}, err
	}
	return result(internal, partition.Policy{Gate: anyIfNil(types), NeverRefuse: true})
}

// IsStatic reports whether a pod of a file is a static one: the kubelet reads the directory, and
// a mirror pod shows one in a cluster. The file may be empty.
func IsStatic(pod *metav1.ObjectMeta, file string) bool {
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	// A path may begin in the directory, and standard input has none.
	if _, err := os.Stat(file); err == nil {
		if absolute, err := filepath.Abs(file); err == nil {
			file = absolute
		}
	}
	dir := filepath.ToSlash(filepath.Dir(file))
	return mirror || strings.HasSuffix("/"+dir, "/etc/kubernetes/manifests")
}

func result(pod *core.Pod, policy partition.Policy) (Result, error) {
	// Neither caller takes a warning from a user (design, section 4.1).
	delete(pod.Annotations, partition.WarningAnnotation)
	decision := partition.Mutate(internalpod.View(pod), policy)
	r := Result{Decision: decision, Pod: &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}}
	if message := decision.Message(); message != "" {
		r.Messages = []string{message}
	}
	return r, corev1.Convert_core_Pod_To_v1_Pod(pod, r.Pod, nil)
}

// gate asks in the order of kube-apiserver's: a type that the cluster has decided against is
// told before the namespace is looked at.
func (n Namespace) gate(types Types) partition.Gate {
	types = anyIfNil(types)
	return func(workloadType string) partition.Reason {
		ofType := types(workloadType)
		if n.Annotations == nil || ofType == partition.ReasonDecidedAgainst {
			return ofType
		}
		return cmp.Or(partition.NamespaceReason(n.Annotations, workloadType), ofType)
	}
}

func anyIfNil(types Types) partition.Gate {
	if types == nil {
		return partition.AnyType
	}
	return types
}

func toInternal(pod *v1.Pod) (*core.Pod, error) {
	// The conversion shares what it need not copy.
	internal := &core.Pod{}
	return internal, corev1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), internal, nil)
}

// effective gives quotas that no controller has seen the status that it would give them
// (pkg/controller/resourcequota, syncResourceQuota).
func effective(quotas []*v1.ResourceQuota) []*v1.ResourceQuota {
	with := make([]*v1.ResourceQuota, len(quotas))
	for i, quota := range quotas {
		with[i] = quota
		if quota.Status.Hard == nil {
			with[i] = quota.DeepCopy()
			with[i].Status.Hard = quota.Spec.Hard
		}
	}
	return with
}

// defaulted gives LimitRanges the API's defaults, such as the one that a maximum makes.
func defaulted(limitRanges []*v1.LimitRange) []*v1.LimitRange {
	with := make([]*v1.LimitRange, len(limitRanges))
	for i, limitRange := range limitRanges {
		with[i] = limitRange.DeepCopy()
		corev1.SetObjectDefaults_LimitRange(with[i])
	}
	return with
}
