// SPDX-License-Identifier: Apache-2.0

package example

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/example/daemon"
	"workload.openshift.io/operators/internal/testenv"
)

func TestMain(m *testing.M) { companiontest.Main(m, &Companion{}) }

// aSource is a ConfigMap that is copied.
func aSource(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "partition-" + Name, Name: name, Labels: daemon.Copied}, Data: map[string]string{"a": "1"}}
}

func TestACompanionNeedsTheGroundAlone(t *testing.T) {
	i := companiontest.Install(t, Name)
	i.AddHosted(t)
	replica := i.Start(t, nil)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	source := aSource("settings")
	// The hops, and which object each has.
	hops := []struct {
		in   client.Client
		copy *corev1.ConfigMap
	}{{in: i.Client, copy: source.DeepCopy()}, {in: i.Hosted.Client, copy: source.DeepCopy()}}
	hops[0].copy.Namespace, hops[1].copy.Namespace = Middle, daemon.Namespace
	arrives := func(value string) (uids [2]types.UID) {
		t.Helper()
		for n, hop := range hops {
			testenv.Eventually(t, time.Minute, func() error {
				hop.copy.Data = nil
				if err := hop.in.Get(t.Context(), client.ObjectKeyFromObject(hop.copy), hop.copy); err != nil || hop.copy.Data["a"] != value {
					return fmt.Errorf("the copy in %s has %v, want %s: %w", hop.copy.Namespace, hop.copy.Data, value, err)
				}
				return nil
			})
			uids[n] = hop.copy.UID
		}
		return uids
	}
	again := source.DeepCopy()
	do(i.Client.Create(t.Context(), source))
	first := arrives("1")
	source.Data["a"] = "2"
	do(i.Client.Update(t.Context(), source))
	if uids := arrives("2"); uids != first {
		t.Errorf("a changed source gave other objects, %s and not %s", uids, first)
	}
	for _, hop := range hops {
		do(hop.in.Patch(t.Context(), hop.copy, client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"theirs"},"immutable":true}`))))
	}
	second := arrives("2")
	if second[0] == first[0] || second[1] == first[1] {
		t.Errorf("the immutable copies were %s, and are %s", first, second)
	}
	metrics := i.Metrics(t)
	for _, name := range Set.Names() {
		if !strings.Contains(metrics, name+`{namespace="partition-example"} 1`) {
			t.Errorf("the metrics have no %s:\n%s", name, metrics)
		}
	}

	// Missing for one look, and gone for good.
	do(i.Client.Delete(t.Context(), source))
	again.Data["a"] = "2"
	do(i.Client.Create(t.Context(), again))
	testenv.Always(t, patience+time.Second, func() error {
		if uids := arrives("2"); uids != second {
			return fmt.Errorf("the copies are other objects, %s and not %s", uids, second)
		}
		return nil
	})
	do(i.Client.Delete(t.Context(), again))
	for _, hop := range hops {
		testenv.Eventually(t, time.Minute, func() error {
			if err := hop.in.Get(t.Context(), client.ObjectKeyFromObject(hop.copy), hop.copy); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the copy in %s is still there: %w", hop.copy.Namespace, err)
			}
			return nil
		})
	}

	t.Run("the daemon writes for its own node", func(t *testing.T) { theDaemonWritesForItsOwnNode(t, i.Hosted) })

	// A replica that loses the Lease ends.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: "partition-controller"}}
	do(i.Client.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":"another"}}`))))
	if err := replica.Wait(t, time.Minute); err == nil {
		t.Error("a replica that has lost the Lease ends without an error")
	}
}

// theDaemonWritesForItsOwnNode has pods of the DaemonSet, as its controller would create them.
func theDaemonWritesForItsOwnNode(t *testing.T, i *companiontest.Installed) {
	set := &appsv1.DaemonSet{}
	testenv.Eventually(t, time.Minute, func() error {
		return i.Client.Get(t.Context(), client.ObjectKey{Namespace: daemon.Namespace, Name: Name}, set)
	})
	account := set.Spec.Template.Spec.ServiceAccountName
	create := func(object client.Object) {
		t.Helper()
		if err := i.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = i.Client.Delete(context.Background(), object, client.GracePeriodSeconds(0)) })
	}
	for _, name := range []string{"mine", "other"} {
		create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"theirs": ""}}})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: daemon.Namespace, Name: "of-mine", Labels: set.Spec.Template.Labels}, Spec: set.Spec.Template.Spec}
	pod.Spec.NodeName = "mine"
	create(pod)
	bound := i.As(t, i.Token(t, daemon.Namespace, account, pod))
	for name, test := range map[string]struct {
		by   client.Client
		node string
		// patch is of metadata, and want part of the error; empty is that the daemon may.
		patch, want string
	}{
		"its own node":          {bound, "mine", `{"annotations":{"` + daemon.Annotation + `":"{}"}}`, ""},
		"a long text":           {bound, "mine", `{"annotations":{"` + daemon.Annotation + `":"` + strings.Repeat("a", 1025) + `"}}`, "up to 1024 characters"},
		"another node":          {bound, "other", `{"annotations":{"` + daemon.Annotation + `":"{}"}}`, "runs on node mine"},
		"another annotation":    {bound, "mine", `{"annotations":{"a":"b"}}`, "nothing else"},
		"somebody's annotation": {bound, "mine", `{"annotations":{"theirs":null}}`, "nothing else"},
		"a label":               {bound, "mine", `{"labels":{"a":"b"}}`, "nothing else"},
		"a token without a pod": {i.As(t, i.Token(t, daemon.Namespace, account, nil)), "mine", `{"annotations":{"` + daemon.Annotation + `":"{}"}}`, "bound to no node"},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Eventually(t, 10*time.Second, func() error { // kube-apiserver learns of roles and policies a moment later
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: test.node}}
				err := test.by.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":`+test.patch+`}`)), client.DryRunAll)
				if test.want == "" && err == nil || test.want != "" && err != nil && strings.Contains(err.Error(), test.want) {
					return nil
				}
				return fmt.Errorf("the error is %v, want %q", err, test.want)
			})
		})
	}
}

// TestTheRulesOfAllCompanions is the last test: it compares the rights of the companion with those that the test before it
// made it use.
func TestTheRulesOfAllCompanions(t *testing.T) {
	sources := 0
	companiontest.Run(t, companiontest.Subject{
		Companion: &Companion{},
		Object: func(name string) client.Object {
			sources++ // the copy of a source that has gone stays for a moment
			return aSource(fmt.Sprintf("%s-%d", name, sources))
		},
		Elsewhere: func(ctx context.Context, i *companiontest.Installed, source client.Object) error {
			return i.Hosted.Client.Get(ctx, client.ObjectKey{Namespace: daemon.Namespace, Name: source.GetName()}, &corev1.ConfigMap{})
		},
		Traces: corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{daemon.Annotation: "{}"}}},
		Unused: map[string]map[companiontest.Right]string{
			Name:             {{Verb: "patch", Group: "events.k8s.io", Resource: "events"}: "it writes no Events", {Verb: "create", Group: "events.k8s.io", Resource: "events"}: "it writes no Events"},
			Name + "-hosted": {{Verb: "create", Group: "apps", Resource: "daemonsets"}: "the audit log has a patch, which needs this right, too, where the object is new"},
		},
	})
}
