// SPDX-License-Identifier: Apache-2.0

package nodefiles

import (
	"bytes"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"k8s.io/utils/cpuset"
)

// HostPart is one of the things that keep the rest of the host on the pools.
type HostPart string

// The parts of a host's configuration. What they write is about the union of the pools, as the
// kubelet's reserved CPUs are.
const (
	// Affinity is systemd's CPUAffinity, for PID 1 and all that it starts.
	Affinity HostPart = "affinity"
	// Slices is systemd's AllowedCPUs for what is not a pod, on cgroup v2, and the weight of
	// system.slice.
	Slices HostPart = "slices"
	// IRQBalance keeps irqbalance from moving interrupts to CPUs in no pool.
	IRQBalance HostPart = "irqbalance"
	// KernelArguments keep interrupts and RCU callbacks off these CPUs from the boot on.
	KernelArguments HostPart = "kernel-arguments"
	// Workqueue is where the kernel's unbound workers may run.
	Workqueue HostPart = "workqueue"
	// KThreads moves kernel threads that have no CPU of their own, such as rcu_preempt, at the boot and every minute.
	KThreads HostPart = "kthreads"
	// Disks has a request to a disk end on the CPU that began it, whatever CPU its interrupt is on.
	Disks HostPart = "disks"
)

// HostParts are all of them.
var HostParts = []HostPart{Affinity, Slices, IRQBalance, KernelArguments, Workqueue, KThreads, Disks}

// HostFiles returns what keeps the rest of the host on the pools, but for kernel arguments.
func (n Node) HostFiles() (files []File, err error) {
	pool, rest := n.SetAside().String(), n.Rest()
	if pool == "" {
		return nil, nil
	}
	add := func(path string, options ...*unit.UnitOption) {
		var file File
		if err == nil {
			file, err = systemdFile(path, options)
			files = append(files, file)
		}
	}
	for _, part := range HostParts {
		if !slices.Contains(n.Host, part) {
			continue
		}
		switch part {
		case Affinity:
			add("/etc/systemd/system.conf.d/01-workload-partitioning.conf", unit.NewUnitOption("Manager", "CPUAffinity", pool))
		case Slices:
			system := []*unit.UnitOption{unit.NewUnitOption("Slice", "AllowedCPUs", pool)}
			if pods := rest.Difference(n.SystemCPUs); !pods.IsEmpty() {
				system = append(system, unit.NewUnitOption("Slice", "CPUWeight", fmt.Sprint(weightOfPods(pods.Size()))))
			}
			add("/etc/systemd/system/system.slice.d/01-workload-partitioning.conf", system...)
			add("/etc/systemd/system/user.slice.d/01-workload-partitioning.conf", unit.NewUnitOption("Slice", "AllowedCPUs", pool))
			add("/etc/systemd/system/init.scope.d/01-workload-partitioning.conf", unit.NewUnitOption("Scope", "AllowedCPUs", pool))
		case IRQBalance:
			if !rest.IsEmpty() {
				add(IRQBalancePath, unit.NewUnitOption("Service", "Environment", "IRQBALANCE_BANNED_CPULIST="+rest.String()))
			}
		case Workqueue:
			mask := maskOf(n.SetAside())
			file := File{Path: WorkqueuePath, Mode: 0o644, Content: fmt.Appendf(nil, "%sw /sys/devices/virtual/workqueue/cpumask - - - - %s\n", madeBy, mask)}
			if again := cpusOf(mask); err == nil {
				err = file.MustEqual(pool, again.String())
			}
			files = append(files, file)
		case KThreads:
			add("/etc/systemd/system/"+KThreadsUnit+".service", unit.NewUnitOption("Unit", "Description", "Move kernel threads to the CPUs of the pools"),
				unit.NewUnitOption("Service", "Type", "oneshot"), unit.NewUnitOption("Service", "ExecStart", moveKThreads(pool)))
			add("/etc/systemd/system/"+KThreadsUnit+".timer", unit.NewUnitOption("Unit", "Description", "Move new kernel threads to the CPUs of the pools"),
				unit.NewUnitOption("Timer", "OnActiveSec", "0"), unit.NewUnitOption("Timer", "OnUnitInactiveSec", "1min"), unit.NewUnitOption("Timer", "AccuracySec", "1s"))
			// It takes the place of an enabled unit's link, which not every target can write.
			add("/etc/systemd/system/timers.target.d/01-workload-partitioning.conf", unit.NewUnitOption("Unit", "Wants", KThreadsUnit+".timer"))
		case Disks:
			files = append(files, File{Path: DisksPath, Mode: 0o644, Content: []byte(madeBy + disksRule)})
		}
	}
	if err != nil {
		return nil, err
	}
	return files, nil
}

const madeBy = "# Made by kubectl partition render.\n"

// What has to be told of its file, besides systemd.
const (
	IRQBalancePath = "/etc/systemd/system/irqbalance.service.d/01-workload-partitioning.conf"
	WorkqueuePath  = "/etc/tmpfiles.d/01-workload-partitioning.conf"
	KThreadsUnit   = "workload-partitioning-kthreads"
	DisksPath      = "/etc/udev/rules.d/60-workload-partitioning.rules"
)

// disksRule is for all that has a queue of requests. With 1, the kernel's default, a request ends on any CPU that
// shares a cache with the one that began it, so on the interrupt's (Linux, Documentation/block/queue-sysfs.rst).
const disksRule = `ACTION!="remove", SUBSYSTEM=="block", TEST=="queue/rq_affinity", ATTR{queue/rq_affinity}="2"` + "\n"

// moveKThreads returns the command that moves kernel threads, with what systemd wants escaped (systemd.service(5)).
// kthreadd has the process ID 2, and all others are its children. The kernel refuses to move those that belong to one
// CPU (PF_NO_SETAFFINITY), and workers, whose CPUs are the workqueue's. Those that work for a pod, such as vhost's, are
// in its cgroup, and stay with it.
func moveKThreads(pool string) string {
	return fmt.Sprintf("/bin/sh -c 'for task in 2 $$(cat /proc/2/task/2/children); do grep -q kubepods /proc/$$task/cgroup || taskset -pc %s $$task; done >/dev/null 2>&1; exit 0'", pool)
}

// KernelArguments returns the arguments of the part of that name. Without the host's CPUs there
// are fewer.
//
// isolcpus has the flag managed_irq alone: with the flag domain, the kernel would balance no
// load there, and the kubelet would leave these CPUs out of what containers share.
func (n Node) KernelArguments() []string {
	pool, rest := n.SetAside(), n.Rest()
	if pool.IsEmpty() || !slices.Contains(n.Host, KernelArguments) {
		return nil
	}
	arguments := []string{"irqaffinity=" + pool.String()}
	if !rest.IsEmpty() {
		arguments = append(arguments, "isolcpus=managed_irq,"+rest.String(), "rcu_nocbs="+rest.String())
	}
	return arguments
}

// weightOfPods returns the weight that the cgroup of all pods has on cgroup v2, by the CPUs
// that are allocatable (upstream, pkg/kubelet/cm, MilliCPUToShares and getCPUWeight). With the
// same weight system.slice, where kubelet and runtime are, gets half of a busy pool: with
// systemd's 100 it would get as little as a twentieth.
func weightOfPods(cpus int) int {
	shares := min(cpus*1024, 262144)
	return 1 + (shares-2)*9999/262142
}

// systemdFile renders a drop-in, and decodes it again with the library's decoder.
func systemdFile(path string, options []*unit.UnitOption) (File, error) {
	content, err := io.ReadAll(unit.Serialize(options))
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	file := File{Path: path, Mode: 0o644, Content: append([]byte(madeBy), content...)}
	again, err := unit.DeserializeOptions(bytes.NewReader(file.Content))
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	return file, file.MustEqual(options, again)
}

// maskOf prints CPUs as the kernel reads a mask: hexadecimal, in groups of 32 bits (Linux,
// lib/bitmap-str.c, bitmap_parse).
func maskOf(cpus cpuset.CPUSet) string {
	bits := new(big.Int)
	for _, cpu := range cpus.List() {
		bits.SetBit(bits, cpu, 1)
	}
	digits := bits.Text(16)
	if short := len(digits) % 8; short > 0 {
		digits = strings.Repeat("0", 8-short) + digits
	}
	var groups []string
	for ; digits != ""; digits = digits[8:] {
		groups = append(groups, digits[:8])
	}
	return strings.Join(groups, ",")
}

// cpusOf is the inverse of maskOf.
func cpusOf(mask string) cpuset.CPUSet {
	bits, ok := new(big.Int).SetString(strings.ReplaceAll(mask, ",", ""), 16)
	if !ok {
		return cpuset.New()
	}
	var cpus []int
	for cpu := range bits.BitLen() {
		if bits.Bit(cpu) == 1 {
			cpus = append(cpus, cpu)
		}
	}
	return cpuset.New(cpus...)
}
