// SPDX-License-Identifier: Apache-2.0

package tree

// What happens when a patch does not apply to a release:
//
//  1. Nothing of the tree's files has been touched yet: patches are applied to an index of
//     their own. DoesNotApply recognises the error, whether it is git's or that of place.
//  2. The tree's adapter is called for another way. That of a rebase has some; a tree that is
//     only brought up to date has none.
//  3. conflict moves the work tree to the patch before, leaves git's three-way merge in it,
//     notes that in the state, and returns an error with file, line and both sides.
//  4. The user resolves it, and Resume goes on from there; or Abort drops the attempt.
//
// A hunk that place refuses does not get as far as 3: git would put it somewhere, and
// the patch must be exported with more context instead.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
)

// Adapter finds another way for a patch that does not apply.
type Adapter interface {
	// Adapt returns the patch's commit on parent, or parent itself for a patch that the
	// release does not need. cause is why the patch does not apply as it is.
	Adapt(ctx context.Context, t *Tree, p patch.Patch, parent string, released time.Time, cause error) (commit string, err error)
	// Command is that of carry which goes on after a conflict.
	Command() string
	// Background explains a conflict further.
	Background(ctx context.Context, t *Tree, p patch.Patch) string
}

// strict is the adapter of a tree whose patches must apply as they are.
type strict struct{}

func (strict) Adapt(_ context.Context, _ *Tree, _ patch.Patch, _ string, _ time.Time, cause error) (string, error) {
	return "", cause
}

func (strict) Command() string { return "tree" }

func (strict) Background(context.Context, *Tree, patch.Patch) string { return "" }

// Adapting returns a copy of t that uses a.
func (t *Tree) Adapting(a Adapter) *Tree {
	other := *t
	other.adapter = a
	return &other
}

// DoesNotApply separates the errors of a patch that needs another way, or the user, from those
// of a disk or a git that is at fault.
func DoesNotApply(err error) bool {
	var failed *git.Error
	var misplaced misplacedError
	return errors.As(err, &failed) && failed.Verb == "apply" || errors.As(err, &misplaced)
}

// NotApplied is the error of a patch that was found not to apply without asking git.
func NotApplied(reason string) error { return &git.Error{Verb: "apply", Stderr: reason} }

// misplacedError is that of a hunk that git would apply, and that must not be.
type misplacedError struct{ text string }

func (e misplacedError) Error() string { return e.text }

// place checks that each hunk fits into one place of its file, and that this is in the
// declaration that the patch names. git would take the nearest of several.
func (t *Tree) place(ctx context.Context, p patch.Patch, commit string) error {
	for _, file := range p.Files {
		lines, err := t.fileAt(ctx, commit, file.Path)
		if err != nil {
			return err
		}
		hunks, err := file.Hunks()
		if err != nil {
			return fmt.Errorf("%s: %w", p.Path, err)
		}
		for _, h := range hunks {
			places := h.Places(lines)
			if len(places) > 1 {
				return misplacedError{fmt.Sprintf("%s:%d: fits into %d places of %s in %s, the first at line %d; export it with more context", p.Path, h.Line, len(places), file.Path, t.Release, places[0]+1)}
			}
			if len(places) == 0 || h.Heading == "" {
				continue // git says so, or there is nothing to compare.
			}
			lead, _ := h.Context()
			if is := patch.Declaration(lines, places[0]+lead-1); patch.DeclaredName(is) != patch.DeclaredName(h.Heading) {
				return misplacedError{fmt.Sprintf("%s:%d: stands in %q, but fits into %s of %s, line %d, in %q", p.Path, h.Line, patch.DeclaredName(h.Heading), file.Path, t.Release, places[0]+1, patch.DeclaredName(is))}
			}
		}
	}
	return nil
}

// conflict leaves the tree with the patch half applied, for the user to resolve,
// and says where.
func (t *Tree) conflict(ctx context.Context, s State, done []Applied, parent string, p patch.Patch, cause error) error {
	var failed *git.Error
	if !errors.As(cause, &failed) || failed.Verb != "apply" {
		return cause
	}
	s.Applied = done
	if err := t.switchTo(ctx, s, parent); err != nil {
		return err
	}
	s.Head, s.Conflict, s.ConflictDigest = parent, p.Path, disk.Digest(p.Data)
	if err := t.Save(s); err != nil {
		return err
	}
	if err := t.ImportBlobs(ctx, p); err != nil {
		return err
	}
	how, gone := "the conflict is marked in the files", ""
	if _, err := t.Git().Input(ctx, string(p.Data), "apply", "--3way", "--whitespace=nowarn", "-"); err != nil {
		unmerged, _ := t.Git().Run(ctx, "diff", "--name-only", "--diff-filter=U")
		if unmerged == "" {
			// The file that the patch was made for is unknown here: git cannot merge.
			_, _ = t.Git().Input(ctx, string(p.Data), "apply", "--reject", "--whitespace=nowarn", "-")
			how = "the hunks that did not apply are in .rej files"
			if gone, err = t.rejectGone(ctx, p, parent); err != nil {
				return err
			}
		}
	} else {
		how = "a three-way merge went through; look at it with git diff --cached"
	}
	message := fmt.Sprintf("%s does not apply to %s; %s of %s.\nResolve it there, git add, and go on with: carry %s %s --continue (or drop the attempt: --abort)",
		p.Path, t.Release, how, t.Shown(), t.adapter.Command(), t.Release)
	if sides := t.bothSides(ctx); sides != "" {
		return errors.New(message + sides + t.adapter.Background(ctx, t, p))
	}
	for _, match := range failedAt.FindAllStringSubmatch(failed.Stderr, -1) {
		message += fmt.Sprintf("\n%s:%s:\n%s", match[1], match[2], p.HunkAt(match[1], match[2]))
	}
	return errors.New(message + gone + t.adapter.Background(ctx, t, p))
}

// rejectGone writes .rej files for the files of a patch that a commit does not have: Resume must not take half of a patch, and
// git apply --reject writes them only for files that exist. told is what the user reads of them.
func (t *Tree) rejectGone(ctx context.Context, p patch.Patch, commit string) (told string, err error) {
	for _, file := range p.Files {
		there, err := t.fileAt(ctx, commit, file.Path)
		if err != nil {
			return "", err
		}
		if there != nil {
			continue
		}
		hunks := p.HunkAt(file.Path, "")
		if err := disk.Write(filepath.Join(t.Dir, file.Path+".rej"), []byte(hunks+"\n")); err != nil {
			return "", err
		}
		told += fmt.Sprintf("\n%s is not in %s; find out where upstream has it now:\n%s", file.Path, t.Release, hunks)
	}
	return told, nil
}

// failedAt matches git apply's complaint of one hunk.
var failedAt = regexp.MustCompile(`patch failed: (.+):(\d+)`)

// bothSides shows each conflict that is marked in the files of the tree.
func (t *Tree) bothSides(ctx context.Context) string {
	unmerged, err := t.Git().Run(ctx, "diff", "--name-only", "--diff-filter=U")
	if err != nil {
		return ""
	}
	var out strings.Builder
	for path := range strings.FieldsSeq(unmerged) {
		data, err := os.ReadFile(filepath.Join(t.Dir, path))
		if err != nil {
			continue
		}
		in := false
		for number, line := range strings.Split(string(data), "\n") {
			if strings.HasPrefix(line, "<<<<<<< ") {
				in = true
				fmt.Fprintf(&out, "\n%s:%d:", path, number+1)
			}
			if in {
				out.WriteString("\n" + line)
			}
			if strings.HasPrefix(line, ">>>>>>> ") {
				in = false
			}
		}
	}
	return out.String()
}

// Resume commits a resolved conflict and applies the rest of the series.
func (t *Tree) Resume(ctx context.Context) error {
	s, err := t.Load()
	if err != nil {
		return err
	}
	if s.Conflict == "" {
		return fmt.Errorf("%s has no conflict to continue from", t.Shown())
	}
	g := t.Git()
	unmerged, err := g.Run(ctx, "diff", "--name-only", "--diff-filter=U")
	if err != nil {
		return err
	}
	if unmerged != "" {
		return fmt.Errorf("%s is not resolved yet; edit it, git add it, and call again", strings.ReplaceAll(unmerged, "\n", ", "))
	}
	unstaged, err := t.Dirty(ctx)
	if err != nil {
		return err
	}
	for line := range strings.Lines(unstaged) {
		if line[1] != ' ' {
			return fmt.Errorf("%s is not staged; git add it, or remove it, and call again", strings.TrimSpace(line[2:]))
		}
	}
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(patches, func(p patch.Patch) bool { return p.Path == s.Conflict })
	if at < 0 {
		return fmt.Errorf("patches/series no longer lists %s; drop the attempt with --abort", s.Conflict)
	}
	p := patches[at]
	// An export would write the resolution over what a pull brought.
	if s.ConflictDigest != "" && s.ConflictDigest != disk.Digest(p.Data) {
		return fmt.Errorf("%s has changed since it did not apply; restore it to continue with your resolution, or drop the attempt with --abort", s.Conflict)
	}
	treeID, err := g.Run(ctx, "write-tree")
	if err != nil {
		return err
	}
	if before, err := g.Run(ctx, "rev-parse", s.Head+"^{tree}"); err != nil || before == treeID {
		return errors.Join(err, fmt.Errorf("nothing is staged for %s; apply its change, git add, and call again, or drop the attempt with --abort", s.Conflict))
	}
	head, err := CommitPatch(ctx, g, p, treeID, s.Head, s.Released)
	if err != nil {
		return err
	}
	if _, err := g.Run(ctx, "reset", "-q", "--keep", head); err != nil {
		return err
	}
	s.Conflict, s.Head = "", head
	s.Applied = append(s.Applied, Applied{Path: p.Path, Digest: disk.Digest(p.Data), Commit: head, Resolved: true})
	if err := t.Save(s); err != nil {
		return err
	}
	t.Say("committed %s; write it to patches/ with: carry export %s", p.Path, t.Release)
	return t.Update(ctx)
}

// Abort drops a conflict, and what was done to resolve it.
func (t *Tree) Abort(ctx context.Context) error {
	s, err := t.Load()
	if err != nil {
		return err
	}
	if s.Conflict == "" {
		return fmt.Errorf("%s has no conflict to abort", t.Shown())
	}
	if _, err := t.Git().Run(ctx, "reset", "-q", "--hard", s.Head); err != nil {
		return err
	}
	if _, err := t.Git().Run(ctx, "clean", "-q", "-d", "-f", "-e", "!*.rej"); err != nil {
		return err
	}
	s.Conflict = ""
	return t.Save(s)
}

// preimage matches the name of the file's content that a diff was made from.
var preimage = regexp.MustCompile(`(?m)^index ([0-9a-f]{40})\.\.`)

// ImportBlobs copies what a three-way merge needs from the trees of other releases:
// the files that the patch was made from.
func (t *Tree) ImportBlobs(ctx context.Context, p patch.Patch) error {
	known, err := t.Project.Releases()
	if err != nil {
		return err
	}
	for _, match := range preimage.FindAllStringSubmatch(string(p.Data), -1) {
		if _, err := t.Git().Run(ctx, "cat-file", "-e", match[1]); err == nil {
			continue
		}
		for _, release := range known {
			content, err := Of(t.Project, release).Git().Run(ctx, "cat-file", "blob", match[1])
			if err != nil {
				continue
			}
			if _, err := t.Git().Input(ctx, content+"\n", "hash-object", "-w", "--stdin"); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// HasPreimages reports whether git can merge the patch. Without them it would apply the
// hunks wherever they fit.
func (t *Tree) HasPreimages(ctx context.Context, p patch.Patch) bool {
	for _, match := range preimage.FindAllStringSubmatch(string(p.Data), -1) {
		if _, err := t.Git().Run(ctx, "cat-file", "-e", match[1]); err != nil {
			return false
		}
	}
	return true
}
