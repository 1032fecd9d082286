// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/workloadclasses"
	"workload.openshift.io/operators/workloadclasses/metrics"
)

// webhookPath is where kube-apiserver posts pods.
const webhookPath = "/workloadclasses/mutate-pod"

// classifier gives pods their class. It has no state: the rules are those of a file, and what it asks
// about the cluster is in caches, so that all replicas answer alike.
type classifier struct {
	decoder admission.Decoder
	rules   *rules
	cache   client.Reader
}

// precludedIndex is that of nodes by the class for which they are precluded.
const precludedIndex = "precluded"

func indexPrecluded(object client.Object) []string {
	if class, ok := object.GetAnnotations()[workloadclasses.PrecludeAnnotation]; ok {
		return []string{class}
	}
	return nil
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch,roleName=workloadclasses-webhooks
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=list;watch,roleName=workloadclasses-webhooks
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=workloadclasses-webhooks
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=workloadclasses-webhooks

// Handle implements admission.Handler.
func (c *classifier) Handle(ctx context.Context, request admission.Request) admission.Response {
	if err := untrusted.CheckNumbers(request.Object.Raw); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	pod := &corev1.Pod{}
	if err := c.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	before := pod.DeepCopy()
	config := c.rules.current.Load()
	outcome := config.Mutate(pod, request.Namespace, workloadclasses.Cluster{
		RuntimeClass: func(name string) (corev1.ResourceList, bool) { return c.runtimeClass(ctx, name) },
		Precluded:    func(class string) string { return c.precluded(ctx, config.Class(class)) },
	})
	if request.DryRun == nil || !*request.DryRun {
		class := ""
		if outcome.Class != nil {
			class = outcome.Class.Name
		}
		metrics.Pods.WithLabelValues(class, string(outcome.Reason)).Inc()
	}
	if outcome.Class == nil {
		return admission.Allowed("")
	}
	patches, err := workloadclasses.Patch(before, pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	response := admission.Patched("", patches...)
	response.Warnings = outcome.Warnings
	return response
}

func (c *classifier) runtimeClass(ctx context.Context, name string) (corev1.ResourceList, bool) {
	class := &nodev1.RuntimeClass{}
	if err := c.cache.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
		return nil, false
	}
	if class.Overhead == nil {
		return nil, true
	}
	return class.Overhead.PodFixed, true
}

// precluded returns the node of a class on which no new pod may land; the first if there are several
// for a moment.
func (c *classifier) precluded(ctx context.Context, class *workloadclasses.Class) string {
	var nodes corev1.NodeList
	if err := c.cache.List(ctx, &nodes, client.MatchingFields{precludedIndex: class.Name}, client.MatchingLabels(class.NodeSelector), client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the precluded nodes", "class", class.Name)
		return ""
	}
	if len(nodes.Items) == 0 {
		return ""
	}
	return slices.MinFunc(nodes.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) }).Name
}
