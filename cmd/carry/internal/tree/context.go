// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// shareContext trims the context of each hunk to the most, up to the three lines on
// each side that a diff has, that fits once into the file of each of the given
// releases, so that one patch does for many. Releases into whose file a hunk fits in
// no way have no say. What is left names the declaration that the change is in, and
// place checks that, so that less context is no less certain.
func (t *Tree) shareContext(ctx context.Context, c exported, releases []string) ([]byte, error) {
	parsed, err := patch.Parse("", c.data)
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(string(c.data), "\n")
	var out strings.Builder
	done := 0
	for _, file := range parsed.Files {
		before, err := t.fileAt(ctx, c.id+"^", file.Path)
		if err != nil {
			return nil, err
		}
		var files [][]string
		for _, release := range releases {
			theirs, err := Of(t.Project, release).upstreamFile(ctx, file.Path)
			if err != nil {
				return nil, err
			}
			files = append(files, theirs)
		}
		hunks, err := file.Hunks()
		if err != nil {
			return nil, err
		}
		for _, h := range hunks {
			lead, _ := h.Context()
			h.Heading = patch.Declaration(before, h.OldStart-1+lead-1)
			h.Heading = strings.TrimSpace(h.Heading[:min(len(h.Heading), 80)]) // as git does
			out.WriteString(strings.Join(lines[done:h.Line-1], ""))
			out.WriteString(h.Shared(files).String())
			done = h.Line + len(h.Lines)
		}
	}
	out.WriteString(strings.Join(lines[done:], ""))
	return []byte(out.String()), nil
}

// upstreamFile returns the lines of a file as upstream released it; none if there is
// no such file.
func (t *Tree) upstreamFile(ctx context.Context, path string) ([]string, error) {
	want, err := pins.Read(t.Project, t.Release)
	if err != nil {
		return nil, err
	}
	if s, err := t.Load(); err != nil {
		return nil, err
	} else if s.Pins == PinsKey(want) {
		return t.fileAt(ctx, s.Upstream, path)
	}
	// The tree need not be there for that.
	modules, _, err := pins.Download(t.Project, t.Release, want)
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

func (t *Tree) fileAt(ctx context.Context, commit, path string) ([]string, error) {
	content, err := t.Git().Run(ctx, "show", commit+":"+path)
	var failed *git.Error
	if errors.As(err, &failed) {
		return nil, nil
	}
	return strings.Split(content, "\n"), err
}
