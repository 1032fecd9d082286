// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/manifest"
)

// Annotations of a Profile that say why it is what it is.
const (
	// TunedAnnotation is the name of the Tuned whose recommendation the node gets.
	TunedAnnotation = "tuning.workload.openshift.io/tuned"
	// TieAnnotation is another profile that has as good a claim to the node.
	TieAnnotation = "tuning.workload.openshift.io/tie"
	// RefusedAnnotation names kernel arguments that the operand reports and that do not count, since its profile does not have
	// them. The operand says so in the condition Degraded: the status is nobody else's to write.
	RefusedAnnotation = "tuning.workload.openshift.io/refused-kernel-arguments"
)

// Node is what the choice for a node goes by.
type Node struct {
	Name       string
	Labels     map[string]string
	ProviderID string
	// Pods has the labels of each pod on the node. It matters only if MatchesPods.
	Pods []map[string]string
}

// Pool is the NodePool of the node, or empty.
func (n Node) Pool() string { return n.Labels[tunedv1.NodePoolLabel] }

// Choice is the recommendation that a node gets.
type Choice struct {
	// Tuned is the name of the Tuned that has it, and Entry its place in recommend.
	Tuned string
	Entry int
	tunedv1.TunedRecommend
	// Deferred is the Tuned's DeferredAnnotation; empty if it has none.
	Deferred string
	// Tie names another profile that has as good a claim to the node, and lost by the name of its Tuned or by its place. It is
	// empty if there is none.
	Tie string
}

// Choose chooses among the Tuneds that count for a node: those of its NodePool, and the default. Of all entries that match, the one
// with the lowest priority wins; then the name of the Tuned decides, then the place.
func Choose(node Node, tuneds []tunedv1.Tuned) (choice Choice, found bool) {
	var matching []Choice
	for _, tuned := range tuneds {
		for i, entry := range tuned.Spec.Recommend {
			if len(entry.Match) == 0 || matchesAny(entry.Match, node) {
				matching = append(matching, Choice{Tuned: tuned.Name, Entry: i, TunedRecommend: entry, Deferred: tuned.Annotations[tunedv1.DeferredAnnotation]})
			}
		}
	}
	if len(matching) == 0 {
		return Choice{}, false
	}
	slices.SortFunc(matching, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Tuned, b.Tuned), cmp.Compare(a.Entry, b.Entry))
	})
	choice = matching[0]
	for _, other := range matching[1:] {
		if other.Priority == choice.Priority && other.Profile != choice.Profile {
			choice.Tie = other.Profile
			break
		}
	}
	return choice, true
}

func matchesAny(matches []tunedv1.TunedMatch, node Node) bool {
	return slices.ContainsFunc(matches, func(match tunedv1.TunedMatch) bool {
		return matchesLabel(match, node) && (len(match.Match) == 0 || matchesAny(match.Match, node))
	})
}

func matchesLabel(match tunedv1.TunedMatch, node Node) bool {
	has := func(labels map[string]string) bool {
		value, found := labels[match.Label]
		return found && (match.Value == nil || *match.Value == value)
	}
	if match.Type == tunedv1.MatchPod {
		return slices.ContainsFunc(node.Pods, has)
	}
	return has(node.Labels)
}

// Deferred reports whether a change of a node's Profile waits for the node's next boot. The mode is a DeferredAnnotation; before and
// after are the names of the profile that is in force, empty if there is none, and of the one that is wanted.
func Deferred(mode, before, after string) bool {
	return mode == tunedv1.DeferAlways || mode == tunedv1.DeferUpdate && before == after
}

// MatchesPods reports whether any of the Tuneds goes by the labels of pods.
func MatchesPods(tuneds []tunedv1.Tuned) bool {
	var pods func([]tunedv1.TunedMatch) bool
	pods = func(matches []tunedv1.TunedMatch) bool {
		return slices.ContainsFunc(matches, func(match tunedv1.TunedMatch) bool {
			return match.Type == tunedv1.MatchPod || pods(match.Match)
		})
	}
	return slices.ContainsFunc(tuneds, func(tuned tunedv1.Tuned) bool {
		return slices.ContainsFunc(tuned.Spec.Recommend, func(entry tunedv1.TunedRecommend) bool { return pods(entry.Match) })
	})
}

// IgnoredLabels names the Tuneds that have machineConfigLabels, which mean nothing on a hosted cluster.
func IgnoredLabels(tuneds []tunedv1.Tuned) (names []string) {
	for _, tuned := range tuneds {
		if slices.ContainsFunc(tuned.Spec.Recommend, func(entry tunedv1.TunedRecommend) bool { return len(entry.MachineConfigLabels) > 0 }) {
			names = append(names, tuned.Name)
		}
	}
	return names
}

// ProfileOf is the spec of a node's Profile. It has all profiles of the Tuneds that count for the node: which of them the chosen one
// includes is known only where it is applied.
func ProfileOf(node Node, choice Choice, tuneds []tunedv1.Tuned) tunedv1.ProfileSpec {
	provider, _, _ := strings.Cut(node.ProviderID, "://")
	spec := tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{
		TunedProfile: choice.Profile,
		Debug:        choice.Operand.Debug,
		Verbosity:    choice.Operand.Verbosity,
		TunedConfig:  *choice.Operand.TunedConfig.DeepCopy(),
		ProviderName: provider,
	}}
	seen := map[string]bool{}
	for _, tuned := range tuneds {
		for _, profile := range tuned.Spec.Profile {
			if !seen[profile.Name] { // those of one name are the same: Parse, Faults
				spec.Profile = append(spec.Profile, profile)
			}
			seen[profile.Name] = true
		}
	}
	slices.SortFunc(spec.Profile, func(a, b tunedv1.TunedProfile) int { return cmp.Compare(a.Name, b.Name) })
	return spec
}

// StateOf is the management state of an ordinary cluster, by its Tuned default; nil is none.
func StateOf(standing *tunedv1.Tuned) string {
	if standing == nil || standing.Spec.ManagementState == "" || standing.Spec.ManagementState == tunedv1.Force {
		return tunedv1.Managed
	}
	return standing.Spec.ManagementState
}

// Applied returns the Tuneds of an ordinary cluster, and its management state, once a person applies some there: those of other
// names stay. Errors name the Tuneds and the field.
func Applied(standing, more []tunedv1.Tuned) (tuneds []tunedv1.Tuned, state string, err error) {
	state = StateOf(nil)
	for _, tuned := range standing {
		switch {
		case tuned.Name == tunedv1.DefaultName:
			state = StateOf(&tuned)
		case !slices.ContainsFunc(more, func(other tunedv1.Tuned) bool { return other.Name == tuned.Name }):
			tuneds = append(tuneds, tuned)
		}
	}
	for _, tuned := range more {
		if tuned.Name == tunedv1.DefaultName {
			return nil, "", fmt.Errorf("metadata.name of Tuned %s: the operator writes it, and only its spec.managementState is yours; give the Tuned another name", tuned.Name)
		}
	}
	tuneds = append(tuneds, more...)
	if faults := Faults(tuneds); len(faults) > 0 {
		return nil, "", errors.New(Told(faults))
	}
	return append(tuneds, *Default()), state, nil
}

// Told tells Faults, a line for each Tuned.
func Told(faults map[string][]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		texts = append(texts, fmt.Sprintf("Tuned %s: %s", name, strings.Join(faults[name], "; ")))
	}
	return strings.Join(texts, "\n")
}

// Faults are what is wrong with the Tuneds that users of an ordinary cluster wrote there, by the names of the Tuneds. If there are
// any, none of the Tuneds counts.
func Faults(tuneds []tunedv1.Tuned) map[string][]string {
	faults := map[string][]string{}
	for _, tuned := range tuneds {
		tuned.Status = tunedv1.TunedStatus{}
		errs := manifest.ValidateTuned(&tuned)
		for i, entry := range tuned.Spec.Recommend {
			if len(entry.MachineConfigLabels) > 0 && len(entry.Match) == 0 {
				// It would match every node, and was meant for those of some MachineConfigPools.
				path := field.NewPath("spec", "recommend").Index(i)
				errs = append(errs, field.Invalid(path.Child("machineConfigLabels"), entry.MachineConfigLabels, "MachineConfigPools are not looked at; write the nodes' labels to match"))
			}
		}
		for _, err := range errs {
			faults[tuned.Name] = append(faults[tuned.Name], err.Error())
		}
	}
	profiles := map[string]map[string][]string{} // the names of Tuneds, by profile and data
	for _, tuned := range tuneds {
		for _, profile := range tuned.Spec.Profile {
			if profiles[profile.Name] == nil {
				profiles[profile.Name] = map[string][]string{}
			}
			profiles[profile.Name][profile.Data] = append(profiles[profile.Name][profile.Data], tuned.Name)
		}
	}
	for _, profile := range slices.Sorted(maps.Keys(profiles)) {
		if len(profiles[profile]) < 2 {
			continue
		}
		names := slices.Concat(slices.Collect(maps.Values(profiles[profile]))...)
		slices.Sort(names)
		names = slices.Compact(names)
		for _, name := range names {
			faults[name] = append(faults[name], fmt.Sprintf("spec.profile: the profile %s differs between the Tuneds %s; rename it in one of them", profile, strings.Join(names, " and ")))
		}
	}
	return faults
}
