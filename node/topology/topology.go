// SPDX-License-Identifier: Apache-2.0

// Package topology is what a live host's CPUs are like: which are online, which of them are
// threads of one physical core, and which NUMA node they belong to.
//
// It reads sysfs and knows nothing of pools.
package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Topology is the CPUs of one host. The zero value is a host without CPUs.
type Topology struct {
	// Online are the CPUs that the kernel uses. All other fields are about these alone.
	Online cpuset.CPUSet
	// Isolated are the CPUs of the kernel argument isolcpus, where the kernel balances no load.
	Isolated cpuset.CPUSet
	// Cores are the physical cores, in the order of their lowest CPU.
	Cores []Core
	// Nodes are the NUMA nodes that have CPUs, in the order of their numbers. There is at
	// least one: without NUMA it is number 0, and has all CPUs.
	Nodes []Node
}

// Core is one physical core. Its CPUs are its hardware threads: siblings of each other.
type Core struct {
	CPUs cpuset.CPUSet
	// Package is the number of the socket, and -1 where the kernel does not know it.
	Package int
	// Node is the number of the NUMA node.
	Node int
}

// Node is one NUMA node.
type Node struct {
	Number int
	CPUs   cpuset.CPUSet
}

// Sysfs is where the kernel shows the CPUs.
const Sysfs = "/sys"

// Online reads which CPUs the kernel uses, as [Read] does, and nothing else.
func Online(root string) (cpuset.CPUSet, error) {
	return readList(filepath.Join(root, "devices/system/cpu/online"))
}

// Read reads the CPUs of a host from its sysfs, which is mounted at root: [Sysfs] on a host,
// a directory in tests. Its errors name the file.
func Read(root string) (*Topology, error) {
	online, err := Online(root)
	if err != nil {
		return nil, err
	}
	t := &Topology{Online: online}
	isolated, err := readList(filepath.Join(root, "devices/system/cpu/isolated"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	t.Isolated = isolated.Intersection(online)
	if t.Nodes, err = readNodes(root, online); err != nil {
		return nil, err
	}
	known := cpuset.New()
	for _, cpu := range online.List() {
		if known.Contains(cpu) {
			continue
		}
		dir := filepath.Join(root, fmt.Sprintf("devices/system/cpu/cpu%d/topology", cpu))
		siblings, err := readList(filepath.Join(dir, "thread_siblings_list"))
		if err != nil {
			return nil, err
		}
		siblings = siblings.Intersection(online)
		if !siblings.Contains(cpu) {
			return nil, fmt.Errorf("%s/thread_siblings_list does not have CPU %d", dir, cpu)
		}
		text, err := os.ReadFile(filepath.Join(dir, "physical_package_id"))
		if err != nil {
			return nil, err
		}
		socket, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, fmt.Errorf("%s/physical_package_id: %w", dir, err)
		}
		known = known.Union(siblings)
		t.Cores = append(t.Cores, Core{CPUs: siblings, Package: socket, Node: t.NodeOf(cpu)})
	}
	return t, nil
}

func readNodes(root string, online cpuset.CPUSet) (nodes []Node, err error) {
	lists, err := filepath.Glob(filepath.Join(root, "devices/system/node/node[0-9]*/cpulist"))
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(list)), "node"))
		if err != nil {
			continue
		}
		cpus, err := readList(list)
		if err != nil {
			return nil, err
		}
		// A node may have memory alone.
		if cpus = cpus.Intersection(online); !cpus.IsEmpty() {
			nodes = append(nodes, Node{Number: number, CPUs: cpus})
		}
	}
	if len(nodes) == 0 {
		nodes = []Node{{CPUs: online}}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return a.Number - b.Number })
	return nodes, nil
}

// readList reads a file that has one CPU list.
func readList(path string) (cpuset.CPUSet, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	cpus, err := cpuset.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("%s: %w", path, err)
	}
	return cpus, nil
}

// NodeOf returns the number of the NUMA node that has the CPU, and -1 if none has it.
func (t *Topology) NodeOf(cpu int) int {
	for _, node := range t.Nodes {
		if node.CPUs.Contains(cpu) {
			return node.Number
		}
	}
	return -1
}

// Split returns the physical cores of which some CPUs are in the set and some are not.
func (t *Topology) Split(set cpuset.CPUSet) []Core {
	var split []Core
	for _, core := range t.Cores {
		if inside := core.CPUs.Intersection(set); !inside.IsEmpty() && !inside.Equals(core.CPUs) {
			split = append(split, core)
		}
	}
	return split
}
