// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
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
		plugins, includes := sections(text)
		for _, plugin := range plugins {
			if slices.Contains(unsupported, plugin) && !slices.Contains(found, plugin) {
				found = append(found, plugin)
			}
		}
		for _, include := range includes {
			visit(include)
		}
	}
	visit(spec.Config.TunedProfile)
	slices.Sort(found)
	return found
}

var (
	section = regexp.MustCompile(`^\[([^\]]+)\]`)
	option  = regexp.MustCompile(`^(type|include|enabled)\s*=\s*([^#]*)`)
	list    = regexp.MustCompile(`\s*[,;]\s*`)
)

// sections returns the plugins of a profile's sections, and the profiles that it includes (tuned/profiles/loader.py and
// unit.py). An include that TuneD must compute is left out.
func sections(text string) (plugins, includes []string) {
	var name, plugin string
	enabled := true
	end := func() {
		if name != "" && name != "main" && name != "variables" && enabled {
			plugins = append(plugins, plugin)
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if match := section.FindStringSubmatch(line); match != nil {
			end()
			name, plugin, enabled = match[1], match[1], true
			continue
		}
		match := option.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		value := strings.TrimSpace(match[2])
		switch {
		case match[1] == "type":
			plugin = value
		case match[1] == "enabled":
			enabled = !slices.Contains([]string{"0", "false", "no", "off", "n"}, strings.ToLower(value))
		case name == "main" && !strings.Contains(value, "${"):
			includes = append(includes, list.Split(value, -1)...)
		}
	}
	end()
	return plugins, includes
}
