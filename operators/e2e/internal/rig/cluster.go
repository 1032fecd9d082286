// SPDX-License-Identifier: Apache-2.0

// Package rig is a cluster with a companion, and its nodes, for tests on real nodes: that of this host, and those in VMs. It asks
// and looks as users do, most of it as those of cpupolicy, and imports none of a companion's packages.
package rig

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"workload.openshift.io/kubernetes/cluster/poll"
)

// Namespace is that of cpupolicy. Its agents have another one.
const Namespace = "partition-cpupolicy"

// Cluster is a cluster that runs, with or without the companion.
type Cluster struct {
	Client *kubernetes.Clientset
	// Kubectl and Controller are programs, Kubeconfig is the administrator's, and Images a directory
	// that images build has written.
	Kubectl, Controller, Kubeconfig, Images string
	// Companion is the one that is installed; empty is cpupolicy.
	Companion string
	// Pause is the time between two looks at a condition.
	Pause time.Duration
	// Limit is for what takes seconds, and SwitchLimit for a whole operation.
	Limit, SwitchLimit time.Duration
}

// Archives returns the archives of the companion's images, which a node's runtime must have before Install.
func (c *Cluster) Archives(t *testing.T) (archives []string) {
	t.Helper()
	onNodes := "partition-agent"
	if c.companion() == "numaresources" {
		onNodes = "partition-node"
	}
	for _, image := range []string{"partition-controller", onNodes} {
		found, err := filepath.Glob(filepath.Join(c.Images, "archives", image+"-linux-*.tar"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s has the archives %q of the image %s (%v), want one", c.Images, found, image, err)
		}
		archives = append(archives, found...)
	}
	return archives
}

// Install applies the manifests of cpupolicy of a checkout's directory operators, with a driver, and waits until the
// companion is ready. It returns the directory of what it has applied. To change the driver,
// Install again.
func (c *Cluster) Install(t *testing.T, operators, driver string) (overlay string) {
	t.Helper()
	return c.InstallWith(t, operators, "agentImage: partition-agent", "agentImage: "+c.Reference(t, "partition-agent"), "driver: "+driver)
}

// InstallWith applies the manifests of the companion as Install does, with other settings in the place of a line.
func (c *Cluster) InstallWith(t *testing.T, operators, line string, settings ...string) (overlay string) {
	t.Helper()
	name, tag, _ := strings.Cut(c.Reference(t, "partition-controller"), ":")
	base, err := filepath.Abs(filepath.Join(operators, "deploy", c.companion()))
	if err != nil {
		t.Fatal(err)
	}
	overlay = t.TempDir()
	// kustomize takes no absolute path.
	relative, err := filepath.Rel(overlay, base)
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := os.ReadFile(filepath.Join(base, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	line = "  " + line + "\n"
	if !strings.Contains(string(configuration), line) {
		t.Fatalf("the configuration has no %q: %s", line, configuration)
	}
	replicas := ""
	for _, deployment := range c.deployments() {
		replicas += fmt.Sprintf("- {name: %s, count: 1}\n", deployment)
	}
	for file, content := range map[string]string{
		"config.yaml": strings.Replace(string(configuration), line, "  "+strings.Join(settings, "\n  ")+"\n", 1),
		"kustomization.yaml": fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
images:
- {name: registry.invalid/partition-controller, newName: %s, newTag: %s}
replicas:
%sconfigMapGenerator:
- {name: configuration, namespace: %s, behavior: replace, files: [config.yaml]}
`, relative, name, tag, replicas, c.namespace()),
	} {
		if err := os.WriteFile(filepath.Join(overlay, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Call(t, "apply", "--server-side", "-k", overlay)
	c.AwaitCompanion(t)
	return overlay
}

func (c *Cluster) companion() string { return cmp.Or(c.Companion, "cpupolicy") }

func (c *Cluster) namespace() string { return "partition-" + c.companion() }

// deployments are the companion's.
func (c *Cluster) deployments() []string {
	if c.companion() == "cpupolicy" {
		return []string{"partition-controller", "partition-webhooks"}
	}
	return []string{"partition-controller"}
}

// AwaitCompanion waits until the companion's pods are those that were asked for last, and no others are left.
func (c *Cluster) AwaitCompanion(t *testing.T) {
	t.Helper()
	c.Call(t, "rollout", "status", "--namespace="+c.namespace(), "deployment", "--timeout="+c.SwitchLimit.String())
	// Until the end of its grace period, one with the previous configuration may lead.
	c.WaitFor(t, c.Limit, "one replica of each is left", func() error {
		pods, err := c.Client.CoreV1().Pods(c.namespace()).List(t.Context(), metav1.ListOptions{LabelSelector: "app in (partition-controller, partition-webhooks)"})
		if err == nil && len(pods.Items) != len(c.deployments()) {
			err = fmt.Errorf("there are %d", len(pods.Items))
		}
		return err
	})
}

// Reference returns how nodes know an image of the directory.
func (c *Cluster) Reference(t *testing.T, name string) string {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(c.Images, "images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[0], name+":") {
			return "workload.openshift.io/" + fields[0]
		}
	}
	t.Fatalf("%s/images.txt has no image %s: %s", c.Images, name, list)
	return ""
}

// Uninstall removes the companion as make uninstall does, with the controller already gone.
func (c *Cluster) Uninstall(t *testing.T, overlay string) {
	t.Helper()
	c.Call(t, "scale", "--namespace="+c.namespace(), "deployment", "--all", "--replicas=0")
	c.Call(t, "delete", "--namespace="+c.namespace(), "pods", "--all", "--force", "--grace-period=0")
	c.Call(t, "delete", "--ignore-not-found", "-k", overlay)
	if left := c.Call(t, "get", "--ignore-not-found", "--output=name", "-k", overlay); left != "" {
		t.Errorf("there still are %s", left)
	}
	t.Log(call(t, c.Controller, "clean", "--controller="+c.companion(), "--kubeconfig="+c.Kubeconfig))
}

// Call runs kubectl as administrator, and returns what it prints.
func (c *Cluster) Call(t *testing.T, args ...string) string {
	t.Helper()
	return call(t, c.Kubectl, append([]string{"--kubeconfig=" + c.Kubeconfig}, args...)...)
}

// Try runs kubectl as administrator with an input, and returns what it prints and says.
func (c *Cluster) Try(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), c.Kubectl, append([]string{"--kubeconfig=" + c.Kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	return string(output), err
}

func call(t *testing.T, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s%s", filepath.Base(program), strings.Join(args, " "), err, output, stderr.String())
	}
	return string(output)
}

// Tell logs what the companion did, for those who look for the cause of a failure.
func (c *Cluster) Tell(t *testing.T) {
	asked := [][]string{
		{"get", "nodes", "--output=jsonpath={.items[*].metadata.annotations}"},
		{"get", "pods", "--all-namespaces", "--output=wide"},
		{"get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"},
		{"logs", "--namespace=" + c.namespace(), "--selector=app in (partition-controller, partition-webhooks)", "--prefix", "--tail=100"},
	}
	for _, args := range append(asked, told[c.companion()]...) {
		output, err := exec.Command(c.Kubectl, append([]string{"--kubeconfig=" + c.Kubeconfig}, args...)...).CombinedOutput()
		t.Logf("kubectl %s: %s (%v)", strings.Join(args, " "), output, err)
	}
}

// told is what else Tell asks kubectl, by companion.
var told = map[string][][]string{
	"tuning": {
		{"get", "tuneds,profiles,daemonsets", "--all-namespaces", "--output=yaml"},
		{"logs", "--namespace=openshift-cluster-node-tuning-operator", "--selector=openshift-app=tuned", "--prefix", "--tail=100"},
	},
	"cpupolicy": {{"logs", "--namespace=" + Namespace + "-agent", "--selector=cpupolicy.workload.openshift.io/job", "--prefix", "--tail=50"}},
	"numaresources": {
		{"get", "numaresourcesoperators,numaresourcesschedulers,noderesourcetopologies,daemonsets,deployments", "--all-namespaces", "--output=yaml"},
		{"logs", "--namespace=partition-numaresources-exporter", "--selector=nodetopology.openshift.io/group", "--prefix", "--tail=60"},
		{"logs", "--namespace=partition-numaresources-scheduler", "--selector=app=topo-aware-scheduler", "--prefix", "--tail=200"},
	},
}

// WaitFor waits until a condition returns nil, or ends the test with what it returned last.
func (c *Cluster) WaitFor(t *testing.T, limit time.Duration, what string, condition func() error) {
	t.Helper()
	if err := poll.Until(t.Context(), c.Pause, limit, func(context.Context) error { return condition() }); err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
}
