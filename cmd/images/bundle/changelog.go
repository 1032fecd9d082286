// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The table of areas in contributing, by its head, and the heading of subjects that begin with none
// of them.
const (
	contributing = "CONTRIBUTING.md"
	areasHead    = "| area | for |"
	other        = "other"
)

// areas returns the areas that subjects of commits begin with, in the order of the page.
func areas(page string) ([]string, error) {
	_, rest, _ := strings.Cut(page, areasHead+"\n")
	var found []string
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if parts := strings.SplitN(line, "`", 3); len(parts) == 3 && parts[0] == "| " {
			found = append(found, parts[1])
		}
	}
	if len(found) == 0 {
		return nil, errors.New(contributing + " lacks the table of areas, which begins with " + areasHead)
	}
	return found, nil
}

// commit is the name and the subject of a commit.
type commit struct{ name, subject string }

// changelog returns the changelog of a version as Markdown: the subjects of commits, by area, in
// their order, and as they are. binaries are the versions of the releases' binaries.
func (s source) changelog(version string, binaries map[string]string, areas []string, commits []commit) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\n%s, commit %s.\n\n| release | binaries |\n|---|---|\n", version, s.date.UTC().Format(time.DateOnly), s.commit)
	for _, release := range s.releases {
		fmt.Fprintf(&text, "| %s | %s |\n", release, binaries[release])
	}
	since := "the first commit"
	if s.previous != "" {
		since = s.previous
	}
	if len(commits) == 0 {
		fmt.Fprintf(&text, "\nNothing has changed since %s.\n", since)
		return text.String()
	}
	fmt.Fprintf(&text, "\nChanges since %s:\n", since)
	byArea := map[string][]string{}
	for _, c := range commits {
		in, subject := other, c.subject
		if before, rest, found := strings.Cut(c.subject, ": "); found {
			of := strings.Split(before, ", ")
			switch known := slices.Contains(areas, of[0]); {
			case known && len(of) == 1:
				in, subject = of[0], rest
			case known: // the other areas are told
				in = of[0]
			}
		}
		byArea[in] = append(byArea[in], fmt.Sprintf("- %s (%s)\n", subject, c.name))
	}
	for _, area := range append(areas, other) {
		if lines := byArea[area]; len(lines) > 0 {
			fmt.Fprintf(&text, "\n## %s\n\n%s", area, strings.Join(lines, ""))
		}
	}
	return text.String()
}

// writeChangelog writes the changelog of all commits since the previous version.
func (s source) writeChangelog(ctx context.Context, o Options, file string, binaries map[string]string) error {
	page, err := os.ReadFile(filepath.Join(o.Checkout, contributing))
	if err != nil {
		return err
	}
	areas, err := areas(string(page))
	if err != nil {
		return err
	}
	log, err := o.output(ctx, "log", "--reverse", "--no-merges", "--abbrev=10", "--format=%h %s", s.since())
	if err != nil {
		return err
	}
	var commits []commit
	for line := range strings.Lines(log) {
		name, subject, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		commits = append(commits, commit{name, subject})
	}
	return os.WriteFile(file, []byte(s.changelog(o.Version, binaries, areas, commits)), 0o644)
}
