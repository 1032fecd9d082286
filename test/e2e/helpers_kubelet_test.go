// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
)

// restart restarts the kubelet with a pinning file; the empty one means that there is none.
func restart(t testing.TB, c *host.Cluster, file string) {
	t.Helper()
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	c.Config.Pinning = file
	if err := c.StartKubelet(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// configureKubelet adds lines to the kubelet's configuration for a test. It restarts the
// kubelet, with the pool 0, and again after the test.
func configureKubelet(t *testing.T, c *host.Cluster, lines string) {
	t.Helper()
	keepConfiguration(t, c)
	c.Config.KubeletConfiguration += lines
	restart(t, c, pinning)
}

// keepConfiguration gives the kubelet its present configuration again after the test, and the
// pool 0. It returns that configuration.
func keepConfiguration(t *testing.T, c *host.Cluster) (before string) {
	t.Helper()
	before = c.Config.KubeletConfiguration
	t.Cleanup(func() {
		c.Config.KubeletConfiguration = before
		restart(t, c, pinning)
	})
	return before
}

// expectNoStart restarts the kubelet with a pinning file, and expects it to end with an error
// that has the text.
func expectNoStart(t *testing.T, c *host.Cluster, file, text string) {
	t.Helper()
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	c.Config.Pinning = file
	if err := c.StartKubelet(t.Context()); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the kubelet's start returned %v, want an error with %q", err, text)
	}
}

// underEachPolicy runs a test of the shared node with each policy of the CPU manager. A run of one
// suite leaves out the policy static, unless that is one of these suites.
func underEachPolicy(t *testing.T, test func(*testing.T, *host.Cluster), static ...mark) {
	for _, policy := range []string{"static", "none"} {
		t.Run("policy "+policy, func(t *testing.T) {
			if policy == "static" {
				in(t, static...)
			}
			c := partitioned(t)
			if policy != "static" {
				usePolicy(t, c, policy)
			}
			test(t, c)
		})
	}
}

// usePolicy gives the CPU manager another policy until the test ends.
func usePolicy(t testing.TB, c *host.Cluster, policy string) {
	t.Helper()
	change := func(policy string) error {
		if err := c.ChangeCPUManagerPolicy(policy); err != nil {
			return err
		}
		return c.StartKubelet(context.Background())
	}
	t.Cleanup(func() {
		if err := change("static"); err != nil {
			t.Error(err)
		}
	})
	if err := change(policy); err != nil {
		t.Fatal(err)
	}
}

// registered deletes the node, restarts the kubelet, and returns the node once the kubelet has
// listed its images, and the control plane has removed all taints.
func registered(t *testing.T, c *host.Cluster) (node *v1.Node) {
	t.Helper()
	if err := c.StopKubelet(); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.CoreV1().Nodes().Delete(t.Context(), host.NodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, time.Minute, "the node is registered", func() (err error) {
		if node, err = c.Client.CoreV1().Nodes().Get(t.Context(), host.NodeName, metav1.GetOptions{}); err != nil {
			return err
		}
		if len(node.Spec.Taints) > 0 || node.Annotations["node.alpha.kubernetes.io/ttl"] == "" || len(node.Status.Images) == 0 {
			return fmt.Errorf("it has the taints %v, the annotations %v and %d images", node.Spec.Taints, node.Annotations, len(node.Status.Images))
		}
		return nil
	})
	return node
}

func getNode(t *testing.T, c *host.Cluster) *v1.Node {
	t.Helper()
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), host.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}
