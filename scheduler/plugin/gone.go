// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// gone is called when a pod on a node has left the scheduler's informer. That leaves out pods that have ended: it says of them that they are
// deleted, with what they were before. Only kube-apiserver knows what has become of such a pod.
func (s *shared) gone(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) {
	s.ledger.RemovePod(pod.UID, pod.Spec.NodeName, true)
	s.waiting.tell()
	if s.ledger.Lingers(pod.UID, pod.Spec.NodeName) {
		go s.ask(ctx, client, pod)
	}
}

// ask has the ledger forget a pod that has ended. A report need not come of it, such as of one that the kubelet refused. Where
// kube-apiserver does not answer, the next report decides.
func (s *shared) ask(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) {
	now, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil || now.UID != pod.UID || now.Status.Phase != corev1.PodSucceeded && now.Status.Phase != corev1.PodFailed {
		return
	}
	s.ledger.SetPod(now, pod.Spec.NodeName)
	s.waiting.tell()
}
