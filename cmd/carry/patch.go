package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// patch is one file of the series.
type patch struct {
	// name is the file's base name; path is relative to the project.
	name, path string
	data       []byte
	message    string
	// messageLine is the file's line on which the message starts, from 1.
	messageLine int
	files       []fileDiff
}

// fileDiff is a patch's change of one file.
type fileDiff struct {
	path  string
	line  int
	extra []diffLine // headers that a change of content does not have: new file, rename, mode
	lines []diffLine
}

// diffLine is a line of a diff with its number in the patch file.
type diffLine struct {
	line int
	op   byte // '+', '-', ' ' or '@'
	text string
}

func (d fileDiff) added() (added []diffLine) {
	for _, line := range d.lines {
		if line.op == '+' {
			added = append(added, line)
		}
	}
	return added
}

// folders returns where patches for a release are looked for, in this order: its own
// folder, that of its minor version, and that of the common ones.
func folders(release string) []string {
	return []string{filepath.Join(project.PatchesDir, release), filepath.Join(project.PatchesDir, project.Minor(release)), project.PatchesDir}
}

// readSeries reads the patches that apply to a release in the order of
// patches/series.
func readSeries(p project.Checkout, release string) ([]patch, error) {
	names, err := readOrder(p)
	if err != nil {
		return nil, err
	}
	dropped, err := readDropped(p, release)
	if err != nil {
		return nil, err
	}
	var series []patch
	for _, name := range names {
		if dropped[name] {
			continue
		}
		path, data, err := readPatch(p, release, name)
		if err != nil {
			return nil, err
		}
		parsed, err := parsePatch(path, data)
		if err != nil {
			return nil, err
		}
		series = append(series, parsed)
	}
	return series, nil
}

// dropped returns the names of the patches that a release does not need.
func readDropped(p project.Checkout, release string) (map[string]bool, error) {
	dropped := map[string]bool{}
	for _, folder := range folders(release) {
		lines, err := readLedger(p, filepath.Join(folder, project.DroppedName))
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			dropped[line.name] = true
		}
	}
	return dropped, nil
}

// readPatch returns the file of a patch that counts for a release.
func readPatch(p project.Checkout, release, name string) (path string, data []byte, err error) {
	for _, folder := range folders(release) {
		path = filepath.Join(folder, name)
		if data, err = os.ReadFile(p.Path(path)); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("patches/series lists %s: %w", name, err)
	}
	return path, data, err
}

// entry is a line of a ledger: a name, and why it is there.
type entry struct{ name, reason string }

// readLedger reads a file of entries, with comments that start with #. A ledger that
// is not there is empty.
func readLedger(p project.Checkout, path string) ([]entry, error) {
	data, err := os.ReadFile(p.Path(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var entries []entry
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, " ")
		if !ok {
			return nil, fmt.Errorf("%s: %q has no reason", path, line)
		}
		entries = append(entries, entry{name, strings.TrimSpace(reason)})
	}
	return entries, err
}

// order reads patches/series: a file name a line, and comments that start with #.
func readOrder(p project.Checkout) ([]string, error) {
	data, err := os.ReadFile(p.Path(project.SeriesFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if filepath.Base(line) != line || !strings.HasSuffix(line, ".patch") {
			return nil, fmt.Errorf("patches/series: %q is not the name of a patch", line)
		}
		if slices.Contains(names, line) {
			return nil, fmt.Errorf("patches/series: %s stands there twice", line)
		}
		names = append(names, line)
	}
	return names, err
}

var (
	subjectPrefix = regexp.MustCompile(`^\[PATCH[^\]]*\] *`)
	diffHeader    = regexp.MustCompile(`^diff --git a/(\S+) b/(\S+)$`)
)

// parsePatch reads a file as `git format-patch` writes it.
func parsePatch(path string, data []byte) (patch, error) {
	p := patch{name: filepath.Base(path), path: path, data: data}
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
				p.messageLine = number
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
				p.files = append(p.files, fileDiff{path: match[2], line: number})
				break
			}
			if len(p.files) == 0 || line == "-- " { // the second is git's signature
				break
			}
			file := &p.files[len(p.files)-1]
			switch {
			case strings.HasPrefix(line, "@@"):
				file.lines = append(file.lines, diffLine{number, '@', line})
			case len(file.lines) == 0:
				if !strings.HasPrefix(line, "index ") && !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "+++ ") {
					file.extra = append(file.extra, diffLine{number, ' ', line})
				}
			case line != "" && strings.ContainsRune("+- ", rune(line[0])):
				file.lines = append(file.lines, diffLine{number, line[0], line[1:]})
			}
		}
	}
	p.message = strings.TrimSpace(strings.Join(message, "\n")) + "\n"
	if p.messageLine == 0 || len(p.files) == 0 {
		return p, fmt.Errorf("%s: is not a patch as carry export writes it: a Subject, a message, --- and a diff", path)
	}
	return p, nil
}
