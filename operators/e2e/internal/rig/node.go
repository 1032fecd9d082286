// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/partition"
)

// What users of cpupolicy write and read.
const (
	StatusAnnotation = "harvesterhci.io/cpu-manager-policy-update-status"
	Label            = "cpumanager"
	DropIn           = "99-z01-harvester-cpu-manager.conf"
)

// AgentDirectory is the agent's own, on each node.
const AgentDirectory = "/var/lib/partition-agent"

// Node is a node of the cluster that tests may enter.
type Node struct {
	*Cluster
	Name string
	// Shell runs a script as root, and returns what it prints, without the newline at its end.
	Shell func(ctx context.Context, script string) (string, error)
	// DropIns is the kubelet's --config-dir, and KubeletDir its --root-dir.
	DropIns, KubeletDir string
	// CPUs returns the CPU list of the cgroup of a pod's only container.
	CPUs func(ctx context.Context, pod *corev1.Pod) (string, error)
}

// Run runs a script as root of the node, and returns what it prints.
func (n *Node) Run(t *testing.T, script string) string {
	t.Helper()
	output, err := n.Shell(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// Object returns the Node.
func (n *Node) Object(t *testing.T) *corev1.Node {
	t.Helper()
	object, err := n.object(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func (n *Node) object(ctx context.Context) (*corev1.Node, error) {
	return n.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
}

// Update is what the annotation says.
type Update struct{ Status, Policy, Message string }

// Active returns nil if pods may be partitioned as the type management.
func (n *Node) Active(t *testing.T) error {
	t.Helper()
	namespace, err := n.Client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err == nil && !partition.ListsType(namespace.Annotations[partition.EnabledAnnotation], "management") {
		err = fmt.Errorf("%s has the annotations %v", namespace.Name, namespace.Annotations)
	}
	return err
}

// Status returns what the annotation says. There must be one.
func (n *Node) Status(t *testing.T) (u Update) {
	t.Helper()
	u, err := n.status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (n *Node) status(ctx context.Context) (u Update, err error) {
	object, err := n.object(ctx)
	if err == nil {
		err = json.Unmarshal([]byte(object.Annotations[StatusAnnotation]), &u)
	}
	return u, err
}

// Request asks for a policy, and returns what the companion answers.
func (n *Node) Request(ctx context.Context, policy string) error {
	return n.Annotate(ctx, fmt.Sprintf(`{"status":"requested","policy":"%s"}`, policy))
}

// Annotate writes the annotation.
func (n *Node) Annotate(ctx context.Context, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{StatusAnnotation: value}}})
	if err != nil {
		return err
	}
	_, err = n.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// MustRequest asks for a policy, which must be granted.
func (n *Node) MustRequest(t *testing.T, policy string) {
	t.Helper()
	if err := n.Request(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
}

// AwaitEnd waits until the request has come to an end, and returns it. The API may be away meanwhile.
func (n *Node) AwaitEnd(t *testing.T) (u Update) {
	t.Helper()
	n.WaitFor(t, n.SwitchLimit, "the request ends", func() (err error) {
		if u, err = n.status(t.Context()); err == nil && u.Status != "complete" && u.Status != "failed" {
			err = fmt.Errorf("it is %+v", u)
		}
		return err
	})
	return u
}

// AwaitStatus waits until the request has come to the end that is wanted.
func (n *Node) AwaitStatus(t *testing.T, want string) Update {
	t.Helper()
	u := n.AwaitEnd(t)
	if u.Status != want {
		t.Fatalf("the request has ended with %+v, want %s", u, want)
	}
	return u
}

// Change switches to a policy, sees that it is in force, and logs how long it took.
func (n *Node) Change(t *testing.T, policy string) {
	t.Helper()
	began := time.Now()
	n.MustRequest(t, policy)
	if ended := n.AwaitStatus(t, "complete"); ended.Policy != policy {
		t.Errorf("%+v has ended, and %s was asked for", ended, policy)
	}
	t.Logf("from the request for %s to its end: %s", policy, time.Since(began).Round(100*time.Millisecond))
	n.InForce(t, policy)
}

// InForce checks that a node that is Ready has a policy, in every source.
func (n *Node) InForce(t *testing.T, policy string) {
	t.Helper()
	if err := n.Labelled(t, fmt.Sprint(policy == "static")); err != nil {
		t.Error(err)
	}
	var checkpoint struct {
		PolicyName string `json:"policyName"`
	}
	data, err := n.Shell(t.Context(), "cat "+filepath.Join(n.KubeletDir, "cpu_manager_state"))
	if err == nil {
		err = json.Unmarshal([]byte(data), &checkpoint)
	}
	if err != nil || checkpoint.PolicyName != policy {
		t.Errorf("the checkpoint is %s (%v), want the policy %s", data, err, policy)
	}
	// Before the first switch there is none.
	dropIn, err := n.Shell(t.Context(), "cat "+filepath.Join(n.DropIns, DropIn)+" 2>/dev/null || true")
	if neverSwitched := policy == "none" && dropIn == ""; err != nil || !neverSwitched && !strings.Contains(dropIn+"\n", "cpuManagerPolicy: "+policy+"\n") {
		t.Errorf("the drop-in is %q (%v), want the policy %s", dropIn, err, policy)
	}
	n.AwaitReady(t)
}

// AwaitReady waits until the node is Ready.
func (n *Node) AwaitReady(t *testing.T) {
	t.Helper()
	n.WaitFor(t, n.Limit, n.Name+" is Ready", func() error {
		object, err := n.object(t.Context())
		if err != nil {
			return err
		}
		for _, condition := range object.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return errors.New(condition.Message)
			}
		}
		return nil
	})
}

// Labelled returns an error unless the label of the node has a value.
func (n *Node) Labelled(t *testing.T, want string) error {
	t.Helper()
	if got, has := n.Object(t).Labels[Label]; got != want || !has {
		return fmt.Errorf("the label %s is %q, want %s", Label, got, want)
	}
	return nil
}

// AwaitStep waits until the operation is at a step, by the agent's journal.
func (n *Node) AwaitStep(t *testing.T, want string) {
	t.Helper()
	n.WaitFor(t, n.SwitchLimit, "the operation is at step "+want, func() error {
		var journal struct{ Step string }
		data, err := n.Shell(t.Context(), "cat "+AgentDirectory+"/journal.json")
		if err == nil {
			err = json.Unmarshal([]byte(data), &journal)
		}
		if err == nil && journal.Step != want {
			err = fmt.Errorf("the step is %s", journal.Step)
		}
		return err
	})
}
