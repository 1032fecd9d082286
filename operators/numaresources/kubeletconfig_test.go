// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestParseKubeletConfig(t *testing.T) {
	const head = "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: a}\n"
	for name, test := range map[string]struct {
		manifest string
		want     Kubelet
		err      string
	}{
		"policy and scope": {
			head + "spec:\n  kubeletConfig:\n    topologyManagerPolicy: single-numa-node\n    topologyManagerScope: pod\n",
			Kubelet{TopologyManagerPolicy: "single-numa-node", TopologyManagerScope: "pod"}, "",
		},
		"what is not set is empty":        {head + "spec: {kubeletConfig: {maxPods: 100}}\n", Kubelet{}, ""},
		"no payload (C9)":                 {head, Kubelet{}, "spec.kubeletConfig is empty"},
		"a payload that is null":          {head + "spec: {kubeletConfig: null}\n", Kubelet{}, "spec.kubeletConfig is empty"},
		"a payload of another shape":      {head + "spec: {kubeletConfig: [1]}\n", Kubelet{}, "spec.kubeletConfig: "},
		"another kind":                    {"kind: MachineConfig\n", Kubelet{}, `kind: "MachineConfig", want KubeletConfig`},
		"nothing":                         {"", Kubelet{}, `kind: "", want KubeletConfig`},
		"a list where an object is to be": {"- a\n", Kubelet{}, "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := yaml.YAMLToJSON([]byte(test.manifest))
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseKubeletConfig(data)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("the error is %v, want %q", err, test.err)
			}
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func FuzzParseKubeletConfig(f *testing.F) {
	f.Add([]byte(`{"kind": "KubeletConfig", "spec": {"kubeletConfig": {"topologyManagerPolicy": "none"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if k, err := ParseKubeletConfig(data); err != nil && k != (Kubelet{}) {
			t.Errorf("got %+v with %v", k, err)
		}
	})
}

func TestDrift(t *testing.T) {
	is := Kubelet{TopologyManagerPolicy: "none", TopologyManagerScope: "container", CPUManagerPolicy: "static", MemoryManagerPolicy: "None"}
	for name, test := range map[string]struct {
		want Kubelet
		text string
	}{
		"a KubeletConfig that says nothing of it": {Kubelet{}, "[]"},
		"the same":           {Kubelet{TopologyManagerPolicy: "none"}, "[]"},
		"another policy":     {Kubelet{TopologyManagerPolicy: "restricted", TopologyManagerScope: "container"}, "[node n has topologyManagerPolicy none, want restricted]"},
		"several of them":    {Kubelet{TopologyManagerPolicy: "restricted", TopologyManagerScope: "pod"}, "[node n has topologyManagerPolicy none, want restricted node n has topologyManagerScope container, want pod]"},
		"the memory manager": {Kubelet{MemoryManagerPolicy: "Static"}, "[node n has memoryManagerPolicy None, want Static]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(Drift("n", test.want, is)); got != test.text {
				t.Errorf("got %s, want %s", got, test.text)
			}
		})
	}
	if got := Drift("n", Kubelet{TopologyManagerPolicy: "restricted"}, Kubelet{Unknown: KubeletUnreachable}); got != nil {
		t.Errorf("a node of which nothing is known drifts: %v", got)
	}
}

func TestOdd(t *testing.T) {
	usual := Kubelet{TopologyManagerPolicy: "single-numa-node", TopologyManagerScope: "pod", CPUManagerPolicy: "static"}
	scope, policy := usual, usual
	scope.TopologyManagerScope, policy.TopologyManagerPolicy = "container", "none"
	for name, test := range map[string]struct {
		kubelets map[string]Kubelet
		want     string
	}{
		"no node":                 {nil, "[]"},
		"nodes that are alike":    {map[string]Kubelet{"a": usual, "b": usual}, "[]"},
		"one of another scope":    {map[string]Kubelet{"a": usual, "b": scope, "c": usual}, "[node b has topologyManagerScope container, want pod]"},
		"two that differ":         {map[string]Kubelet{"a": policy, "b": scope, "c": usual, "d": usual}, "[node a has topologyManagerPolicy none, want single-numa-node node b has topologyManagerScope container, want pod]"},
		"of two nodes it is one":  {map[string]Kubelet{"a": scope, "b": usual}, "[node b has topologyManagerScope pod, want container]"},
		"a single node is no odd": {map[string]Kubelet{"a": scope}, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(Odd(test.kubelets)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
