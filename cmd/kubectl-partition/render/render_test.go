// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/render"
	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/partition"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s; -update rewrites it. Got:\n%s", path, got)
	}
}

// read returns the nodes of a file of testdata, and the warnings about them.
func read(t *testing.T, name string) (nodes []nodefiles.Node, warnings []string) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	configurations, err := render.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configurations {
		some, about, err := nodefiles.Validate(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		nodes, warnings = append(nodes, some...), append(warnings, about...)
	}
	return nodes, warnings
}

// list is the pool of a partition.
func list(cpus string) *string { return &cpus }

func TestRender(t *testing.T) {
	for _, input := range []string{"node.yaml", "install-config.yaml"} {
		for _, test := range []struct {
			name    string
			target  render.Target
			options render.Options
		}{
			{"tree", render.Tree, render.Options{}},
			{"cloud-init", render.CloudInit, render.Options{}},
			{"kubeadm", render.Kubeadm, render.Options{KubeAPIServerImage: "registry.example.com/kube-apiserver:v1.37.0_wp.cbd2487"}},
			{"machineconfig", render.MachineConfig, render.Options{}},
			{"butane", render.Butane, render.Options{}},
			{"butane-fcos", render.Butane, render.Options{Variant: "fcos"}},
		} {
			t.Run(input+" for "+test.name, func(t *testing.T) {
				nodes, warnings := read(t, input)
				rendered, err := render.Render(test.target, nodes, test.options)
				if err != nil {
					t.Fatal(err)
				}
				var all bytes.Buffer
				for _, text := range slices.Concat(warnings, rendered.Warnings) {
					fmt.Fprintf(&all, "warning: %s\n", text)
				}
				for _, text := range rendered.Notes {
					fmt.Fprintf(&all, "note: %s\n", text)
				}
				for _, file := range rendered.Files {
					fmt.Fprintf(&all, "\n-- %s, mode %#o --\n%s", file.Path, file.Mode, file.Content)
				}
				golden(t, strings.TrimSuffix(input, ".yaml")+"-"+test.name+".golden", all.Bytes())
			})
		}
	}
}

// nodeOf returns a node of a role, with a pool of one CPU for each type.
func nodeOf(t *testing.T, role string, types ...string) nodefiles.Node {
	t.Helper()
	c := nodefiles.NodeConfiguration{Roles: []string{role}}
	for i, workloadType := range types {
		c.Partitions = append(c.Partitions, nodefiles.Partition{Type: workloadType, CPUSet: list(fmt.Sprint(i))})
	}
	nodes, _, err := nodefiles.Validate(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return nodes[0]
}

// What the user must know or do for some nodes, but not for others.
func TestRenderNotesWhatHoldsForSomeNodes(t *testing.T) {
	master, worker := nodeOf(t, "master", "management"), nodeOf(t, "worker", "management")
	unconfined := worker
	unconfined.Pools, unconfined.CPUManagerPolicy = partition.Pools{"management": cpuset.New()}, "none"
	patched := render.Options{KubeAPIServerImage: "registry.example.com/kube-apiserver:v1.37.0_wp.cbd2487"}
	for name, test := range map[string]struct {
		target  render.Target
		nodes   []nodefiles.Node
		options render.Options
		part    string
		want    bool
	}{
		"of a kube-apiserver that is not patched": {render.Kubeadm, []nodefiles.Node{master, worker}, render.Options{}, "Nodes of master get kubeadm's kube-apiserver, which is not patched", true},
		"nothing of one that is":                  {render.Kubeadm, []nodefiles.Node{master, worker}, patched, "which is not patched", false},
		"nothing of one without a control plane":  {render.Kubeadm, []nodefiles.Node{worker}, render.Options{}, "which is not patched", false},
		"the label that a machine pool lacks":     {render.MachineConfig, []nodefiles.Node{nodeOf(t, "infra", "management"), worker}, render.Options{}, "oc label machineconfigpool infra pools.operator.machineconfiguration.openshift.io/infra=", true},
		"nothing of the label that it has":        {render.MachineConfig, []nodefiles.Node{master, worker}, render.Options{}, "oc label", false},
		"what the fragment excludes":              {render.Tree, []nodefiles.Node{worker}, render.Options{}, "kubeReservedCgroup or systemReservedCgroup", true},
		"what kubeadm's patch excludes":           {render.Kubeadm, []nodefiles.Node{worker}, patched, "kubeReservedCgroup or systemReservedCgroup", true},
		"nothing of pools that reserve no CPU":    {render.Tree, []nodefiles.Node{unconfined}, render.Options{}, "kubeReservedCgroup", false},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := render.Render(test.target, test.nodes, test.options)
			if err != nil {
				t.Fatal(err)
			}
			told := strings.Join(slices.Concat(rendered.Warnings, rendered.Notes), "\n")
			if strings.Contains(told, test.part) != test.want {
				t.Errorf("got\n%s\nwith %q in it: %t, want %t", told, test.part, !test.want, test.want)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	node := func(role string, types ...string) nodefiles.Node { return nodeOf(t, role, types...) }
	for name, test := range map[string]struct {
		target  render.Target
		nodes   []nodefiles.Node
		options render.Options
		want    string
	}{
		"an unknown target":                  {"helm", []nodefiles.Node{node("master", "management")}, render.Options{}, `target "helm": want one of butane, cloud-init, kubeadm, machineconfig, tree`},
		"an unknown variant":                 {render.Butane, []nodefiles.Node{node("master", "management")}, render.Options{Variant: "r4e"}, `variant "r4e" of Butane: want openshift or fcos`},
		"a role twice":                       {render.Tree, []nodefiles.Node{node("worker", "management"), node("worker", "infra")}, render.Options{}, `role "worker" is configured twice`},
		"a control plane of an unknown type": {render.Kubeadm, []nodefiles.Node{node("master", "a", "b")}, render.Options{}, `role "master" has the types a, b, and none of them is management`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := render.Render(test.target, test.nodes, test.options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// FuzzRender renders whatever Validate accepts, for every target: Render compares what it has
// rendered with what was meant, and must never find a difference.
func FuzzRender(f *testing.F) {
	f.Add("management", "0-1,28-29", "0-55", true)
	f.Add("infra", "", "", false)
	f.Add("1a", "0-3", "0-3", true)
	f.Add("on", "63-64,8191", "", false)
	f.Fuzz(func(t *testing.T, workloadType, pool, cpus string, static bool) {
		c := nodefiles.NodeConfiguration{CPUs: cpus, Host: nodefiles.HostParts, Partitions: []nodefiles.Partition{{Type: workloadType, CPUSet: &pool}}}
		if static {
			c.CPUManagerPolicy = "static"
		}
		nodes, _, err := nodefiles.Validate(c, nil)
		if err != nil {
			return
		}
		for target := range render.Targets {
			if _, err := render.Render(target, nodes, render.Options{}); err != nil {
				t.Errorf("%s of %q, %q, %q: %v", target, workloadType, pool, cpus, err)
			}
		}
	})
}

// FuzzRead finds an answer to every file.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"node.yaml", "install-config.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := render.Read(bytes.NewReader(data))
		if (err == nil) == (len(all) == 0) {
			t.Errorf("%d configurations and %v", len(all), err)
		}
	})
}
