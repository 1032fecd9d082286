// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"slices"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/tuning"
)

// packaged is where TuneD's package has its profiles.
const packaged = "/usr/lib/tuned"

// unsupported are plugins that need what the operand does not have: the host's service manager.
var unsupported = []string{"service", "systemd"}

// unsupportedPlugins returns those of a Profile's chosen profile, and of the profiles that it includes by name.
func unsupportedPlugins(spec tunedv1.ProfileSpec) (found []string) {
	units, _, _ := tuning.Chain(spec, func(name string) (string, bool) {
		if !safe(name) {
			return "", false
		}
		text, err := os.ReadFile(filepath.Join(packaged, name, profileFile))
		return string(text), err == nil // TuneD says so, where it matters
	})
	for _, unit := range units {
		if unit.Enabled && slices.Contains(unsupported, unit.Plugin) && !slices.Contains(found, unit.Plugin) {
			found = append(found, unit.Plugin)
		}
	}
	slices.Sort(found)
	return found
}
