// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion"
)

// named is a companion that is never started.
type named string

func (n named) Name() string { return string(n) }

func (named) Needs(*configv1alpha1.ControllerConfiguration) companion.Needs {
	return companion.Needs{}
}

func (named) Settings() companion.Settings { return nil }

func (named) AddToManager(context.Context, companion.Clusters, *configv1alpha1.ControllerConfiguration) error {
	return nil
}

func TestWhatIsWrongWithACommandLine(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("apiVersion: config.workload.openshift.io/v1alpha1\nkind: ControllerConfiguration\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	valid := write("valid", "namespace: ns\ncontroller: first\nclientConnection: {kubeconfig: /no/such/kubeconfig}\n")
	for name, test := range map[string]struct {
		arguments []string
		want      []string
	}{
		"no file":                        {[]string{"--config=" + filepath.Join(dir, "none")}, []string{"none", "no such file"}},
		"a wrong configuration":          {[]string{"--config=" + write("wrong", "namespace: ns\nmetrics: {bindAddress: x}\n")}, []string{"wrong", "metrics.bindAddress", "x"}},
		"no companion":                   {[]string{"--config=" + write("empty", "namespace: ns\n")}, []string{"--controller", "first, second"}},
		"an unknown companion":           {[]string{"--config=" + valid, "--controller=third"}, []string{"third", "first, second"}},
		"settings of one that has none":  {[]string{"--config=" + write("settings", "namespace: ns\ncontroller: first\nsettings: {a: b}\n")}, []string{"settings", "first"}},
		"a kubeconfig that is not there": {[]string{"--config=" + valid}, []string{"/no/such/kubeconfig"}},
		"an argument":                    {[]string{"first"}, []string{"first"}},
		"nothing to clean":               {[]string{"clean"}, []string{"--controller"}},
		"an unknown companion to clean":  {[]string{"clean", "--controller=third"}, []string{"third", "first, second"}},
	} {
		t.Run(name, func(t *testing.T) {
			command := NewCommand(named("first"), named("second"))
			command.PersistentPreRunE = nil // a process sets up its log once
			command.SetArgs(test.arguments)
			command.SetOut(&bytes.Buffer{})
			command.SetErr(&bytes.Buffer{})
			err := command.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not name %q: %v", want, err)
				}
			}
		})
	}
}

func TestOnlyWhatACompanionWroteIsRemovedFromANode(t *testing.T) {
	const owner = "first.workload.openshift.io"
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for name, test := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		marks  companion.Marks
		want   []string
	}{
		"nothing": {nil, companion.Marks{}, nil},
		"what it updated": {
			[]metav1.ManagedFieldsEntry{entry(owner, metav1.ManagedFieldsOperationUpdate, `{"f:metadata":{"f:annotations":{"f:a":{}},"f:labels":{"f:b":{}}},"f:spec":{"f:unschedulable":{}}}`)},
			companion.Marks{}, []string{"annotation a", "label b", "cordon"},
		},
		"what it applied": {
			[]metav1.ManagedFieldsEntry{entry(owner, metav1.ManagedFieldsOperationApply, `{"f:metadata":{"f:labels":{"f:b":{}}}}`)},
			companion.Marks{}, []string{"label b"},
		},
		"what another companion wrote": {
			[]metav1.ManagedFieldsEntry{entry("second.workload.openshift.io", metav1.ManagedFieldsOperationUpdate, `{"f:metadata":{"f:labels":{"f:b":{}}},"f:spec":{"f:unschedulable":{}}}`)},
			companion.Marks{}, nil,
		},
		"its marks, no matter who wrote them": {nil, companion.Marks{Annotations: []string{"a", "c"}, Labels: []string{"b"}, Taints: []string{"t", "u"}}, []string{"annotation a", "label b", "taint t"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "", "x": ""}, Labels: map[string]string{"b": "", "y": ""}, ManagedFields: test.fields},
				Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "t"}, {Key: "z"}}},
			}
			removed, err := removeTraces(node, "first", test.marks)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(removed, test.want) {
				t.Errorf("removed are %q, want %q", removed, test.want)
			}
			// What is left is what was not removed.
			var left []string
			for _, key := range []string{"a", "x"} {
				if _, has := node.Annotations[key]; has {
					left = append(left, "annotation "+key)
				}
			}
			for _, key := range []string{"b", "y"} {
				if _, has := node.Labels[key]; has {
					left = append(left, "label "+key)
				}
			}
			for _, taint := range node.Spec.Taints {
				left = append(left, "taint "+taint.Key)
			}
			if node.Spec.Unschedulable {
				left = append(left, "cordon")
			}
			if len(left)+len(removed) != 7 || slices.ContainsFunc(left, func(each string) bool { return slices.Contains(removed, each) }) {
				t.Errorf("left are %q", left)
			}
		})
	}
}

func TestOnlyACompanionsOwnClaimIsRemoved(t *testing.T) {
	for claim, want := range map[string]bool{
		`{"owner":"first","operation":"1","since":"2026-11-23T10:00:00Z"}`:  true,
		`{"owner":"second","operation":"1","since":"2026-11-23T10:00:00Z"}`: false,
		`first`: false,
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodegroup.ClaimAnnotation: claim}}}
		removed, err := removeTraces(node, "first", companion.Marks{})
		if _, left := node.Annotations[nodegroup.ClaimAnnotation]; err != nil || left == want {
			t.Errorf("of the claim %s is removed %q: %v", claim, removed, err)
		}
	}
}
