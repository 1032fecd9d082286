// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubectl/pkg/drain"
)

// drainer evicts the pods of a node as kubectl drain does, and waits for none of them.
type drainer struct {
	client kubernetes.Interface
	// namespace is that of the companions. Their pods stay: a controller that drains its own node, and
	// finds no other place, would leave it cordoned and empty.
	namespace string
}

// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get

func (d drainer) helper(ctx context.Context, client kubernetes.Interface) *drain.Helper {
	return &drain.Helper{
		Ctx: ctx, Client: client, Out: io.Discard, ErrOut: io.Discard,
		ChunkSize: podsOfAPage, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, GracePeriodSeconds: -1,
		AdditionalFilters: []drain.PodFilter{func(pod corev1.Pod) drain.PodDeleteStatus {
			return drain.PodDeleteStatus{Delete: pod.Namespace != d.namespace}
		}},
	}
}

// left returns the pods that a drain still has to evict. One that nobody would bring back is an
// error, which names it.
func (d drainer) left(ctx context.Context, node string) ([]corev1.Pod, error) {
	var unanswered error
	pods, errs := d.helper(ctx, daemonSetClient{d.client, &unanswered}).GetPodsForDeletion(node)
	switch {
	case unanswered != nil:
		return nil, unanswered
	case len(errs) > 0 && pods == nil:
		return nil, errors.Join(errs...)
	}
	if len(errs) > 0 {
		return nil, &undrainableError{node, errors.Join(errs...)}
	}
	return pods.Pods(), nil
}

// daemonSetClient notes that kube-apiserver could not say whether there is a DaemonSet: of that kubectl makes a pod that
// nobody would bring back.
type daemonSetClient struct {
	kubernetes.Interface
	unanswered *error
}

func (c daemonSetClient) CoreV1() typedcorev1.CoreV1Interface {
	return coreClient{c.Interface.CoreV1()}
}

// coreClient lists pods that have not ended, without what may be large and no filter reads.
type coreClient struct{ typedcorev1.CoreV1Interface }

func (c coreClient) Pods(namespace string) typedcorev1.PodInterface {
	return runningPods{c.CoreV1Interface.Pods(namespace)}
}

type runningPods struct{ typedcorev1.PodInterface }

func (p runningPods) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	options.FieldSelector = strings.Join(append(strings.FieldsFunc(options.FieldSelector, func(r rune) bool { return r == ',' }), notEnded...), ",")
	list, err := p.PodInterface.List(ctx, options)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		// Of these, kubectl reads owners and volumes.
		pod := &list.Items[i]
		owners, volumes := pod.OwnerReferences, pod.Spec.Volumes
		stripPod(pod)
		pod.OwnerReferences, pod.Spec.Volumes = owners, volumes
	}
	return list, nil
}

func (c daemonSetClient) AppsV1() appsv1.AppsV1Interface {
	return appsClient{c.Interface.AppsV1(), c.unanswered}
}

type appsClient struct {
	appsv1.AppsV1Interface
	unanswered *error
}

func (c appsClient) DaemonSets(namespace string) appsv1.DaemonSetInterface {
	return daemonSets{c.AppsV1Interface.DaemonSets(namespace), c.unanswered}
}

type daemonSets struct {
	appsv1.DaemonSetInterface
	unanswered *error
}

func (d daemonSets) Get(ctx context.Context, name string, options metav1.GetOptions) (*apps.DaemonSet, error) {
	set, err := d.DaemonSetInterface.Get(ctx, name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		*d.unanswered = fmt.Errorf("get DaemonSet %s: %w", name, err)
	}
	return set, err
}

// undrainableError says that a node has pods that nobody would bring back.
type undrainableError struct {
	node string
	pods error
}

func (e *undrainableError) Error() string {
	return fmt.Sprintf("node %s cannot be drained: %v", e.node, e.pods)
}

// evict asks for the eviction of the pods that are left, and returns them. A pod that its
// disruption budget keeps is asked again the next time.
func (d drainer) evict(ctx context.Context, node string) ([]corev1.Pod, error) {
	pods, err := d.left(ctx, node)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := d.helper(ctx, d.client).EvictPod(pod, policyv1.SchemeGroupVersion)
		if err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return pods, errors.Join(errs...)
}

// list names pods, at most so many of them.
func list(pods []corev1.Pod, most int) string {
	var names []string
	for _, pod := range pods[:min(most, len(pods))] {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	if more := len(pods) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
