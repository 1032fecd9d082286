// SPDX-License-Identifier: Apache-2.0

// Package audit proves or disproves, on a node, that workload partitioning holds there.
//
// It knows what the kernel, the runtime and the node's files say: cgroups of both versions,
// procfs, sysfs, the CRI, and the kubelet's files. What a pod asked for and what a pool is, it
// asks the core. It prints nothing, and changes nothing on the node.
//
// Names of containers, annotations and the names of processes are other people's: results carry
// them as they are, and callers that print them must escape them.
package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/partition"
)

// Host says where a node's files are. Its zero value means the usual places.
type Host struct {
	// Root begins the paths of the host's files below /etc, /var, /run and /sys/fs/cgroup. A pod
	// has them mounted below such a directory.
	Root string
	// Cgroups, Proc and Sys are where cgroups, procfs and sysfs are mounted; empty means
	// Root/sys/fs/cgroup, /proc and /sys. Proc must show all processes of the host.
	Cgroups, Proc, Sys string
	// KubeletConfig, KubeletConfigDir and KubeletRoot are the kubelet's file, its directory of
	// drop-ins and its root directory; empty means those that its command line names.
	KubeletConfig, KubeletConfigDir, KubeletRoot string
	// RuntimeEndpoint is the runtime's socket; empty means what the kubelet uses, or the usual
	// places.
	RuntimeEndpoint string
	// recorded: the files are copies that a record has.
	recorded bool
}

func (h Host) withDefaults() Host {
	h.Cgroups = cmp.Or(h.Cgroups, filepath.Join("/", h.Root, "sys/fs/cgroup"))
	h.Proc = cmp.Or(h.Proc, "/proc")
	h.Sys = cmp.Or(h.Sys, "/sys")
	return h
}

// at returns where a file of the host is.
func (h Host) at(path string) string { return filepath.Join("/", h.Root, path) }

func (h Host) procfs() (procfs.FS, error) { return procfs.NewFS(h.Proc) }

// disks returns the files that say where the requests of each disk end: 2 is on the CPU that began them.
func (h Host) disks() []string {
	paths, _ := filepath.Glob(filepath.Join(h.Sys, "block/*/queue/rq_affinity")) // the pattern is well-formed
	return paths
}

// load is [partition.Load], which insists on a file of root's; tests may run as another user.
var load = partition.Load

// refused ends the name of the file in a record that says why a pinning file is refused. The file itself may be fine, and
// its mode or its directory wrong.
const refused = ".refused"

// loadCopy is [partition.Load] for a copy of the pinning file, which belongs to the user who made it.
func loadCopy(path string, online cpuset.CPUSet) (partition.Pools, []string, error) {
	if why, err := readText(path + refused); err == nil {
		return nil, nil, errors.New(why)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	pools, err := partition.Parse(data, online)
	return pools, nil, err
}

// readText returns a file of the kernel without the white space around it.
func readText(path string) (string, error) {
	data, err := os.ReadFile(path)
	return string(bytes.TrimSpace(data)), err
}

// gone reports whether an error means that a cgroup or a process has ended, which may happen at
// any time.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENODEV)
}

func parseCPUs(path, text string) (cpuset.CPUSet, error) {
	set, err := partition.ParseCPUs(text)
	if err != nil {
		return set, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

// size returns how many CPUs a list has that is known to be valid.
func size(list string) int {
	set, _ := partition.ParseCPUs(list)
	return set.Size()
}

// parseMask reads a mask of CPUs as the kernel prints it: hexadecimal words of 32 bits, the
// highest first (Linux, lib/bitmap-str.c, %*pb).
func parseMask(text string) (cpuset.CPUSet, error) {
	bits, ok := new(big.Int).SetString(strings.ReplaceAll(text, ",", ""), 16)
	if !ok {
		return cpuset.CPUSet{}, fmt.Errorf("%s is not a mask of CPUs", strconv.Quote(text))
	}
	var cpus []int
	for i := range bits.BitLen() {
		if bits.Bit(i) == 1 {
			cpus = append(cpus, i)
		}
	}
	return cpuset.New(cpus...), nil
}
