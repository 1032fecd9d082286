package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// size is that of the series for a release.
type size struct {
	release                                          string
	patches, overrides, files, hunks, added, removed int
}

func (p project) size(release string) (size, error) {
	series, err := p.readSeries(release)
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
	if filepath.Dir(p.path) == "patches" {
		return "common"
	}
	return "override"
}

func (p project) stats(releases []string) error {
	fmt.Printf("%-10s %7s %9s %14s %5s %11s %13s\n", "RELEASE", "PATCHES", "OVERRIDES", "UPSTREAM FILES", "HUNKS", "LINES ADDED", "LINES REMOVED")
	for _, release := range releases {
		s, err := p.size(release)
		if err != nil {
			return err
		}
		fmt.Printf("%-10s %7d %9d %14d %5d %11d %13d\n", s.release, s.patches, s.overrides, s.files, s.hunks, s.added, s.removed)
	}
	overrides, err := p.overrides()
	fmt.Printf("%d override files in all\n", len(overrides))
	return err
}

func (p project) overrides() ([]string, error) {
	files, err := p.patchFiles()
	return slices.DeleteFunc(files, func(path string) bool { return filepath.Dir(path) == "patches" }), err
}

// budgetPath is a file of names and the most that each may be, for any release. The
// series grows by a decision: one who changes it.
var budgetPath = filepath.Join("patches", "budget")

// overBudget compares the series with the budget. There is a finding for what is more,
// and for a budget that is not read.
func (p project) overBudget() ([]finding, error) {
	data, err := os.ReadFile(p.path(budgetPath))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	releases, err := p.releases()
	if err != nil {
		return nil, err
	}
	overrides, err := p.overrides()
	if err != nil {
		return nil, err
	}
	most := map[string]int{"override-files": len(overrides)}
	at := map[string]string{}
	for _, release := range releases {
		s, err := p.size(release)
		if err != nil {
			return nil, err
		}
		for name, value := range map[string]int{"patches": s.patches, "upstream-files": s.files, "hunks": s.hunks, "lines-added": s.added, "lines-removed": s.removed} {
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
			findings = append(findings, finding{budgetPath, number, fmt.Sprintf("%q is not a name and the most that it may be", strings.TrimSpace(line))})
		case is > limit:
			findings = append(findings, finding{budgetPath, number, fmt.Sprintf("%s is %d%s, and may be %d", fields[0], is, at[fields[0]], limit)})
		}
	}
	return findings, nil
}
