// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"strconv"
	"strings"
)

// Topology is how many sockets, cores a socket and threads a core a VM has. Each socket is a NUMA
// node.
type Topology struct{ Sockets, Cores, Threads int }

// DefaultTopology has 8 CPUs, in sockets, cores and threads as real hosts have them.
var DefaultTopology = Topology{Sockets: 2, Cores: 2, Threads: 2}

// CPUs returns the number of CPUs.
func (t Topology) CPUs() int { return t.Sockets * t.Cores * t.Threads }

func (t Topology) String() string { return fmt.Sprintf("%dx%dx%d", t.Sockets, t.Cores, t.Threads) }

// mostCPUs is more than emulation can run in useful time.
const mostCPUs = 64

// ParseTopology reads sockets x cores x threads, such as 2x2x2. The threads may be missing, and are
// 1 then. It returns an error that quotes the text if a number is missing or not positive, or if
// there are fewer than 2 or more than 64 CPUs.
func ParseTopology(text string) (Topology, error) {
	t := Topology{Threads: 1}
	fields := strings.Split(text, "x")
	if len(fields) < 2 || len(fields) > 3 {
		return t, fmt.Errorf("topology %q: must be sockets x cores x threads, such as %s", text, DefaultTopology)
	}
	for i, number := range []*int{&t.Sockets, &t.Cores, &t.Threads}[:len(fields)] {
		n, err := strconv.Atoi(fields[i])
		if err != nil || n < 1 || n > mostCPUs {
			return t, fmt.Errorf("topology %q: %q is not a number from 1 to %d", text, fields[i], mostCPUs)
		}
		*number = n
	}
	if t.CPUs() < 2 || t.CPUs() > mostCPUs {
		return t, fmt.Errorf("topology %q: has %d CPUs; a partitioned node needs 2, and a VM has at most %d", text, t.CPUs(), mostCPUs)
	}
	return t, nil
}

// args returns QEMU's arguments for the CPUs and for the memory, in mebibytes, of which each NUMA node
// has an equal part.
func (t Topology) args(memory int) []string {
	args := []string{"-smp", fmt.Sprintf("%d,sockets=%d,cores=%d,threads=%d", t.CPUs(), t.Sockets, t.Cores, t.Threads), "-m", fmt.Sprintf("%dM", memory/t.Sockets*t.Sockets)}
	for node := range t.Sockets {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", node, memory/t.Sockets),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=memory%d", node, node))
	}
	for node := range t.Sockets {
		args = append(args, "-numa", fmt.Sprintf("cpu,node-id=%d,socket-id=%d", node, node))
	}
	return args
}
