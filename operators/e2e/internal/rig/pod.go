// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/partition"
	"workload.openshift.io/partition/partitiontest/podtest"
)

// PodNamespace is that of the pods of tests, in which pods may ask for the workload type management.
const PodNamespace = "e2e-cpupolicy"

// CreateNamespace creates PodNamespace.
func (c *Cluster) CreateNamespace(t *testing.T) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: PodNamespace, Annotations: map[string]string{partition.AllowedAnnotation: "management"}}}
	if _, err := c.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.WaitFor(t, c.Limit, "the namespace has a ServiceAccount", func() error {
		_, err := c.Client.CoreV1().ServiceAccounts(PodNamespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}

// awake works for some milliseconds, five times a second. All of it is one process with the pod's name: a
// shell that waits starts none.
const awake = `mkfifo /never; exec 3<>/never; echo -n %s >/proc/self/comm; trap exit TERM
while :; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; read -t 0.2 x <&3; done`

// Pod returns a pod of one container that is awake. Its name has at most 15 bytes. Requests and limits
// are lists such as "cpu=1 memory=16Mi".
func Pod(name string, annotations map[string]string, requests, limits string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: PodNamespace, Name: name, Annotations: annotations},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Args: []string{"-c", fmt.Sprintf(awake, name)},
			Resources: corev1.ResourceRequirements{Requests: podtest.List(requests), Limits: podtest.List(limits)},
		}}},
	}
}

// Partitioned are the annotations of a pod that asks for the type management.
var Partitioned = map[string]string{partition.TargetAnnotation("management"): ""}

// StartPod creates a pod, and returns it once it runs.
func (c *Cluster) StartPod(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pods := c.Client.CoreV1().Pods(PodNamespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.WaitFor(t, c.Limit, "pod "+pod.Name+" runs", func() error {
		now, err := pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if statuses := now.Status.ContainerStatuses; len(statuses) == 0 || statuses[0].State.Running == nil {
			return fmt.Errorf("it is %s (%s), with the containers %v", now.Status.Phase, now.Status.Message, statuses)
		}
		pod = now
		return nil
	})
	return pod
}

// RemovePod deletes a pod, and waits until it is gone.
func (c *Cluster) RemovePod(t *testing.T, name string) {
	t.Helper()
	pods := c.Client.CoreV1().Pods(PodNamespace)
	if err := pods.Delete(t.Context(), name, *metav1.NewDeleteOptions(1)); err != nil {
		t.Fatal(err)
	}
	c.WaitFor(t, c.Limit, "pod "+name+" is gone", func() error {
		_, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there (%v)", err)
	})
}

// CPUsOf returns the CPUs that a pod's container may use.
func (n *Node) CPUsOf(t *testing.T, pod *corev1.Pod) cpuset.CPUSet {
	t.Helper()
	list, err := n.CPUs(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Has returns an error unless a pod's container may use just these CPUs.
func (n *Node) Has(t *testing.T, pod *corev1.Pod, want cpuset.CPUSet) error {
	t.Helper()
	if got := n.CPUsOf(t, pod); !got.Equals(want) {
		return fmt.Errorf("pod %s has CPUs %s, want %s", pod.Name, got, want)
	}
	return nil
}
