// SPDX-License-Identifier: Apache-2.0

// Package exporttree gives the series away: it makes a git repository that a user can push
// as their fork, and that builds with upstream's own tooling, without anything else of this
// project. compose.go makes one from the start, onto.go and reverts.go prepare a checkout
// for that, update.go brings one that was made before up to date, and verify.go runs
// upstream's checks in it. The package must not know what is done with the repository.
package exporttree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Options say where an export goes.
type Options struct {
	// To is the repository's directory. It is made, or was made by an earlier export.
	To string
	// Onto is a checkout of kubernetes on which the series is put; if it is empty, that is
	// upstream as the release's modules have it. Nothing is written there.
	Onto string
}

// Export makes a release's repository, or adds to it what has changed since it was made.
// It works in a directory next to it, so that an export is complete or does not exist.
func Export(ctx context.Context, t *tree.Tree, o Options) error {
	to, err := filepath.Abs(o.To)
	if err != nil {
		return err
	}
	if err := committed(ctx, t.Project); err != nil {
		return err
	}
	before, err := inspect(ctx, to)
	if err != nil {
		return err
	}
	if o.Onto != "" {
		// git looks for a repository above a directory whose path is relative.
		if o.Onto, err = filepath.Abs(o.Onto); err != nil {
			return err
		}
		if err := suits(ctx, o.Onto, t.Release); err != nil {
			return err
		}
	}
	if before != nil {
		if err := before.mayBecome(ctx, t.Release, o); err != nil {
			return err
		}
	}
	if err := t.Update(ctx); err != nil {
		return err
	}
	from, err := start(ctx, t, o, before)
	if err != nil {
		return err
	}
	building, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(building)
	if err := os.Chmod(building, 0o755); err != nil {
		return err
	}
	made, err := compose(ctx, t, building, from)
	if err != nil {
		return err
	}
	if before != nil {
		return before.bring(ctx, t, made)
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(building, to); err != nil {
		return err
	}
	t.Say("exported to %s: %d commits on %.12s, as branch %s", o.To, len(made.commits), from.commit, branch)
	return nil
}

// committed returns an error for a checkout of this project of which an export would take what is not
// committed: its contents could not be traced later. One that is not a git repository has nothing to compare
// with.
func committed(ctx context.Context, c project.Checkout) error {
	if _, err := os.Stat(c.Path(".git")); err != nil {
		return nil
	}
	args := []string{"status", "--porcelain", "--untracked-files=all", "--", "LICENSE", project.PatchesDir, project.ReleasesDir}
	for module, dir := range project.ModuleDirs {
		if module != project.RootModule {
			args = append(args, dir)
			continue
		}
		args = append(args, project.LinkedDirs...)
	}
	changes, err := (git.Repo{Dir: c.Dir}).Run(ctx, args...)
	if err != nil {
		return err
	}
	if first, _, _ := strings.Cut(strings.TrimSpace(changes), "\n"); first != "" {
		return untouched("%s has uncommitted changes (%s), and an export has what this checkout has; commit them first", c.Dir, first)
	}
	return nil
}

// branch is the one that a new export has.
const branch = "carry"

// untouched is an error of something that was seen before anything was written.
func untouched(format string, args ...any) error {
	return fmt.Errorf(format+"; nothing was changed", args...)
}
