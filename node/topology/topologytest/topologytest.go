// SPDX-License-Identifier: Apache-2.0

// Package topologytest makes hosts for the tests of those that read a topology.
package topologytest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// Host is a host to make. All its NUMA nodes are alike, and each is a socket. CPUs are
// numbered as most x86 firmware does: first one thread of every core, then the other threads.
type Host struct {
	// Nodes is the number of NUMA nodes, and CoresPerNode and ThreadsPerCore are at least 1.
	Nodes, CoresPerNode, ThreadsPerCore int
	// Offline and Isolated are CPU lists, and may be empty.
	Offline, Isolated string
	// MemoryPerNode is in bytes, and may be zero: then the kernel does not say it. HugePagesPerNode are numbers of pages
	// by their size in bytes.
	MemoryPerNode    int64
	HugePagesPerNode map[int64]int64
}

// Sysfs writes the host's sysfs to a directory of the test, and returns it.
func Sysfs(t testing.TB, host Host) string {
	t.Helper()
	root := t.TempDir()
	cores := host.Nodes * host.CoresPerNode
	all := cpuset.New()
	for cpu := range cores * host.ThreadsPerCore {
		all = all.Union(cpuset.New(cpu))
	}
	offline, err := cpuset.Parse(host.Offline)
	if err != nil {
		t.Fatal(err)
	}
	online := all.Difference(offline)
	ofNode := make([]cpuset.CPUSet, host.Nodes)
	for core := range cores {
		siblings := cpuset.New()
		for thread := range host.ThreadsPerCore {
			siblings = siblings.Union(cpuset.New(core + thread*cores))
		}
		siblings = siblings.Intersection(online)
		node := core / host.CoresPerNode
		ofNode[node] = ofNode[node].Union(siblings)
		for _, cpu := range siblings.List() {
			about := fmt.Sprintf("devices/system/cpu/cpu%d/topology/", cpu)
			write(t, root, about+"core_id", fmt.Sprint(core%host.CoresPerNode))
			write(t, root, about+"physical_package_id", fmt.Sprint(node))
			write(t, root, about+"core_siblings_list", "")
			write(t, root, about+"thread_siblings_list", siblings.String())
		}
	}
	for _, cpu := range offline.List() {
		write(t, root, fmt.Sprintf("devices/system/cpu/cpu%d/online", cpu), "0")
	}
	for node, cpus := range ofNode {
		about := fmt.Sprintf("devices/system/node/node%d/", node)
		write(t, root, about+"cpulist", cpus.String())
		for _, cpu := range cpus.List() {
			if err := os.Symlink(fmt.Sprintf("../../cpu/cpu%d", cpu), filepath.Join(root, about, fmt.Sprintf("cpu%d", cpu))); err != nil {
				t.Fatal(err)
			}
		}
		var distances []string
		for other := range ofNode {
			distance := "20"
			if other == node {
				distance = "10"
			}
			distances = append(distances, distance)
		}
		write(t, root, about+"distance", strings.Join(distances, " "))
		if host.MemoryPerNode > 0 {
			write(t, root, about+"meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        0 kB", node, host.MemoryPerNode>>10, node))
		}
		for size, pages := range host.HugePagesPerNode {
			write(t, root, about+fmt.Sprintf("hugepages/hugepages-%dkB/nr_hugepages", size>>10), fmt.Sprint(pages))
		}
	}
	write(t, root, "devices/system/node/online", fmt.Sprintf("0-%d", host.Nodes-1))
	write(t, root, "devices/system/cpu/online", online.String())
	write(t, root, "devices/system/cpu/isolated", host.Isolated)
	return root
}

func write(t testing.TB, root, path, content string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
