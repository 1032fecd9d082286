// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"cmp"
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
	// oldShort and newShort are set where the head leaves the count out, as git does for
	// a single line.
	oldShort, newShort bool
	// Heading is the declaration that the change is in.
	Heading string
	Lines   []Line
}

const number = `(0|[1-9][0-9]{0,8})`

var hunkHead = regexp.MustCompile(`^@@ -` + number + `(?:,` + number + `)? \+` + number + `(?:,` + number + `)? @@(?: (.+))?$`)

// Hunks splits a file's diff. What it accepts is printed as it was read.
//
// Libraries such as go-diff and go-gitdiff read hunks, too, but print headers in their own form. Here
// every byte must come back (FuzzHunks), since `carry tree` and `carry export` are inverse. And a hunk
// is placed by its declaration and its lines, without the fuzz of patch(1).
func (d FileDiff) Hunks() ([]Hunk, error) {
	var hunks []Hunk
	// left is how many lines of the old and the new file the last head still announces.
	var left [2]int
	complete := func() error {
		if len(hunks) == 0 {
			return nil
		}
		last := hunks[len(hunks)-1]
		if left != [2]int{} {
			return fmt.Errorf("line %d: the hunk is shorter than its header says", last.Line)
		}
		if lead, _ := last.Context(); lead < 0 {
			return fmt.Errorf("line %d: the hunk changes nothing", last.Line)
		}
		return nil
	}
	for _, line := range d.Lines {
		switch line.Op {
		case '@':
			if err := complete(); err != nil {
				return nil, err
			}
			match := hunkHead.FindStringSubmatch(line.Text)
			if match == nil {
				return nil, fmt.Errorf("line %d: %q is not the header of a hunk", line.Number, line.Text)
			}
			h := Hunk{Line: line.Number, oldShort: match[2] == "", newShort: match[4] == "", Heading: match[5]}
			// They have nine digits at most.
			h.OldStart, _ = strconv.Atoi(match[1])
			h.newStart, _ = strconv.Atoi(match[3])
			left[0], _ = strconv.Atoi(cmp.Or(match[2], "1"))
			left[1], _ = strconv.Atoi(cmp.Or(match[4], "1"))
			hunks = append(hunks, h)
			continue
		case ' ':
			left[0]--
			left[1]--
		case '-':
			left[0]--
		case '+':
			left[1]--
		default:
			return nil, fmt.Errorf("line %d: %q is not a line of a hunk; nor can a hunk change the end of a file that does not end with a newline", line.Number, string(line.Op)+line.Text)
		}
		if len(hunks) == 0 {
			return nil, fmt.Errorf("line %d: is before the first hunk", line.Number)
		}
		if left[0] < 0 || left[1] < 0 {
			return nil, fmt.Errorf("line %d: the hunk is longer than its header says", line.Number)
		}
		hunks[len(hunks)-1].Lines = append(hunks[len(hunks)-1].Lines, line)
	}
	return hunks, complete()
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

// String is the hunk as it stands in a patch.
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
	span := func(start, lines int, short bool) string {
		if short && lines == 1 {
			return strconv.Itoa(start)
		}
		return fmt.Sprintf("%d,%d", start, lines)
	}
	head := fmt.Sprintf("@@ -%s +%s @@", span(h.OldStart, before, h.oldShort), span(h.newStart, after, h.newShort))
	if h.Heading != "" {
		head += " " + h.Heading
	}
	return head + "\n" + text.String()
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
// each of the given files. Files into which it fits in no way have no say. Its head has
// all counts.
func (h Hunk) Shared(files [][]string) Hunk {
	h.oldShort, h.newShort = false, false
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

// HunkAt returns the hunk of a file that starts at the given line of the old file, or all hunks if the line is empty.
func (p Patch) HunkAt(path, line string) string {
	var hunk []string
	for _, file := range p.Files {
		if file.Path != path {
			continue
		}
		in := false
		for _, l := range file.Lines {
			if l.Op == '@' {
				if in = line == "" || strings.HasPrefix(l.Text, "@@ -"+line+","); in {
					hunk = append(hunk, fmt.Sprintf("%s:%d: %s", p.Path, l.Number, l.Text))
				}
			} else if in {
				hunk = append(hunk, string(l.Op)+l.Text)
			}
		}
	}
	return strings.Join(hunk, "\n")
}
