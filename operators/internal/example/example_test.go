// SPDX-License-Identifier: Apache-2.0

package example

import (
	"bufio"
	"context"
	"fmt"
	"io"
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
	"workload.openshift.io/operators/internal/nodeprogram"
	"workload.openshift.io/operators/internal/testenv"
)

func TestMain(m *testing.M) { companiontest.Main(m, &Companion{}) }

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
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: "settings", Labels: Sources}, Data: map[string]string{"a": "1"}}
	copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: source.Name}}
	becomes := func(value string) types.UID {
		t.Helper()
		testenv.Eventually(t, time.Minute, func() error {
			var object corev1.ConfigMap
			if err := i.Hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(copied), &object); err != nil || object.Data["a"] != value {
				return fmt.Errorf("the copy has %v, want %s: %w", object.Data, value, err)
			}
			copied = &object
			return nil
		})
		return copied.UID
	}
	again := source.DeepCopy()
	do(i.Client.Create(t.Context(), source))
	first := becomes("1")
	source.Data["a"] = "2"
	do(i.Client.Update(t.Context(), source))
	if uid := becomes("2"); uid != first {
		t.Errorf("a changed source gave another object, %s and not %s", uid, first)
	}
	do(i.Hosted.Client.Patch(t.Context(), copied, client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"theirs"},"immutable":true}`))))
	second := becomes("2")
	if second == first {
		t.Error("the immutable copy is the same object")
	}

	// As the kubelet would start it.
	daemon := &appsv1.DaemonSet{}
	testenv.Eventually(t, time.Minute, func() error {
		return i.Hosted.Client.Get(t.Context(), types.NamespacedName{Namespace: Namespace, Name: Name}, daemon)
	})
	pod := *i.Hosted
	pod.Namespace = Namespace
	command := nodeprogram.NewCommand("partition-node", "", NewNodeCommand())
	command.SetArgs(append(daemon.Spec.Template.Spec.Containers[0].Args, "--kubeconfig="+pod.Identity(t, daemon.Spec.Template.Spec.ServiceAccountName)))
	reader, writer := io.Pipe()
	command.SetOut(writer)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	go func() { _ = writer.CloseWithError(command.ExecuteContext(ctx)) }()
	if line, err := bufio.NewReader(reader).ReadString('\n'); line != "settings map[a:2]\n" {
		t.Errorf("the daemon prints %q: %v", line, err)
	}
	reader.Close()

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
		if uid := becomes("2"); uid != second {
			return fmt.Errorf("the copy is another object, %s and not %s", uid, second)
		}
		return nil
	})
	do(i.Client.Delete(t.Context(), again))
	for _, object := range []client.Object{copied, daemon} {
		testenv.Eventually(t, time.Minute, func() error {
			if err := i.Hosted.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s is still there: %w", object, object.GetName(), err)
			}
			return nil
		})
	}

	// A replica that loses the Lease ends.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: "partition-controller"}}
	do(i.Client.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":"another"}}`))))
	if err := replica.Wait(t, time.Minute); err == nil {
		t.Error("a replica that has lost the Lease ends without an error")
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
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "partition-" + Name, Name: fmt.Sprintf("%s-%d", name, sources), Labels: Sources}}
		},
		Elsewhere: func(ctx context.Context, i *companiontest.Installed, source client.Object) error {
			return i.Hosted.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: source.GetName()}, &corev1.ConfigMap{})
		},
		Unused: map[string]map[companiontest.Right]string{
			Name:             {{Verb: "patch", Group: "events.k8s.io", Resource: "events"}: "it writes no Events", {Verb: "create", Group: "events.k8s.io", Resource: "events"}: "it writes no Events"},
			Name + "-hosted": {{Verb: "create", Group: "apps", Resource: "daemonsets"}: "the audit log has a patch, which needs this right, too, where the object is new"},
		},
	})
}
