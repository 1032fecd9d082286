// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Source is what build builds: the tree, or upstream's own.
type Source struct {
	Dir                    string
	commit, state, version string
	// bin is the directory of the binaries, next to the tree.
	bin string
	// env are variables that upstream's make rules read.
	env []string
	// flags are more flags of go.
	flags []string
}

// static makes the make rules link a binary statically.
var static = "KUBE_STATIC_OVERRIDES=" + project.StaticBinary

// Patched is the tree. Its version is the release and the commit that the series
// gives, which is the same everywhere.
func Patched(ctx context.Context, t *tree.Tree) (Source, error) { return patched(ctx, t, "") }

// patched is the tree, with what its version has after the commit.
func patched(ctx context.Context, t *tree.Tree, kind string) (Source, error) {
	commit, err := t.Git().Run(ctx, "rev-parse", "HEAD")
	if err != nil {
		return Source{}, err
	}
	dirty, err := t.Dirty(ctx)
	if err != nil {
		return Source{}, err
	}
	s := Source{Dir: t.Dir, commit: commit, state: "clean", version: t.Release + project.VersionSuffix + commit[:7] + kind, bin: "bin", env: []string{static}}
	if dirty != "" {
		s.version, s.state = s.version+"-dirty", "dirty"
	}
	return s, nil
}

// RaceDetecting is the tree, built so that its programs report data races. The detector is linked
// by cgo, so no program is static.
func RaceDetecting(ctx context.Context, t *tree.Tree) (Source, error) {
	s, err := Patched(ctx, t)
	s.bin, s.env = "race-bin", []string{"KUBE_RACE=-race", "KUBE_CGO_OVERRIDES=" + strings.Join(project.Binaries, " ")}
	return s, err
}

// FIPS is the tree, built with the newest version of Go's cryptographic module that is certified by FIPS 140-3, of those
// that its Go knows. GOFIPS140 also has programs be in FIPS mode unless GODEBUG says otherwise
// (cmd/go/internal/fips140 in Go). Their version says so, since images are named after it.
func FIPS(ctx context.Context, t *tree.Tree) (Source, error) {
	s, err := patched(ctx, t, "-fips")
	s.bin, s.env = "fips-bin", append(s.env, "GOFIPS140=certified")
	return s, err
}

// Upstream is a second work tree with upstream's files and nothing else, to compare
// with.
func Upstream(ctx context.Context, t *tree.Tree) (Source, error) {
	s, err := t.Load()
	if err != nil {
		return Source{}, err
	}
	from := Source{
		Dir: filepath.Join(filepath.Dir(t.Dir), "upstream"), commit: s.Base, state: "clean", version: t.Release, bin: "upstream-bin",
		env: []string{static},
		// To go, the .git of a work tree is not a repository. It would look further up, and put the commit of
		// this project into each binary.
		flags: []string{"-buildvcs=false"},
	}
	there := git.Repo{Dir: from.Dir}
	if head, err := there.Run(ctx, "rev-parse", "HEAD"); err == nil && head == s.Base {
		// A checkout that was interrupted has the right HEAD, too.
		if dirty, err := there.Run(ctx, append([]string{"status", "--porcelain"}, tree.AllButSums...)...); err == nil && dirty == "" {
			return from, nil
		}
	}
	if err := os.RemoveAll(from.Dir); err != nil {
		return Source{}, err
	}
	// It may be locked by an interrupted git: that is an error where there is none.
	_, _ = t.Git().Run(ctx, "worktree", "unlock", from.Dir)
	if _, err := t.Git().Run(ctx, "worktree", "prune"); err != nil {
		return Source{}, err
	}
	_, err = t.Git().Run(ctx, "worktree", "add", "--detach", from.Dir, s.Base)
	return from, err
}
