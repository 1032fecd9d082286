// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/manifest"
	"workload.openshift.io/operators/performance"
)

// Invalid is the error of a ConfigMap whose manifests are not valid. Then none of them counts.
type Invalid struct {
	// Source is namespace and name of the ConfigMap.
	Source string
	// Problems are in the order of their lines. There is at least one, and each has a document and a line.
	Problems []manifest.Problem
}

// problemsTold is how many problems an error tells.
const problemsTold = 5

func (e *Invalid) Error() string {
	return fmt.Sprintf("ConfigMap %s, key %s: %s", e.Source, tunedv1.TuningKey, e.Told())
}

// Told tells the problems, without their source.
func (e *Invalid) Told() string {
	var texts []string
	for _, problem := range e.Problems {
		texts = append(texts, fmt.Sprintf("document %d, line %d: %s", problem.Document, problem.Line, problem.Text))
	}
	return strings.Join(untrusted.First(texts, problemsTold), "; ")
}

// Parse reads the Tuneds of a NodePool: the YAML documents of the key tuning of a ConfigMap. It returns all of them or, if
// anything is not valid, an *Invalid.
func Parse(source, text string) ([]tunedv1.Tuned, error) {
	tuneds, _, err := parse(source, text, manifest.TunedKind)
	return tuneds, err
}

// ParsePerformanceProfile reads the PerformanceProfile of a NodePool, as Parse reads Tuneds.
func ParsePerformanceProfile(source, text string) (performance.Rendered, error) {
	_, profile, err := parse(source, text, manifest.PerformanceProfileKind)
	if err != nil {
		return performance.Rendered{}, err
	}
	if profile == nil {
		return performance.Rendered{}, fmt.Errorf("ConfigMap %s, key %s: it has no PerformanceProfile", source, tunedv1.TuningKey)
	}
	return *profile, nil
}

// ParseAll reads all that spec.tuningConfig of a NodePool may name, as Parse does. The PerformanceProfile is nil if there is none.
func ParseAll(source, text string) ([]tunedv1.Tuned, *performance.Rendered, error) {
	return parse(source, text, manifest.TunedKind, manifest.PerformanceProfileKind)
}

func parse(source, text string, kinds ...string) (tuneds []tunedv1.Tuned, profile *performance.Rendered, err error) {
	manifests, problems := manifest.Split(source, tunedv1.TuningKey, text)
	var ofTuneds []manifest.Manifest
	for _, m := range manifests {
		switch {
		case !slices.ContainsFunc(kinds, m.Is):
			problems = append(problems, m.ProblemAt("kind", "kind: %q of apiVersion %q cannot be used here; what can is %s", m.Kind, m.APIVersion, strings.Join(kinds, ", ")))
		case m.Is(manifest.TunedKind):
			tuned, wrong := m.Tuned()
			if problems = append(problems, wrong...); len(wrong) == 0 {
				tuneds, ofTuneds = append(tuneds, *tuned), append(ofTuneds, m)
			}
		default:
			rendered, wrong := m.PerformanceProfile()
			if profile != nil {
				wrong = append(wrong, m.ProblemAt("metadata.name", "a NodePool takes one PerformanceProfile, and %s is there already; remove one of them", profile.Name))
			}
			problems = append(problems, wrong...)
			profile = &rendered
		}
	}
	problems = append(problems, conflicts(tuneds, ofTuneds)...)
	if len(problems) > 0 {
		slices.SortStableFunc(problems, func(a, b manifest.Problem) int { return cmp.Compare(a.Line, b.Line) })
		return nil, nil, &Invalid{source, problems}
	}
	return tuneds, profile, nil
}

// conflicts are names that two Tuneds use for different things.
func conflicts(tuneds []tunedv1.Tuned, manifests []manifest.Manifest) (problems []manifest.Problem) {
	named := map[string][]int{}
	type profile struct{ tuned, index int }
	profiles := map[string][]profile{}
	for i, tuned := range tuneds {
		named[tuned.Name] = append(named[tuned.Name], i)
		for k, p := range tuned.Spec.Profile {
			profiles[p.Name] = append(profiles[p.Name], profile{i, k})
		}
	}
	add := func(i int, path *field.Path, name, text string) {
		err := field.Invalid(path, name, text)
		problems = append(problems, manifests[i].ProblemAt(err.Field, "%v", err))
	}
	for name, all := range named {
		if len(all) < 2 {
			continue
		}
		for _, i := range all {
			add(i, field.NewPath("metadata", "name"), name, "two Tuneds of the NodePool have this name; rename one of them")
		}
	}
	for name, all := range profiles {
		data := map[string]bool{}
		for _, p := range all {
			data[tuneds[p.tuned].Spec.Profile[p.index].Data] = true
		}
		if len(data) < 2 {
			continue
		}
		for _, p := range all {
			add(p.tuned, field.NewPath("spec", "profile").Index(p.index).Child("name"), name, "two profiles of the NodePool have this name and different data; rename one of them")
		}
	}
	return problems
}
