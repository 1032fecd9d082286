// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/api/cpupolicy/v1alpha1"
	"workload.openshift.io/operators/internal/testenv"
)

func TestWhatKubeAPIServerRefuses(t *testing.T) {
	c := testenv.Start(t)
	for name, test := range map[string]struct {
		spec string
		// want are parts of the error; nil is that it is accepted.
		want []string
	}{
		"names":                        {"{policy: static, nodes: {names: [a, b]}}", nil},
		"a selector":                   {"{policy: none, nodes: {selector: {matchLabels: {a: b}}}, maxUnavailable: 30%}", nil},
		"every node":                   {"{policy: none, nodes: {selector: {}}, maxUnavailable: 100%}", nil},
		"a drain":                      {"{policy: static, nodes: {names: [a]}, maxUnavailable: 2, cordon: true, drain: {timeout: 5m}}", nil},
		"no policy":                    {"{nodes: {names: [a]}}", []string{"spec.policy", "Required"}},
		"an unknown policy":            {"{policy: dynamic, nodes: {names: [a]}}", []string{"spec.policy", "dynamic"}},
		"no nodes":                     {"{policy: static}", []string{"spec.nodes", "Required"}},
		"neither names nor a selector": {"{policy: static, nodes: {}}", []string{"spec.nodes", "exactly one of names and selector"}},
		"names and a selector":         {"{policy: static, nodes: {names: [a], selector: {}}}", []string{"spec.nodes", "exactly one of names and selector"}},
		"no name":                      {"{policy: static, nodes: {names: []}}", []string{"spec.nodes.names", "at least 1"}},
		"a name twice":                 {"{policy: static, nodes: {names: [a, a]}}", []string{"spec.nodes.names[1]", "Duplicate"}},
		"none unavailable":             {"{policy: static, nodes: {names: [a]}, maxUnavailable: 0}", []string{"spec.maxUnavailable", "number from 1"}},
		"more than can be counted":     {"{policy: static, nodes: {names: [a]}, maxUnavailable: 2147483648}", []string{"spec.maxUnavailable", "number from 1 to 100000"}},
		"a name that is none":          {"{policy: static, nodes: {names: [\"Worker 1\"]}}", []string{"spec.nodes.names[0]", "Worker 1"}},
		"an expression":                {"{policy: static, nodes: {selector: {matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: Exists}]}}}", nil},
		"an unknown operator":          {"{policy: static, nodes: {selector: {matchExpressions: [{key: a, operator: Like, values: [b]}]}}}", []string{"spec.nodes.selector", "operator must be In"}},
		"an operator without values":   {"{policy: static, nodes: {selector: {matchExpressions: [{key: a, operator: In}]}}}", []string{"spec.nodes.selector", "need values"}},
		"an operator with values":      {"{policy: static, nodes: {selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}}", []string{"spec.nodes.selector", "must have none"}},
		"no percentage unavailable":    {"{policy: static, nodes: {names: [a]}, maxUnavailable: 0%}", []string{"spec.maxUnavailable", "1% to 100%"}},
		"more than all":                {"{policy: static, nodes: {names: [a]}, maxUnavailable: 101%}", []string{"spec.maxUnavailable", "1% to 100%"}},
		"a number as a text":           {"{policy: static, nodes: {names: [a]}, maxUnavailable: \"3\"}", []string{"spec.maxUnavailable", "1% to 100%"}},
		"a drain without a cordon":     {"{policy: static, nodes: {names: [a]}, drain: {}}", []string{"spec", "drain needs cordon: true"}},
		"a drain without time":         {"{policy: static, nodes: {names: [a]}, cordon: true, drain: {timeout: 0s}}", []string{"spec.drain.timeout", "longer than 0s"}},
		"an unknown field":             {"{policy: static, nodes: {names: [a]}, force: true}", []string{"spec.force"}},
	} {
		t.Run(name, func(t *testing.T) {
			var spec map[string]any
			if err := yaml.Unmarshal([]byte(test.spec), &spec); err != nil {
				t.Fatal(err)
			}
			policy := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			policy.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CPUManagerPolicy"))
			policy.SetName("test")
			err := c.Client.Create(t.Context(), policy, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
			switch {
			case err == nil && test.want != nil:
				t.Error("it is accepted")
			case err != nil && test.want == nil:
				t.Error(err)
			}
			for _, want := range test.want {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not name %q: %v", want, err)
				}
			}
		})
	}
}

func TestALongNameIsRefused(t *testing.T) {
	c := testenv.Start(t)
	for length, want := range map[int]string{247: "", 248: "metadata.name must have at most 247 characters"} {
		policy := &v1alpha1.CPUManagerPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", length)},
			Spec:       v1alpha1.CPUManagerPolicySpec{Policy: v1alpha1.PolicyStatic, Nodes: v1alpha1.NodeSelection{Names: []string{"a"}}},
		}
		if err := c.Client.Create(t.Context(), policy, client.DryRunAll); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a name of %d characters: the error is %v, want %q", length, err, want)
		}
	}
}

func TestWhatASpecLeavesOutHasDefaults(t *testing.T) {
	c := testenv.Start(t)
	policy := &v1alpha1.CPUManagerPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "defaults"},
		Spec: v1alpha1.CPUManagerPolicySpec{
			Policy: v1alpha1.PolicyStatic,
			Nodes:  v1alpha1.NodeSelection{Names: []string{"a"}},
			Cordon: true,
			Drain:  &v1alpha1.Drain{},
		},
	}
	if err := c.Client.Create(t.Context(), policy, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(policy.Spec.MaxUnavailable, policy.Spec.Drain.Timeout.Duration == 15*time.Minute); got != "1 true" {
		t.Errorf("maxUnavailable is %s, and drain.timeout %s", policy.Spec.MaxUnavailable, policy.Spec.Drain.Timeout.Duration)
	}
}
