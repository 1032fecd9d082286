// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Known are specs that cannot pass on some kind of host, with the reasons, by their names.
type Known map[string]string

// ParseKnown reads a list: a line for each spec, below a line with "# " and the reason. A line with "#"
// alone ends what a reason is for. Blank lines are ignored.
func ParseKnown(text string) (Known, error) {
	list, err := parse(text, false)
	if err != nil {
		return nil, err
	}
	known := Known{}
	for name, entry := range list {
		known[name] = entry.Reason
	}
	return known, nil
}

// Difference is why a spec ends otherwise on one side, and how.
type Difference struct {
	Reason string
	// Failure matches what it says when it fails there. A failure of another kind is none that is known.
	Failure *regexp.Regexp
}

// Differences are specs that are known to fail on one side alone, by their names.
type Differences map[string]Difference

// ParseDifferences reads a list as [ParseKnown] does. Below each spec is an indented line with the expression of
// its failure.
func ParseDifferences(text string) (Differences, error) {
	differences, err := parse(text, true)
	if err != nil {
		return nil, err
	}
	for name, difference := range differences {
		if difference.Failure == nil {
			return nil, fmt.Errorf("%q has no expression of its failure below it", name)
		}
	}
	return differences, nil
}

// parse reads a list, in which indented lines are expressions, or names like others.
func parse(text string, expressions bool) (Differences, error) {
	list := Differences{}
	reason, last := "", ""
	for number, raw := range strings.Split(text, "\n") {
		line := strings.TrimSpace(raw)
		switch {
		case line == "":
		case expressions && strings.ContainsAny(raw[:1], " \t"):
			entry, is := list[last]
			if !is || entry.Failure != nil {
				return nil, fmt.Errorf("line %d: there is no spec above it, or it has an expression already", number+1)
			}
			failure, err := regexp.Compile(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number+1, err)
			}
			entry.Failure = failure
			list[last] = entry
		case strings.HasPrefix(line, "#"):
			reason = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		case reason == "":
			return nil, fmt.Errorf("line %d: %q has no reason above it", number+1, line)
		case list[line].Reason != "":
			return nil, fmt.Errorf("line %d: %q is there twice", number+1, line)
		default:
			list[line] = Difference{Reason: reason}
			last = line
		}
	}
	return list, nil
}

// Findings are what a person must look at, each in a line for a reader.
type Findings []string

// Judge compares what became of specs with what is known of them. One that skips itself has not passed. A
// spec that is known and passes is a finding, too: the list is to be true.
func Judge(specs []Spec, results *Results, known Known) (findings Findings) {
	for _, spec := range specs {
		if !results.Has(spec.Name) {
			findings = append(findings, fmt.Sprintf("%s\n    has not run", spec.Name))
			continue
		}
		findings = append(findings, judge(spec, results.Passed(spec.Name), known, "\n    "+results.Why(spec.Name))...)
	}
	return findings
}

func judge(spec Spec, passed bool, known Known, why string) Findings {
	reason, is := known[spec.Name]
	switch {
	case !is && !passed:
		return Findings{spec.Name + why}
	case is && passed:
		return Findings{fmt.Sprintf("%s\n    passed, and is known to fail: %s", spec.Name, reason)}
	}
	return nil
}

// Unlisted returns a finding for each spec that is known and does not exist.
func (k Known) Unlisted(specs []Spec) Findings { return unlisted(k, specs) }

// Unlisted does so for those that are known to differ.
func (d Differences) Unlisted(specs []Spec) Findings { return unlisted(d, specs) }

func unlisted[T any](list map[string]T, specs []Spec) (findings Findings) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !slices.ContainsFunc(specs, func(spec Spec) bool { return spec.Name == name }) {
			findings = append(findings, fmt.Sprintf("%s\n    is in a list, and there is no such spec", name))
		}
	}
	return findings
}

// Same returns a finding for each of the specs that is known to differ, and does not.
func (d Differences) Same(specs, differing []Spec) (findings Findings) {
	for _, spec := range specs {
		if difference, is := d[spec.Name]; is && !slices.Contains(differing, spec) {
			findings = append(findings, fmt.Sprintf("%s\n    does not differ, and is known to: %s", spec.Name, difference.Reason))
		}
	}
	return findings
}

// Differing returns the specs of which something else became on one side than on the other.
func Differing(specs []Spec, one, other *Results) (differing []Spec) {
	for _, spec := range specs {
		if one.outcome(spec.Name) != other.outcome(spec.Name) {
			differing = append(differing, spec)
		}
	}
	return differing
}

// Explain reports whether a spec is known to fail on one side and to pass on the other, and did both, as the list says.
func (d Differences) Explain(spec Spec, one, other *Results) bool {
	difference, is := d[spec.Name]
	return is && one.outcome(spec.Name) == didFail && other.outcome(spec.Name) == didPass &&
		difference.Failure.MatchString(one.Specs[spec.Name].Failure.Message)
}

// Compare judges specs that have differed, by how they ran again on both sides. One that mostly ends
// otherwise is a finding. One that mostly ends the same is judged by that, as if it had not differed.
// without says what the other side is without.
func Compare(differing []Spec, one, other []*Results, known Known, without string) (findings Findings) {
	for _, spec := range differing {
		why := "\n    " + Times(spec, one, other, without) + whys(spec, slices.Concat(one, other))
		if usual(spec, one) != usual(spec, other) {
			findings = append(findings, spec.Name+why)
			continue
		}
		findings = append(findings, judge(spec, usual(spec, one) == didPass, known, why)...)
	}
	return findings
}

// JudgeAgain judges specs that have not passed, and are not known, by how they ran again.
func JudgeAgain(specs []Spec, again []*Results) (findings Findings) {
	for _, spec := range specs {
		if usual(spec, again) != didPass {
			passed, times := passes(spec, again)
			findings = append(findings, fmt.Sprintf("%s\n    did not pass, and then passed %d of %d times%s", spec.Name, passed, times, whys(spec, again)))
		}
	}
	return findings
}

// Times says how often a spec passed when it ran again on both sides.
func Times(spec Spec, one, other []*Results, without string) string {
	passed, times := passes(spec, one)
	otherPassed, otherTimes := passes(spec, other)
	return fmt.Sprintf("passed %d of %d times, and %d of %d times %s", passed, times, otherPassed, otherTimes, without)
}

// unsettled is what became of a spec that ended otherwise each time it ran.
const unsettled outcome = "ended otherwise each time"

// usual returns what became of a spec in more than half of the results. It need not have run in each of them.
func usual(spec Spec, results []*Results) outcome {
	times := map[outcome]int{}
	for _, r := range results {
		is := r.outcome(spec.Name)
		if times[is]++; is != notRun && 2*times[is] > len(results) {
			return is
		}
	}
	return unsettled
}

// Undecided returns the specs of which nothing became in more than half of the results yet.
func Undecided(specs []Spec, results []*Results) []Spec {
	return slices.DeleteFunc(slices.Clone(specs), func(spec Spec) bool { return usual(spec, results) != unsettled })
}

// passes returns how often a spec has passed, and how often it has run.
func passes(spec Spec, results []*Results) (passed, times int) {
	for _, r := range results {
		if r.Passed(spec.Name) {
			passed++
		}
		if r.Has(spec.Name) {
			times++
		}
	}
	return passed, times
}

// whys are the different reasons why a spec failed.
func whys(spec Spec, results []*Results) (text string) {
	var said []string
	for _, r := range results {
		if why := r.Why(spec.Name); r.Has(spec.Name) && !r.Passed(spec.Name) && !slices.Contains(said, why) {
			said = append(said, why)
			text += "\n    " + why
		}
	}
	return text
}
