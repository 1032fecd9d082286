// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
)

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		host      topologytest.Host
		online    string
		isolated  string
		cores     []string // CPUs, package and NUMA node
		nodes     []string
		set       string
		wantSplit []string
	}{
		"a host without siblings": {
			host:   topologytest.Host{Nodes: 1, CoresPerNode: 2, ThreadsPerCore: 1},
			online: "0-1", cores: []string{"0 0 0", "1 0 0"}, nodes: []string{"0: 0-1"},
			set: "0",
		},
		"siblings on two NUMA nodes": {
			host:   topologytest.Host{Nodes: 2, CoresPerNode: 2, ThreadsPerCore: 2},
			online: "0-7",
			cores:  []string{"0,4 0 0", "1,5 0 0", "2,6 1 1", "3,7 1 1"},
			nodes:  []string{"0: 0-1,4-5", "1: 2-3,6-7"},
			set:    "0-1,4,6", wantSplit: []string{"1,5", "2,6"},
		},
		"an offline CPU has no siblings": {
			host:   topologytest.Host{Nodes: 1, CoresPerNode: 2, ThreadsPerCore: 2, Offline: "2"},
			online: "0-1,3", cores: []string{"0 0 0", "1,3 0 0"}, nodes: []string{"0: 0-1,3"},
			set: "0",
		},
		"isolated CPUs that are online": {
			host:   topologytest.Host{Nodes: 1, CoresPerNode: 4, ThreadsPerCore: 1, Isolated: "2-3,9"},
			online: "0-3", isolated: "2-3", cores: []string{"0 0 0", "1 0 0", "2 0 0", "3 0 0"}, nodes: []string{"0: 0-3"},
		},
		"a NUMA node whose CPUs are all offline": {
			host:   topologytest.Host{Nodes: 2, CoresPerNode: 1, ThreadsPerCore: 1, Offline: "0"},
			online: "1", cores: []string{"1 1 1"}, nodes: []string{"1: 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := topology.Read(topologytest.Sysfs(t, test.host))
			if err != nil {
				t.Fatal(err)
			}
			var cores, nodes, split []string
			for _, core := range got.Cores {
				cores = append(cores, fmt.Sprint(core.CPUs, core.Package, core.Node))
			}
			for _, node := range got.Nodes {
				nodes = append(nodes, fmt.Sprintf("%d: %s", node.Number, node.CPUs))
			}
			set, err := cpuset.Parse(test.set)
			if err != nil {
				t.Fatal(err)
			}
			for _, core := range got.Split(set) {
				split = append(split, core.CPUs.String())
			}
			if got.Online.String() != test.online || got.Isolated.String() != test.isolated || !slices.Equal(cores, test.cores) || !slices.Equal(nodes, test.nodes) || !slices.Equal(split, test.wantSplit) {
				t.Errorf("online %s, isolated %s, cores %q, nodes %q, split %q; want %+v", got.Online, got.Isolated, cores, nodes, split, test)
			}
		})
	}
}

func TestReadWithoutNUMA(t *testing.T) {
	root := topologytest.Sysfs(t, topologytest.Host{Nodes: 1, CoresPerNode: 3, ThreadsPerCore: 1})
	if err := os.RemoveAll(filepath.Join(root, "devices/system/node")); err != nil {
		t.Fatal(err)
	}
	got, err := topology.Read(root)
	if err != nil || len(got.Nodes) != 1 || got.Nodes[0].CPUs.String() != "0-2" || got.NodeOf(2) != 0 || got.NodeOf(3) != -1 {
		t.Errorf("got %+v, %v; want one node with all CPUs", got, err)
	}
}

func TestReadNamesWhatItCannotRead(t *testing.T) {
	for name, test := range map[string]struct {
		path, content string // of what is wrong; without content it is missing
		want          string
	}{
		"no list of online CPUs":         {"devices/system/cpu/online", "", "devices/system/cpu/online"},
		"a malformed list":               {"devices/system/cpu/online", "0-x", "devices/system/cpu/online"},
		"a CPU without a directory":      {"devices/system/cpu/cpu1", "", "cpu1/topology/thread_siblings_list"},
		"a CPU without its topology":     {"devices/system/cpu/cpu1/topology", "", "cpu1/topology/thread_siblings_list"},
		"siblings without the CPU":       {"devices/system/cpu/cpu1/topology/thread_siblings_list", "0", "cpu1/topology/thread_siblings_list does not have CPU 1"},
		"a package that is not a number": {"devices/system/cpu/cpu1/topology/physical_package_id", "one", "cpu1/topology/physical_package_id"},
		"a malformed list of isolated":   {"devices/system/cpu/isolated", "a", "devices/system/cpu/isolated"},
		"a malformed list of a node":     {"devices/system/node/node0/cpulist", "a", "node0/cpulist"},
	} {
		t.Run(name, func(t *testing.T) {
			root := topologytest.Sysfs(t, topologytest.Host{Nodes: 1, CoresPerNode: 2, ThreadsPerCore: 1})
			path := filepath.Join(root, test.path)
			err := os.RemoveAll(path)
			if test.content != "" {
				err = os.WriteFile(path, []byte(test.content+"\n"), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := topology.Read(root); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %s", err, test.want)
			}
		})
	}
	if _, err := topology.Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a root that does not exist is not an error")
	}
}

// The kernel's own files, whatever host this is.
func TestReadThisHost(t *testing.T) {
	got, err := topology.Read(topology.Sysfs)
	if err != nil {
		t.Fatal(err)
	}
	all := cpuset.New()
	for _, core := range got.Cores {
		if !all.Intersection(core.CPUs).IsEmpty() {
			t.Errorf("CPUs %s are in two cores", all.Intersection(core.CPUs))
		}
		all = all.Union(core.CPUs)
	}
	if got.Online.IsEmpty() || !all.Equals(got.Online) {
		t.Errorf("the cores have %s, online are %s", all, got.Online)
	}
}
