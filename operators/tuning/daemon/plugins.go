// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/tuning"
)

// packaged is where TuneD's package has its profiles.
const packaged = "/usr/lib/tuned"

// unsupported are plugins that need what the operand does not have: the host's service manager.
var unsupported = []string{"service", "systemd"}

// unsupportedPlugins returns those of a Profile's chosen profile, and of the profiles that it includes by name.
func unsupportedPlugins(spec tunedv1.ProfileSpec) (found []string) {
	data := map[string]string{}
	for _, profile := range spec.Profile {
		data[profile.Name] = profile.Data
	}
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		name = strings.TrimPrefix(name, "-")
		if seen[name] || !safe(name) {
			return
		}
		seen[name] = true
		text, ok := data[name]
		if !ok {
			packagedText, err := os.ReadFile(filepath.Join(packaged, name, profileFile))
			if err != nil {
				return // TuneD says so, where it matters
			}
			text = string(packagedText)
		}
		units, included := tuning.ReadProfile(text)
		for _, unit := range units {
			if unit.Enabled && slices.Contains(unsupported, unit.Plugin) && !slices.Contains(found, unit.Plugin) {
				found = append(found, unit.Plugin)
			}
		}
		for _, include := range included {
			visit(include)
		}
	}
	visit(spec.Config.TunedProfile)
	slices.Sort(found)
	return found
}
