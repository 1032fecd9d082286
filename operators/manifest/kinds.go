// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v2 "workload.openshift.io/operators/api/performance/v2"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
	"workload.openshift.io/operators/performance"
)

// Kinds of manifests, as APIVERSION KIND.
const (
	TunedKind              = "tuned.openshift.io/v1 Tuned"
	PerformanceProfileKind = v2.APIVersion + " " + v2.Kind
)

// Tuned reads a Tuned, which is valid if there are no problems.
func (m Manifest) Tuned() (*tunedv1.Tuned, []Problem) {
	tuned := &tunedv1.Tuned{}
	problems := m.Read(tuned)
	if problems == nil {
		for _, err := range ValidateTuned(tuned) {
			problems = append(problems, m.ProblemAt(err.Field, "%v", err))
		}
	}
	return tuned, problems
}

// PerformanceProfile renders a PerformanceProfile, which is valid if there are no problems.
func (m Manifest) PerformanceProfile() (rendered performance.Rendered, problems []Problem) {
	var profile v2.PerformanceProfile
	if problems := m.Read(&profile); problems != nil {
		return rendered, problems
	}
	rendered, errs := performance.Render(profile)
	for _, err := range errs {
		problems = append(problems, m.ProblemAt(err.Field, "%v", err))
	}
	return rendered, problems
}

// ValidateTuned checks what the schema of a Tuned does not. Errors name the field.
func ValidateTuned(tuned *tunedv1.Tuned) (errs field.ErrorList) {
	name := field.NewPath("metadata", "name")
	if tuned.Name == "" {
		errs = append(errs, field.Required(name, "the name of the Tuned"))
	}
	for _, text := range validation.IsDNS1123Subdomain(tuned.Name) {
		if tuned.Name != "" {
			errs = append(errs, field.Invalid(name, tuned.Name, text))
		}
	}
	if len(tuned.Name) > tunedv1.MaxName {
		errs = append(errs, field.TooLong(name, tuned.Name, tunedv1.MaxName))
	}
	if tuned.Namespace != "" && tuned.Namespace != tunedv1.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "namespace"), tuned.Namespace, "leave it out: all Tuneds are in "+tunedv1.Namespace))
	}
	if value := tuned.Annotations[tunedv1.DeferredAnnotation]; value != "" && !slices.Contains(tunedv1.DeferModes, value) {
		// To apply it at once may be what the annotation asks not to do.
		errs = append(errs, field.NotSupported(field.NewPath("metadata", "annotations").Key(tunedv1.DeferredAnnotation), value, tunedv1.DeferModes))
	}
	if len(tuned.Status.Conditions) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("status"), "the operator writes it"))
	}
	spec := field.NewPath("spec")
	if state := tuned.Spec.ManagementState; state != "" && state != "Managed" {
		errs = append(errs, field.NotSupported(spec.Child("managementState"), state, []string{"Managed"}))
	}
	for i, profile := range tuned.Spec.Profile {
		path := spec.Child("profile").Index(i)
		errs = append(errs, validateProfileName(path.Child("name"), profile.Name)...)
		if strings.TrimSpace(profile.Data) == "" {
			errs = append(errs, field.Required(path.Child("data"), "the content of the profile's tuned.conf"))
		}
	}
	for i, entry := range tuned.Spec.Recommend {
		path := spec.Child("recommend").Index(i)
		errs = append(errs, validateProfileName(path.Child("profile"), entry.Profile)...)
		if entry.Priority < 0 {
			errs = append(errs, field.Invalid(path.Child("priority"), entry.Priority, "must be 0, which is the highest, or more"))
		}
		errs = append(errs, validateMatches(path.Child("match"), entry.Match, 1)...)
	}
	return errs
}

func validateProfileName(path *field.Path, name string) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "the name of a TuneD profile")}
	case len(name) > tunedv1.MaxProfileName:
		return field.ErrorList{field.TooLong(path, name, tunedv1.MaxProfileName)}
	case !tunedv1.IsProfileName(name):
		return field.ErrorList{field.Invalid(path, name, "must have only letters, digits, hyphens, dots and underscores, and begin with no hyphen")}
	}
	return nil
}

func validateMatches(path *field.Path, matches []tunedv1.TunedMatch, depth int) (errs field.ErrorList) {
	if len(matches) > 0 && depth > tunedv1.MaxMatchDepth {
		return field.ErrorList{field.Invalid(path, depth, fmt.Sprintf("rules can be nested %d deep", tunedv1.MaxMatchDepth))}
	}
	for i, match := range matches {
		path := path.Index(i)
		if match.Label == "" {
			errs = append(errs, field.Required(path.Child("label"), "the name of a label"))
		} else {
			for _, text := range validation.IsQualifiedName(match.Label) {
				errs = append(errs, field.Invalid(path.Child("label"), match.Label, text))
			}
		}
		if match.Value != nil {
			for _, text := range validation.IsValidLabelValue(*match.Value) {
				errs = append(errs, field.Invalid(path.Child("value"), *match.Value, text))
			}
		}
		if match.Type != "" && match.Type != tunedv1.MatchNode && match.Type != tunedv1.MatchPod {
			errs = append(errs, field.NotSupported(path.Child("type"), match.Type, []tunedv1.MatchType{tunedv1.MatchNode, tunedv1.MatchPod}))
		}
		errs = append(errs, validateMatches(path.Child("match"), match.Match, depth+1)...)
	}
	return errs
}
