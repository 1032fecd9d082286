// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"k8s.io/apimachinery/pkg/util/sets"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

// Requested are the kernel arguments that a node's profile asks for, by its own [bootloader] sections and by those of the
// profiles that it includes. What an operand reports is measured by them: a node must not choose the command line of others.
type Requested struct {
	profile   string
	templates []template
	// literal are those that no node has to compute, in TuneD's order. They are all of them if nothing is computed.
	literal  []string
	computed bool
}

// template is one argument as a profile has it. Where TuneD computes a part, the pattern has a hole.
type template struct {
	text, key string
	pattern   *regexp.Regexp
	computed  bool
}

// part is a text, or a hole if it is computed.
type part struct {
	text     string
	computed bool
}

// packaged are the parts of TuneD's own profiles that matter here, by name: what they include, their variables, and their
// [bootloader] sections. A test makes it from Debian's package, and compares.
//
//go:embed packaged.json
var packaged []byte

var packagedProfiles = sync.OnceValue(func() map[string]string {
	profiles := map[string]string{}
	if err := json.Unmarshal(packaged, &profiles); err != nil {
		panic(err) // it is part of the program
	}
	return profiles
})

func packagedProfile(name string) (text string, ok bool) {
	text, ok = packagedProfiles()[name]
	return text, ok
}

// hole is what TuneD may compute: numbers, lists of CPUs, and masks.
const hole = `[0-9a-fA-Fx,.:-]*`

// RequestedBy returns what the chosen profile of a spec asks for. Profiles that are neither the spec's nor TuneD's own, and those
// whose names TuneD computes, ask for nothing.
func RequestedBy(spec tunedv1.ProfileSpec) Requested {
	r := Requested{profile: spec.Config.TunedProfile}
	units, defined, _ := Chain(spec, packagedProfile)
	variables := variablesOf(defined)
	tokens, exact := effective(units, variables)
	if !exact {
		tokens = possible(units, variables)
	}
	r.computed = !exact
	for _, token := range tokens {
		t, ok := templateOf(token)
		r.computed = r.computed || !ok || t.computed
		if ok {
			r.templates = append(r.templates, t)
		}
		if ok && exact && !t.computed {
			r.literal = append(r.literal, t.text)
		}
	}
	return r
}

// Literal returns the arguments that no node has to compute, and whether these are all.
func (r Requested) Literal() (arguments []string, complete bool) { return r.literal, !r.computed }

// Refusal is an argument that an operand reports and its profile does not have, or the reverse.
type Refusal struct{ Argument, Reason string }

func (r Refusal) String() string { return fmt.Sprintf("%s: %s", shown(r.Argument), r.Reason) }

// Accept returns the arguments of a report, in its order, and those that are refused.
func (r Requested) Accept(report string) (arguments []string, refused []Refusal) {
	for _, argument := range strings.Fields(report) {
		if reason := r.refuse(argument); reason != "" {
			refused = append(refused, Refusal{argument, reason})
			continue
		}
		arguments = append(arguments, argument)
	}
	return arguments, refused
}

// Missing returns the arguments that TuneD computes on every node with the profile, and that a report leaves out. That is no less a choice
// of other nodes' command lines.
func (r Requested) Missing(report string) (missing []Refusal) {
	reported := sets.New(strings.Fields(report)...)
	for _, argument := range r.literal {
		if !reported.Has(argument) {
			missing = append(missing, Refusal{argument, fmt.Sprintf("the profile %s has it, and the node does not report it", r.profile)})
		}
	}
	return missing
}

// refuse says why an argument is refused; empty accepts it.
func (r Requested) refuse(argument string) string {
	key, _, _ := strings.Cut(argument, "=")
	var same []template
	for _, t := range r.templates {
		if t.key != key {
			continue
		}
		if t.pattern.MatchString(argument) {
			return ""
		}
		same = append(same, t)
	}
	if len(same) == 0 {
		return fmt.Sprintf("no [bootloader] section of the profile %s, or of those that it includes, has %s", r.profile, shown(key))
	}
	if slices.ContainsFunc(same, func(t template) bool { return t.computed }) {
		return fmt.Sprintf("the profile %s has %s, and what is computed can have only digits, hexadecimal digits and the characters , . : - x", r.profile, shown(same[0].text))
	}
	return fmt.Sprintf("the profile %s has %s", r.profile, shown(same[0].text))
}

// shown is how a message has somebody else's text: without control characters, and cut if it is long.
func shown(text string) string {
	const longest = 120
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return strings.Trim(fmt.Sprintf("%+q", text), `"`)
}

// argumentsOf returns the arguments of a cmdline option without TuneD's operator, and whether they are removed instead of added
// (tuned/plugins/plugin_bootloader.py, _get_effective_options).
func argumentsOf(option Option) (value string, removes bool) {
	value = option.Value
	switch {
	case strings.HasPrefix(value, "+"), strings.HasPrefix(value, `\\`), strings.HasPrefix(value, `\+`), strings.HasPrefix(value, `\-`):
		return strings.TrimSpace(value[1:]), false
	case strings.HasPrefix(value, "-"):
		return strings.TrimSpace(value[1:]), true
	}
	return value, false
}

// variablesOf returns the variables of all profiles: those of one name override earlier ones, in whose place they stay.
func variablesOf(defined []Option) map[string][]part {
	variables := map[string][]part{}
	for _, option := range override(nil, defined) {
		if option.Name != "include" { // a file of the node
			variables[option.Name] = expand(option.Value, variables)
		}
	}
	return variables
}

// override is what TuneD makes of the options of two units with one name.
func override(options, newer []Option) []Option {
	options = slices.Clone(options)
	for _, option := range newer {
		if at := slices.IndexFunc(options, func(o Option) bool { return o.Name == option.Name }); at >= 0 {
			options[at].Value = option.Value
		} else {
			options = append(options, option)
		}
	}
	return options
}

// maxParts bounds what variables can become.
const maxParts = 1000

var (
	variableName    = regexp.MustCompile(`^\w+$`)
	escapedVariable = regexp.MustCompile(`^\$\{\w+\}`)
)

// expand puts known variables into a text. Functions, and variables of files or of nobody, are holes.
func expand(text string, variables map[string][]part) (parts []part) {
	for text != "" {
		at := strings.Index(text, "${")
		if at < 0 {
			return append(parts, part{text: text})
		}
		if at > 0 && text[at-1] == '\\' { // it stays a text: of a variable without the backslash
			kept, rest := text[:at+2], text[at+2:]
			if escaped := escapedVariable.FindString(text[at:]); escaped != "" {
				kept, rest = text[:at-1]+escaped, text[at+len(escaped):]
			}
			parts, text = append(parts, part{text: kept}), rest
			continue
		}
		if at > 0 {
			parts = append(parts, part{text: text[:at]})
		}
		depth, end := 0, len(text)
		for i := at; i < len(text); i++ {
			switch text[i] {
			case '{':
				depth++
			case '}':
				depth--
			}
			if depth == 0 && text[i] == '}' {
				end = i + 1
				break
			}
		}
		inner := strings.TrimSuffix(text[at+2:end], "}")
		// Variables of variables of variables can be endless.
		if known, ok := variables[inner]; ok && variableName.MatchString(inner) && len(parts)+len(known) <= maxParts {
			parts = append(parts, known...)
		} else {
			parts = append(parts, part{text: text[at:end], computed: true})
		}
		text = text[end:]
	}
	return parts
}

// words splits at blanks. A hole has none: an argument with a blank that was computed is none of the profile's.
func words(parts []part) (tokens [][]part) {
	var token []part
	end := func() {
		if len(token) > 0 {
			tokens = append(tokens, token)
		}
		token = nil
	}
	for _, p := range parts {
		if p.computed {
			token = append(token, p)
			continue
		}
		fields := strings.Fields(p.text)
		if strings.TrimLeftFunc(p.text, unicode.IsSpace) != p.text {
			end()
		}
		for i, word := range fields {
			if i > 0 {
				end()
			}
			token = append(token, part{text: word})
		}
		if strings.TrimRightFunc(p.text, unicode.IsSpace) != p.text {
			end()
		}
	}
	end()
	return tokens
}

// templateOf returns none for an argument whose key is computed, or that is no text.
func templateOf(token []part) (template, bool) {
	t := template{}
	pattern := "^"
	for _, p := range token {
		if p.computed {
			if !strings.Contains(t.text, "=") {
				return template{}, false
			}
			t.computed = true
			pattern += hole
		} else {
			pattern += regexp.QuoteMeta(p.text)
		}
		t.text += p.text
	}
	t.key, _, _ = strings.Cut(t.text, "=")
	var err error
	t.pattern, err = regexp.Compile(pattern + "$") // it fails for what is no UTF-8
	return t, err == nil && t.key != ""
}

// conditional are options of a unit by which it holds on some nodes only, or takes options away.
var conditional = []string{"uname_regex", "cpuinfo_regex", "devices_udev_regex", "drop", "replace"}

// possible returns all arguments of all sections [bootloader], whichever of them TuneD uses on a node.
func possible(units []Unit, variables map[string][]part) (tokens [][]part) {
	for _, unit := range units {
		for _, option := range unit.Options {
			if value, removes := argumentsOf(option); unit.Plugin == "bootloader" && strings.HasPrefix(option.Name, "cmdline") && !removes {
				tokens = append(tokens, words(expand(value, variables))...)
			}
		}
	}
	return tokens
}

// effective returns the arguments as TuneD would compute them on every node. It is not exact if only a node can know which they are.
func effective(units []Unit, variables map[string][]part) (tokens [][]part, exact bool) {
	var merged []Option
	enabled, name := true, ""
	for _, unit := range units {
		if unit.Plugin != "bootloader" {
			if unit.Name == "bootloader" {
				return nil, false // TuneD merges it with others of that name
			}
			continue
		}
		if name != "" && name != unit.Name || slices.ContainsFunc(unit.Options, func(o Option) bool { return slices.Contains(conditional, o.Name) }) {
			return nil, false
		}
		name, enabled = unit.Name, unit.Enabled
		merged = override(merged, unit.Options)
	}
	if !enabled {
		return nil, true
	}
	oneLine := true
	for _, option := range merged {
		if !strings.HasPrefix(option.Name, "cmdline") {
			continue
		}
		value, removes := argumentsOf(option)
		switch found := words(expand(value, variables)); {
		case !removes:
			tokens = append(tokens, found...)
			oneLine = oneLine && !strings.Contains(value, "\n")
		case strings.Contains(value, "${"):
			return nil, false // TuneD compares it with texts that are not expanded yet
		default:
			tokens = slices.DeleteFunc(tokens, func(token []part) bool {
				return slices.ContainsFunc(found, func(other []part) bool { return slices.Equal(other, token) })
			})
		}
	}
	if oneLine {
		unquote(tokens)
	}
	return tokens, true
}

// unquote takes quotes off the ends of all arguments together.
func unquote(tokens [][]part) {
	if len(tokens) == 0 {
		return
	}
	first, last := &tokens[0][0], &tokens[len(tokens)-1][len(tokens[len(tokens)-1])-1]
	begins, ends := !first.computed && strings.HasPrefix(first.text, `"`), !last.computed && strings.HasSuffix(last.text, `"`)
	if begins && ends && (first != last || len(first.text) > 1) {
		first.text = first.text[1:]
		last.text = last.text[:len(last.text)-1]
	}
}
