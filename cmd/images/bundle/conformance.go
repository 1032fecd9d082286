// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// conformancePage is the page of the documentation that says what became of upstream's conformance suite.
const conformancePage = "docs/user/conformance.md"

//go:embed conformance.md.tmpl
var conformanceText string

var conformanceTemplate = template.Must(template.New(conformancePage).Parse(conformanceText))

// conformanceRow is what became of the suite with one release.
type conformanceRow struct {
	Release, Binaries string
	Sides             []conformanceSide
}

// conformanceSide is one of the two clusters.
type conformanceSide struct {
	Name string
	// Passed is how many specs passed of those that ran, such as "460 of 462"; empty if none ran.
	Passed string
	// Others are the names of the specs that did not pass, sorted.
	Others []string
}

// partly matches the end of the title of a run that was not the whole suite, and how many specs that has
// (test/conformance/side.go).
var partly = regexp.MustCompile(`, \d+ of (\d+) specs$`)

// labels matches those that Ginkgo adds to a spec's name.
var labels = regexp.MustCompile(` \[[^\[\]]+, [^\[\]]+\]$`)

// conformance returns the page for a version. versions are those of the binaries, by release.
func conformance(version string, releases []string, versions map[string]string, found junitFiles) (string, error) {
	var rows []conformanceRow
	for _, release := range releases {
		row := conformanceRow{Release: release, Binaries: versions[release]}
		for _, name := range []string{"partitioned", "unpatched"} {
			side := conformanceSide{Name: name}
			if file, ran := found[release]["conformance"][name]; ran {
				side.Passed, side.Others = file.outcome()
			}
			row.Sides = append(row.Sides, side)
		}
		rows = append(rows, row)
	}
	var text strings.Builder
	err := conformanceTemplate.Execute(&text, map[string]any{"Version": version, "Rows": rows})
	return text.String(), err
}

// outcome returns how many of the specs that ran have passed, and which have not.
func (f junit) outcome() (passed string, others []string) {
	suite := f.Suites[0]
	for _, one := range suite.Cases {
		if one.Status != "passed" {
			others = append(others, labels.ReplaceAllString(strings.TrimPrefix(one.Name, "[It] "), ""))
		}
	}
	slices.Sort(others)
	passed = fmt.Sprintf("%d of %d", len(suite.Cases)-len(others), len(suite.Cases))
	if part := partly.FindStringSubmatch(suite.Name); part != nil {
		passed += ", of a suite of " + part[1]
	}
	return passed, others
}
