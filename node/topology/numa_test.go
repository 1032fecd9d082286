// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
)

func TestReadNUMA(t *testing.T) {
	host := topologytest.Host{Nodes: 2, CoresPerNode: 2, ThreadsPerCore: 1, Offline: "3", MemoryPerNode: 4 << 30, HugePagesPerNode: map[int64]int64{2 << 20: 16}}
	for name, test := range map[string]struct {
		change func(t *testing.T, root string)
		want   []string
		err    string
	}{
		"two NUMA nodes": {
			want: []string{"0: 0-1 4294967296 map[2097152:16] map[0:10 1:20]", "1: 2 4294967296 map[2097152:16] map[0:20 1:10]"},
		},
		"a node with memory alone": {
			change: func(t *testing.T, root string) { write(t, root, "devices/system/node/node1/cpulist", "") },
			want:   []string{"0: 0-1 4294967296 map[2097152:16] map[0:10 1:20]", "1:  4294967296 map[2097152:16] map[0:20 1:10]"},
		},
		"a kernel without NUMA": {
			change: func(t *testing.T, root string) { remove(t, root, "devices/system/node") },
			want:   []string{"0: 0-2 0 map[] map[]"},
		},
		"nodes whose numbers have a gap": {
			change: func(t *testing.T, root string) {
				if err := os.Rename(filepath.Join(root, "devices/system/node/node1"), filepath.Join(root, "devices/system/node/node4")); err != nil {
					t.Fatal(err)
				}
				write(t, root, "devices/system/node/online", "0,4")
			},
			want: []string{"0: 0-1 4294967296 map[2097152:16] map[0:10 4:20]", "4: 2 4294967296 map[2097152:16] map[0:20 4:10]"},
		},
		"too few distances": {
			change: func(t *testing.T, root string) { write(t, root, "devices/system/node/node1/distance", "10") },
			err:    "node1/distance has 1 distances, want one for each of 2 NUMA nodes",
		},
		"a meminfo without a total": {
			change: func(t *testing.T, root string) {
				write(t, root, "devices/system/node/node0/meminfo", "Node 0 MemFree: 1 kB")
			},
			err: "node0/meminfo has no MemTotal",
		},
		"pages that are no number": {
			change: func(t *testing.T, root string) {
				write(t, root, "devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "many")
			},
			err: "hugepages-2048kB/nr_hugepages: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := topologytest.Sysfs(t, host)
			if test.change != nil {
				test.change(t, root)
			}
			nodes, err := topology.ReadNUMA(root)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("the error is %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, node := range nodes {
				got = append(got, fmt.Sprintf("%d: %s %d %v %v", node.Number, node.CPUs, node.Memory, node.HugePages, node.Distances))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The kernel's own files, whatever host this is.
func TestReadNUMAOfThisHost(t *testing.T) {
	nodes, err := topology.ReadNUMA(topology.Sysfs)
	if err != nil || len(nodes) == 0 {
		t.Fatalf("got %v, %v", nodes, err)
	}
	online, err := topology.Online(topology.Sysfs)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		online = online.Difference(node.CPUs)
	}
	if !online.IsEmpty() {
		t.Errorf("CPUs %s are in no NUMA node", online)
	}
}

func write(t *testing.T, root, path, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, path), []byte(content+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, root, path string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(root, path)); err != nil {
		t.Fatal(err)
	}
}
