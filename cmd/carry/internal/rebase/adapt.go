// SPDX-License-Identifier: Apache-2.0

package rebase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Adapt finds another way for a patch that does not apply: upstream has the change
// already, another release's file of that name applies, or a three-way merge goes through.
// It returns the commit; the same as parent for a patch that is dropped.
func (r *rebase) Adapt(ctx context.Context, t *tree.Tree, p patch.Patch, parent string, released time.Time, _ error) (commit string, err error) {
	g, done, err := t.ScratchIndex(ctx, parent)
	if err != nil {
		return "", err
	}
	defer done()
	if _, err := g.Input(ctx, string(p.Data), "apply", "--reverse", "--check", "--cached", "-"); err == nil {
		// The release's own: its minor version has the change from some patch release on.
		path := filepath.Join(r.kind.patches(t.Release), project.DroppedName)
		before, err := os.ReadFile(t.Project.Path(path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		t.Say("%s: upstream has it; dropped, see %s", p.Path, path)
		return parent, disk.Write(t.Project.Path(path), fmt.Appendf(before, "%s upstream has it in %s\n", p.Name, t.Release))
	}
	others, err := filepath.Glob(t.Project.Path(project.PatchesDir, "v*", p.Name))
	if err != nil {
		return "", err
	}
	next, _, err := series.File(t.Project, r.From, p.Name)
	if err != nil {
		return "", err
	}
	for _, other := range append([]string{t.Project.Path(next), t.Project.Path(project.PatchesDir, p.Name)}, others...) {
		relative, err := filepath.Rel(t.Project.Dir, other)
		if err != nil {
			return "", err
		}
		if relative == p.Path {
			continue // which does not apply
		}
		data, err := os.ReadFile(other)
		if err != nil {
			return "", err
		}
		candidate, err := patch.Parse(relative, data)
		if err != nil {
			return "", err
		}
		commit, err := t.Apply(ctx, candidate, parent, released)
		if err == nil {
			t.Say("applied %s", relative)
			return commit, nil
		}
		if !tree.DoesNotApply(err) {
			return "", err
		}
	}
	if err := t.ImportBlobs(ctx, p); err != nil {
		return "", err
	}
	if !t.HasPreimages(ctx, p) {
		return "", tree.NotApplied("the original files of the patch are unknown")
	}
	if _, err := g.Input(ctx, string(p.Data), "apply", "--cached", "--3way", "--whitespace=nowarn", "-"); err != nil {
		return "", err
	}
	if unmerged, err := g.Run(ctx, "ls-files", "--unmerged"); err != nil || unmerged != "" {
		return "", errors.Join(err, tree.NotApplied("conflict"))
	}
	treeID, err := g.Run(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	t.Say("merged %s three-way", p.Path)
	return tree.CommitPatch(ctx, g, p, treeID, parent, released)
}

// Command is that of carry which goes on after a conflict.
func (r *rebase) Command() string { return r.kind.command }

// Background lists upstream's commits between two releases that change the patch's
// files, from a clone of upstream.
func (r *rebase) Background(ctx context.Context, t *tree.Tree, p patch.Patch) string {
	if r.UpstreamGit == "" {
		return "\nUpstream's commits are unknown here; give a clone of upstream that has them with --upstream-git."
	}
	args := []string{"log", "--oneline", "--no-merges", r.From + "..." + t.Release, "--"}
	for _, file := range p.Files {
		args = append(args, file.Path)
	}
	log, err := git.Repo{Dir: r.UpstreamGit}.Run(ctx, args...)
	if err != nil {
		return fmt.Sprintf("\nUpstream's commits are unknown: %v", err)
	}
	return fmt.Sprintf("\nUpstream's commits between %s and %s in these files:\n%s", r.From, t.Release, log)
}
