// SPDX-License-Identifier: Apache-2.0

// Package patch reads patches as `git format-patch` writes them, and knows where their
// hunks fit. It must not know where a patch comes from, nor what it is allowed to do.
package patch

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Patch is one file of a series.
type Patch struct {
	// Name is the file's base name; Path is relative to the project.
	Name, Path string
	Data       []byte
	Message    string
	// MessageLine is the file's line on which the message starts, from 1.
	MessageLine int
	Files       []FileDiff
}

// FileDiff is a patch's change of one file.
type FileDiff struct {
	Path  string
	Line  int
	Extra []Line // headers that a change of content does not have: new file, rename, mode
	Lines []Line
}

// Line is a line of a diff with its number in the patch file.
type Line struct {
	Number int
	Op     byte // '+', '-', ' ', '@', or '\\' for git's remark that a newline is missing
	Text   string
}

// diffLine reads a line of a diff. There are others in a patch, such as git's signature.
func diffLine(number int, text string) (Line, bool) {
	switch {
	case strings.HasPrefix(text, "@@"):
		return Line{number, '@', text}, true
	case text != "" && strings.ContainsRune(`+- \`, rune(text[0])):
		return Line{number, text[0], text[1:]}, true
	}
	return Line{}, false
}

// Added returns the lines that the change adds.
func (d FileDiff) Added() (added []Line) {
	for _, line := range d.Lines {
		if line.Op == '+' {
			added = append(added, line)
		}
	}
	return added
}

var (
	subjectPrefix = regexp.MustCompile(`^\[PATCH[^\]]*\] *`)
	diffHeader    = regexp.MustCompile(`^diff --git a/(\S+) b/(\S+)$`)
)

// Parse reads a file as `git format-patch` writes it.
func Parse(path string, data []byte) (Patch, error) {
	p := Patch{Name: filepath.Base(path), Path: path, Data: data}
	var message []string
	const (
		inHeader = iota
		inMessage
		inDiff
	)
	state, number := inHeader, 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSuffix(line, "\n")
		switch state {
		case inHeader:
			if subject, ok := strings.CutPrefix(line, "Subject: "); ok {
				message = append(message, subjectPrefix.ReplaceAllString(subject, ""))
				p.MessageLine = number
			} else if strings.HasPrefix(line, " ") && len(message) == 1 {
				message[0] += line
			} else if line == "" {
				state = inMessage
				message = append(message, "")
			}
		case inMessage:
			if line == "---" {
				state = inDiff
				break
			}
			message = append(message, line)
		case inDiff:
			if match := diffHeader.FindStringSubmatch(line); match != nil {
				p.Files = append(p.Files, FileDiff{Path: match[2], Line: number})
				break
			}
			if len(p.Files) == 0 || line == "-- " { // the second is git's signature
				break
			}
			file := &p.Files[len(p.Files)-1]
			parsed, ok := diffLine(number, line)
			switch {
			case len(file.Lines) == 0 && (!ok || parsed.Op != '@'):
				if !strings.HasPrefix(line, "index ") && !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "+++ ") {
					file.Extra = append(file.Extra, Line{number, ' ', line})
				}
			case ok:
				file.Lines = append(file.Lines, parsed)
			}
		}
	}
	p.Message = strings.TrimSpace(strings.Join(message, "\n")) + "\n"
	if p.MessageLine == 0 || len(p.Files) == 0 {
		return p, fmt.Errorf("%s: is not a patch as carry export writes it: a Subject, a message, --- and a diff", path)
	}
	return p, nil
}
