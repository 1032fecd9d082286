// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/tuning"
	"workload.openshift.io/partition"
)

// isolated finds what puts CPUs of the pools into isolcpus.
func (l *linter) isolated(o *object) error {
	if l.Pools.IsEmpty() || !o.configuresHosts() {
		return nil
	}
	switch {
	case o.is(tunedKind):
		return l.isolatedByTuned(o)
	case o.is(profileKind):
		profile, err := o.profile()
		if err != nil {
			return err
		}
		if balanced := profile.Spec.CPU.BalanceIsolated; balanced != nil && !*balanced {
			l.isolates(o, profile.Spec.CPU.Isolated, "spec", "cpu", "isolated")
		}
	}
	o.visit(func(value any, path []string) bool {
		if text, ok := value.(string); ok {
			for _, list := range isolating(text) {
				l.isolates(o, unbalanced(list), path...)
			}
		}
		// What Ignition and Butane take away.
		return len(path) == 0 || !slices.Contains([]string{"shouldNotExist", "should_not_exist"}, path[len(path)-1])
	})
	return nil
}

// isolatedByTuned reads a Tuned as TuneD does: its profiles have variables, and take arguments of others away.
func (l *linter) isolatedByTuned(o *object) error {
	var tuned tunedv1.Tuned
	if err := o.read(&tuned); err != nil {
		return err
	}
	for i, profile := range tuned.Spec.Profile {
		requested := tuning.RequestedBy(tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: profile.Name}, Profile: tuned.Spec.Profile})
		arguments, _ := requested.Literal()
		for _, argument := range arguments {
			for _, list := range isolating(argument) {
				l.isolates(o, unbalanced(list), "spec", "profile", strconv.Itoa(i), "data")
			}
		}
	}
	return nil
}

var (
	// isolcpusArgument is the argument with what is before it in the same word, such as the option of a command.
	isolcpusArgument = regexp.MustCompile(`(\S*)\bisolcpus=([\w,:/.-]+)`)
	comment          = regexp.MustCompile(`(?m)^\s*[#;].*$`)
	// takesAway ends or names what takes an argument away: a minus of Talos, options of rpm-ostree and of grubby.
	takesAway = regexp.MustCompile(`-$|delete|remove`)
)

// isolating returns the values of isolcpus in a text: an argument, a command line, a script, a file of a boot loader.
func isolating(text string) (values []string) {
	for _, match := range isolcpusArgument.FindAllStringSubmatch(comment.ReplaceAllString(text, ""), -1) {
		if !takesAway.MatchString(match[1]) {
			values = append(values, match[2])
		}
	}
	return values
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
