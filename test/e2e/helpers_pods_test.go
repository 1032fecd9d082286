// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

const (
	// eventLimit is how long it may take until the API has an Event.
	eventLimit = 20 * time.Second

	managementTarget = partition.TargetPrefix + "management"
	cores            = v1.ResourceName("management.workload.openshift.io/cores")
	// The values of a target annotation for both effects.
	soft = `{"effect": "PreferredDuringScheduling"}`
	hard = `{"effect": "RequiredDuringScheduling"}`
	// softNormal is what a partitioned pod has in place of soft.
	softNormal = `{"effect":"PreferredDuringScheduling"}`
)

// cleanup returns a context that outlives the test, for its cleanups.
func cleanup(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }

// waitFor is [fixture.WaitFor] with the pause of this package.
func waitFor(t testing.TB, limit time.Duration, what string, condition func() error) {
	t.Helper()
	fixture.WaitFor(t, 100*time.Millisecond, limit, what, func(context.Context) error { return condition() })
}

// asks are the annotations of a pod that asks for the type of the shared node.
var asks = fixture.Asks("management")

// start creates pods, and returns them when all their containers run.
func start(t testing.TB, c *host.Cluster, namespace string, pods ...*v1.Pod) []*v1.Pod {
	t.Helper()
	var names []string
	for _, p := range pods {
		created, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("pod %s: %v", p.Name, err)
		}
		names = append(names, created.Name)
	}
	var running []*v1.Pod
	for _, name := range names {
		running = append(running, awaitRunning(t, c, namespace, name))
	}
	return running
}

func awaitRunning(t testing.TB, c *host.Cluster, namespace, name string) (running *v1.Pod) {
	t.Helper()
	// A kubelet may take a minute to connect again to a kube-apiserver that was away.
	waitFor(t, 3*time.Minute, "pod "+name+" runs", func() (err error) {
		if running, err = c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		return fixture.Running(running)
	})
	return running
}

// awaitEnd waits until a pod has succeeded, and returns it.
func awaitEnd(t testing.TB, c *host.Cluster, namespace, name string, limit time.Duration) (ended *v1.Pod) {
	t.Helper()
	waitFor(t, limit, "pod "+name+" ends", func() (err error) {
		if ended, err = c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil && ended.Status.Phase != v1.PodSucceeded {
			err = fmt.Errorf("it is %s, with the containers %v", ended.Status.Phase, ended.Status.ContainerStatuses)
		}
		return err
	})
	return ended
}

// podOf returns a pod of a Deployment, made from the template with this value of the annotation
// "template".
func podOf(t *testing.T, c *host.Cluster, namespace, deployment, template string) *v1.Pod {
	t.Helper()
	var found *v1.Pod
	waitFor(t, 2*time.Minute, "the Deployment "+deployment+" has a pod", func() error {
		pods, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if found = &pods.Items[i]; found.Annotations["template"] == template {
				return nil
			}
		}
		return fmt.Errorf("%d pods, and none from the template %s", len(pods.Items), template)
	})
	return found
}

// awaitUnschedulable waits until the scheduler says, in a message that has the text, that no
// node has room for a pod.
func awaitUnschedulable(t *testing.T, c *host.Cluster, namespace, name, text string) {
	t.Helper()
	waitFor(t, 30*time.Second, "the scheduler says that no node has room for pod "+name, func() error {
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(p.Status.Conditions, func(condition v1.PodCondition) bool {
			return condition.Type == v1.PodScheduled && condition.Reason == v1.PodReasonUnschedulable && strings.Contains(condition.Message, text)
		}) {
			err = fmt.Errorf("it is on node %q, with the conditions %v, want one with %q", p.Spec.NodeName, p.Status.Conditions, text)
		}
		return err
	})
}

// deleteNow deletes a pod without a grace period.
func deleteNow(t testing.TB, c *host.Cluster, p *v1.Pod) {
	t.Helper()
	if err := c.Client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
}

// staticPod returns a static pod with one container.
func staticPod(name string, annotations map[string]string, script, requests, limits string) *v1.Pod {
	p := fixture.Pod(name, annotations, fixture.Container("c", script, requests, limits))
	p.Namespace = metav1.NamespaceDefault
	return p
}

// writeStaticPods writes the manifests of static pods. After the test it removes them, and
// waits until the pods have ended.
func writeStaticPods(t *testing.T, c *host.Cluster, pods ...*v1.Pod) {
	t.Helper()
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	t.Cleanup(func() {
		for _, name := range names {
			_ = os.Remove(manifestPath(name))
		}
		left := names
		waitFor(t, time.Minute/2, "the static pods end", func() error {
			left = slices.DeleteFunc(left, func(name string) bool {
				_, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(cleanup(t), name+"-"+host.NodeName, metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			})
			if len(left) > 0 {
				return fmt.Errorf("the API still has %q", left)
			}
			return nil
		})
	})
	for _, p := range pods {
		writeManifest(t, p)
	}
}

func manifestPath(name string) string { return filepath.Join(host.ManifestDir, name+".yaml") }

// writeManifest writes or replaces the manifest of a static pod.
func writeManifest(t *testing.T, p *v1.Pod) {
	t.Helper()
	if err := os.WriteFile(manifestPath(p.Name), []byte(fixture.Manifest(p)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// logs returns the log of a container.
func logs(t testing.TB, c *host.Cluster, p *v1.Pod, container string) string {
	t.Helper()
	data, err := c.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &v1.PodLogOptions{Container: container}).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("the log of container %s of pod %s: %v", container, p.Name, err)
	}
	return string(data)
}

// debug adds an ephemeral container to a pod, as kubectl debug does, and waits until it runs.
func debug(t testing.TB, c *host.Cluster, namespace, name string) {
	t.Helper()
	p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(fixture.Container("debug", fixture.Awake, "", ""))})
	if _, err := c.Client.CoreV1().Pods(namespace).UpdateEphemeralContainers(t.Context(), name, p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 30*time.Second, "the ephemeral container of pod "+name+" runs", func() error {
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, status := range p.Status.EphemeralContainerStatuses {
			if status.State.Running != nil {
				return nil
			}
		}
		return fmt.Errorf("the pod has the ephemeral containers %v", p.Status.EphemeralContainerStatuses)
	})
}

// resizeMemory resizes container c of a pod in place, and waits until the runtime has the new
// limit.
func resizeMemory(t testing.TB, c *host.Cluster, namespace, name, request, limit string) error {
	t.Helper()
	patch := fmt.Sprintf(`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": %q}, "limits": {"memory": %q}}}]}}`, request, limit)
	if _, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"); err != nil {
		return err
	}
	// A kubelet that finds the new size at its start looks at it 30 seconds later, if not all its sources
	// of pods are ready yet (initialRetryDelay in upstream's pkg/kubelet/allocation/allocation_manager.go).
	waitFor(t, time.Minute, "pod "+name+" is resized", func() error {
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := p.Status.ContainerStatuses[slices.IndexFunc(p.Status.ContainerStatuses, func(s v1.ContainerStatus) bool { return s.Name == "c" })]
		if status.Resources == nil || status.Resources.Limits.Memory().String() != limit {
			return fmt.Errorf("the container has %v, and the pod the conditions %v", status.Resources, p.Status.Conditions)
		}
		return nil
	})
	return nil
}
