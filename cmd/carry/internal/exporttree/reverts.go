// SPDX-License-Identifier: Apache-2.0

package exporttree

import (
	"context"
	"errors"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// reverts say which code of a fork is removed before the series is applied. They name no line
// of the fork by its number or its whole text, since both change with each of its releases.
type reverts struct {
	groups []revertGroup
	// stays matches what belongs to another feature of the fork, and remains what there
	// must be nothing left of.
	stays, remains []*regexp.Regexp
}

// revertGroup becomes a commit.
type revertGroup struct {
	subject string
	edits   []revertEdit
}

// revertEdit is a line of the list: what is done to a file, or to those of a directory.
type revertEdit struct {
	verb, path string
	pattern    *regexp.Regexp
	// text is what replace puts in the place of what matches.
	text string
}

// matches says whether an edit is about some text of a file. Hunks of all the group's lines go at
// once: what one of them alone leaves of a change need not be Go.
func (g revertGroup) matches(edit revertEdit, file, text string) bool {
	if edit.verb != "hunks" {
		return edit.pattern.MatchString(text)
	}
	return slices.ContainsFunc(g.edits, func(e revertEdit) bool {
		return e.verb == "hunks" && (file == e.path || strings.HasPrefix(file, e.path+"/")) && e.pattern.MatchString(text)
	})
}

// parseReverts reads project.RevertsFile, whose comments say what its lines mean.
func parseReverts(name string, data []byte) (reverts, error) {
	var r reverts
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		wrong := func(format string, args ...any) (reverts, error) {
			return r, fmt.Errorf("%s:%d: %s", name, number, fmt.Sprintf(format, args...))
		}
		verb, rest, _ := strings.Cut(line, " ")
		if rest = strings.TrimSpace(rest); rest == "" {
			return wrong("%q does not say what to do", verb)
		}
		if verb == "revert" {
			r.groups = append(r.groups, revertGroup{subject: rest})
			continue
		}
		edit := revertEdit{verb: verb}
		expression := rest
		switch verb {
		case "remove", "hunks", "lines", "replace":
			if len(r.groups) == 0 {
				return wrong("%q is before the first revert", line)
			}
			edit.path, expression, _ = strings.Cut(rest, " ")
			if !filepath.IsLocal(edit.path) {
				return wrong("%q is not a path in a tree", edit.path)
			}
			if expression = strings.TrimSpace(expression); (expression == "") != (verb == "remove") {
				return wrong("%s takes a path, and an expression unless it is remove", verb)
			}
			if verb == "replace" {
				var ok bool
				if expression, edit.text, ok = strings.Cut(expression, " => "); !ok {
					return wrong("replace takes a path, an expression, \" => \" and the text that replaces what matches")
				}
			}
		case "stays", "remains":
		default:
			return wrong("unknown verb %q; known are revert, remove, hunks, lines, replace, stays and remains", verb)
		}
		var err error
		if edit.pattern, err = regexp.Compile(expression); err != nil {
			return wrong("%v", err)
		}
		switch verb {
		case "stays":
			r.stays = append(r.stays, edit.pattern)
		case "remains":
			r.remains = append(r.remains, edit.pattern)
		default:
			last := &r.groups[len(r.groups)-1]
			last.edits = append(last.edits, edit)
		}
	}
	return r, nil
}

func (r reverts) stay(text string) bool {
	return slices.ContainsFunc(r.stays, func(e *regexp.Regexp) bool { return e.MatchString(text) })
}

// revert takes out what the list names, a commit for each group, and returns an error if
// anything is left. pinned is the commit of the release's files.
func (c *composed) revert(ctx context.Context, t *tree.Tree, pinned string) error {
	data, err := os.ReadFile(t.Project.Path(project.RevertsFile))
	if err != nil {
		return err
	}
	r, err := parseReverts(project.RevertsFile, data)
	if err != nil {
		return err
	}
	base, err := c.baseOf(ctx, t, pinned)
	if err != nil {
		return err
	}
	for _, group := range r.groups {
		for _, edit := range group.edits {
			if err := c.edit(ctx, r, group, edit, base); err != nil {
				return fmt.Errorf("%s: %s %s: %w", project.RevertsFile, edit.verb, edit.path, err)
			}
		}
		before := len(c.commits)
		if err := c.add(ctx, project.RevertPrefix+group.subject+"\n\nThe series that follows does this."); err != nil {
			return err
		}
		if len(c.commits) > before {
			t.Say("reverted: %s", group.subject)
		}
	}
	return c.noneRemain(ctx, r)
}

// base is what hunks of a fork are undone to.
type base struct {
	// module is the directory of upstream's module at the release that the fork stands on. It is empty
	// if the fork does not say which that is.
	module string
	// pinned is the commit of the release whose series goes onto the fork. Files of staging modules,
	// and without a module all files, are taken from there.
	pinned string
}

// labelFile is where openshift/kubernetes says which release it stands on, in the label of an image.
const labelFile = "openshift-hack/images/hyperkube/Dockerfile.rhel"

var label = regexp.MustCompile(`\bkubernetes=(\d+\.\d+\.\d+)"`)

// baseOf finds the release that the fork stands on. A label of another minor version, as it may be in the
// middle of the fork's own rebase, says nothing.
func (c *composed) baseOf(ctx context.Context, t *tree.Tree, pinned string) (base, error) {
	found := base{pinned: pinned}
	data, err := os.ReadFile(filepath.Join(c.Dir, labelFile))
	if errors.Is(err, os.ErrNotExist) {
		return found, nil
	} else if err != nil {
		return found, err
	}
	match := label.FindSubmatch(data)
	if match == nil {
		return found, nil
	}
	release := "v" + string(match[1])
	if release == t.Release || project.Minor(release) != project.Minor(t.Release) {
		return found, nil
	}
	t.Say("undoing hunks to %s, on which the fork stands by the label in %s", release, labelFile)
	if found.module, err = pins.Upstream(ctx, release); err != nil {
		return found, untouched("the fork stands on %s, says %s: %w", release, labelFile, err)
	}
	return found, nil
}

// upstream returns a file as it is below the fork, without its last newline.
func (c *composed) upstream(ctx context.Context, base base, file string) (string, error) {
	if base.module != "" && !strings.HasPrefix(file, "staging/") {
		data, err := os.ReadFile(filepath.Join(base.module, file))
		return strings.TrimSuffix(string(data), "\n"), err
	}
	return c.Run(ctx, "cat-file", "blob", base.pinned+":"+file)
}

func (c *composed) edit(ctx context.Context, r reverts, group revertGroup, edit revertEdit, base base) error {
	if edit.verb == "remove" {
		return os.RemoveAll(filepath.Join(c.Dir, edit.path))
	}
	files, err := c.Run(ctx, "ls-files", "--", edit.path)
	if err != nil {
		return err
	}
	matched := false
	for file := range strings.Lines(files) {
		file = strings.TrimSpace(file)
		if filepath.Ext(file) != ".go" {
			continue
		}
		name := filepath.Join(c.Dir, file)
		source, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // An edit above has removed it.
		}
		if err != nil {
			return err
		}
		matches := func(text string) bool { return group.matches(edit, file, text) }
		if !matches(string(source)) {
			continue
		}
		matched = true
		changed := ""
		switch edit.verb {
		case "lines":
			changed = withoutLines(string(source), edit.pattern)
		case "replace":
			changed = edit.pattern.ReplaceAllLiteralString(string(source), edit.text)
		default:
			if changed, err = c.withoutHunks(ctx, r, base, file, string(source), matches); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		formatted, err := format.Source([]byte(changed))
		if err != nil {
			return fmt.Errorf("%s is not valid Go after that: %w", file, err)
		}
		if err := os.WriteFile(name, formatted, 0o644); err != nil {
			return err
		}
	}
	if edit.verb == "replace" && files != "" && !matched {
		return fmt.Errorf("nothing in %s matches %s, which is to be replaced: the fork has changed there", edit.path, edit.pattern)
	}
	return nil
}

// withoutLines removes the lines that match. One that opens a block goes with the block, and
// one that sets err with the check of it.
func withoutLines(source string, pattern *regexp.Regexp) string {
	var kept []string
	lines := strings.SplitAfter(source, "\n")
	for i := 0; i < len(lines); i++ {
		if !pattern.MatchString(lines[i]) {
			kept = append(kept, lines[i])
			continue
		}
		i = blockEnd(lines, i)
		if setsErr.MatchString(lines[i]) && i+1 < len(lines) && strings.TrimSpace(lines[i+1]) == "if err != nil {" {
			i = blockEnd(lines, i+1)
		}
	}
	return strings.Join(kept, "")
}

var setsErr = regexp.MustCompile(`\berr :?= `)

// blockEnd returns the last line of the block that a line opens, as gofmt indents it; the
// line itself if it opens none.
func blockEnd(lines []string, at int) int {
	if trimmed := strings.TrimSpace(lines[at]); !strings.HasSuffix(trimmed, "{") && !strings.HasSuffix(trimmed, "(") {
		return at
	}
	for end := at + 1; end < len(lines); end++ {
		if strings.TrimSpace(lines[end]) != "" && indentation(lines[end]) <= indentation(lines[at]) {
			return end
		}
	}
	return at
}

func indentation(line string) int { return len(line) - len(strings.TrimLeft(line, "\t")) }

// withoutHunks undoes the hunks between upstream's file and the fork's in which a line matches.
// Of a hunk that has what stays, too, only the statements and declarations go that do not have
// it.
func (c *composed) withoutHunks(ctx context.Context, r reverts, base base, file, source string, matches func(string) bool) (string, error) {
	content, err := c.upstream(ctx, base, file)
	if err != nil {
		return source, nil // The fork's own file: noneRemain finds what is in it.
	}
	upstream, err := c.Input(ctx, content+"\n", "hash-object", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	theirs, err := c.Input(ctx, source, "hash-object", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	diff, err := c.Run(ctx, "diff", "--unified=0", "--inter-hunk-context=0", "--no-color", "--no-ext-diff", "--no-textconv", "--diff-algorithm=histogram", "--indent-heuristic", upstream, theirs)
	if err != nil || diff == "" {
		return source, err // The fork has not changed it.
	}
	parsed, err := patch.Parse(file, []byte("Subject: diff\n\n---\n"+diff+"\n"))
	if err != nil {
		return "", err
	}
	hunks, err := parsed.Files[0].Hunks()
	if err != nil {
		return "", err
	}
	lines := strings.Split(content, "\n")
	var out []string
	at := 0
	for _, h := range hunks {
		var before, after []string
		for _, line := range h.Lines {
			if line.Op == '-' {
				before = append(before, line.Text)
			} else {
				after = append(after, line.Text)
			}
		}
		from := h.OldStart
		if len(before) > 0 {
			from-- // A hunk that only adds names the line after which it does.
		}
		out = append(out, lines[at:from]...)
		at = from + len(before)
		text := strings.Join(after, "\n")
		switch {
		case !matches(text):
			out = append(out, after...)
		case !r.stay(text):
			out = append(out, before...)
		case len(before) > 0:
			return "", fmt.Errorf("upstream's line %d is changed both by what is removed and by what stays", from+1)
		default:
			for _, unit := range units(after) {
				if text := strings.Join(unit, "\n"); r.stay(text) && !matches(text) {
					out = append(out, unit...)
				}
			}
		}
	}
	return strings.Join(append(out, lines[at:]...), "\n") + "\n", nil
}

// units splits lines of gofmt'd code into its outermost statements or declarations, each with
// the comments above it.
func units(lines []string) (found [][]string) {
	least := -1
	for _, line := range lines {
		if n := indentation(line); strings.TrimSpace(line) != "" && (least < 0 || n < least) {
			least = n
		}
	}
	begins := true
	for i := 0; i < len(lines); {
		end := i
		if indentation(lines[i]) == least {
			end = min(blockEnd(lines, i), len(lines)-1)
		}
		if begins {
			found = append(found, nil)
		}
		found[len(found)-1] = append(found[len(found)-1], lines[i:end+1]...)
		text := strings.TrimSpace(lines[i])
		begins = text != "" && !strings.HasPrefix(text, "//")
		i = end + 1
	}
	return found
}

// noneRemain returns an error that names each line that is left of what the fork carries, and
// the fork's commit that it is from.
func (c *composed) noneRemain(ctx context.Context, r reverts) error {
	var found []string
	for _, e := range r.remains {
		out, err := c.Run(ctx, "grep", "-n", "-I", "-E", "-e", e.String(), "--", ":/", ":(exclude,top)vendor")
		var failed *git.Error
		if errors.As(err, &failed) && failed.Stderr == "" {
			continue // There are none.
		}
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
			number, text, _ := strings.Cut(rest, ":")
			blame, err := c.Run(ctx, "blame", "--porcelain", "-L", number+","+number, "HEAD", "--", file)
			if err != nil {
				return err
			}
			commit, _, _ := strings.Cut(blame, " ")
			subject := ""
			for line := range strings.Lines(blame) {
				if s, ok := strings.CutPrefix(line, "summary "); ok {
					subject = strings.TrimSpace(s)
				}
			}
			found = append(found, fmt.Sprintf("%s:%s: %s (%.12s %s)", file, number, strings.TrimSpace(text), commit, subject))
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	return untouched("%s leaves some of what the fork carries; add it there:\n%s\n", project.RevertsFile, strings.Join(slices.Compact(found), "\n"))
}
