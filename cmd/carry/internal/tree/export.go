// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
)

// Export writes the tree's commits above the workspace commit to patches/.
func (t *Tree) Export(ctx context.Context) error {
	s, err := t.exportable(ctx)
	if err != nil {
		return err
	}
	// An export that was interrupted has written all files, and not applied them yet.
	if head, err := t.Git().Run(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	} else if len(s.Applied) == 0 && head == s.Head && head != s.Workspace {
		return t.Update(ctx)
	}
	// Everything is known and checked before anything is written.
	e, err := t.planExport(ctx, s)
	if err != nil {
		return err
	}
	if err := t.unseen(s, e.files); err != nil {
		return err
	}
	for path, data := range e.files {
		if err := disk.Write(t.Project.Path(path), data); err != nil {
			return err
		}
	}
	// After the files that it names.
	if e.order != nil {
		if err := disk.Write(t.Project.Path(project.SeriesFile), e.order); err != nil {
			return err
		}
	}
	for _, path := range e.gone {
		if err := os.Remove(t.Project.Path(path)); err != nil {
			return err
		}
		t.Say("removed %s, whose commit is gone", path)
	}
	// Apply the files again, so that the tree's commits are those that they give.
	if s.Head, err = t.Git().Run(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	s.Applied = nil
	if err := t.Save(s); err != nil {
		return err
	}
	return t.Update(ctx)
}

// CheckExport returns an error that names each file which Export would change, and writes
// nothing.
func (t *Tree) CheckExport(ctx context.Context) error {
	s, err := t.exportable(ctx)
	if err != nil {
		return err
	}
	e, err := t.planExport(ctx, s)
	if err != nil {
		return err
	}
	if e.order != nil {
		e.files[project.SeriesFile] = e.order
	}
	var changes []string
	for _, path := range slices.Sorted(maps.Keys(e.files)) {
		now, err := os.ReadFile(t.Project.Path(path))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			changes = append(changes, path+" is missing")
		case err != nil:
			return err
		case !bytes.Equal(now, e.files[path]):
			changes = append(changes, fmt.Sprintf("%s differs from line %d on", path, firstDifference(now, e.files[path])))
		}
	}
	for _, path := range e.gone {
		changes = append(changes, path+" has no commit")
	}
	if len(changes) == 0 {
		t.Say("an export changes nothing")
		return nil
	}
	return fmt.Errorf("an export of %s would change patches/:\n%s\nIf the tree is right: carry export %[3]s; if patches/ is: carry tree %[3]s", t.Shown(), strings.Join(changes, "\n"), t.Release)
}

// firstDifference returns the line, from 1, at which two files begin to differ.
func firstDifference(a, b []byte) int {
	theirs := bytes.Split(b, []byte("\n"))
	line := 0
	for line < len(theirs) {
		mine, rest, more := bytes.Cut(a, []byte("\n"))
		if !bytes.Equal(mine, theirs[line]) || !more {
			break
		}
		a = rest
		line++
	}
	return line + 1
}

// exportable returns the state of a tree whose commits can be exported, or an error that
// says what must be done first.
func (t *Tree) exportable(ctx context.Context) (State, error) {
	s, err := t.Load()
	if err != nil {
		return s, err
	}
	if s.Workspace == "" {
		return s, fmt.Errorf("%s has nothing to export; make the tree with: carry tree %s", t.Shown(), t.Release)
	}
	if s.Conflict != "" {
		return s, fmt.Errorf("unresolved conflict in %s; resolve it, then run: carry tree %s --continue", s.Conflict, t.Release)
	}
	if dirty, err := t.Dirty(ctx); err != nil {
		return s, err
	} else if dirty != "" {
		return s, fmt.Errorf("%s has uncommitted work (%s); commit or stash it first", t.Shown(), git.FirstLine(dirty))
	}
	if s.Switching != "" {
		return s, fmt.Errorf("an update of %s was interrupted; finish it first: carry tree %s", t.Shown(), t.Release)
	}
	for _, name := range []string{"rebase-merge", "rebase-apply"} {
		if _, err := os.Stat(filepath.Join(t.Dir, ".git", name)); err == nil {
			return s, fmt.Errorf("%s is in the middle of a rebase; finish it first: git -C %[1]s rebase --continue", t.Shown())
		}
	}
	return s, nil
}

// export is what an export writes and removes, by paths relative to the project.
type export struct {
	files map[string][]byte
	// order is patches/series, which only the newest release writes.
	order []byte
	gone  []string
}

// planExport makes the files of the tree's commits, and changes nothing.
func (t *Tree) planExport(ctx context.Context, s State) (export, error) {
	e := export{files: map[string][]byte{}}
	releases, err := t.Project.Releases()
	if err != nil {
		return e, err
	}
	old, err := series.Order(t.Project)
	if err != nil {
		return e, err
	}
	newest := t.Release == releases[0]
	users := releases
	preview := !slices.Contains(releases, t.Release)
	if preview {
		users = append(slices.Clone(releases), t.Release)
	}
	commits, err := t.commits(ctx, s)
	if err != nil {
		return e, err
	}
	dropped, err := series.Dropped(t.Project, t.Release)
	if err != nil {
		return e, err
	}
	var names []string
	for _, c := range commits {
		names = append(names, c.name)
		path := filepath.Join(project.PatchesDir, c.name)
		now, _, err := series.File(t.Project, t.Release, c.name)
		switch {
		case err == nil && len(series.Users(filepath.Dir(now), users)) == 1 && (!preview || filepath.Dir(now) == project.PreviewPatches(t.Release)):
			// The release alone reads that file, so it is written whether or not the commit
			// is new: a patch before it may have changed the file that it is made from. A
			// preview writes no file but its own.
			path = now
		case newest:
		case slices.ContainsFunc(s.Applied, func(a Applied) bool { return a.Commit == c.id && !a.Resolved }):
			continue
		default:
			path = filepath.Join(series.OverrideDir(t.Project, t.Release, releases), c.name)
		}
		if e.files[path], err = t.shareContext(ctx, c, series.Users(filepath.Dir(path), users)); err != nil {
			return e, err
		}
	}
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return e, err
	}
	var needed []string
	for _, p := range patches {
		needed = append(needed, p.Name)
	}
	if !newest && !slices.Equal(names, needed) {
		return e, fmt.Errorf("the commits of %s are %s, but patches/series has %s; only the newest release, %s, changes the order",
			t.Release, strings.Join(names, ", "), strings.Join(needed, ", "), releases[0])
	}
	if newest {
		names = withDropped(names, old, dropped)
		if e.order, err = t.orderFile(names); err != nil {
			return e, err
		}
		for _, name := range old {
			if !slices.Contains(names, name) {
				e.gone = append(e.gone, filepath.Join(project.PatchesDir, name))
			}
		}
	}
	return e, nil
}

// withDropped puts patches that the release does not need, but others do, back to where
// they stood in the order.
func withDropped(names, old []string, dropped map[string]bool) []string {
	names = slices.Clone(names)
	at := 0
	for _, name := range old {
		if i := slices.Index(names, name); i >= 0 {
			at = i + 1
		} else if dropped[name] {
			names = slices.Insert(names, at, name)
			at++
		}
	}
	return names
}

// exported is a commit of the tree and the file that it becomes.
type exported struct {
	id, name string
	data     []byte
}

// commits formats the commits above the workspace commit.
func (t *Tree) commits(ctx context.Context, s State) ([]exported, error) {
	g := t.Git()
	if _, err := g.Run(ctx, "merge-base", "--is-ancestor", s.Workspace, "HEAD"); err != nil {
		return nil, fmt.Errorf("HEAD of %s is not based on the workspace commit %.12s", t.Shown(), s.Workspace)
	}
	list, err := g.Run(ctx, "rev-list", "--reverse", "--parents", s.Workspace+"..HEAD")
	if err != nil {
		return nil, err
	}
	var commits []exported
	var names []string
	for line := range strings.Lines(list) {
		ids := strings.Fields(line)
		if len(ids) != 2 {
			return nil, fmt.Errorf("commit %.12s is a merge; rebase it, since a patch is one change", ids[0])
		}
		c := exported{id: ids[0]}
		message, err := g.Run(ctx, "log", "-1", "--format=%B", c.id)
		if err != nil {
			return nil, err
		}
		message, c.name = splitFileTrailer(message)
		if c.name == "" || slices.Contains(names, c.name) {
			c.name = fileName(git.FirstLine(message), names)
		}
		names = append(names, c.name)
		if c.data, err = formatPatch(ctx, g, c.id, message); err != nil {
			return nil, err
		}
		// What cannot be read back must not replace what could.
		p, err := patch.Parse(c.name, c.data)
		if err != nil || p.Message != message {
			return nil, fmt.Errorf("commit %.12s (%s) cannot be written as a patch: it is empty, or its message has a line ---", c.id, git.FirstLine(message))
		}
		if bytes.Contains(c.data, []byte("\nBinary files ")) {
			return nil, fmt.Errorf("commit %.12s (%s) changes a binary file, which a patch cannot", c.id, git.FirstLine(message))
		}
		commits = append(commits, c)
	}
	return commits, nil
}

// unseen returns an error if patches/ has something that the tree never had, and
// that an export would overwrite: an edit by hand, or what a pull brought.
func (t *Tree) unseen(s State, files map[string][]byte) error {
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return nil // A file that is missing or broken has nothing to lose.
	}
	for _, p := range patches {
		seen := slices.ContainsFunc(s.Applied, func(a Applied) bool { return a.Path == p.Path && a.Digest == disk.Digest(p.Data) })
		if written, ok := files[p.Path]; !seen && (!ok || string(written) != string(p.Data)) {
			return fmt.Errorf("%s differs from what the tree was made from, and would be lost; keep the tree's commits with: git -C %s branch keep; then reset to %.12s, carry tree %s, and cherry-pick them (%s)",
				p.Path, t.Shown(), s.Head, t.Release, p.Name)
		}
	}
	return nil
}

func splitFileTrailer(message string) (rest, name string) {
	var lines []string
	for line := range strings.SplitSeq(message, "\n") {
		if found, ok := strings.CutPrefix(line, fileTrailer); ok {
			name = filepath.Base(strings.TrimSpace(found))
			continue
		}
		lines = append(lines, line)
	}
	return strings.TrimSpace(strings.Join(lines, "\n")) + "\n", name
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// fileName makes a file name of a subject.
func fileName(subject string, taken []string) string {
	base := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(subject), "-"), "-")
	if len(base) > 60 {
		base = strings.Trim(base[:60], "-")
	}
	name := base + ".patch"
	for n := 2; slices.Contains(taken, name); n++ {
		name = fmt.Sprintf("%s-%d.patch", base, n)
	}
	return name
}

// formatPatch writes a commit in the form of `git format-patch`, from nothing but
// the message and the trees, so that it is the same on every machine.
func formatPatch(ctx context.Context, g git.Repo, commit, message string) ([]byte, error) {
	diff, err := g.Run(ctx, "diff-tree", "-p", "--no-commit-id", "--full-index", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv",
		"--diff-algorithm=histogram", "--unified=3", "--inter-hunk-context=0", "--src-prefix=a/", "--dst-prefix=b/", commit)
	if err != nil {
		return nil, err
	}
	subject, body, _ := strings.Cut(message, "\n")
	return fmt.Appendf(nil, "From: %s\nDate: %s\nSubject: [PATCH] %s\n\n%s\n---\n%s\n", project.Identity, project.PatchDate.Format("Mon, 2 Jan 2006 15:04:05 -0700"), subject,
		strings.TrimSpace(body), diff), nil
}

// orderFile is patches/series with other names, and with the comments at its top.
func (t *Tree) orderFile(names []string) ([]byte, error) {
	data, err := os.ReadFile(t.Project.Path(project.SeriesFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return withOrder(data, names), nil
}

// withOrder is an order file with other names, and with the comments at its top.
func withOrder(data []byte, names []string) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		out.WriteString(line)
	}
	for _, name := range names {
		out.WriteString(name + "\n")
	}
	return []byte(out.String())
}
