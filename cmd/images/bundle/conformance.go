// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	_ "embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// conformancePage is the page of the documentation that says what became of upstream's conformance suite.
const conformancePage = "docs/user/conformance.md"

//go:embed conformance.md.tmpl
var conformanceText string

var conformanceTemplate = template.Must(template.New(conformancePage).Parse(conformanceText))

// conformanceRow is what became of the suite with one release. It has no Sides if it did not run.
type conformanceRow struct {
	Release, Binaries string
	// Specs is how many ran; if that is not the whole suite, "98 of 462".
	Specs string
	Sides []conformanceSide
}

// conformanceSide is one of the two clusters.
type conformanceSide struct {
	Name   string
	Ran    bool
	Passed int
	// Others are the names of the specs that did not pass, sorted.
	Others []string
}

// partly matches the end of the title of a run that was not the whole suite (test/conformance/side.go).
var partly = regexp.MustCompile(`, (\d+ of \d+) specs$`)

// labels matches those that Ginkgo adds to a spec's name.
var labels = regexp.MustCompile(` \[[^\[\]]+, [^\[\]]+\]$`)

// conformance returns the page, of the JUnit files of this checkout. versions are those of the binaries, by release.
func (o Options) conformance(releases []string, versions map[string]string) (string, error) {
	var rows []conformanceRow
	for _, release := range releases {
		files, err := o.junit(release, "conformance", versions[release])
		if err != nil {
			return "", err
		}
		row := conformanceRow{Release: release, Binaries: versions[release]}
		for _, name := range []string{"partitioned", "unpatched"} {
			file, ran := files[name]
			side := conformanceSide{Name: name, Ran: ran}
			if ran {
				row.Specs = file.count(&side)
			}
			row.Sides = append(row.Sides, side)
		}
		if len(files) == 0 {
			row.Sides = nil
		}
		rows = append(rows, row)
	}
	var text strings.Builder
	err := conformanceTemplate.Execute(&text, map[string]any{"Version": o.Version, "Rows": rows})
	return text.String(), err
}

// count fills in what became of the specs, and returns how many ran.
func (f junit) count(side *conformanceSide) string {
	suite := f.Suites[0]
	for _, one := range suite.Cases {
		if one.Status == "passed" {
			side.Passed++
			continue
		}
		side.Others = append(side.Others, labels.ReplaceAllString(strings.TrimPrefix(one.Name, "[It] "), ""))
	}
	slices.Sort(side.Others)
	if part := partly.FindStringSubmatch(suite.Name); part != nil {
		return part[1]
	}
	return strconv.Itoa(len(suite.Cases))
}
