package main

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

// tree is a release's git repository, _output/RELEASE/kubernetes.
type tree struct {
	project project.Checkout
	release string
	dir     string
	// adapter is asked about a patch that does not apply.
	adapter adapter
}

// state is what carry knows of a tree, in its .git folder. Everything but the
// commits of the user can be made again from it.
type state struct {
	// Pins identifies the modules that Upstream was made from.
	Pins     string
	Released time.Time
	Upstream string
	// Base is Upstream without modules that were not published, and Workspace the commit
	// below the first patch.
	Base      string
	Workspace string
	// Applied are the patches whose commits stand on Workspace, in order.
	Applied []applied
	// Head is the commit that carry left the tree at. A tree that is elsewhere has
	// commits of the user.
	Head string
	// Switching is set while the work tree goes from Head to it.
	Switching string `json:",omitempty"`
	// Conflict names the patch that was left for the user to resolve.
	Conflict string `json:",omitempty"`
}

type applied struct {
	Path, Digest, Commit string
	// Resolved is set for a commit that the user resolved and nobody has exported yet.
	Resolved bool `json:",omitempty"`
}

func treeOf(p project.Checkout, release string) *tree {
	return &tree{project: p, release: release, dir: p.Path(project.OutputDir, release, "kubernetes"), adapter: strict{}}
}

func (t *tree) git() git.Repo { return git.Repo{Dir: t.dir} }

func (t *tree) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", t.release, fmt.Sprintf(format, args...))
}

// shown is the tree's path as a user would type it.
func (t *tree) shown() string {
	if wd, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(wd, t.dir); err == nil && !strings.HasPrefix(relative, "..") {
			return relative
		}
	}
	return t.dir
}

// lock keeps two carries from working on one release.
func (t *tree) lock() (func(), error) {
	if err := os.MkdirAll(filepath.Dir(t.dir), 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(t.dir), "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("another carry works on %s", t.release)
	}
	return func() { file.Close() }, nil
}

func (t *tree) statePath() string { return filepath.Join(t.dir, ".git", "carry.json") }

func (t *tree) load() (state, error) {
	var s state
	data, err := os.ReadFile(t.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w; remove %s to start anew", t.statePath(), err, t.shown())
	}
	return s, nil
}

func (t *tree) save(s state) error {
	data, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	temporary := t.statePath() + ".new"
	if err := os.WriteFile(temporary, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, t.statePath())
}

// locked runs a step on a tree whose lock is not held yet.
func (t *tree) locked(step func() error) error {
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return step()
}

// base materialises the tree if it is not there, and returns its state.
func (t *tree) base(ctx context.Context) (state, error) {
	want, err := pins.Read(t.project, t.release)
	if err != nil {
		return state{}, err
	}
	if err := t.sweep(); err != nil {
		return state{}, err
	}
	s, err := t.load()
	if err != nil || s.Pins == pinsKey(want) {
		return s, err
	}
	if s.Upstream == "" {
		if entries, err := os.ReadDir(t.dir); err == nil && len(entries) > 0 {
			return s, fmt.Errorf("%s was not made by carry; move it out of the way", t.shown())
		}
	} else {
		if s, err = t.finishSwitch(ctx, s); err != nil {
			return s, err
		}
		if err := t.unchanged(ctx, s); err != nil {
			return s, err
		}
	}
	if err := t.materialise(ctx, want); err != nil {
		return s, err
	}
	return t.load()
}

// update brings the tree to where patches/ says it should be.
func (t *tree) update(ctx context.Context) error {
	patches, err := series.Read(t.project, t.release)
	if err != nil {
		return err
	}
	s, err := t.load()
	if err != nil {
		return err
	}
	if s.Conflict != "" {
		return fmt.Errorf("%s waits in %s for its conflict to be resolved; then: carry tree %s --continue (or --abort)", s.Conflict, t.shown(), t.release)
	}
	if s, err = t.base(ctx); err != nil {
		return err
	}
	if s, err = t.finishSwitch(ctx, s); err != nil {
		return err
	}
	want, err := pins.Read(t.project, t.release)
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
	for _, a := range s.Applied[min(kept, len(s.Applied)):] {
		if a.Resolved {
			return fmt.Errorf("%s has your resolution of %s, which patches/ has not; keep it with: carry export %s", t.shown(), a.Path, t.release)
		}
	}
	done = slices.Clone(done[:kept])
	head := workspace
	if kept > 0 {
		head = done[kept-1].Commit
	}
	if kept == len(patches) && head == s.Head {
		return t.foreign(ctx, s)
	}
	if err := t.unchanged(ctx, s); err != nil {
		return err
	}
	for _, p := range patches[kept:] {
		commit, err := t.apply(ctx, p, head, s.Released)
		adapted := doesNotApply(err)
		if adapted {
			commit, err = t.adapter.adapt(ctx, t, p, head, s.Released, err)
		} else if err == nil {
			t.say("applied %s", p.Path)
		}
		if err != nil {
			return t.conflict(ctx, s, done, head, p, err)
		}
		if commit == head {
			continue // dropped
		}
		head = commit
		done = append(done, applied{Path: p.Path, Digest: disk.Digest(p.Data), Commit: commit, Resolved: adapted})
	}
	s.Applied = done
	return t.switchTo(ctx, s, head)
}

// sweep removes what an interrupted carry left beside the tree. The lock is held,
// so nobody is at work there.
func (t *tree) sweep() error {
	var left []string
	for _, pattern := range []string{"kubernetes.building-*", "index-*"} {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(t.dir), pattern))
		if err != nil {
			return err
		}
		left = append(left, found...)
	}
	for _, path := range left {
		// replaceFolder was interrupted between its two renames: put the tree back.
		if strings.HasSuffix(path, ".old") {
			if _, err := os.Stat(t.dir); errors.Is(err, fs.ErrNotExist) {
				if err := os.Rename(path, t.dir); err != nil {
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

// dirty lists the files that differ from the last commit, new ones included. go
// itself adds lines to go.work.sum when it is asked about modules; they are no work
// of anybody.
func (t *tree) dirty(ctx context.Context) (string, error) {
	return t.git().Run(ctx, append([]string{"status", "--porcelain", "--untracked-files=all"}, allButSums...)...)
}

// allButSums are the paths that count as work: all but go.work.sum.
var allButSums = []string{"--", ":/", ":(exclude,top)go.work.sum"}

// foreign returns an error if the tree has commits that are not in patches/.
func (t *tree) foreign(ctx context.Context, s state) error {
	head, err := t.git().Run(ctx, "rev-parse", "HEAD")
	if err != nil || head == s.Head {
		return err
	}
	return fmt.Errorf("%s has commits that patches/ has not; keep them with: carry export %s; or drop them with: git -C %[1]s reset --keep %.12s", t.shown(), t.release, s.Head)
}

// unchanged returns an error if the tree has anything that patches/ has not.
func (t *tree) unchanged(ctx context.Context, s state) error {
	if err := t.foreign(ctx, s); err != nil {
		return err
	}
	dirty, err := t.dirty(ctx)
	if err != nil || dirty == "" {
		return err
	}
	return fmt.Errorf("%s has uncommitted work (%s, %d files in all); keep it with git commit and carry export %s, or with git stash -u; or drop it with: git -C %[1]s reset --hard and git -C %[1]s clean -fd",
		t.shown(), git.FirstLine(dirty), strings.Count(dirty, "\n")+1, t.release)
}

// apply makes a patch's commit on parent. git apply has no fuzz: the context must
// be as the patch has it, though lines may have moved.
func (t *tree) apply(ctx context.Context, p patch.Patch, parent string, released time.Time) (string, error) {
	if err := t.place(ctx, p, parent); err != nil {
		return "", err
	}
	g, done, err := t.scratchIndex(ctx, parent)
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
	return commitPatch(ctx, g, p, treeID, parent, released)
}

// commitPatch makes the commit of a patch whose files are in treeID.
func commitPatch(ctx context.Context, g git.Repo, p patch.Patch, treeID, parent string, released time.Time) (string, error) {
	return g.CommitTree(ctx, git.Commit{Tree: treeID, Parent: parent, Message: p.Message + "\n" + fileTrailer + p.Name + "\n", By: project.Identity, Authored: project.PatchDate, Committed: released})
}

// fileTrailer ends the message of a commit in the tree, and says which file of
// patches/ it is. It is not in the file.
const fileTrailer = "Patch-File: "

// switchTo moves the work tree to a commit. Only files that differ are touched, so
// that a build does again what it must and no more.
func (t *tree) switchTo(ctx context.Context, s state, head string) error {
	s.Switching = head
	if err := t.save(s); err != nil {
		return err
	}
	if _, err := t.git().Run(ctx, "reset", "-q", "--keep", head); err != nil {
		return err
	}
	s.Head, s.Switching = head, ""
	return t.save(s)
}

// finishSwitch completes a switchTo that was interrupted. The tree was clean when
// that began, so a file that is neither as before nor as after is the user's.
func (t *tree) finishSwitch(ctx context.Context, s state) (state, error) {
	if s.Switching == "" {
		return s, nil
	}
	// git was killed with the carry that ran it.
	if err := os.Remove(filepath.Join(t.dir, ".git", "index.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	g := t.git()
	differ, err := g.Run(ctx, append([]string{"diff", "--name-only", "--no-renames", s.Switching}, allButSums...)...)
	if err != nil {
		return s, err
	}
	between, err := g.Run(ctx, "diff", "--name-only", "--no-renames", s.Head, s.Switching)
	if err != nil {
		return s, err
	}
	for path := range strings.FieldsSeq(differ) {
		if !slices.Contains(strings.Fields(between), path) {
			return s, fmt.Errorf("%s was changed after carry was interrupted; keep or drop that change first (git -C %s diff)", path, t.shown())
		}
		before, _ := g.Run(ctx, "rev-parse", s.Head+":"+path)
		now, err := g.Run(ctx, "hash-object", path)
		if err == nil && now != before {
			return s, fmt.Errorf("%s was changed after carry was interrupted; keep or drop that change first (git -C %s diff)", path, t.shown())
		}
	}
	if _, err := g.Run(ctx, "reset", "-q", "--hard", s.Switching); err != nil {
		return s, err
	}
	s.Head, s.Switching = s.Switching, ""
	return s, t.save(s)
}
