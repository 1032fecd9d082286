// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/kubernetes/node/audit"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
)

// A pod of kubectl partition gather records its node as kubectl partition audit --record does there, an audit of this record
// finds the same, and nothing is left.
func TestGatherRecordsTheNode(t *testing.T) {
	in(t, vm, kubectlPlugin)
	if _, err := os.Readlink("/proc/1/ns/mnt"); err != nil {
		t.Skipf("a pod cannot tell which processes are the host's where root may not look at process 1: %v", err)
	}
	c := partitioned(t)
	quietNode(t, c)
	const reference = "workload.openshift.io/kubectl-partition:gathered"
	dir := t.TempDir()
	if err := image.SaveProgram(dir, reference, plugin); err != nil {
		t.Fatal(err)
	}
	if err := c.ImportImage(t.Context(), filepath.Join(dir, filepath.Base(plugin)+".tar")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.RemoveImage(context.WithoutCancel(t.Context()), reference); err != nil {
			t.Error(err)
		}
	})
	namespace := fixture.Namespace(t, c.Client, "management")
	awaitActive(t, creating(t, c, namespace), true)
	start(t, c, namespace, fixture.Pod("partitioned", asks, fixture.Container("c", fixture.Awake, "cpu=400m memory=16Mi", "")))

	file := filepath.Join(dir, "fault.tar.gz")
	kubectlPartition(t, 0, "gather", "--image", reference, "--to", file)
	if out, err := exec.CommandContext(t.Context(), "tar", "--extract", "--file="+file, "--directory="+dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	var again audit.Result
	if err := json.Unmarshal([]byte(kubectlPartition(t, 0, "audit", "--from", filepath.Join(dir, "fault", "nodes", host.NodeName), "-o", "json")), &again); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(again.Containers, func(row audit.Container) bool {
		return row.Namespace == namespace && row.Pod == "partitioned" && row.Name == "c"
	}); i < 0 || again.Containers[i].CPUs != "0" || again.Containers[i].Type != "management" || again.Containers[i].Weight == 0 {
		t.Errorf("the record has the containers %+v, want one of pod %s/partitioned on CPU 0", again.Containers, namespace)
	}
	if !slices.ContainsFunc(again.Containers, func(row audit.Container) bool {
		return strings.HasPrefix(row.Namespace, "workload-partitioning-gather-") && row.Name == "audit" && row.Type == "management"
	}) {
		t.Errorf("the record has the containers %+v, want one that audits the node, on the pool", again.Containers)
	}
	waitFor(t, time.Minute, "the audit pod and its namespace are gone", func() error {
		left, err := c.Client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=workload-partitioning-gather"})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("there is namespace %s: %+v", left.Items[0].Name, left.Items[0].Status)
		}
		return err
	})
}
