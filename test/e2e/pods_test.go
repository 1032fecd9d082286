package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/partition"
)

const (
	managementTarget = partition.TargetPrefix + "management"
	cores            = v1.ResourceName("management.workload.openshift.io/cores")
	// busy keeps one CPU busy; its container ends at once when it is told to.
	busy = "trap exit TERM; while :; do :; done"
)

// cleanup returns a context for what follows a test.
func cleanup(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }

// waitFor polls until the condition returns nil, and fails with what it said last.
func waitFor(t testing.TB, limit time.Duration, what string, condition func() error) {
	t.Helper()
	// Not until the test's context ends: cleanups wait, too.
	if err := poll.Until(context.Background(), 100*time.Millisecond, limit, func(context.Context) error { return condition() }); err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
}

// newNamespace makes a namespace for a test and removes it with all its pods.
func newNamespace(t testing.TB, c *host.Cluster, allowed string) string {
	t.Helper()
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	if allowed != "" {
		namespace.Annotations = map[string]string{partition.AllowedAnnotation: allowed}
	}
	created, err := c.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := created.Name
	t.Cleanup(func() {
		// The test's context has ended by now.
		ctx := context.Background()
		var grace int64
		_ = c.Client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &grace}, metav1.ListOptions{})
		_ = c.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	})
	waitFor(t, time.Minute, "default service account", func() error {
		_, err := c.Client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return name
}

// container runs a script with requests and limits such as "cpu=400m memory=16Mi".
func container(name, script, requests, limits string) v1.Container {
	list := func(text string) v1.ResourceList {
		l := v1.ResourceList{}
		for _, field := range strings.Fields(text) {
			key, value, _ := strings.Cut(field, "=")
			l[v1.ResourceName(key)] = resource.MustParse(value)
		}
		return l
	}
	return v1.Container{
		Name: name, Image: image.Busybox, ImagePullPolicy: v1.PullNever, Args: []string{"-c", script},
		Resources: v1.ResourceRequirements{Requests: list(requests), Limits: list(limits)},
	}
}

func pod(name string, annotations map[string]string, containers ...v1.Container) *v1.Pod {
	grace := int64(1)
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: v1.PodSpec{Containers: containers, TerminationGracePeriodSeconds: &grace}}
}

var asks = asksFor("management")

// asksFor are the annotations of a pod that asks for a type.
func asksFor(workloadType string) map[string]string {
	return map[string]string{partition.TargetAnnotation(workloadType): ""}
}

// start creates pods and returns them when all their containers run.
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
	// A kubelet whose server was away looks again after up to a minute.
	waitFor(t, 3*time.Minute, "pod "+name+" runs", func() (err error) {
		if running, err = c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		ready := 0
		for _, status := range running.Status.ContainerStatuses {
			if status.State.Running != nil {
				ready++
			}
		}
		if running.Status.Phase != v1.PodRunning || ready < len(running.Spec.Containers) {
			return fmt.Errorf("phase %s, conditions %v, containers %v", running.Status.Phase, running.Status.Conditions, running.Status.ContainerStatuses)
		}
		return nil
	})
	return running
}

// awaitEnd waits until a pod has succeeded, and returns it.
func awaitEnd(t *testing.T, c *host.Cluster, namespace, name string, limit time.Duration) (ended *v1.Pod) {
	t.Helper()
	waitFor(t, limit, "pod "+name+" ends", func() (err error) {
		if ended, err = c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil && ended.Status.Phase != v1.PodSucceeded {
			err = fmt.Errorf("phase %s, %v", ended.Status.Phase, ended.Status.ContainerStatuses)
		}
		return err
	})
	return ended
}

// deleteNow deletes a pod without grace.
func deleteNow(t *testing.T, c *host.Cluster, p *v1.Pod) {
	t.Helper()
	var grace int64
	if err := c.Client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
}

// writeStaticPod gives the kubelet a manifest, and takes it away after the test.
func writeStaticPod(t *testing.T, c *host.Cluster, name, manifest string) {
	t.Helper()
	writeStaticPods(t, c, map[string]string{name: manifest})
}

// writeStaticPods does it for several, by name.
func writeStaticPods(t *testing.T, c *host.Cluster, manifests map[string]string) {
	t.Helper()
	path := func(name string) string { return filepath.Join(host.ManifestDir, name+".yaml") }
	t.Cleanup(func() {
		for name := range manifests {
			_ = os.Remove(path(name))
		}
		// The next test must not find their containers.
		left := slices.Collect(maps.Keys(manifests))
		for range 300 {
			left = slices.DeleteFunc(left, func(name string) bool {
				_, err := c.Client.CoreV1().Pods("default").Get(context.Background(), name+"-"+host.NodeName, metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			})
			if len(left) == 0 {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("static pods %s do not end", left)
	})
	for name, manifest := range manifests {
		if err := os.WriteFile(path(name), []byte(manifest), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func logs(t *testing.T, c *host.Cluster, p *v1.Pod, container string) string {
	t.Helper()
	data, err := c.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &v1.PodLogOptions{Container: container}).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("log of %s in pod %s: %v", container, p.Name, err)
	}
	return string(data)
}

// debug adds an ephemeral container, as kubectl debug does.
func debug(t *testing.T, c *host.Cluster, namespace, name string) {
	t.Helper()
	p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(container("debug", awake, "", ""))})
	if _, err := c.Client.CoreV1().Pods(namespace).UpdateEphemeralContainers(t.Context(), name, p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 30*time.Second, "the ephemeral container of "+name+" runs", func() error {
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, status := range p.Status.EphemeralContainerStatuses {
			if status.State.Running != nil {
				return nil
			}
		}
		return fmt.Errorf("it has the statuses %v", p.Status.EphemeralContainerStatuses)
	})
}

// resizeMemory resizes the pod's container c in place, and waits until that is done.
func resizeMemory(t *testing.T, c *host.Cluster, namespace, name, request, limit string) error {
	t.Helper()
	patch := fmt.Sprintf(`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": %q}, "limits": {"memory": %q}}}]}}`, request, limit)
	if _, err := c.Client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"); err != nil {
		return err
	}
	waitFor(t, 30*time.Second, "the resize of "+name+" has been done", func() error {
		p, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := p.Status.ContainerStatuses[slices.IndexFunc(p.Status.ContainerStatuses, func(s v1.ContainerStatus) bool { return s.Name == "c" })]
		if status.Resources == nil || status.Resources.Limits.Memory().String() != limit {
			return fmt.Errorf("the container's resources are %v; conditions %v", status.Resources, p.Status.Conditions)
		}
		return nil
	})
	return nil
}

func manifest(t *testing.T, p *v1.Pod) string {
	t.Helper()
	p = p.DeepCopy()
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	data, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
