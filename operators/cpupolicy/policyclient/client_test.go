// SPDX-License-Identifier: Apache-2.0

package policyclient

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/api/nodegroup"
)

var nodes = schema.GroupResource{Resource: "nodes"}

// cluster has the companion, and these objects.
func cluster(objects ...runtime.Object) (*fake.Clientset, Client) {
	kube := fake.NewClientset(append(objects, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: Group}})...)
	kube.Resources = []*metav1.APIResourceList{{GroupVersion: Group + "/v1alpha1"}}
	return kube, Client{Kube: kube, Namespace: Namespace}
}

func node(name, status string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7", Annotations: map[string]string{"other": "kept"}}}
	if status != "" {
		n.Annotations[nodestatus.StatusAnnotation] = status
	}
	return n
}

// answers makes kube-apiserver answer writes with errors, one after another, and then as it does.
func answers(kube *fake.Clientset, errs ...error) {
	for _, verb := range []string{"patch", "update"} {
		kube.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			if len(errs) == 0 {
				return false, nil, nil
			}
			err := errs[0]
			errs = errs[1:]
			return true, nil, err
		})
	}
}

// denied is what kube-apiserver makes of a webhook's answer.
func denied(texts ...string) error {
	var causes []metav1.StatusCause
	for _, text := range texts {
		causes = append(causes, metav1.StatusCause{Message: text})
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 409, Reason: metav1.StatusReasonConflict,
		Message: `admission webhook "node.cpupolicy.workload.openshift.io" denied the request: ` + strings.Join(texts, "\n"), Details: &metav1.StatusDetails{Causes: causes}}}
}

var outdated = apierrors.NewConflict(nodes, "n1", errors.New("the object has been modified"))

func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("got the error %v, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("got the error %v, want one with %q", err, want)
	}
}

func TestAsk(t *testing.T) {
	const failed = `{"status":"failed","policy":"none","id":"a1"}`
	for _, test := range []struct {
		name    string
		request Request
		prepare func(*fake.Clientset)
		status  string
		err     string
		refused []string
		written string
	}{
		{name: "a request replaces what has ended", request: Request{Node: "n1", Policy: "static"}, status: failed, written: `{"status":"requested","policy":"static"}`},
		{name: "pods may end", request: Request{Node: "n1", Policy: "none", AllowEvicted: true}, written: `{"status":"requested","policy":"none","allowEvicted":true}`},
		{name: "an unknown policy", request: Request{Node: "n1", Policy: "dynamic"}, err: `policy "dynamic" must be static or none`},
		{name: "an unknown node", request: Request{Node: "n2", Policy: "static"}, err: `there is no node "n2"`},
		{name: "no companion", request: Request{Node: "n1", Policy: "static"}, prepare: func(kube *fake.Clientset) { kube.Resources = nil },
			err: "the companion cpupolicy is not on this cluster: there is no API group cpupolicy.workload.openshift.io"},
		{name: "a kind that was left behind", request: Request{Node: "n1", Policy: "static"}, prepare: func(kube *fake.Clientset) {
			_ = kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.Background(), Group, metav1.DeleteOptions{})
		}, err: "there is no ValidatingWebhookConfiguration cpupolicy.workload.openshift.io"},
		{name: "webhook configurations that the user may not read", request: Request{Node: "n1", Policy: "none"}, prepare: func(kube *fake.Clientset) {
			kube.PrependReactor("get", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{}, Group, errors.New("no"))
			})
		}, written: `{"status":"requested","policy":"none"}`},
		{name: "the same again, of which no webhook is asked", request: Request{Node: "n1", Policy: "none"}, status: `{"status":"requested","policy":"none"}`,
			refused: []string{"it is requested already"}, written: `{"status":"requested","policy":"none"}`},
		{name: "several reasons", request: Request{Node: "n1", Policy: "none"}, prepare: func(kube *fake.Clientset) {
			answers(kube, denied("pod a/b is pinned; delete it", "pod a/c is pinned; delete it"))
		}, refused: []string{"pod a/b is pinned; delete it", "pod a/c is pinned; delete it"}},
		{name: "one reason", request: Request{Node: "n1", Policy: "none"}, prepare: func(kube *fake.Clientset) { answers(kube, denied("policy static is running")) },
			refused: []string{"policy static is running"}},
		{name: "a kubelet that writes meanwhile", request: Request{Node: "n1", Policy: "none"}, prepare: func(kube *fake.Clientset) { answers(kube, outdated, outdated) },
			written: `{"status":"requested","policy":"none"}`},
		{name: "somebody who asks meanwhile", request: Request{Node: "n1", Policy: "none"}, prepare: func(kube *fake.Clientset) {
			kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node("n1", failed), ""); err != nil {
					return true, nil, err
				}
				return true, nil, outdated
			})
		}, err: `node n1: policy none was not requested: the annotation ` + nodestatus.StatusAnnotation + ` was "", and is "{`, written: failed},
		{name: "no right to write", request: Request{Node: "n1", Policy: "none"}, prepare: func(kube *fake.Clientset) {
			answers(kube, apierrors.NewForbidden(nodes, "n1", errors.New("not you")))
		}, err: "node n1: policy none was not requested: nodes \"n1\" is forbidden"},
	} {
		t.Run(test.name, func(t *testing.T) {
			kube, client := cluster(node("n1", test.status))
			if test.prepare != nil {
				test.prepare(kube)
			}
			_, err := client.Ask(t.Context(), test.request)
			var refused *RefusedError
			if errors.As(err, &refused) {
				err = nil
			}
			check(t, err, test.err)
			if (refused != nil) != (test.refused != nil) || refused != nil && !reflect.DeepEqual(refused.Texts(), test.refused) {
				t.Errorf("it is refused: %v, want %q", refused, test.refused)
			}
			object, err := kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := object.Annotations[nodestatus.StatusAnnotation]; got != test.written {
				t.Errorf("the annotation is %s, want %s", got, test.written)
			}
			if object.Annotations["other"] != "kept" {
				t.Errorf("the annotations are %v", object.Annotations)
			}
		})
	}
}

func TestADryRunAsksForTheSameWriteWithTheResourceVersion(t *testing.T) {
	kube, client := cluster(node("n1", ""))
	kube.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "anna"}}}, nil
	})
	for _, dryRun := range []bool{true, false} {
		kube.ClearActions()
		if _, err := client.Ask(t.Context(), Request{Node: "n1", Policy: "static", DryRun: dryRun}); err != nil {
			t.Fatal(err)
		}
		var last clienttesting.PatchActionImpl
		var says []string
		for _, action := range kube.Actions() {
			switch action := action.(type) {
			case clienttesting.PatchActionImpl:
				last = action
			case clienttesting.CreateActionImpl:
				if event, is := action.Object.(*eventsv1.Event); is {
					says = append(says, event.Regarding.Name+": "+event.Note)
				}
			}
		}
		if want := []string{`n1: User "anna" has asked for the policy static`}; !dryRun && !slices.Equal(says, want) || dryRun && says != nil {
			t.Errorf("the Events of a dry run (%t) say %q, want %q of what is written", dryRun, says, want)
		}
		if got := len(last.PatchOptions.DryRun) == 1; got != dryRun || last.PatchOptions.FieldManager != "kubectl-partition" {
			t.Errorf("the options are %+v, want a dry run: %t", last.PatchOptions, dryRun)
		}
		var sent map[string]any
		if err := json.Unmarshal(last.GetPatch(), &sent); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"metadata": map[string]any{"resourceVersion": "7", "annotations": map[string]any{nodestatus.StatusAnnotation: `{"status":"requested","policy":"static"}`}}}
		if !reflect.DeepEqual(sent, want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
		// The next turn writes it for the first time, too.
		if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node("n1", ""), ""); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFollow(t *testing.T) {
	const (
		requested = `{"status":"requested","policy":"static"}`
		waits     = `{"status":"requested","policy":"static","id":"a1"}`
		running   = `{"status":"running","policy":"static","id":"a1","job":"cpu-policy-a1"}`
		complete  = `{"status":"complete","policy":"static","id":"a1","job":"cpu-policy-a1"}`
		failed    = `{"status":"failed","policy":"static","id":"a1","message":"rolled back"}`
	)
	// A break is the end of a watch, in which the node goes on.
	const breaks, deleted = "break", "deleted"
	for _, test := range []struct {
		name   string
		states []string
		seen   string
		err    string
	}{
		{"to the end", []string{waits, running, complete}, "requested requested running complete", ""},
		{"to a failure", []string{waits, running, failed}, "requested requested running failed", ""},
		{"refused before it was taken up", []string{`{"status":"failed","policy":"static","message":"no"}`}, "requested failed", ""},
		{"over a broken connection", []string{waits, breaks, running, complete}, "requested requested complete", ""},
		{"withdrawn", []string{""}, "requested", "node n1: the request for the policy static was withdrawn"},
		{"another operation follows", []string{running, `{"status":"requested","policy":"static","id":"b2"}`}, "requested running", "node n1: another request has followed"},
		{"another policy follows", []string{`{"status":"requested","policy":"none"}`}, "requested", "another request has followed, for the policy none"},
		{"unreadable", []string{`{"status":`}, "requested", "annotation " + nodestatus.StatusAnnotation},
		{"a node that goes", []string{running, deleted}, "requested running", "node n1 was deleted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			kube, client := cluster(node("n1", requested))
			var changes *watch.FakeWatcher
			kube.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
				changes = watch.NewFakeWithChanSize(len(test.states), false)
				for len(test.states) > 0 {
					state := test.states[0]
					test.states = test.states[1:]
					switch state {
					case breaks:
						// What comes next is read, not watched.
						last := test.states[len(test.states)-1]
						test.states = nil
						changes.Stop()
						return true, changes, kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node("n1", last), "")
					case deleted:
						changes.Delete(node("n1", ""))
					default:
						changes.Modify(node("n1", state))
					}
				}
				return true, changes, nil
			})
			var seen []string
			last, err := client.Follow(t.Context(), node("n1", requested), func(n Node) { seen = append(seen, string(n.State)) })
			check(t, err, test.err)
			if got := strings.Join(seen, " "); got != test.seen || string(last.State) != seen[len(seen)-1] {
				t.Errorf("seen is %q, and last %q, want %q", got, last.State, test.seen)
			}
		})
	}
}

func TestFollowEndsWithItsContextAndWithoutTheRight(t *testing.T) {
	kube, client := cluster(node("n1", ""))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	kube.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, errors.New("refused") })
	last, err := client.Follow(ctx, node("n1", `{"status":"requested","policy":"static"}`), func(Node) {})
	if !errors.Is(err, context.DeadlineExceeded) || last.State != nodestatus.Requested {
		t.Errorf("got %v, last seen %v", err, last)
	}
	kube.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, apierrors.NewForbidden(nodes, "n1", errors.New("no watch"))
	})
	_, err = client.Follow(t.Context(), node("n1", `{"status":"requested","policy":"static"}`), func(Node) {})
	check(t, err, "node n1: nodes \"n1\" is forbidden: no watch")
}

func TestNodeOf(t *testing.T) {
	at := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	object := node("n1", `{"status":"running","policy":"static","id":"a1","job":"j1","message":"m","since":"2026-11-23T10:00:00Z","group":"edge","later":1}`)
	object.Annotations[nodestatus.ObservedAnnotation] = `{"policy":"none","refused":{"none":"x"},"at":"2026-11-23T10:00:00Z","bootID":"b1","for":"boot-b1"}`
	object.Annotations[nodegroup.ClaimAnnotation] = `{"owner":"cpupolicy","operation":"a1","since":"2026-11-23T10:00:00Z"}`
	object.Status.NodeInfo.BootID = "b1"
	want := Node{Name: "n1", Policy: "none", ObservedAt: at, State: nodestatus.Running, Requested: "static", Since: at, Message: "m", Operation: "a1", Job: "j1", Group: "edge", Claim: &nodegroup.Claim{Owner: "cpupolicy", Operation: "a1", Since: at}}
	if got := NodeOf(object); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	object.Status.NodeInfo.BootID = "b2"
	if got := NodeOf(object); got.Policy != "" || !got.ObservedAt.IsZero() {
		t.Errorf("after a reboot it is still %s, observed %s", got.Policy, got.ObservedAt)
	}
	for key, value := range map[string]string{nodestatus.StatusAnnotation: `{"status":"success","policy":"none"}`, nodestatus.ObservedAnnotation: "[]", nodegroup.ClaimAnnotation: `{"owner":"a","owner":"b"}`} {
		object := node("n1", "")
		object.Annotations[key] = value
		got := NodeOf(object)
		if len(got.Unreadable) != 1 || !strings.Contains(got.Unreadable[0], key) || got.State != "" || got.Claim != nil {
			t.Errorf("%s %s: got %+v", key, value, got)
		}
		if (got.UnreadableClaim != "") != (key == nodegroup.ClaimAnnotation) {
			t.Errorf("%s: the claim is unreadable: %q", key, got.UnreadableClaim)
		}
	}
}

func lease(holders string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nodegroup.ControlPlaneLock.Namespace, Name: nodegroup.ControlPlaneLock.Name, ResourceVersion: "3", Annotations: map[string]string{"other": "kept"}}}
	if holders != "" {
		l.Annotations[nodegroup.HoldersAnnotation] = holders
	}
	return l
}

func TestUnlock(t *testing.T) {
	const one, two = `{"operation":"a1","node":"n1","since":"2026-11-23T10:00:00Z"}`, `{"operation":"b2","node":"n2","since":"2026-11-23T10:00:00Z"}`
	for _, test := range []struct {
		name, holders string
		prepare       func(*fake.Clientset)
		err           string
		left          string
		identity      string
	}{
		{name: "the only holder", holders: "[" + one + "]"},
		{name: "one of two", holders: "[" + one + "," + two + "]", left: "[" + two + "]", identity: "b2"},
		{name: "another holder", holders: "[" + two + "]", err: "node n1 does not hold the lock of the control plane", left: "[" + two + "]"},
		{name: "nobody", err: "node n1 does not hold the lock of the control plane"},
		{name: "unreadable", holders: "{}", err: "lease kube-system/partition-control-plane: annotation " + nodegroup.HoldersAnnotation, left: "{}"},
		{name: "written meanwhile", holders: "[" + one + "]", prepare: func(kube *fake.Clientset) { answers(kube, outdated) },
			err: "lease kube-system/partition-control-plane: somebody else has written it meanwhile", left: "[" + one + "]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			kube, client := cluster(lease(test.holders))
			if test.prepare != nil {
				test.prepare(kube)
			}
			lock, err := client.Lock(t.Context())
			if err == nil {
				err = client.Unlock(t.Context(), lock, "n1")
			}
			check(t, err, test.err)
			got, err := kube.CoordinationV1().Leases(nodegroup.ControlPlaneLock.Namespace).Get(t.Context(), nodegroup.ControlPlaneLock.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Annotations[nodegroup.HoldersAnnotation] != test.left || got.Annotations["other"] != "kept" {
				t.Errorf("the annotations are %v, want the holders %s", got.Annotations, test.left)
			}
			if test.err == "" && (got.Spec.HolderIdentity == nil) != (test.identity == "") || got.Spec.HolderIdentity != nil && *got.Spec.HolderIdentity != test.identity {
				t.Errorf("the identity is %v, want %s", got.Spec.HolderIdentity, test.identity)
			}
		})
	}
	_, client := cluster()
	if lock, err := client.Lock(t.Context()); err != nil || lock.Holders != nil {
		t.Errorf("without a Lease it is %v, %v", lock, err)
	}
}

func TestRelease(t *testing.T) {
	claimed := func(claim string) *corev1.Node {
		n := node("n1", "")
		n.Annotations[nodegroup.ClaimAnnotation] = claim
		return n
	}
	for _, test := range []struct {
		name    string
		before  *corev1.Node
		prepare func(*fake.Clientset)
		err     string
		left    string
	}{
		{name: "a claim", before: claimed(`{"owner":"a","operation":"1"}`)},
		{name: "what cannot be read", before: claimed(`{`)},
		{name: "none", before: node("n1", ""), err: "node n1 is not claimed"},
		{name: "a kubelet that writes meanwhile", before: claimed("{}"), prepare: func(kube *fake.Clientset) { answers(kube, outdated) }},
		{name: "another claim meanwhile", before: claimed("{}"), prepare: func(kube *fake.Clientset) {
			kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				if err := kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), claimed("[]"), ""); err != nil {
					return true, nil, err
				}
				return true, nil, outdated
			})
		}, err: `node n1: the claim was not removed: the annotation ` + nodegroup.ClaimAnnotation + ` was "{}", and is "[]" now`, left: "[]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			kube, client := cluster(test.before.DeepCopy())
			if test.prepare != nil {
				test.prepare(kube)
			}
			check(t, client.Release(t.Context(), test.before), test.err)
			got, err := client.Node(t.Context(), "n1")
			if err != nil {
				t.Fatal(err)
			}
			if got.Annotations[nodegroup.ClaimAnnotation] != test.left || got.Annotations["other"] != "kept" {
				t.Errorf("the annotations are %v", got.Annotations)
			}
		})
	}
}
