package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// size is that of the series for a release.
type size struct {
	release                                          string
	patches, overrides, files, hunks, added, removed int
}

// budget is the size in the words of the budget.
func (s size) budget() map[string]int {
	return map[string]int{
		project.BudgetPatches: s.patches, project.BudgetUpstreamFiles: s.files, project.BudgetHunks: s.hunks,
		project.BudgetLinesAdded: s.added, project.BudgetLinesRemoved: s.removed,
	}
}

func sizeOf(p project.Checkout, release string) (size, error) {
	series, err := readSeries(p, release)
	if err != nil {
		return size{}, err
	}
	s := size{release: release, patches: len(series)}
	files := map[string]bool{}
	for _, p := range series {
		if p.kind() == "override" {
			s.overrides++
		}
		for _, file := range p.files {
			files[file.path] = true
			for _, line := range file.lines {
				switch line.op {
				case '@':
					s.hunks++
				case '+':
					s.added++
				case '-':
					s.removed++
				}
			}
		}
	}
	s.files = len(files)
	return s, nil
}

// kind tells whether a patch is common or an override.
func (p patch) kind() string {
	if filepath.Dir(p.path) == project.PatchesDir {
		return "common"
	}
	return "override"
}

func printStats(p project.Checkout, releases []string) error {
	fmt.Printf("%-10s %7s %9s %14s %5s %11s %13s\n", "RELEASE", "PATCHES", "OVERRIDES", "UPSTREAM FILES", "HUNKS", "LINES ADDED", "LINES REMOVED")
	for _, release := range releases {
		s, err := sizeOf(p, release)
		if err != nil {
			return err
		}
		fmt.Printf("%-10s %7d %9d %14d %5d %11d %13d\n", s.release, s.patches, s.overrides, s.files, s.hunks, s.added, s.removed)
	}
	overrides, err := overrideFiles(p)
	fmt.Printf("%d override files in all\n", len(overrides))
	return err
}

func overrideFiles(p project.Checkout) ([]string, error) {
	files, err := patchFiles(p)
	return slices.DeleteFunc(files, func(path string) bool { return filepath.Dir(path) == project.PatchesDir }), err
}

// overBudget compares the series with the budget, a file of names and the most that each
// may be, for any release. There is a finding for what is more, and for a line that is
// not understood. The series grows by a decision: one that changes the file.
func overBudget(p project.Checkout) ([]finding, error) {
	data, err := os.ReadFile(p.Path(project.BudgetFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	releases, err := p.Releases()
	if err != nil {
		return nil, err
	}
	overrides, err := overrideFiles(p)
	if err != nil {
		return nil, err
	}
	most := map[string]int{project.BudgetOverrideFiles: len(overrides)}
	at := map[string]string{}
	for _, release := range releases {
		s, err := sizeOf(p, release)
		if err != nil {
			return nil, err
		}
		for name, value := range s.budget() {
			if value > most[name] || at[name] == "" {
				most[name], at[name] = value, " in "+release
			}
		}
	}
	var findings []finding
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		is, known := most[fields[0]]
		limit, err := 0, errors.New("no number")
		if len(fields) == 2 {
			limit, err = strconv.Atoi(fields[1])
		}
		switch {
		case !known || err != nil:
			findings = append(findings, finding{project.BudgetFile, number, fmt.Sprintf("%q is not a name and the most that it may be", strings.TrimSpace(line))})
		case is > limit:
			findings = append(findings, finding{project.BudgetFile, number, fmt.Sprintf("%s is %d%s, and may be %d", fields[0], is, at[fields[0]], limit)})
		}
	}
	return findings, nil
}
