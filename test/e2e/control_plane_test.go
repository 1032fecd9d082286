// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// A whole control plane runs as partitioned static pods, which share a pool of one CPU. Only
// the kubelet can partition them: there is no kube-apiserver before them.
func TestControlPlaneRunsInItsPool(t *testing.T) {
	in(t)
	controlPlaneInItsPool(t, config)
}

// The same control plane runs from the images that users get.
func TestControlPlaneRunsFromItsImages(t *testing.T) {
	in(t, long, images)
	with := config
	with.ControlPlaneImages = controlPlaneImages
	c := controlPlaneInItsPool(t, with)
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		p, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).Get(t.Context(), name+"-"+host.NodeName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if image := p.Spec.Containers[0].Image; !strings.Contains(image, "/"+name+":") {
			t.Errorf("%s runs the image %s", name, image)
		}
		for _, volume := range p.Spec.Volumes {
			if volume.HostPath.Path != c.Config.Paths.Data {
				t.Errorf("%s has %s of the host", name, volume.HostPath.Path)
			}
		}
	}
}

func controlPlaneInItsPool(t *testing.T, with host.Config) *host.Cluster {
	t.Helper()
	with.Pinning, with.ControlPlaneType = pinning, "management"
	c := alone(t, with)
	names := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	healthy := func(t *testing.T) (restarts int32) {
		t.Helper()
		for _, name := range names {
			var p *v1.Pod
			waitFor(t, time.Minute, name+" runs in its pool", func() (err error) {
				if p, err = c.Client.CoreV1().Pods(metav1.NamespaceSystem).Get(t.Context(), name+"-"+host.NodeName, metav1.GetOptions{}); err != nil {
					return err
				}
				if p.Status.Phase != v1.PodRunning || p.Status.ContainerStatuses[0].State.Running == nil {
					return fmt.Errorf("it is %s, with the annotations %v and the containers %v", p.Status.Phase, p.Annotations, p.Status.ContainerStatuses)
				}
				return nil
			})
			expectNoLeak(t, p, onPool)
			restarts += p.Status.ContainerStatuses[0].RestartCount
		}
		if _, err := c.Client.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil {
			t.Error(err)
		}
		return restarts
	}
	before := healthy(t)
	t.Run("it runs a Deployment", func(t *testing.T) {
		namespace := fixture.Namespace(t, c.Client, "management")
		labels := map[string]string{"app": "operator"}
		two := int32(2)
		if _, err := c.Client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Spec: appsv1.DeploymentSpec{
			Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: asks}, Spec: fixture.Pod("", nil, fixture.Container("c", fixture.Awake, "cpu=100m memory=16Mi", "")).Spec},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, time.Minute, "the Deployment is available", func() error {
			deployment, err := c.Client.AppsV1().Deployments(namespace).Get(t.Context(), "operator", metav1.GetOptions{})
			if err == nil && deployment.Status.AvailableReplicas != two {
				err = fmt.Errorf("its status is %v", deployment.Status)
			}
			return err
		})
	})
	t.Run("it runs on when the kubelet is killed and comes back", func(t *testing.T) {
		if err := c.Kubelet.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.StartKubelet(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // the period in which restarts are counted
		if after := healthy(t); after != before {
			t.Errorf("its containers had restarted %d times, and have restarted %d times", before, after)
		}
	})
	return c
}
