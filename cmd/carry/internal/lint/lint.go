// SPDX-License-Identifier: Apache-2.0

// Package lint finds what breaks the rules of the series: in the directory of patches, in
// each patch, in the size of the whole, and in the dependencies of a tree. It changes
// no patch, and must not know how a finding is fixed.
package lint

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Finding is a breach of the rules, at a line of a file of the project.
type Finding struct {
	path string
	line int
	text string
}

func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.text) }

// Findings are those of all patches, and of one release's tree.
func Findings(ctx context.Context, t *tree.Tree) ([]Finding, error) {
	findings, err := checkDirectory(t.Project)
	if err != nil {
		return nil, err
	}
	patches, err := series.All(t.Project)
	if err != nil {
		return nil, err
	}
	for _, p := range patches {
		findings = append(findings, checkPatch(p)...)
	}
	absent, err := checkTests(t.Project, patches)
	if err != nil {
		return nil, err
	}
	findings = append(findings, absent...)
	over, err := checkBudget(t.Project)
	if err != nil {
		return nil, err
	}
	findings = append(findings, over...)
	if err := t.Update(ctx); err != nil {
		return nil, err
	}
	raised, err := checkDependencies(ctx, t)
	return append(findings, raised...), err
}

var numbered = regexp.MustCompile(`^[0-9]+[-_.]`)

// checkDirectory checks that the order file and the files agree.
func checkDirectory(c project.Checkout) ([]Finding, error) {
	var findings []Finding
	names, err := series.Order(c)
	if err != nil {
		return nil, err
	}
	files, err := series.Files(c)
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		name := filepath.Base(path)
		if !slices.Contains(names, name) {
			findings = append(findings, Finding{path, 1, "patches/series does not list it"})
		}
		if numbered.MatchString(name) {
			findings = append(findings, Finding{path, 1, "has a number; patches/series sets the order"})
		}
	}
	for i, name := range names {
		if !slices.Contains(files, filepath.Join(project.PatchesDir, name)) {
			findings = append(findings, Finding{project.SeriesFile, i + 1, name + " does not exist"})
		}
	}
	return findings, nil
}
