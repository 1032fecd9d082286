// SPDX-License-Identifier: Apache-2.0

// Package tree knows a release's git repository: it materialises upstream's source, applies
// the series to it and exports it again, and says what a conflict is (conflict.go). It must
// not know what is then done with the tree, such as a build or a test.
package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
)

// Tree is a release's git repository, _output/RELEASE/kubernetes.
type Tree struct {
	Project project.Checkout
	Release string
	Dir     string
	// adapter is asked about a patch that does not apply.
	adapter Adapter
}

// State is what carry knows of a tree, in its .git directory. Everything but the
// commits of the user can be made again from it.
type State struct {
	// Pins identifies the modules that Upstream was made from.
	Pins     string
	Released time.Time
	Upstream string
	// Base is Upstream without modules that were not published, and Workspace the commit
	// below the first patch.
	Base      string
	Workspace string
	// Applied are the patches whose commits stand on Workspace, in order.
	Applied []Applied
	// Head is the commit that carry left the tree at. A tree that is elsewhere has
	// commits of the user.
	Head string
	// Switching is set while the work tree goes from Head to it.
	Switching string `json:",omitempty"`
	// Conflict names the patch that was left for the user to resolve, and ConflictDigest its content.
	Conflict       string `json:",omitempty"`
	ConflictDigest string `json:",omitempty"`
}

// Applied is a patch whose commit stands in the tree.
type Applied struct {
	Path, Digest, Commit string
	// Resolved is set for a commit that the user resolved and that is not exported yet.
	Resolved bool `json:",omitempty"`
}

// Of is the tree of a release, which need not be there.
func Of(p project.Checkout, release string) *Tree {
	return &Tree{Project: p, Release: release, Dir: p.Path(project.OutputDir, release, "kubernetes"), adapter: strict{}}
}

// Git runs git in the tree.
func (t *Tree) Git() git.Repo { return git.Repo{Dir: t.Dir} }

// Say shows how far carry is with the release.
func (t *Tree) Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", t.Release, fmt.Sprintf(format, args...))
}

// Shown is the tree's path as a user would type it.
func (t *Tree) Shown() string {
	if wd, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(wd, t.Dir); err == nil && !strings.HasPrefix(relative, "..") {
			return relative
		}
	}
	return t.Dir
}

// Lock keeps two carries from working on one release: the second waits, and says so.
func (t *Tree) Lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(t.Dir), 0o755); err != nil {
		return nil, err
	}
	path := t.lockPath()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if errors.Is(err, fs.ErrNotExist) { // Vanish took the directory away.
		return t.Lock(ctx)
	}
	if err != nil {
		return nil, err
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			if !same(file, path) { // Vanish took it away.
				file.Close()
				return t.Lock(ctx)
			}
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waiting {
			t.Say("waiting for another carry, which works on this release")
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (t *Tree) lockPath() string { return filepath.Join(filepath.Dir(t.Dir), "lock") }

func same(file *os.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(open, there)
}

// Vanish removes the lock, which is held, and the directory of the release if that was all
// that was left in it.
func (t *Tree) Vanish() error {
	dir := filepath.Dir(t.Dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != filepath.Base(t.lockPath()) {
			return nil
		}
	}
	if err := os.Remove(t.lockPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Another carry may have made its lock there since.
	if err := os.Remove(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

func (t *Tree) statePath() string { return filepath.Join(t.Dir, ".git", "carry.json") }

// Load reads the state; that of a tree which is not there is zero.
func (t *Tree) Load() (State, error) {
	var s State
	data, err := os.ReadFile(t.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w; remove %s to start again", t.statePath(), err, t.Shown())
	}
	return s, nil
}

// Save writes the state.
func (t *Tree) Save(s State) error {
	data, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	return disk.Write(t.statePath(), append(data, '\n'))
}

// Locked runs a step on a tree whose lock is not held yet.
func (t *Tree) Locked(ctx context.Context, step func() error) error {
	unlock, err := t.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return step()
}

// Base materialises the tree if it is not there, and returns its state.
func (t *Tree) Base(ctx context.Context) (State, error) {
	want, err := pins.Read(t.Project, t.Release)
	if err != nil {
		return State{}, err
	}
	if err := t.sweep(); err != nil {
		return State{}, err
	}
	s, err := t.Load()
	if err != nil || s.Pins == PinsKey(want) {
		return s, err
	}
	if s.Upstream == "" {
		if entries, err := os.ReadDir(t.Dir); err == nil && len(entries) > 0 {
			return s, fmt.Errorf("%s was not made by carry; move it away", t.Shown())
		}
	} else {
		if s, err = t.finishSwitch(ctx, s); err != nil {
			return s, err
		}
		if err := t.Unchanged(ctx, s); err != nil {
			return s, err
		}
		if err := t.exported(s.Applied); err != nil {
			return s, err
		}
	}
	if err := t.materialise(ctx, want); err != nil {
		return s, err
	}
	return t.Load()
}

// exported returns an error if one of these patches was resolved and is nowhere but in the tree.
func (t *Tree) exported(patches []Applied) error {
	for _, a := range patches {
		if a.Resolved {
			return fmt.Errorf("%s has your resolution of %s, which patches/ lacks; keep it with: carry export %s", t.Shown(), a.Path, t.Release)
		}
	}
	return nil
}

// Update brings the tree to where patches/ says it should be.
func (t *Tree) Update(ctx context.Context) error {
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return err
	}
	s, err := t.Load()
	if err != nil {
		return err
	}
	if s.Conflict != "" {
		return fmt.Errorf("unresolved conflict in %s (%s); resolve it, then run: carry %s %s --continue (or --abort)", s.Conflict, t.Shown(), t.adapter.Command(), t.Release)
	}
	if s, err = t.Base(ctx); err != nil {
		return err
	}
	if s, err = t.finishSwitch(ctx, s); err != nil {
		return err
	}
	want, err := pins.Read(t.Project, t.Release)
	if err != nil {
		return err
	}
	if err := t.linkModules(want); err != nil {
		return err
	}
	base, workspace, err := t.workspace(ctx, want, s.Upstream, s.Released)
	if err != nil {
		return err
	}
	done := s.Applied
	if workspace != s.Workspace {
		done = nil
	}
	s.Base, s.Workspace = base, workspace
	kept := 0
	for kept < len(done) && kept < len(patches) && done[kept].Digest == disk.Digest(patches[kept].Data) && done[kept].Path == patches[kept].Path {
		kept++
	}
	if err := t.exported(s.Applied[min(kept, len(s.Applied)):]); err != nil {
		return err
	}
	done = slices.Clone(done[:kept])
	head := workspace
	if kept > 0 {
		head = done[kept-1].Commit
	}
	if kept == len(patches) && head == s.Head {
		return t.foreign(ctx, s)
	}
	if err := t.Unchanged(ctx, s); err != nil {
		return err
	}
	for _, p := range patches[kept:] {
		commit, err := t.Apply(ctx, p, head, s.Released)
		adapted := DoesNotApply(err)
		if adapted {
			commit, err = t.adapter.Adapt(ctx, t, p, head, s.Released, err)
		} else if err == nil {
			t.Say("applied %s", p.Path)
		}
		if err != nil {
			return t.conflict(ctx, s, done, head, p, err)
		}
		if commit == head {
			continue // dropped
		}
		head = commit
		done = append(done, Applied{Path: p.Path, Digest: disk.Digest(p.Data), Commit: commit, Resolved: adapted})
	}
	s.Applied = done
	return t.switchTo(ctx, s, head)
}

// sweep removes what an interrupted carry left next to the tree. The lock is held,
// so no other carry is at work there.
func (t *Tree) sweep() error {
	var left []string
	for _, pattern := range []string{"kubernetes.building-*", "index-*"} {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(t.Dir), pattern))
		if err != nil {
			return err
		}
		left = append(left, found...)
	}
	for _, path := range left {
		// replaceFolder was interrupted between its two renames: put the tree back.
		if strings.HasSuffix(path, ".old") {
			if _, err := os.Stat(t.Dir); errors.Is(err, fs.ErrNotExist) {
				if err := os.Rename(path, t.Dir); err != nil {
					return err
				}
				continue
			}
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// Dirty lists the files that differ from the last commit, new ones included. go
// itself adds lines to go.work.sum when it is asked about modules; they do not count
// as work.
func (t *Tree) Dirty(ctx context.Context) (string, error) {
	return t.Git().Run(ctx, append([]string{"status", "--porcelain", "--untracked-files=all"}, AllButSums...)...)
}

// AllButSums are the paths that count as work: all but go.work.sum.
var AllButSums = []string{"--", ":/", ":(exclude,top)go.work.sum"}

// foreign returns an error if the tree has commits that are not in patches/.
func (t *Tree) foreign(ctx context.Context, s State) error {
	head, err := t.Git().Run(ctx, "rev-parse", "HEAD")
	if err != nil || head == s.Head {
		return err
	}
	return fmt.Errorf("%s has commits that patches/ lacks; keep them with: carry export %s; or drop them with: git -C %[1]s reset --keep %.12s", t.Shown(), t.Release, s.Head)
}

// Unchanged returns an error if the tree has anything that patches/ has not.
func (t *Tree) Unchanged(ctx context.Context, s State) error {
	if err := t.foreign(ctx, s); err != nil {
		return err
	}
	dirty, err := t.Dirty(ctx)
	if err != nil || dirty == "" {
		return err
	}
	return fmt.Errorf("%s has uncommitted work (%s, %d files in all); keep it with git commit and carry export %s, or with git stash -u; or drop it with: git -C %[1]s reset --hard and git -C %[1]s clean -fd",
		t.Shown(), git.FirstLine(dirty), strings.Count(dirty, "\n")+1, t.Release)
}

// Apply makes a patch's commit on parent. git apply has no fuzz: the context must
// be as the patch has it, though lines may have moved.
func (t *Tree) Apply(ctx context.Context, p patch.Patch, parent string, released time.Time) (string, error) {
	if err := t.place(ctx, p, parent); err != nil {
		return "", err
	}
	g, done, err := t.ScratchIndex(ctx, parent)
	if err != nil {
		return "", err
	}
	defer done()
	if _, err := g.Input(ctx, string(p.Data), "apply", "--cached", "--whitespace=nowarn", "-"); err != nil {
		return "", err
	}
	treeID, err := g.Run(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	return CommitPatch(ctx, g, p, treeID, parent, released)
}

// CommitPatch makes the commit of a patch whose files are in treeID.
func CommitPatch(ctx context.Context, g git.Repo, p patch.Patch, treeID, parent string, released time.Time) (string, error) {
	return g.CommitTree(ctx, git.Commit{Tree: treeID, Parent: parent, Message: p.Message + "\n" + fileTrailer + p.Name + "\n", By: project.Identity, Authored: project.PatchDate, Committed: released})
}

// fileTrailer ends the message of a commit in the tree, and says which file of
// patches/ it is. It is not in the file.
const fileTrailer = "Patch-File: "

// switchTo moves the work tree to a commit. Only files that differ are touched, so
// that a build does again what it must and no more.
func (t *Tree) switchTo(ctx context.Context, s State, head string) error {
	s.Switching = head
	if err := t.Save(s); err != nil {
		return err
	}
	if _, err := t.Git().Run(ctx, "reset", "-q", "--keep", head); err != nil {
		return err
	}
	s.Head, s.Switching = head, ""
	return t.Save(s)
}

// finishSwitch completes a switchTo that was interrupted. The tree was clean when
// that began, so a file that is neither as before nor as after is the user's.
func (t *Tree) finishSwitch(ctx context.Context, s State) (State, error) {
	if s.Switching == "" {
		return s, nil
	}
	// git was killed with the carry that ran it.
	if err := os.Remove(filepath.Join(t.Dir, ".git", "index.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	g := t.Git()
	differ, err := g.Run(ctx, append([]string{"diff", "--name-only", "--no-renames", s.Switching}, AllButSums...)...)
	if err != nil {
		return s, err
	}
	between, err := g.Run(ctx, "diff", "--name-only", "--no-renames", s.Head, s.Switching)
	if err != nil {
		return s, err
	}
	for path := range strings.FieldsSeq(differ) {
		if !slices.Contains(strings.Fields(between), path) {
			return s, fmt.Errorf("%s changed after carry was interrupted; keep or drop that change first (git -C %s diff)", path, t.Shown())
		}
		before, _ := g.Run(ctx, "rev-parse", s.Head+":"+path)
		now, err := g.Run(ctx, "hash-object", path)
		if err == nil && now != before {
			return s, fmt.Errorf("%s changed after carry was interrupted; keep or drop that change first (git -C %s diff)", path, t.Shown())
		}
	}
	if _, err := g.Run(ctx, "reset", "-q", "--hard", s.Switching); err != nil {
		return s, err
	}
	s.Head, s.Switching = s.Switching, ""
	return s, t.Save(s)
}
