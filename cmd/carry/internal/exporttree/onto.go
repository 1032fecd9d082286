// SPDX-License-Identifier: Apache-2.0

package exporttree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/mod/modfile"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// versionFile is upstream's, and names the minor version that its source becomes.
const versionFile = "staging/src/k8s.io/component-base/version/base.go"

var binaryVersion = regexp.MustCompile(`DefaultKubeBinaryVersion\s*=\s*"(\d+\.\d+)"`)

// suits says why the series of a release cannot go onto a checkout.
func suits(ctx context.Context, dir, release string) error {
	there := git.Repo{Dir: dir}
	if err := isTop(ctx, there); err != nil {
		return untouched("%s is not the top of a git checkout: %w", dir, err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if is := modfile.ModulePath(mod); is != project.UpstreamModule {
		return untouched("%s is not a checkout of Kubernetes: the module of its go.mod is %q, not %s", dir, is, project.UpstreamModule)
	}
	if shallow, err := there.Run(ctx, "rev-parse", "--is-shallow-repository"); err != nil {
		return err
	} else if shallow == "true" {
		return untouched("%s is a shallow clone, whose history says too little; complete it with: git -C %[1]s fetch --unshallow", dir)
	}
	// git config exits with 1 where there is no such setting.
	if partial, err := there.Run(ctx, "config", "--get-regexp", `^(extensions\.partialclone|remote\..*\.promisor)$`); err == nil && partial != "" {
		return untouched("%s is a partial clone, and what is exported from it could not be pushed; make a clone without --filter", dir)
	}
	if dirty, err := there.Run(ctx, "status", "--porcelain", "--untracked-files=all"); err != nil {
		return err
	} else if dirty != "" {
		return untouched("%s has uncommitted work (%s); commit or stash it first", dir, git.FirstLine(dirty))
	}
	source, err := os.ReadFile(filepath.Join(dir, versionFile))
	if err != nil {
		return untouched("the version of %s is unknown: %w", dir, err)
	}
	match := binaryVersion.FindSubmatch(source)
	if match == nil {
		return untouched("the version of %s is unknown: %s has no DefaultKubeBinaryVersion", dir, versionFile)
	}
	if is := "v" + string(match[1]); is != project.Minor(release) {
		return untouched("%s is of Kubernetes %s (DefaultKubeBinaryVersion in %s), and %s is not near it; name a release of %[2]s", dir, is, versionFile, release)
	}
	return nil
}

// isTop returns an error unless a directory is that of a repository, and not one in it.
func isTop(ctx context.Context, r git.Repo) error {
	up, err := r.Run(ctx, "rev-parse", "--show-cdup")
	if err == nil && up != "" {
		return fmt.Errorf("the top is %s", filepath.Join(r.Dir, up))
	}
	return err
}

// inspect says what is in the directory that an export goes to: nil for nothing.
func inspect(ctx context.Context, dir string) (*earlier, error) {
	if parent, err := os.Stat(filepath.Dir(dir)); err != nil || !parent.IsDir() {
		return nil, fmt.Errorf("%s is not a directory, so %s cannot be made in it", filepath.Dir(dir), filepath.Base(dir))
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e := &earlier{Repo: git.Repo{Dir: dir}, digests: map[string]string{}, commits: map[string][]string{}, subjects: map[string]string{}}
	if err := isTop(ctx, e.Repo); err != nil {
		return nil, untouched("%s is not empty, and is not an export: %w", dir, err)
	}
	if err := e.read(ctx); err != nil {
		return nil, err
	}
	dirty, err := e.Run(ctx, "status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return nil, err
	}
	if dirty != "" {
		return nil, untouched("%s has uncommitted work (%s); commit it elsewhere, or drop it", dir, git.FirstLine(dirty))
	}
	return e, nil
}
