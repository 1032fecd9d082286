// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// NUMANode is one NUMA node with everything that belongs to it.
type NUMANode struct {
	// Number is the kernel's number of the node.
	Number int
	// CPUs are the online CPUs of the node. A node may have memory alone.
	CPUs cpuset.CPUSet
	// Memory is in bytes, huge pages included; zero where the kernel does not say it.
	Memory int64
	// HugePages has, by their size in bytes, how many huge pages the node has.
	HugePages map[int64]int64
	// Distances has, by node, the cost of its memory for the CPUs of this node: 10 is this node's own
	// (Linux, Documentation/ABI/stable/sysfs-devices-node). It is nil where the kernel does not say it.
	Distances map[int]int64
}

// ReadNUMA reads the NUMA nodes of a host from its sysfs at root, in the order of their numbers. There is at least one:
// without NUMA it is number 0, and has all CPUs. Its errors name the file.
func ReadNUMA(root string) ([]NUMANode, error) {
	online, err := Online(root)
	if err != nil {
		return nil, err
	}
	above := filepath.Join(root, "devices/system/node")
	present, err := readList(filepath.Join(above, "online"))
	if os.IsNotExist(err) {
		return []NUMANode{{CPUs: online}}, nil
	}
	if err != nil {
		return nil, err
	}
	var nodes []NUMANode
	for _, number := range present.List() {
		node := NUMANode{Number: number}
		directory := filepath.Join(above, fmt.Sprintf("node%d", number))
		if node.CPUs, err = readList(filepath.Join(directory, "cpulist")); err != nil {
			return nil, err
		}
		node.CPUs = node.CPUs.Intersection(online)
		if node.Memory, err = readMemory(filepath.Join(directory, "meminfo")); err != nil {
			return nil, err
		}
		if node.HugePages, err = readHugePages(filepath.Join(directory, "hugepages")); err != nil {
			return nil, err
		}
		if node.Distances, err = readDistances(filepath.Join(directory, "distance"), present.List()); err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// readMemory reads MemTotal of a node's meminfo, in bytes. Without the file it is zero.
func readMemory(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		// Node 0 MemTotal:       16384000 kB
		fields := strings.Fields(lines.Text())
		if len(fields) != 5 || fields[2] != "MemTotal:" {
			continue
		}
		kilobytes, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: MemTotal: %w", path, err)
		}
		return kilobytes << 10, nil
	}
	return 0, fmt.Errorf("%s has no MemTotal", path)
}

// readHugePages reads how many huge pages of each size a node has.
func readHugePages(directory string) (map[int64]int64, error) {
	files, err := filepath.Glob(filepath.Join(directory, "hugepages-*kB/nr_hugepages"))
	if err != nil {
		return nil, err
	}
	pages := map[int64]int64{}
	for _, file := range files {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "hugepages-"), "kB")
		kilobytes, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if pages[kilobytes<<10], err = strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return pages, nil
}

// readDistances reads the costs of a node, which are in the order of the nodes' numbers. Without the file there are none.
func readDistances(path string, nodes []int) (map[int]int64, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(data))
	if len(fields) != len(nodes) {
		return nil, fmt.Errorf("%s has %d distances, want one for each of %d NUMA nodes", path, len(fields), len(nodes))
	}
	distances := map[int]int64{}
	for i, field := range fields {
		if distances[nodes[i]], err = strconv.ParseInt(field, 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return distances, nil
}
