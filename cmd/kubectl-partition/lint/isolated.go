// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"workload.openshift.io/partition"
)

// isolated finds manifests that put CPUs of the pools into isolcpus.
func (l *linter) isolated(o *object) error {
	if l.Pools.IsEmpty() {
		return nil
	}
	switch {
	case o.Kind == "MachineConfig" && o.group == "machineconfiguration.openshift.io":
		var config struct {
			Spec struct {
				KernelArguments []string `json:"kernelArguments"`
			} `json:"spec"`
		}
		if err := o.read(&config); err != nil {
			return err
		}
		for i, argument := range config.Spec.KernelArguments {
			if value, is := strings.CutPrefix(argument, "isolcpus="); is {
				l.isolates(o, unbalanced(value), "spec", "kernelArguments", strconv.Itoa(i))
			}
		}
	case o.Kind == "PerformanceProfile" && o.group == "performance.openshift.io":
		var profile struct {
			Spec struct {
				CPU struct {
					Isolated        string `json:"isolated"`
					BalanceIsolated *bool  `json:"balanceIsolated"`
				} `json:"cpu"`
			} `json:"spec"`
		}
		if err := o.read(&profile); err != nil {
			return err
		}
		if balanced := profile.Spec.CPU.BalanceIsolated; balanced != nil && !*balanced {
			l.isolates(o, profile.Spec.CPU.Isolated, "spec", "cpu", "isolated")
		}
	}
	return nil
}

// unbalanced returns the CPUs between which the kernel balances no load, of the value of isolcpus: a CPU list, after flags
// without which it means the flag domain (kernel/sched/isolation.c, housekeeping_isolcpus_setup).
func unbalanced(value string) string {
	var flags []string
	for {
		flag, rest, more := strings.Cut(value, ",")
		if !more || !slices.Contains([]string{"domain", "managed_irq", "nohz"}, flag) {
			break
		}
		flags, value = append(flags, flag), rest
	}
	if len(flags) > 0 && !slices.Contains(flags, "domain") {
		return ""
	}
	return value
}

// isolates reports CPUs of the pools in a list of those between which the kernel balances no load.
func (l *linter) isolates(o *object, list string, at ...string) {
	cpus, err := partition.ParseCPUs(list)
	if err != nil {
		return // the kernel knows other forms, and names what it refuses
	}
	if on := cpus.Intersection(l.Pools); !on.IsEmpty() && l.Pools.Size() > 1 {
		l.find(o, isolatedPool, Warning, fmt.Sprintf("CPU %s of the pools is in isolcpus, where the kernel balances no load: what runs on such a CPU stays there, however busy it is", on), nil, at...)
	}
}
