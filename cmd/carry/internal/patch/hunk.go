package patch

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Hunk is a change of a few lines that stand together, and what stands around them.
type Hunk struct {
	// Line is that of the patch file, and OldStart that of the old file, from 1.
	Line, OldStart, newStart int
	// Heading is the declaration that the change is in.
	Heading string
	Lines   []Line
}

var hunkHeader = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)$`)

// Hunks splits a file's diff.
func (d FileDiff) Hunks() ([]Hunk, error) {
	var hunks []Hunk
	for _, line := range d.Lines {
		if line.Op != '@' {
			hunks[len(hunks)-1].Lines = append(hunks[len(hunks)-1].Lines, line)
			continue
		}
		match := hunkHeader.FindStringSubmatch(line.Text)
		if match == nil {
			return nil, fmt.Errorf("line %d: %q is not the head of a hunk", line.Number, line.Text)
		}
		oldStart, _ := strconv.Atoi(match[1])
		newStart, _ := strconv.Atoi(match[2])
		hunks = append(hunks, Hunk{Line: line.Number, OldStart: oldStart, newStart: newStart, Heading: match[3]})
	}
	return hunks, nil
}

// Context returns how many lines of context the hunk starts and ends with.
func (h Hunk) Context() (lead, trail int) {
	changed := func(l Line) bool { return l.Op != ' ' }
	lead = slices.IndexFunc(h.Lines, changed)
	backward := slices.Clone(h.Lines)
	slices.Reverse(backward)
	return lead, slices.IndexFunc(backward, changed)
}

// trimmed is the hunk with less context.
func (h Hunk) trimmed(lead, trail int) Hunk {
	hadLead, hadTrail := h.Context()
	h.Lines = h.Lines[hadLead-lead : len(h.Lines)-(hadTrail-trail)]
	h.OldStart += hadLead - lead
	h.newStart += hadLead - lead
	return h
}

// Places returns the lines, from 0, at which the hunk fits into a file.
func (h Hunk) Places(file []string) []int {
	var before []string
	for _, line := range h.Lines {
		if line.Op != '+' {
			before = append(before, line.Text)
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

func (h Hunk) String() string {
	var text strings.Builder
	before, after := 0, 0
	for _, line := range h.Lines {
		if line.Op != '+' {
			before++
		}
		if line.Op != '-' {
			after++
		}
		fmt.Fprintf(&text, "%c%s\n", line.Op, line.Text)
	}
	head := fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.OldStart, before, h.newStart, after)
	return strings.TrimSpace(head+" "+h.Heading) + "\n" + text.String()
}

// Declaration returns the line of a file that opens the declaration around a line.
func Declaration(file []string, at int) string {
	for i := min(at, len(file)-1); i >= 0; i-- {
		if line := file[i]; line != "" && (line[0] >= 'a' && line[0] <= 'z' || line[0] >= 'A' && line[0] <= 'Z') {
			return line
		}
	}
	return ""
}

// declared matches the name in such a line. Releases differ in the parameters of functions.
var declared = regexp.MustCompile(`^(?:func (?:\(\w* ?\*?(\w+)[^)]*\) *)?|var |type |const )?(\w+)`)

// DeclaredName is the name in a line that opens a declaration.
func DeclaredName(line string) string {
	switch match := declared.FindStringSubmatch(line); {
	case match == nil:
		return line
	case match[1] != "":
		return match[1] + "." + match[2]
	default:
		return match[2]
	}
}

// Shared trims the context of a hunk to the most, up to what it has, that fits once into
// each of the given files. Files into which it fits in no way have no say.
func (h Hunk) Shared(files [][]string) Hunk {
	lead, trail := h.Context()
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
	fits := func(file []string, size [2]int) bool { return len(h.trimmed(size[0], size[1]).Places(file)) == 1 }
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

// HunkAt returns the hunk of a file that starts at the given line of the old file.
func (p Patch) HunkAt(path, line string) string {
	var hunk []string
	for _, file := range p.Files {
		if file.Path != path {
			continue
		}
		in := false
		for _, l := range file.Lines {
			if l.Op == '@' {
				if in = strings.HasPrefix(l.Text, "@@ -"+line+","); in {
					hunk = append(hunk, fmt.Sprintf("%s:%d: %s", p.Path, l.Number, l.Text))
				}
			} else if in {
				hunk = append(hunk, string(l.Op)+l.Text)
			}
		}
	}
	return strings.Join(hunk, "\n")
}
