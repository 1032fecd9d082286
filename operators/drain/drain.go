// SPDX-License-Identifier: Apache-2.0

// Package drain evicts the pods of a node as kubectl drain does.
//
// It knows no companion.
package drain

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
	kubectldrain "k8s.io/kubectl/pkg/drain"
)

// Drainer evicts the pods of a node as kubectl drain does, and waits for none of them. It needs the verbs list for pods,
// create for pods/eviction, and get for daemonsets of the group apps.
type Drainer struct {
	Client kubernetes.Interface
	// Namespace is that of the companions. Their pods stay: a controller that drains its own node, and
	// finds no other place, would leave it cordoned and empty.
	Namespace string
}

// podsOfAPage is how many pods are read at a time: of each, most is thrown away at once.
const podsOfAPage = 100

// running are the terms of a field selector for pods that have not ended.
var running = []string{"status.phase!=Succeeded", "status.phase!=Failed"}

func (d Drainer) helper(ctx context.Context, client kubernetes.Interface) *kubectldrain.Helper {
	return &kubectldrain.Helper{
		Ctx: ctx, Client: client, Out: io.Discard, ErrOut: io.Discard,
		ChunkSize: podsOfAPage, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, GracePeriodSeconds: -1,
		AdditionalFilters: []kubectldrain.PodFilter{func(pod corev1.Pod) kubectldrain.PodDeleteStatus {
			return kubectldrain.PodDeleteStatus{Delete: pod.Namespace != d.Namespace}
		}},
	}
}

// Left returns the pods that a drain still has to evict. One that nobody would bring back is an
// error, an UndrainableError, which names it. Of a pod there is what identifies it, its owners, labels and volumes.
func (d Drainer) Left(ctx context.Context, node string) ([]corev1.Pod, error) {
	var unanswered error
	pods, errs := d.helper(ctx, daemonSetClient{d.Client, &unanswered}).GetPodsForDeletion(node)
	switch {
	case unanswered != nil:
		return nil, unanswered
	case len(errs) > 0 && pods == nil:
		return nil, errors.Join(errs...)
	}
	if len(errs) > 0 {
		return nil, &UndrainableError{node: node, pods: errors.Join(errs...)}
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
	options.FieldSelector = strings.Join(append(strings.FieldsFunc(options.FieldSelector, func(r rune) bool { return r == ',' }), running...), ",")
	list, err := p.PodInterface.List(ctx, options)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		mirror, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		pod.ManagedFields, pod.Annotations = nil, nil
		if isMirror {
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirror}
		}
		pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, Volumes: pod.Spec.Volumes}
		pod.Status = corev1.PodStatus{Phase: pod.Status.Phase}
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

// UndrainableError says that a node has pods that nobody would bring back.
type UndrainableError struct {
	node string
	pods error
}

func (e *UndrainableError) Error() string {
	return fmt.Sprintf("node %s cannot be drained: %v", e.node, e.pods)
}

// Evict asks for the eviction of the pods that are left, and returns them. A pod that its
// disruption budget keeps is asked again the next time.
func (d Drainer) Evict(ctx context.Context, node string) ([]corev1.Pod, error) {
	pods, err := d.Left(ctx, node)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := d.helper(ctx, d.Client).EvictPod(pod, policyv1.SchemeGroupVersion)
		if err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return pods, errors.Join(errs...)
}

// List names pods, at most so many of them.
func List(pods []corev1.Pod, most int) string {
	var names []string
	for _, pod := range pods[:min(most, len(pods))] {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	if more := len(pods) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
