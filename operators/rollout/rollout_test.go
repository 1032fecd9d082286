// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/nodeclient"
)

// script is a Runner that does as it is told.
type script struct {
	Result
	start, observe, finish error
	calls                  []string
}

func (s *script) Start(_ context.Context, node, operation string) error {
	s.calls = append(s.calls, "start "+operation+" on "+node)
	return s.start
}

func (s *script) Observe(context.Context, string, string) (Result, error) { return s.Result, s.observe }

func (s *script) Finish(_ context.Context, node, operation string) error {
	s.calls = append(s.calls, "finish "+operation+" on "+node)
	return s.finish
}

// cluster is Nodes on a fake API, with the operation in two annotations.
func cluster(objects ...client.Object) Nodes {
	c := fake.NewClientBuilder().WithObjects(objects...).Build()
	return Nodes{
		Client:    nodeclient.Client{Reader: c, Writer: c},
		Namespace: "ns",
		Read: func(node *corev1.Node) Operation {
			id, phase, _ := strings.Cut(node.Annotations["operation"], " ")
			return Operation{ID: id, Phase: Phase(phase), Message: node.Annotations["message"]}
		},
		Write: func(node *corev1.Node, op Operation) {
			node.Annotations["operation"], node.Annotations["message"] = op.ID+" "+string(op.Phase), op.Message
		},
	}
}

func apiNode(name, operation string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"operation": operation, "other": "stays"}}}
}

// lookAt returns what there is to see of node n1 and the lock g.
func lookAt(t *testing.T, nodes Nodes) Look {
	t.Helper()
	look := Look{Now: start, Owner: owner, TimeLimit: timeLimit, Holders: map[string]nodegroup.Holders{}}
	var lease coordinationv1.Lease
	err := nodes.Reader.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "g"}, &lease)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if look.Holders["g"], err = nodegroup.HoldersOf(&lease); err != nil {
		t.Fatal(err)
	}
	var node corev1.Node
	if err := nodes.Reader.Get(t.Context(), client.ObjectKey{Name: "n1"}, &node); err != nil {
		return look
	}
	s, err := nodes.StateOf(&node)
	if err != nil {
		t.Fatal(err)
	}
	s.Operation.Since = start.Add(-time.Minute)
	look.Nodes = []Node{{Name: "n1", State: s, Locks: []Lock{{"g", 1}}}}
	return look
}

// An operation from its request to its end, on objects of the API.
func TestStep(t *testing.T) {
	nodes, runner := cluster(apiNode("n1", "1 Requested")), &script{}
	rollout := Rollout{nodes, runner}
	for _, step := range []struct {
		name    string
		result  Result
		node    string // the annotations operation and message
		claimed bool
		locked  bool
		calls   string
		settled bool
	}{
		{"begins", Result{}, "1 Running", true, true, "start 1 on n1", false},
		{"starts again", Result{Seen: Absent}, "1 Running", true, true, "start 1 on n1", false},
		{"waits", Result{Seen: UnderWay}, "1 Running", true, true, "", true},
		{"ends", Result{Over, RolledBack, "why"}, "1 RolledBack why", true, true, "", false},
		{"is finished and releases its claim", Result{Seen: Over, Phase: RolledBack}, "1 RolledBack why", false, true, "finish 1 on n1", false},
		{"releases its lock", Result{}, "1 RolledBack why", false, false, "", false},
		{"is done", Result{}, "1 RolledBack why", false, false, "", true},
	} {
		runner.Result, runner.calls = step.result, nil
		again, err := rollout.Step(t.Context(), lookAt(t, nodes))
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if settled := again.Sub(start) > startAgain || again.IsZero(); settled != step.settled {
			t.Errorf("%s: look again at %s", step.name, again)
		}
		if pause := step.name == "starts again"; pause != again.Equal(start.Add(startAgain)) {
			t.Errorf("%s: look again at %s", step.name, again)
		}
		var node corev1.Node
		if err := nodes.Reader.Get(t.Context(), client.ObjectKey{Name: "n1"}, &node); err != nil {
			t.Fatal(err)
		}
		_, claimed := node.Annotations[nodegroup.ClaimAnnotation]
		if got := strings.TrimSpace(node.Annotations["operation"] + " " + node.Annotations["message"]); got != step.node || claimed != step.claimed || node.Annotations["other"] != "stays" {
			t.Errorf("%s: got %v, want %s, claimed: %v", step.name, node.Annotations, step.node, step.claimed)
		}
		if locked := lookAt(t, nodes).Holders["g"].Has(owner, "1"); locked != step.locked {
			t.Errorf("%s: locked: %v", step.name, locked)
		}
		if calls := strings.Join(runner.calls, ", "); calls != step.calls {
			t.Errorf("%s: got the calls %q, want %q", step.name, calls, step.calls)
		}
	}
}

func TestStepOfADeletedNode(t *testing.T) {
	nodes, runner := cluster(apiNode("n1", "1 Requested")), &script{}
	rollout := Rollout{nodes, runner}
	if _, err := rollout.Step(t.Context(), lookAt(t, nodes)); err != nil {
		t.Fatal(err)
	}
	if err := nodes.Writer.Delete(t.Context(), apiNode("n1", "")); err != nil {
		t.Fatal(err)
	}
	runner.calls, runner.finish = nil, errors.New("not yet")
	if _, err := rollout.Step(t.Context(), lookAt(t, nodes)); err == nil || !strings.Contains(err.Error(), "node n1, operation 1: unlock: not yet") {
		t.Errorf("got error %v", err)
	}
	if !lookAt(t, nodes).Holders["g"].Has(owner, "1") {
		t.Error("the lock was released before the operation was finished")
	}
	runner.finish = nil
	if _, err := rollout.Step(t.Context(), lookAt(t, nodes)); err != nil {
		t.Fatal(err)
	}
	if holders := lookAt(t, nodes).Holders["g"]; len(holders) != 0 || len(runner.calls) != 2 {
		t.Errorf("the lock is left to %v, calls %v", holders, runner.calls)
	}
}

func TestStepErrorsNameNodeAndOperation(t *testing.T) {
	for name, test := range map[string]struct {
		operation string
		runner    script
		want      string
	}{
		"start":               {"1 Requested", script{start: errors.New("no")}, "node n1, operation 1: begin: no"},
		"observe":             {"1 Running", script{observe: errors.New("no")}, "node n1, operation 1: observe: no"},
		"an end that is none": {"1 Running", script{Result: Result{Seen: Over, Phase: Running}}, `node n1, operation 1: observe: is over with the phase "Running"`},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := cluster(apiNode("n1", test.operation))
			again, err := Rollout{nodes, &test.runner}.Step(t.Context(), lookAt(t, nodes))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			if again.Equal(start) {
				t.Error("what has failed is repeated at once")
			}
		})
	}
}

// What one companion claims between a look and a step is no error: the other waits.
func TestStepWithAnOldLook(t *testing.T) {
	for name, between := range map[string]func(*corev1.Node){
		"claimed":  func(n *corev1.Node) { nodegroup.Put(n, nodegroup.Claim{Owner: "other", Operation: "x"}) },
		"cordoned": func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"replaced": func(n *corev1.Node) { n.Annotations["operation"] = "2 Requested" },
		"ended":    func(n *corev1.Node) { n.Annotations["operation"] = "1 Failed" },
	} {
		t.Run(name, func(t *testing.T) {
			nodes, runner := cluster(apiNode("n1", "1 Requested")), &script{}
			look := lookAt(t, nodes)
			if err := nodes.UpdateNode(t.Context(), "n1", func(n *corev1.Node) error { between(n); return nil }); err != nil {
				t.Fatal(err)
			}
			again, err := Rollout{nodes, runner}.Step(t.Context(), look)
			if err != nil || !again.Equal(start) || len(runner.calls) != 0 {
				t.Errorf("got %s, %v, calls %v", again, err, runner.calls)
			}
		})
	}
}

func TestNodesWithAClaimThatCannotBeRead(t *testing.T) {
	node := apiNode("n1", "1 Requested")
	node.Annotations[nodegroup.ClaimAnnotation] = "x"
	nodes := cluster(node)
	if _, err := nodes.Get(t.Context(), "n1"); err == nil || !strings.Contains(err.Error(), "node n1") {
		t.Errorf("got error %v", err)
	}
	err := nodes.Update(t.Context(), "n1", func(*State) error { t.Error("was changed"); return nil })
	if err == nil || !strings.Contains(err.Error(), nodegroup.ClaimAnnotation) {
		t.Errorf("got error %v", err)
	}
	if _, err := nodes.Get(t.Context(), "n2"); !apierrors.IsNotFound(err) {
		t.Errorf("got error %v, want not found", err)
	}
}
