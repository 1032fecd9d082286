// SPDX-License-Identifier: Apache-2.0

package series

import (
	"fmt"
	"path/filepath"
	"slices"

	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// Size is that of the series for a release.
type Size struct {
	Release                                          string
	Patches, Overrides, Files, Hunks, Added, Removed int
}

// Budget is the size in the words of the budget.
func (s Size) Budget() map[string]int {
	return map[string]int{
		project.BudgetPatches: s.Patches, project.BudgetUpstreamFiles: s.Files, project.BudgetHunks: s.Hunks,
		project.BudgetLinesAdded: s.Added, project.BudgetLinesRemoved: s.Removed,
	}
}

// SizeOf measures the series for a release.
func SizeOf(c project.Checkout, release string) (Size, error) {
	patches, err := Read(c, release)
	if err != nil {
		return Size{}, err
	}
	s := SizeOfAll(patches)
	s.Release = release
	return s, nil
}

// SizeOfAll measures patches.
func SizeOfAll(patches []patch.Patch) Size {
	s := Size{Patches: len(patches)}
	files := map[string]bool{}
	for _, p := range patches {
		if KindOf(p) == Override {
			s.Overrides++
		}
		for _, file := range p.Files {
			files[file.Path] = true
			for _, line := range file.Lines {
				switch line.Op {
				case '@':
					s.Hunks++
				case '+':
					s.Added++
				case '-':
					s.Removed++
				}
			}
		}
	}
	s.Files = len(files)
	return s
}

// Kind says what a patch is for a release.
type Kind string

const (
	Common   Kind = "common"
	Override Kind = "override"
	// Unneeded is a patch that the release does not have, since upstream has the change.
	Unneeded Kind = "dropped"
)

// KindOf knows an override by where its file lies.
func KindOf(p patch.Patch) Kind {
	if filepath.Dir(p.Path) == project.PatchesDir {
		return Common
	}
	return Override
}

// PrintSizes prints a table of the sizes for releases. Numbers stand to the right below their titles,
// and releases to the left: tabwriter aligns all columns to one side.
func PrintSizes(c project.Checkout, releases []string) error {
	fmt.Printf("%-10s %7s %9s %14s %5s %11s %13s\n", "RELEASE", "PATCHES", "OVERRIDES", "UPSTREAM FILES", "HUNKS", "LINES ADDED", "LINES REMOVED")
	for _, release := range releases {
		s, err := SizeOf(c, release)
		if err != nil {
			return err
		}
		fmt.Printf("%-10s %7d %9d %14d %5d %11d %13d\n", s.Release, s.Patches, s.Overrides, s.Files, s.Hunks, s.Added, s.Removed)
	}
	overrides, err := Overrides(c)
	fmt.Printf("%d override files in all\n", len(overrides))
	return err
}

// Overrides lists the patch files that are not common.
func Overrides(c project.Checkout) ([]string, error) {
	files, err := Files(c)
	return slices.DeleteFunc(files, func(path string) bool { return filepath.Dir(path) == project.PatchesDir }), err
}
