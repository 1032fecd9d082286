package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// export writes the tree's commits above the workspace commit to patches/.
func (t *tree) export(ctx context.Context) error {
	s, err := t.load()
	if err != nil {
		return err
	}
	if s.Workspace == "" {
		return fmt.Errorf("%s has nothing to export; make the tree with: carry tree %s", t.shown(), t.release)
	}
	if s.Conflict != "" {
		return fmt.Errorf("%s waits for its conflict to be resolved; then: carry tree %s --continue", s.Conflict, t.release)
	}
	if dirty, err := t.dirty(ctx); err != nil {
		return err
	} else if dirty != "" {
		return fmt.Errorf("%s has uncommitted work (%s); commit or stash it first", t.shown(), firstLine(dirty))
	}
	g := t.git()
	if _, err := g.run(ctx, "merge-base", "--is-ancestor", s.Workspace, "HEAD"); err != nil {
		return fmt.Errorf("HEAD of %s does not stand on the workspace commit %.12s", t.shown(), s.Workspace)
	}
	list, err := g.run(ctx, "rev-list", "--reverse", "--first-parent", s.Workspace+"..HEAD")
	if err != nil {
		return err
	}
	releases, err := t.project.releases()
	if err != nil {
		return err
	}
	old, err := t.project.order()
	if err != nil {
		return err
	}
	newest := t.release == releases[0]
	var names []string
	for commit := range strings.FieldsSeq(list) {
		message, err := g.run(ctx, "log", "-1", "--format=%B", commit)
		if err != nil {
			return err
		}
		message, name := splitFileTrailer(message)
		if name == "" || slices.Contains(names, name) {
			name = fileName(firstLine(message), names)
		}
		names = append(names, name)
		data, err := formatPatch(ctx, g, commit, message)
		if err != nil {
			return err
		}
		path := filepath.Join("patches", name)
		if !newest {
			if slices.ContainsFunc(s.Applied, func(a applied) bool { return a.Commit == commit }) {
				continue
			}
			path = filepath.Join("patches", t.release, name)
		}
		if err := writeIfChanged(t.project.path(path), data); err != nil {
			return err
		}
	}
	if newest {
		for _, name := range old {
			if !slices.Contains(names, name) {
				if err := os.Remove(t.project.path("patches", name)); err != nil {
					return err
				}
				t.say("removed patches/%s, whose commit is gone", name)
			}
		}
		if err := t.writeOrder(names); err != nil {
			return err
		}
	} else if !slices.Equal(names, old) {
		return fmt.Errorf("the commits of %s are %s, but patches/series has %s; only the newest release, %s, changes the order",
			t.release, strings.Join(names, ", "), strings.Join(old, ", "), releases[0])
	}
	// Apply the files anew, so that the tree's commits are those that they give.
	if s.Head, err = g.run(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	s.Applied = nil
	if err := t.save(s); err != nil {
		return err
	}
	return t.update(ctx)
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
func formatPatch(ctx context.Context, g git, commit, message string) ([]byte, error) {
	diff, err := g.run(ctx, "diff-tree", "-p", "--no-commit-id", "--full-index", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv",
		"--diff-algorithm=histogram", "--unified=3", "--inter-hunk-context=0", "--src-prefix=a/", "--dst-prefix=b/", commit)
	if err != nil {
		return nil, err
	}
	subject, body, _ := strings.Cut(message, "\n")
	return fmt.Appendf(nil, "From: %s <%s>\nDate: %s\nSubject: [PATCH] %s\n\n%s\n---\n%s\n", identityName, identityEmail, patchDate.Format("Mon, 2 Jan 2006 15:04:05 -0700"), subject,
		strings.TrimSpace(body), diff), nil
}

// writeOrder keeps the comments at the top of patches/series.
func (t *tree) writeOrder(names []string) error {
	path := t.project.path("patches", "series")
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
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
	return writeIfChanged(path, []byte(out.String()))
}

func writeIfChanged(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
