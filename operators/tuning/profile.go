// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Unit is a section of a TuneD profile.
type Unit struct {
	// Name is that of the section, and Plugin what applies it.
	Name, Plugin string
	Enabled      bool
	// Options are those of the plugin, in their order.
	Options []Option
}

// Option is one option of a unit. Its value may have functions and variables, which TuneD expands.
type Option struct{ Name, Value string }

var (
	section  = regexp.MustCompile(`^\[([^\]]+)\]`)
	includes = regexp.MustCompile(`\s*[,;]\s*`)
	on       = []string{"True", "true", "1"} // any other value switches off
)

// Chain returns the units and the variables of the profiles of which a spec's chosen one consists, and the names of these, all in
// TuneD's order: a profile comes after those that it includes. Profiles that the spec does not have are read with other, and left out
// if it has none of that name.
func Chain(spec tunedv1.ProfileSpec, other func(name string) (text string, ok bool)) (units []Unit, variables []Option, names []string) {
	data := map[string]string{}
	for _, profile := range spec.Profile {
		data[profile.Name] = profile.Data
	}
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		name = strings.TrimPrefix(name, "-")
		if seen[name] {
			return
		}
		seen[name] = true
		text, ok := data[name]
		if !ok {
			if text, ok = other(name); !ok {
				return
			}
		}
		own, defined, included := readProfile(text)
		for _, each := range included {
			visit(each)
		}
		units, variables, names = append(units, own...), append(variables, defined...), append(names, name)
	}
	visit(spec.Config.TunedProfile)
	return units, variables, names
}

// readProfile reads a TuneD profile (tuned/profiles/loader.py and unit.py): its units, its variables, and the profiles that it
// includes before its own. What TuneD must compute to know an included profile's name is left out.
func readProfile(text string) (units []Unit, variables []Option, included []string) {
	units = sectionsOf(text)
	for i := range units {
		u := &units[i]
		u.Options = slices.DeleteFunc(u.Options, func(option Option) bool {
			switch {
			case u.Name == "main" && option.Name == "include":
				if !strings.Contains(option.Value, "${") {
					included = append(included, includes.Split(option.Value, -1)...)
				}
			case u.Name != "main" && option.Name == "type":
				u.Plugin = option.Value
			case u.Name != "main" && option.Name == "enabled":
				u.Enabled = slices.Contains(on, option.Value)
			default:
				return false
			}
			return true
		})
	}
	units = slices.DeleteFunc(units, func(u Unit) bool {
		if u.Name == "variables" {
			variables = append(variables, u.Options...)
		}
		return u.Name == "main" || u.Name == "variables"
	})
	return units, variables, included
}

// comment is one of a whole line, or the end of a line.
var comment = regexp.MustCompile(`^\s*;.*|(^|\s)#.*`)

// sectionsOf reads the sections of a profile as Python's configparser does with TuneD's settings: sections of one name are one, the last
// of several options of one name counts, and a line that is indented deeper than an option before it goes on with its value.
func sectionsOf(text string) (units []Unit) {
	type place struct{ section, option string }
	places := map[place]int{}
	indent, at := 0, -1
	var open *string // the value that a line may go on with
	for line := range strings.Lines(text) {
		line = strings.TrimRightFunc(comment.ReplaceAllString(line, ""), unicode.IsSpace)
		content := strings.TrimLeftFunc(line, unicode.IsSpace)
		if content == "" {
			continue
		}
		deeper := len(line) - len(content)
		if deeper > indent && open != nil {
			*open += "\n" + content
			continue
		}
		indent, open = deeper, nil
		if match := section.FindStringSubmatch(content); match != nil {
			name, known := match[1], false
			if at, known = places[place{section: name}]; !known {
				at = len(units)
				places[place{section: name}] = at
				units = append(units, Unit{Name: name, Plugin: name, Enabled: true})
			}
		} else if at >= 0 {
			name, value, _ := strings.Cut(content, "=")
			name = strings.TrimSpace(name)
			u := &units[at]
			i, known := places[place{u.Name, name}]
			if !known || name == "" {
				i = len(u.Options)
				places[place{u.Name, name}] = i
				u.Options = append(u.Options, Option{Name: name})
			}
			open = &u.Options[i].Value
			*open = strings.TrimSpace(value)
		}
	}
	return units
}

// Settings is what a Profile sets, as far as its own profiles say.
type Settings struct {
	// Profile is the name of the chosen one.
	Profile string
	// Sysctls has the values of kernel parameters, by name; Arguments those of [bootloader] cmdline options.
	Sysctls, Arguments map[string]string
	// Packaged are the included profiles that are TuneD's own; what these set is not in here. Other plugins are in Plugins.
	Packaged, Plugins []string
}

// SettingsOf returns what a Profile sets. A profile overrides those that it includes.
func SettingsOf(spec tunedv1.ProfileSpec) Settings {
	s := Settings{Profile: spec.Config.TunedProfile, Sysctls: map[string]string{}, Arguments: map[string]string{}}
	units, _, _ := Chain(spec, func(name string) (string, bool) {
		if name != "" {
			s.Packaged = append(s.Packaged, name)
		}
		return "", false
	})
	for _, unit := range units {
		if !unit.Enabled {
			continue
		}
		for _, option := range unit.Options {
			switch {
			case unit.Plugin == "sysctl":
				s.Sysctls[option.Name] = option.Value
			case unit.Plugin == "bootloader" && strings.HasPrefix(option.Name, "cmdline"):
				s.Arguments[option.Name] = option.Value
			}
		}
		if unit.Plugin != "sysctl" && !slices.Contains(s.Plugins, unit.Plugin) {
			s.Plugins = append(s.Plugins, unit.Plugin)
		}
	}
	slices.Sort(s.Packaged)
	slices.Sort(s.Plugins)
	return s
}

// Change is what would become of one node.
type Change struct {
	Node string `json:"node"`
	// From and To are the profiles. From is empty if the node has none yet.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Tuned is that of the choice, and Tie another profile with as good a claim.
	Tuned string `json:"tuned"`
	Tie   string `json:"tie,omitempty"`
	// Deferred is true of a change that waits for the node's next boot.
	Deferred bool `json:"deferred,omitempty"`
	// Sysctls and Arguments are those that change.
	Sysctls   []Difference `json:"sysctls,omitempty"`
	Arguments []Difference `json:"kernelArguments,omitempty"`
	// Packaged are profiles of TuneD's package that are included now and were not, or the reverse; Plugins are sections
	// besides sysctl whose profiles change.
	Packaged []string `json:"packagedProfiles,omitempty"`
	Plugins  []string `json:"plugins,omitempty"`
}

// Difference is a value that changes. An empty one is that of the kernel, or of a profile of TuneD's package.
type Difference struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// ChangeOf returns what becomes of a node whose Profile has one spec, or none, and gets another; nil if nothing does.
func ChangeOf(node string, before *tunedv1.ProfileSpec, choice Choice, after tunedv1.ProfileSpec) *Change {
	var was Settings
	if before != nil {
		was = SettingsOf(*before)
	}
	is := SettingsOf(after)
	change := &Change{
		Node: node, From: was.Profile, To: is.Profile, Tuned: choice.Tuned, Tie: choice.Tie,
		Sysctls: differences(was.Sysctls, is.Sysctls), Arguments: differences(was.Arguments, is.Arguments),
		Packaged: exclusive(was.Packaged, is.Packaged),
		Deferred: Deferred(choice.Deferred, was.Profile, is.Profile),
	}
	if before == nil || texts(*before) != texts(after) {
		change.Plugins = union(was.Plugins, is.Plugins)
	}
	if before != nil && was.Profile == is.Profile && len(change.Sysctls)+len(change.Arguments)+len(change.Packaged)+len(change.Plugins) == 0 {
		return nil
	}
	return change
}

// texts are all texts that a Profile may use, since its other plugins' options may have anything.
func texts(spec tunedv1.ProfileSpec) string {
	var text strings.Builder
	text.WriteString(spec.Config.TunedProfile)
	for _, profile := range spec.Profile {
		text.WriteString("\n" + profile.Name + "\n" + profile.Data)
	}
	return text.String()
}

func differences(was, is map[string]string) (found []Difference) {
	for _, name := range sets.List(sets.KeySet(was).Union(sets.KeySet(is))) {
		if was[name] != is[name] {
			found = append(found, Difference{name, was[name], is[name]})
		}
	}
	return found
}

func exclusive(a, b []string) (found []string) {
	for _, each := range union(a, b) {
		if slices.Contains(a, each) != slices.Contains(b, each) {
			found = append(found, each)
		}
	}
	return found
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
