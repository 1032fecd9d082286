package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// hunk is a change of a few lines that stand together, and what stands around them.
type hunk struct {
	// line is that of the patch file, and heading the declaration that the change is in.
	line, oldStart, newStart int
	heading                  string
	lines                    []diffLine
}

var hunkHeader = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)$`)

// hunks splits a file's diff.
func (d fileDiff) hunks() ([]hunk, error) {
	var hunks []hunk
	for _, line := range d.lines {
		if line.op != '@' {
			hunks[len(hunks)-1].lines = append(hunks[len(hunks)-1].lines, line)
			continue
		}
		match := hunkHeader.FindStringSubmatch(line.text)
		if match == nil {
			return nil, fmt.Errorf("line %d: %q is not the head of a hunk", line.line, line.text)
		}
		oldStart, _ := strconv.Atoi(match[1])
		newStart, _ := strconv.Atoi(match[2])
		hunks = append(hunks, hunk{line: line.line, oldStart: oldStart, newStart: newStart, heading: match[3]})
	}
	return hunks, nil
}

// context returns how many lines of context the hunk starts and ends with.
func (h hunk) context() (lead, trail int) {
	changed := func(l diffLine) bool { return l.op != ' ' }
	lead = slices.IndexFunc(h.lines, changed)
	backward := slices.Clone(h.lines)
	slices.Reverse(backward)
	return lead, slices.IndexFunc(backward, changed)
}

// trimmed is the hunk with less context.
func (h hunk) trimmed(lead, trail int) hunk {
	hadLead, hadTrail := h.context()
	h.lines = h.lines[hadLead-lead : len(h.lines)-(hadTrail-trail)]
	h.oldStart += hadLead - lead
	h.newStart += hadLead - lead
	return h
}

// places returns the lines, from 0, at which the hunk fits into a file.
func (h hunk) places(file []string) []int {
	var before []string
	for _, line := range h.lines {
		if line.op != '+' {
			before = append(before, line.text)
		}
	}
	var places []int
	for at := range len(file) - len(before) + 1 {
		if slices.Equal(file[at:at+len(before)], before) {
			places = append(places, at)
		}
	}
	return places
}

func (h hunk) String() string {
	var text strings.Builder
	before, after := 0, 0
	for _, line := range h.lines {
		if line.op != '+' {
			before++
		}
		if line.op != '-' {
			after++
		}
		fmt.Fprintf(&text, "%c%s\n", line.op, line.text)
	}
	head := fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.oldStart, before, h.newStart, after)
	return strings.TrimSpace(head+" "+h.heading) + "\n" + text.String()
}

// declaration returns the line of a file that opens the declaration around a line.
func declaration(file []string, at int) string {
	for i := min(at, len(file)-1); i >= 0; i-- {
		if line := file[i]; line != "" && (line[0] >= 'a' && line[0] <= 'z' || line[0] >= 'A' && line[0] <= 'Z') {
			return line
		}
	}
	return ""
}

// declared is the name in such a line. Releases differ in the parameters of functions.
var declared = regexp.MustCompile(`^(?:func (?:\(\w* ?\*?(\w+)[^)]*\) *)?|var |type |const )?(\w+)`)

func declaredName(line string) string {
	switch match := declared.FindStringSubmatch(line); {
	case match == nil:
		return line
	case match[1] != "":
		return match[1] + "." + match[2]
	default:
		return match[2]
	}
}

// shareContext trims the context of each hunk to the most, up to the three lines on
// each side that a diff has, that fits once into the file of each of the given
// releases, so that one patch does for many. Releases into whose file a hunk fits in
// no way have no say. What is left names the declaration that the change is in, and
// place checks that, so that less context is no less certain.
func (t *tree) shareContext(ctx context.Context, c exported, releases []string) ([]byte, error) {
	parsed, err := parsePatch("", c.data)
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(string(c.data), "\n")
	var out strings.Builder
	done := 0
	for _, file := range parsed.files {
		before, err := t.fileAt(ctx, c.id+"^", file.path)
		if err != nil {
			return nil, err
		}
		var files [][]string
		for _, release := range releases {
			theirs, err := treeOf(t.project, release).upstreamFile(ctx, file.path)
			if err != nil {
				return nil, err
			}
			files = append(files, theirs)
		}
		hunks, err := file.hunks()
		if err != nil {
			return nil, err
		}
		for _, h := range hunks {
			lead, _ := h.context()
			h.heading = declaration(before, h.oldStart-1+lead-1)
			h.heading = h.heading[:min(len(h.heading), 80)] // as git does
			out.WriteString(strings.Join(lines[done:h.line-1], ""))
			out.WriteString(h.shared(files).String())
			done = h.line + len(h.lines)
		}
	}
	out.WriteString(strings.Join(lines[done:], ""))
	return []byte(out.String()), nil
}

func (h hunk) shared(files [][]string) hunk {
	lead, trail := h.context()
	var sizes [][2]int
	for l := range lead + 1 {
		for t := min(1, trail); t <= trail; t++ {
			sizes = append(sizes, [2]int{l, t})
		}
	}
	// The most first, and of as many, those that stand before the change.
	slices.SortStableFunc(sizes, func(a, b [2]int) int {
		if more := b[0] + b[1] - a[0] - a[1]; more != 0 {
			return more
		}
		return b[0] - a[0]
	})
	fits := func(file []string, size [2]int) bool { return len(h.trimmed(size[0], size[1]).places(file)) == 1 }
	files = slices.DeleteFunc(slices.Clone(files), func(file []string) bool {
		return !slices.ContainsFunc(sizes, func(size [2]int) bool { return fits(file, size) })
	})
	for _, size := range sizes {
		if !slices.ContainsFunc(files, func(file []string) bool { return !fits(file, size) }) {
			return h.trimmed(size[0], size[1])
		}
	}
	return h
}

// upstreamFile returns the lines of a file as upstream released it; none if there is
// no such file.
func (t *tree) upstreamFile(ctx context.Context, path string) ([]string, error) {
	want, err := pins.Read(t.project, t.release)
	if err != nil {
		return nil, err
	}
	if s, err := t.load(); err != nil {
		return nil, err
	} else if s.Pins == pinsKey(want) {
		return t.fileAt(ctx, s.Upstream, path)
	}
	// The tree need not be there for that.
	modules, _, err := pins.Download(t.project, t.release, want)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(modules[project.UpstreamModule].Dir, path)
	if staged, ok := strings.CutPrefix(path, "staging/src/"); ok {
		for name, m := range modules {
			if rest, in := strings.CutPrefix(staged, name+"/"); in {
				file = filepath.Join(m.Dir, rest)
			}
		}
	}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n"), err
}

func (t *tree) fileAt(ctx context.Context, commit, path string) ([]string, error) {
	content, err := t.git().Run(ctx, "show", commit+":"+path)
	var failed *git.Error
	if errors.As(err, &failed) {
		return nil, nil
	}
	return strings.Split(content, "\n"), err
}

// misplacedError is that of a hunk that git would apply, and that must not be.
type misplacedError struct{ text string }

func (e misplacedError) Error() string { return e.text }

// place checks that each hunk fits into one place of its file, and that this is in the
// declaration that the patch names. git would take the nearest of several.
func (t *tree) place(ctx context.Context, p patch, commit string) error {
	for _, file := range p.files {
		lines, err := t.fileAt(ctx, commit, file.path)
		if err != nil {
			return err
		}
		hunks, err := file.hunks()
		if err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
		for _, h := range hunks {
			places := h.places(lines)
			if len(places) > 1 {
				return misplacedError{fmt.Sprintf("%s:%d: fits into %d places of %s in %s, the first at line %d; export it with more context", p.path, h.line, len(places), file.path, t.release, places[0]+1)}
			}
			if len(places) == 0 || h.heading == "" {
				continue // git says so, or there is nothing to compare.
			}
			lead, _ := h.context()
			if is := declaration(lines, places[0]+lead-1); declaredName(is) != declaredName(h.heading) {
				return misplacedError{fmt.Sprintf("%s:%d: stands in %q, but fits into %s of %s, line %d, in %q", p.path, h.line, declaredName(h.heading), file.path, t.release, places[0]+1, declaredName(is))}
			}
		}
	}
	return nil
}
