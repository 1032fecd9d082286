// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

// notesFile tells users what a version changes for them.
const notesFile = "NOTES.md"

// noteTrailer is the trailer of a commit that users notice: "Release-Note: EFFECT: a sentence".
const noteTrailer = "Release-Note"

// effect is what a change does to users. Notes are those of one version.
type effect struct {
	// Name is what trailers call it.
	Name, Heading string
	// None is said where there are no notes.
	None  string
	Notes []note
}

// note is a sentence of a commit.
type note struct{ Commit, Text string }

// effects are those that there are, with what concerns most first.
func effects() []effect {
	return []effect{
		{Name: "action", Heading: "What you must do", None: "Nothing."},
		{Name: "changed", Heading: "What behaves differently", None: "Nothing."},
		{Name: "new", Heading: "What is new", None: "Nothing."},
		{Name: "fixed", Heading: "Which faults are gone", None: "None that was noted."},
	}
}

//go:embed notes.md.tmpl
var notesText string

var notesTemplate = template.Must(template.New(notesFile).Funcs(template.FuncMap{"join": strings.Join}).Parse(notesText))

// notes returns the notes of a version as Markdown. Trailers are values of Release-Note, in the order of the commits.
func (s source) notes(version string, trailers []note) (string, error) {
	found := effects()
	for _, trailer := range trailers {
		name, text, _ := strings.Cut(trailer.Text, ":")
		text = strings.TrimSpace(text)
		known := false
		for i := range found {
			if found[i].Name == name && text != "" {
				found[i].Notes, known = append(found[i].Notes, note{trailer.Commit, text}), true
			}
		}
		if !known {
			return "", fmt.Errorf("commit %s: trailer %q: want \"%s: EFFECT: a sentence\", with the effect action, changed, new or fixed", trailer.Commit, noteTrailer+": "+trailer.Text, noteTrailer)
		}
	}
	var text strings.Builder
	err := notesTemplate.Execute(&text, map[string]any{"Version": version, "Previous": s.previous, "Releases": s.releases, "Effects": found})
	return text.String(), err
}

// trailers returns the notes in the commits since the previous version.
func (s source) trailers(ctx context.Context, o Options) (found []note, err error) {
	log, err := o.output(ctx, "log", "--reverse", "--no-merges", "--abbrev=10",
		"--format=%h%x1f%(trailers:key="+noteTrailer+",valueonly,unfold,separator=%x1f)", s.since())
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(log) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\x1f")
		for _, text := range fields[1:] {
			if text != "" {
				found = append(found, note{fields[0], text})
			}
		}
	}
	return found, nil
}

// since are the commits since the previous version, as git takes them.
func (s source) since() string {
	if s.previous == "" {
		return s.commit
	}
	return s.previous + ".." + s.commit
}

// notesSince returns the notes of the commits since the previous version.
func (s source) notesSince(ctx context.Context, o Options) (string, error) {
	trailers, err := s.trailers(ctx, o)
	if err != nil {
		return "", err
	}
	return s.notes(o.Version, trailers)
}
