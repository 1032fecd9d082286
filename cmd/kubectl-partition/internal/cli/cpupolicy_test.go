// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/cpupolicy/policyclient"
)

// policyNode is a node with annotations, by their key and value.
func policyNode(name string, annotations ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	n.Status.NodeInfo.BootID = "b1"
	for i := 0; i < len(annotations); i += 2 {
		n.Annotations[annotations[i]] = annotations[i+1]
	}
	return n
}

// companionRun is a command, what it asks, and what it prints.
type companionRun struct {
	*companion
	kube            *fake.Clientset
	in, out, errOut *bytes.Buffer
}

func newCompanionRun(objects ...runtime.Object) companionRun {
	r := companionRun{kube: fake.NewClientset(append(objects, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: policyclient.Group}})...)}
	r.kube.Resources = []*metav1.APIResourceList{{GroupVersion: policyclient.Group + "/v1alpha1"}}
	var streams genericiooptions.IOStreams
	streams, r.in, r.out, r.errOut = genericiooptions.NewTestIOStreams()
	r.companion = newCompanion(streams)
	r.client = r.kube
	return r
}

// check compares the exit code of an error, and what was printed with it.
func (r companionRun) check(t *testing.T, err error, code int, out, errOut string) {
	t.Helper()
	got := ExitCode(err, r.errOut)
	if got != code || r.out.String() != out || r.errOut.String() != errOut {
		t.Errorf("got code %d and\n%s--\n%s--, want code %d and\n%s--\n%s--", got, r.out, r.errOut, code, out, errOut)
	}
}

const (
	seen   = `{"policy":"none","at":"2026-11-23T10:00:00Z","bootID":"b1"}`
	failed = `{"status":"failed","policy":"static","id":"static-a1","job":"cpu-policy-static-a1","message":"rolled back, the policy in force is none: step healthy: the kubelet ended 3 times; the kubelet: E1103\nsecond line","since":"2026-11-23T10:05:00Z"}`
)

func shownNodes() []runtime.Object {
	return []runtime.Object{
		policyNode("n1", nodestatus.ObservedAnnotation, seen, nodestatus.StatusAnnotation, failed),
		policyNode("n2", nodegroup.ClaimAnnotation, `{"owner":"cpupolicy","operation":"static-a2","since":"2026-11-23T10:06:00Z"}`),
	}
}

func TestCPUPolicyShowsNodes(t *testing.T) {
	r := newCompanionRun(shownNodes()...)
	p := &policyOptions{companion: r.companion}
	r.check(t, perform(t, p), 1, `NODE  POLICY   STATUS  REQUESTED  SINCE                 MESSAGE
n1    none     failed  static     2026-11-23T10:05:00Z  rolled back, the policy in force is none: step healthy: t...
n2    unknown  -       -          -                     -
`, "")
	r = newCompanionRun(shownNodes()...)
	p = &policyOptions{companion: r.companion}
	r.check(t, perform(t, p, "n1"), 1, `Node n1
  In force:  none, as observed 2026-11-23T10:00:00Z
  Status:    failed, for the policy static, since 2026-11-23T10:05:00Z
  Message:   rolled back, the policy in force is none: step healthy: the kubelet ended 3 times; the kubelet: E1103
  Message:   second line
  Operation: static-a1
  Job:       cpu-policy-static-a1
`, "")
	r = newCompanionRun(shownNodes()...)
	p = &policyOptions{companion: r.companion}
	r.check(t, perform(t, p, "n2"), 0, `Node n2
  In force:  unknown: not observed since the node booted
  Claim:     cpupolicy, for its operation static-a2, since 2026-11-23T10:06:00Z
`, "")
	r = newCompanionRun(shownNodes()...)
	p = &policyOptions{companion: r.companion}
	r.check(t, perform(t, p, "n3"), 2, "", "error: there is no node \"n3\"\n")
	r = newCompanionRun(shownNodes()...)
	p = &policyOptions{companion: r.companion, format: output.JSON}
	if err := perform(t, p, "n1"); !errors.Is(err, errFound) {
		t.Errorf("got %v", err)
	}
	var shown map[string]any
	if err := json.Unmarshal(r.out.Bytes(), &shown); err != nil || shown["kind"] != "CPUPolicyNode" || shown["policy"] != "none" || shown["status"] != "failed" {
		t.Errorf("got %v, %v", shown, err)
	}
	r = newCompanionRun(shownNodes()...)
	p = &policyOptions{companion: r.companion, format: output.YAML}
	if err := perform(t, p); !errors.Is(err, errFound) || !strings.Contains(r.out.String(), "kind: CPUPolicyNodes") {
		t.Errorf("got %v and %s", err, r.out)
	}
	r = newCompanionRun(shownNodes()...)
	p = &policyOptions{companion: r.companion, dryRun: true}
	r.check(t, perform(t, p, "n1"), 2, "", "error: --wait, --dry-run and --allow-evicted are about a request; name a node and a policy\n")
}

func TestCPUPolicyAsks(t *testing.T) {
	for _, test := range []struct {
		name string
		p    policyOptions
		err  error
		warn string
		code int
		out  string
	}{
		{name: "a request", out: "node n1: policy static is requested\n"},
		{name: "a dry run with a warning", p: policyOptions{dryRun: true}, warn: "pod a/b is rejected; accepted",
			out: "warning: pod a/b is rejected; accepted\nnode n1: policy static would be requested; nothing was written\n"},
		{name: "refused", p: policyOptions{wait: true, timeout: time.Minute}, code: 1, warn: "a warning", err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict,
			Message: `admission webhook "x" denied the request: node n1: policy static is refused:` + "\npod a/b is pinned\npod a/c is pinned",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "pod a/b is pinned"}, {Message: "pod a/c is pinned"}}}}},
			out: "warning: a warning\nrefused: pod a/b is pinned\nrefused: pod a/c is pinned\nnode n1: policy static is refused; nothing was written\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newCompanionRun(policyNode("n1"))
			r.kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				if test.warn != "" {
					r.warnings.HandleWarningHeader(299, "-", test.warn)
				}
				return test.err != nil, nil, test.err
			})
			test.p.companion = r.companion
			r.check(t, perform(t, &test.p, "n1", "static"), test.code, test.out, "")
		})
	}
	r := newCompanionRun(policyNode("n1"))
	r.check(t, perform(t, &policyOptions{companion: r.companion}, "n1", "dynamic"), 2, "", "error: policy \"dynamic\" must be static or none\n")
}

func TestCPUPolicyWaits(t *testing.T) {
	const running = `{"status":"running","policy":"static","id":"static-a1","job":"cpu-policy-static-a1","since":"2026-11-23T10:05:00Z"}`
	for _, test := range []struct {
		name   string
		last   string
		code   int
		out    string
		errOut string
	}{
		{"until it is complete", `{"status":"complete","policy":"static","id":"static-a1","job":"cpu-policy-static-a1","since":"2026-11-23T10:06:00Z","message":"the label still says otherwise"}`, 0,
			"node n1: policy static is in force\nthe label still says otherwise\n", "node n1: policy static is complete since 2026-11-23T10:06:00Z, Job cpu-policy-static-a1\n"},
		{"until it has failed", failed, 1,
			"node n1: policy static is failed\nrolled back, the policy in force is none: step healthy: the kubelet ended 3 times; the kubelet: E1103\nsecond line\n",
			"node n1: policy static is failed since 2026-11-23T10:05:00Z, Job cpu-policy-static-a1\n"},
		{"until the time is over", running, 2, "node n1: policy static is running\n",
			"error: node n1: policy static was running after 200ms; it continues: kubectl partition cpu-policy n1 shows its progress\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newCompanionRun(policyNode("n1"))
			r.kube.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
				changes := watch.NewFakeWithChanSize(3, false)
				for _, status := range []string{running, running, test.last} {
					changes.Modify(policyNode("n1", nodestatus.StatusAnnotation, status))
				}
				return true, changes, nil
			})
			timeout := time.Minute
			if test.code == 2 {
				timeout = 200 * time.Millisecond
			}
			p := &policyOptions{companion: r.companion, wait: true, timeout: timeout}
			r.check(t, perform(t, p, "n1", "static"), test.code, test.out,
				"node n1: policy static is requested\nnode n1: policy static is running since 2026-11-23T10:05:00Z, Job cpu-policy-static-a1\n"+test.errOut)
		})
	}
}

func TestCPUPolicyUnlockShowsAsksAndUnlocks(t *testing.T) {
	lock := func() runtime.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nodegroup.ControlPlaneLock.Namespace, Name: nodegroup.ControlPlaneLock.Name,
			Annotations: map[string]string{nodegroup.HoldersAnnotation: `[{"owner":"cpupolicy","operation":"static-a1","node":"n1","since":"2026-11-23T10:00:00Z"}]`}}}
	}
	const shown = `The lock of the control plane, Lease kube-system/partition-control-plane, is held by:
NODE  OWNER      OPERATION  SINCE
n1    cpupolicy  static-a1  2026-11-23T10:00:00Z
`
	const node = `Node n1
  In force:  unknown: not observed since the node booted
`
	const question = "If its operation still runs, another node of the control plane may be switched meanwhile. Unlock n1? Type yes to continue: "
	for _, test := range []struct {
		name, node, answer string
		yes                bool
		code               int
		out, errOut        string
		held               bool
	}{
		{"yes", "n1", "yes\n", false, 0, shown + node + "node n1: unlocked\n", question, false},
		{"no", "n1", "no\n", false, 2, shown + node, question + "error: nothing was changed: the answer was \"no\", not yes (--yes skips the question)\n", true},
		{"no one to ask", "n1", "", false, 2, shown + node, question + "error: nothing was changed: the answer was \"\", not yes (--yes skips the question)\n", true},
		{"not asked", "n1", "", true, 0, shown + node + "node n1: unlocked\n", "", false},
		{"another node", "n2", "", true, 2, shown, "error: node n2 does not hold the lock of the control plane\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newCompanionRun(policyNode("n1"), lock())
			r.in.WriteString(test.answer)
			r.check(t, perform(t, &unlockOptions{force{companion: r.companion, yes: test.yes}}, test.node), test.code, test.out, test.errOut)
			lease, err := r.kube.CoordinationV1().Leases(nodegroup.ControlPlaneLock.Namespace).Get(t.Context(), nodegroup.ControlPlaneLock.Name, metav1.GetOptions{})
			if err != nil || (lease.Annotations[nodegroup.HoldersAnnotation] != "") != test.held {
				t.Errorf("it has %v, %v", lease.Annotations, err)
			}
		})
	}
	r := newCompanionRun()
	r.check(t, perform(t, &unlockOptions{force{companion: r.companion, yes: true}}, "n1"), 2, "", "error: node n1 does not hold the lock of the control plane, Lease kube-system/partition-control-plane: it is free\n")
}

func TestClaims(t *testing.T) {
	r := newCompanionRun(append(shownNodes(), policyNode("n3", nodegroup.ClaimAnnotation, "{"))...)
	r.check(t, perform(t, &claimListOptions{companion: r.companion}), 1, `NODE  OWNER      OPERATION  SINCE
n2    cpupolicy  static-a2  2026-11-23T10:06:00Z
n3    node n3: annotation nodegroup.workload.openshift.io/claim: "{" is no claim: unexpected end of JSON input
`, "")
	r = newCompanionRun(shownNodes()...)
	r.check(t, perform(t, &claimReleaseOptions{force{companion: r.companion, yes: true}}, "n1"), 2, "", "error: node n1 is not claimed\n")
	cordoned := shownNodes()
	cordoned[1].(*corev1.Node).Spec.Unschedulable = true
	r = newCompanionRun(cordoned...)
	r.in.WriteString("yes\n")
	r.check(t, perform(t, &claimReleaseOptions{force{companion: r.companion}}, "n2"), 0, `node n2 is claimed: {"owner":"cpupolicy","operation":"static-a2","since":"2026-11-23T10:06:00Z"}
node n2: released
node n2 is cordoned; if that is no longer needed, run: kubectl uncordon n2
`, "If that operation still runs, another one may then act on the node at the same time. Release n2? Type yes to continue: ")
	r.out.Reset()
	r.errOut.Reset()
	r.check(t, perform(t, &claimListOptions{companion: r.companion}), 0, "NODE  OWNER  OPERATION  SINCE\n", "")
}

func TestAPlanOfAGroupNamesNodesAndPods(t *testing.T) {
	r := newCompanionRun()
	for _, test := range []struct {
		file string
		args []string
	}{{"", nil}, {"pinned.yaml", []string{"pinned"}}} {
		p := &groupPlanOptions{companion: r.companion, file: test.file}
		if err := perform(t, p, test.args...); err == nil || err.Error() != "name a CPUManagerPolicy of the cluster, or a file with -f" {
			t.Errorf("-f %q %q: got error %v", test.file, test.args, err)
		}
	}
	var out strings.Builder
	if err := printGroupPlan(&out, &policyclient.GroupPlan{
		Name: "pinned", Policy: "static", MaxUnavailable: "2", Cordon: true, Missing: []string{"n9"},
		Nodes: []policyclient.PlannedNode{
			{Name: "n1", Outcome: policyclient.Waiting, Reasons: []string{"its policy was not observed since it booted"}},
			{Name: "n2", Policy: "none", Outcome: policyclient.WouldSwitch, Evicted: []string{"a/b"}, Warnings: []string{"w\x1b[0m"}},
			{Name: "n3", Policy: "static", Outcome: policyclient.HasPolicy},
		},
	}); err != nil {
		t.Fatal(err)
	}
	const want = `CPUManagerPolicy pinned: policy static, at most 2 unavailable, each cordoned
NODE  POLICY   OUTCOME
n1    unknown  waits
n2    none     would be switched
n3    static   has the policy
node n1: waits: its policy was not observed since it booted
node n2: would evict: a/b
node n2: warning: w\x1b[0m
node n9: there is no such node yet
nodes: 3, would be switched: 1, has the policy: 1, waits: 1; nothing was written
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
