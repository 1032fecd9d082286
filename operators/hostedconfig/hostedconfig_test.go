// SPDX-License-Identifier: Apache-2.0

package hostedconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
)

const aKubeletConfig = "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: numa}\nspec: {kubeletConfig: {topologyManagerPolicy: restricted}}\n"

func aSource(name, pool, key, value string) corev1.ConfigMap {
	source := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters-hosted", Name: name, Labels: map[string]string{v1beta1.KubeletConfigLabel: "true"}}, Data: map[string]string{key: value, "other": "x"}}
	if pool != "" {
		source.Labels[v1beta1.PoolLabel] = pool
	}
	return source
}

func TestCopies(t *testing.T) {
	for name, test := range map[string]struct {
		source  corev1.ConfigMap
		copied  bool
		problem string
	}{
		"a KubeletConfig is copied":            {aSource("numa-pool-a", "pool-a", "config", aKubeletConfig), true, ""},
		"one without a pool is kept":           {aSource("numa-pool-a", "", "config", aKubeletConfig), false, "no label hypershift.openshift.io/nodePool"},
		"one without the key is kept":          {aSource("numa-pool-a", "pool-a", "kubelet", aKubeletConfig), false, "no key config"},
		"one that is no YAML is kept":          {aSource("numa-pool-a", "pool-a", "config", "a: b: c"), false, "key config: "},
		"one with a list of settings is kept":  {aSource("numa-pool-a", "pool-a", "config", strings.Replace(aKubeletConfig, "{topologyManagerPolicy: restricted}", "[]", 1)), false, "kubeletConfig"},
		"one that aliases make large is kept":  {aSource("numa-pool-a", "pool-a", "config", aKubeletConfig+"x: &a "+strings.Repeat("x", 4<<10)+"\ny: ["+strings.Repeat("*a, ", 300)+"]\n"), false, "key config: it has more than"},
		"another kind is kept":                 {aSource("numa-pool-a", "pool-a", "config", "apiVersion: v1\nkind: Secret\n"), false, "a Secret of v1"},
		"and so is one that has nothing in it": {aSource("numa-pool-a", "pool-a", "config", ""), false, "manifest without kind"},
	} {
		t.Run(name, func(t *testing.T) {
			copies, keep, problems := Copies([]corev1.ConfigMap{test.source})
			if test.copied != (len(copies) == 1) || test.copied != (len(keep) == 0) || test.copied != (len(problems) == 0) {
				t.Fatalf("got %v, %v, %v", copies, keep, problems)
			}
			if !test.copied {
				if got := problems[0].Error(); !strings.Contains(got, "clusters-hosted/numa-pool-a") || !strings.Contains(got, test.problem) {
					t.Errorf("the problem is %s, want %s", got, test.problem)
				}
				return
			}
			const want = "openshift-config-managed numa-pool-a map[hypershift.openshift.io/kubeletconfig-config: hypershift.openshift.io/nodePool:pool-a]"
			if got := fmt.Sprint(copies[0].Namespace, " ", copies[0].Name, " ", copies[0].Labels); got != want || len(copies[0].Data) != 1 || copies[0].Data["config"] != aKubeletConfig {
				t.Errorf("the copy is %s with %v, want %s", got, copies[0].Data, want)
			}
		})
	}
}

func TestThePausedAreLeftAsTheyAre(t *testing.T) {
	paused, broken, whole := aSource("a", "pool-a", "config", aKubeletConfig), aSource("b", "", "config", aKubeletConfig), aSource("c", "pool-c", "config", aKubeletConfig)
	paused.Annotations = map[string]string{nodegroup.PausedAnnotation: ""}
	copies, keep, problems := Copies([]corev1.ConfigMap{paused, broken, whole})
	if len(copies) != 1 || copies[0].Name != "c" || !slices.Equal(keep, []string{"b", "a"}) || len(problems) != 1 {
		t.Errorf("got %v, %v, %v", copies, keep, problems)
	}
}

func TestSucceeded(t *testing.T) {
	copied := &metav1.ObjectMeta{Name: "old-pool-a", Labels: map[string]string{v1beta1.PoolLabel: "pool-a"}}
	for name, test := range map[string]struct {
		sources []corev1.ConfigMap
		want    bool
	}{
		"another one of its pool is there":                    {[]corev1.ConfigMap{aSource("new-pool-a", "pool-a", "config", aKubeletConfig)}, true},
		"one of another pool is there":                        {[]corev1.ConfigMap{aSource("new-pool-b", "pool-b", "config", aKubeletConfig)}, false},
		"its own source is there":                             {[]corev1.ConfigMap{aSource("old-pool-a", "pool-a", "config", aKubeletConfig)}, false},
		"nothing is there, as when one look misses something": {nil, false},
	} {
		if got := Succeeded(copied, test.sources); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestLabel(t *testing.T) {
	now := time.Unix(1000, 0)
	record := func(name, pool string, data ...string) corev1.ConfigMap {
		r := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters-hosted", Name: name}, Data: map[string]string{}}
		if pool != "" {
			r.Labels = map[string]string{v1beta1.PoolLabel: pool}
		}
		for _, entry := range data {
			node, providerID, _ := strings.Cut(entry, "=")
			r.Data[node] = providerID
		}
		return r
	}
	for name, test := range map[string]struct {
		records []corev1.ConfigMap
		node    Node
		since   time.Duration // how long ago a look first saw that it is unrecorded
		set     string        // or -, if nothing is set
		again   time.Duration
		problem string
	}{
		"a node that joins gets its pool":                        {records: []corev1.ConfigMap{record("nodes-a", "a", "n")}, set: "a"},
		"a node that has its pool is left alone":                 {records: []corev1.ConfigMap{record("nodes-a", "a", "n")}, node: Node{Pool: "a", Labelled: true}, set: "-"},
		"a node that says another pool gets its own":             {records: []corev1.ConfigMap{record("nodes-a", "a", "n")}, node: Node{Pool: "b", Labelled: true}, set: "a"},
		"a node whose machine is the recorded one gets its pool": {records: []corev1.ConfigMap{record("nodes-a", "a", "n=cloud://1")}, node: Node{ProviderID: "cloud://1"}, set: "a"},
		"a node of another machine gets none":                    {records: []corev1.ConfigMap{record("nodes-a", "a", "n=cloud://1")}, node: Node{ProviderID: "cloud://2"}, set: "-", problem: "spec.providerID is cloud://2, and ConfigMap nodes-a records cloud://1"},
		"a node that has no machine yet waits":                   {records: []corev1.ConfigMap{record("nodes-a", "a", "n=cloud://1")}, set: "-"},
		"a node in no record without a label is left alone":      {set: "-"},
		"a node in no record keeps its label for a while":        {node: Node{Pool: "a", Labelled: true}, set: "-", again: 10 * time.Second},
		"and not longer":                            {node: Node{Pool: "a", Labelled: true}, since: 10 * time.Second, set: ""},
		"a node in two records keeps its label":     {records: []corev1.ConfigMap{record("nodes-a", "a", "n"), record("nodes-b", "b", "n")}, node: Node{Pool: "b", Labelled: true}, set: "-", problem: "ConfigMap nodes-a records it for NodePool a, and ConfigMap nodes-b for NodePool b"},
		"a node in two records of one pool gets it": {records: []corev1.ConfigMap{record("nodes-a", "a", "n"), record("more", "a", "n")}, set: "a"},
		"a record without a pool is named":          {records: []corev1.ConfigMap{record("nodes", "", "n")}, set: "-", problem: "clusters-hosted/nodes records nodes, and has no label"},
		"a label without a value counts as one":     {records: []corev1.ConfigMap{record("nodes-a", "a", "n")}, node: Node{Labelled: true}, set: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			test.node.Name, test.node.UID = "n", "uid"
			unrecorded := Unrecorded{}
			if test.since > 0 {
				unrecorded["uid"] = now.Add(-test.since)
			}
			got := Label(test.records, []Node{test.node}, unrecorded, now, 10*time.Second)
			pool, set := got.Set["n"]
			if set != (test.set != "-") || set && pool != test.set {
				t.Errorf("it sets %v, want %q", got.Set, test.set)
			}
			if test.again == 0 != got.Again.IsZero() || test.again != 0 && !got.Again.Equal(now.Add(test.again)) {
				t.Errorf("it looks again at %s, want %s later", got.Again, test.again)
			}
			if text := fmt.Sprint(got.Problems); test.problem == "" && len(got.Problems) > 0 || !strings.Contains(text, test.problem) {
				t.Errorf("the problems are %s, want %q", text, test.problem)
			}
		})
	}
}
