// SPDX-License-Identifier: Apache-2.0

package operand

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, nil) }

var kinds = []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap"), appsv1.SchemeGroupVersion.WithKind("DaemonSet")}

func configMap(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "default", "name": name},
		"data":     map[string]any{"key": value},
	}}
}

// counting is a writer that counts what is applied.
type counting struct {
	client.Client
	applied int
}

func (c *counting) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	c.applied++
	return c.Client.Apply(ctx, object, options...)
}

func TestWhatHasNotChangedIsNotWritten(t *testing.T) {
	plane := testenv.Start(t)
	c, ctx := &counting{Client: plane.Client}, t.Context()
	o := &Operand{Reader: c, Writer: c, Companion: "ours", Name: "quiet", Namespace: "default", Kinds: kinds}
	t.Cleanup(func() { _ = o.Apply(context.WithoutCancel(ctx)) })
	for _, step := range []struct {
		name    string
		value   string
		happens func() error
		writes  int
	}{
		{"at first", "1", nil, 2},
		{"nothing has changed", "1", nil, 0},
		{"another value is wanted", "2", nil, 1},
		{"somebody has edited one", "2", func() error {
			return c.Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "quiet-a"}}, client.RawPatch(types.MergePatchType, []byte(`{"data": {"key": "edited"}}`)))
		}, 1},
		{"somebody has deleted one", "2", func() error {
			return c.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "quiet-b"}})
		}, 1},
	} {
		if step.happens != nil {
			if err := step.happens(); err != nil {
				t.Fatal(err)
			}
		}
		c.applied = 0
		if err := o.Apply(ctx, configMap("quiet-a", step.value), configMap("quiet-b", "1")); err != nil || c.applied != step.writes {
			t.Errorf("%s: %d objects are applied, want %d: %v", step.name, c.applied, step.writes, err)
		}
		a := &corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "quiet-a"}, a); err != nil || a.Data["key"] != step.value {
			t.Errorf("%s: a is %v: %v", step.name, a.Data, err)
		}
	}
}

func TestAnOperandIsWhatItsCompanionSays(t *testing.T) {
	plane := testenv.Start(t)
	c, ctx := plane.Client, t.Context()
	ours, other := &Operand{Reader: c, Writer: c, Companion: "ours", Name: "first", Kinds: kinds}, &Operand{Reader: c, Writer: c, Companion: "ours", Name: "second", Namespace: "default", Kinds: kinds}
	if err := ours.Apply(ctx, configMap("a", "1"), configMap("b", "1")); err != nil {
		t.Fatal(err)
	}
	if err := other.Apply(ctx, configMap("c", "1")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{"a", "b", "c", "users"} {
			_ = c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		}
	})
	users := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "users", Labels: map[string]string{companion.OwnerLabel: "ours"}}}
	if err := c.Create(ctx, users); err != nil {
		t.Fatal(err)
	}

	// Somebody edits what is ours, and adds what is not.
	var a corev1.ConfigMap
	key := client.ObjectKey{Namespace: "default", Name: "a"}
	if err := c.Get(ctx, key, &a); err != nil {
		t.Fatal(err)
	}
	a.Data["key"], a.Annotations = "edited", map[string]string{"theirs": "stays"}
	delete(a.Labels, Label)
	if err := c.Update(ctx, &a); err != nil {
		t.Fatal(err)
	}
	if err := ours.Apply(ctx, configMap("a", "2")); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, key, &a); err != nil || a.Data["key"] != "2" || a.Annotations["theirs"] != "stays" || a.Labels[Label] != "first" {
		t.Errorf("a is %v %v %v: %v", a.Data, a.Annotations, a.Labels, err)
	}
	for name, stays := range map[string]bool{"b": false, "c": true, "users": true} {
		err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &corev1.ConfigMap{})
		if apierrors.IsNotFound(err) == stays {
			t.Errorf("%s: want it to stay: %v; reading it says %v", name, stays, err)
		}
	}

	// What cannot be made keeps what is there.
	wrong := configMap("A", "1")
	if err := ours.Apply(ctx, wrong); err == nil {
		t.Error("a wrong name is accepted")
	}
	if err := c.Get(ctx, key, &a); err != nil {
		t.Errorf("after a failure a is gone: %v", err)
	}
	if err := ours.Apply(ctx); err != nil {
		t.Error(err)
	}
	if err := c.Get(ctx, key, &a); !apierrors.IsNotFound(err) {
		t.Errorf("an operand without objects leaves a: %v", err)
	}
}

func TestProgressSaysWhatIsMissing(t *testing.T) {
	for name, test := range map[string]struct {
		progress Progress
		want     string
	}{
		"a DaemonSet that nobody has seen": {OfDaemonSet(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 1}}), NotSeen},
		"a DaemonSet without nodes":        {OfDaemonSet(&appsv1.DaemonSet{}), Available},
		"a pod of an old template":         {OfDaemonSet(&appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, UpdatedNumberScheduled: 1, NumberAvailable: 2}}), RollingOut},
		"a pod that is not available":      {OfDaemonSet(&appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberAvailable: 1}}), RollingOut},
		"a Deployment with an old pod":     {OfDeployment(&appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1}}), RollingOut},
		"a Deployment":                     {OfDeployment(&appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}}), Available},
	} {
		if test.progress.Reason != test.want || test.progress.Done != (test.want == Available) {
			t.Errorf("%s: %+v, want %s", name, test.progress, test.want)
		}
	}
}
