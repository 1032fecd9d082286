// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
	"workload.openshift.io/partition"
)

// The DRA driver for CPUs, kubernetes-sigs/dra-driver-cpu, reads what it reserves from a file (docs/user/configuration.md
// there), which its chart has in a ConfigMap, or from a flag of its DaemonSet.
const (
	driverProgram = "dracpu"
	reservedFlag  = "--reserved-cpus"
)

// driverFile compares what a ConfigMap has the driver reserve with the pools.
func (l *linter) driverFile(o *object) error {
	if l.Pools.IsEmpty() || o.Kind != "ConfigMap" || o.group != "" {
		return nil
	}
	var config struct {
		Data map[string]string `json:"data"`
	}
	if err := o.read(&config); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(config.Data)) {
		var settings struct {
			ReservedCPUs  *string `json:"reservedCPUs"`
			CPUDeviceMode string  `json:"cpuDeviceMode"`
		}
		if yaml.Unmarshal([]byte(config.Data[key]), &settings) != nil {
			continue // it is of something else
		}
		switch {
		case settings.ReservedCPUs != nil:
			l.reserves(o, *settings.ReservedCPUs, "data", key)
		case settings.CPUDeviceMode != "":
			l.reserves(o, "", "data", key)
		}
	}
	return nil
}

// driver compares what flags have the driver reserve with the pools.
func (l *linter) driver(o *object) error {
	if l.Pools.IsEmpty() || !o.isWorkload() {
		return nil
	}
	template, err := o.template()
	if err != nil {
		return nil // it has been reported
	}
	for i, container := range template.Spec.Containers {
		line := slices.Concat(container.Command, container.Args)
		if !slices.ContainsFunc(line, func(word string) bool { return path.Base(word) == driverProgram }) {
			continue
		}
		reserved, file := "", false
		for j, word := range line {
			name, value, joined := strings.Cut(word, "=")
			if !joined && j+1 < len(line) {
				value = line[j+1]
			}
			switch name {
			case reservedFlag:
				reserved, file = value, false
			case "--config":
				file = reserved == "" // a flag wins over the file
			}
		}
		if !file {
			l.reserves(o, reserved, o.inTemplate("spec", "containers", strconv.Itoa(i))...)
		}
	}
	return nil
}

// reserves reports a list of CPUs that the driver reserves, and that are not those of the pools.
func (l *linter) reserves(o *object, list string, at ...string) {
	cpus, err := partition.ParseCPUs(list)
	if err == nil && cpus.Equals(l.Pools) {
		return
	}
	what := "gives CPUs of the pools to pods"
	if err == nil && l.Pools.IsSubsetOf(cpus) {
		what = "leaves the others unused"
	}
	l.find(o, driverReserves, Error, fmt.Sprintf("the DRA driver reserves the CPUs %q, and the pools have %s: it %s", abbreviate(list), l.Pools, what), nil, at...)
}
