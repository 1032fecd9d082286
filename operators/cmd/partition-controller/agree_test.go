// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/nodepool"
	"workload.openshift.io/operators/tuning"
)

// copied returns what nodepool makes of a value of spec.tuningConfig, or why it makes nothing.
func copied(value string) (text, refused string) {
	pool := nodepool.Pool{
		NodePool: &v1beta1.NodePool{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "a"}, Spec: v1beta1.NodePoolSpec{ClusterName: "hosted", TuningConfig: []corev1.LocalObjectReference{{Name: "s"}}}},
		Sources:  map[string]*corev1.ConfigMap{"s": {Data: map[string]string{"tuning": value}}},
	}
	d := nodepool.Decide(nodepool.Namespace{Name: "clusters-hosted", HostedCluster: "clusters/hosted"}, []nodepool.Pool{pool}, nil)
	if len(d.Copies) == 0 {
		return "", d.Verdicts[types.NamespacedName{Namespace: "clusters", Name: "a"}].Tuning.Message
	}
	return d.Copies[0].Data["tuning"], ""
}

// aTunedWith is a Tuned in which a part is replaced.
func aTunedWith(old, replacement string) string {
	const text = `apiVersion: tuned.openshift.io/v1
kind: Tuned
metadata:
  name: swap
spec:
  profile:
  - name: swap
    data: |
      [sysctl]
      vm.swappiness=10
  recommend:
  - profile: swap
    priority: 20
    match:
    - label: a/b
      value: c
      type: node
`
	if !strings.Contains(text, old) {
		panic(old)
	}
	return strings.Replace(text, old, replacement, 1)
}

// A user sees the NodePool: what nodepool says is valid, tuning must be able to use.
func TestNodepoolTakesNothingThatTuningRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		value string
		valid bool
	}{
		"a Tuned":                       {aTunedWith("", ""), true},
		"two, and comments":             {"--- # one\n" + aTunedWith("", "") + "...\n---\n# two\n" + aTunedWith("name: swap\nspec", "name: other\nspec"), true},
		"its namespace":                 {aTunedWith("name: swap\nspec", "name: swap\n  namespace: openshift-cluster-node-tuning-operator\nspec"), true},
		"another namespace":             {aTunedWith("name: swap\nspec", "name: swap\n  namespace: clusters\nspec"), false},
		"a field that metadata lacks":   {aTunedWith("name: swap\nspec", "name: swap\n  nmespace: x\nspec"), false},
		"an annotation of a number":     {aTunedWith("name: swap\nspec", "name: swap\n  annotations: {a: 1}\nspec"), false},
		"one that is deferred":          {aTunedWith("name: swap\nspec", "name: swap\n  annotations: {tuned.openshift.io/deferred: update}\nspec"), true},
		"deferred in an unknown way":    {aTunedWith("name: swap\nspec", "name: swap\n  annotations: {tuned.openshift.io/deferred: sometimes}\nspec"), false},
		"a status":                      {aTunedWith("spec:", "status: {conditions: [{type: Valid}]}\nspec:"), false},
		"an empty status":               {aTunedWith("spec:", "status: {}\nspec:"), true},
		"an unmanaged one":              {aTunedWith("spec:", "spec:\n  managementState: Unmanaged"), false},
		"a managed one":                 {aTunedWith("spec:", "spec:\n  managementState: Managed"), true},
		"an entry that is empty":        {aTunedWith("  recommend:", "  -\n  recommend:"), false},
		"a long name":                   {aTunedWith("name: swap\nspec", "name: "+strings.Repeat("a", 245)+"\nspec"), false},
		"a profile that is a directory": {aTunedWith("- name: swap", "- name: ../etc"), false},
		"a profile of dots":             {aTunedWith("- name: swap", "- name: .."), false},
		"a choice of no profile":        {aTunedWith("- profile: swap", "- profile: -swap"), false},
		"a label that is none":          {aTunedWith("label: a/b", "label: a b"), false},
		"a value that is none":          {aTunedWith("value: c", "value: c d"), false},
		"a yes that is true":            {aTunedWith("value: c", "value: yes"), false},
		"a type that is none":           {aTunedWith("type: node", "type: machine"), false},
		"a large priority":              {aTunedWith("priority: 20", "priority: 18446744073709551615"), false},
		"a negative priority":           {aTunedWith("priority: 20", "priority: -1"), false},
		"rules nine deep":               {aTunedWith("    - label: a/b", "    - {label: a, match: [{label: a, match: [{label: a, match: [{label: a, match: [{label: a, match: [{label: a, match: [{label: a, match: [{label: a, match: [{label: a}]}]}]}]}]}]}]}]}\n    - label: a/b"), false},
		"an anchor":                     {aTunedWith("name: swap\nspec", "name: &n swap\n  labels: {a: *n}\nspec"), true},
		"carriage returns":              {strings.ReplaceAll(aTunedWith("", ""), "\n", "\r\n"), true},
	} {
		t.Run(name, func(t *testing.T) {
			text, refused := copied(test.value)
			if (refused == "") != test.valid {
				t.Errorf("nodepool says %q, and copies\n%s", refused, text)
			}
			if refused == "" {
				if _, err := tuning.Parse("clusters-hosted/tuned-a", text); err != nil {
					t.Errorf("nodepool takes it, and tuning does not: %v", err)
				}
			}
		})
	}
}

func FuzzNodepoolTakesNothingThatTuningRefuses(f *testing.F) {
	f.Add(aTunedWith("", ""))
	f.Add(aTunedWith("priority: 20", "priority: 0x10") + "---\n" + aTunedWith("name: swap\nspec", "name: other\nspec"))
	f.Add(fmt.Sprintf("--- {%s}", "apiVersion: tuned.openshift.io/v1, kind: Tuned, metadata: {name: a}, spec: {recommend: [{profile: a, priority: 1}]}"))
	f.Fuzz(func(t *testing.T, value string) {
		if len(value) > 1<<12 {
			t.Skip()
		}
		if text, refused := copied(value); refused == "" {
			if _, err := tuning.Parse("clusters-hosted/tuned-a", text); err != nil {
				t.Errorf("nodepool takes %q, and tuning refuses %q: %v", value, text, err)
			}
		}
	})
}

func TestTheSampleIsValid(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "..", "deploy", "sample", "nodepool.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tuneds := 0
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var source corev1.ConfigMap
		if err := decoder.Decode(&source); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		value, has := source.Data["tuning"]
		if !has {
			continue
		}
		tuneds++
		text, refused := copied(value)
		if _, err := tuning.Parse("clusters-hosted/tuned-a", text); refused != "" || err != nil {
			t.Errorf("ConfigMap %s: %s %v", source.Name, refused, err)
		}
	}
	if tuneds != 2 {
		t.Errorf("the sample has %d Tuneds", tuneds)
	}
}
