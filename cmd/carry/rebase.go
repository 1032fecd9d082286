package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// rebase brings the series to a release that is not known yet. It is on disk while it
// is under way, in _output/RELEASE/rebase.json, with a copy of every file that it may change.
type rebase struct {
	// From is the known release next to the new one, whose patches are tried first.
	From string
	// Before maps the paths of files to what they were; what is not in it was not there.
	Before map[string][]byte
	// NoBuild leaves out compiling, and UpstreamGit is a clone of upstream, if there is one.
	NoBuild     bool   `json:",omitempty"`
	UpstreamGit string `json:",omitempty"`
}

func rebasePath(t *tree.Tree) string { return filepath.Join(filepath.Dir(t.Dir), "rebase.json") }

func loadRebase(t *tree.Tree) (*rebase, error) {
	data, err := os.ReadFile(rebasePath(t))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r rebase
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return &r, err
}

func saveRebase(t *tree.Tree, r *rebase) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return disk.Write(rebasePath(t), append(data, '\n'))
}

// underWay returns an error if a rebase to another release is under way, which may
// change the same files.
func underWay(t *tree.Tree) error {
	others, err := filepath.Glob(t.Project.Path(project.OutputDir, "*", filepath.Base(rebasePath(t))))
	for _, other := range others {
		if other != rebasePath(t) {
			return fmt.Errorf("a rebase to %s is under way; end it first with: carry rebase %[1]s --continue, or --abort", filepath.Base(filepath.Dir(other)))
		}
	}
	return err
}

// mayChange are the files that a rebase may change, besides the release's own folders.
func mayChange(p project.Checkout) (map[string][]byte, error) {
	before := map[string][]byte{}
	var paths []string
	for _, dir := range project.RaisedDirs {
		paths = append(paths, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"))
	}
	err := filepath.WalkDir(p.Path(project.PatchesDir), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var relative string
			relative, err = filepath.Rel(p.Dir, path)
			paths = append(paths, relative)
		}
		return err
	})
	for _, path := range paths {
		data, readErr := os.ReadFile(p.Path(path))
		if readErr == nil {
			before[path] = data
		} else if !errors.Is(readErr, fs.ErrNotExist) {
			err = errors.Join(err, readErr)
		}
	}
	return before, err
}

// startRebase pins the release and begins.
func startRebase(ctx context.Context, t *tree.Tree, noBuild bool, upstreamGit string) error {
	if under, err := loadRebase(t); err != nil || under != nil {
		return errors.Join(err, fmt.Errorf("a rebase to %s is under way; go on with --continue, or drop it with --abort", t.Release))
	}
	if err := underWay(t); err != nil {
		return err
	}
	known, err := t.Project.Releases()
	if err != nil {
		return err
	}
	if slices.Contains(known, t.Release) {
		return fmt.Errorf("%s is known already; see whether the series is right there with: carry verify %[1]s", t.Release)
	}
	if _, err := os.Stat(t.Dir); err == nil {
		return fmt.Errorf("%s is there, though %s is not known; move it out of the way", t.Shown(), t.Release)
	}
	before, err := mayChange(t.Project)
	if err != nil {
		return err
	}
	r := &rebase{From: nearest(t.Release, known), Before: before, NoBuild: noBuild, UpstreamGit: upstreamGit}
	if err := saveRebase(t, r); err != nil {
		return err
	}
	if err := pins.Write(ctx, t.Project, t.Release); err != nil {
		return errors.Join(err, abortRebase(ctx, t))
	}
	t.Say("pinned; starting from the patches of %s", r.From)
	return goOn(ctx, t, r)
}

// nearest returns the known release next to another one, the newer of two as near.
func nearest(release string, known []string) string {
	number := func(release string) int {
		match := project.ReleaseForm.FindStringSubmatch(release)
		minor, _ := strconv.Atoi(match[1])
		patch, _ := strconv.Atoi(match[2])
		return minor*1000 + patch
	}
	sorted := slices.Clone(known)
	semver.Sort(sorted)
	slices.Reverse(sorted)
	return slices.MinFunc(sorted, func(a, b string) int {
		return max(number(a)-number(release), number(release)-number(a)) - max(number(b)-number(release), number(release)-number(b))
	})
}

// goOn applies what is left of the series, writes overrides, and compiles.
func goOn(ctx context.Context, t *tree.Tree, r *rebase) error {
	// The files that patches were made for are in these trees.
	known, err := t.Project.Releases()
	if err != nil {
		return err
	}
	for _, release := range slices.Compact([]string{r.From, newestBut(t.Release, known)}) {
		other := tree.Of(t.Project, release)
		if err := other.Locked(func() error { return other.Update(ctx) }); err != nil {
			return fmt.Errorf("the tree of %s: %w", release, err)
		}
	}
	if err := t.Adapting(r).Update(ctx); err != nil {
		return err
	}
	return finishRebase(ctx, t, r)
}

func newestBut(release string, known []string) string {
	return known[slices.IndexFunc(known, func(k string) bool { return k != release })]
}

func continueRebase(ctx context.Context, t *tree.Tree, noBuild bool, upstreamGit string) error {
	r, err := loadRebase(t)
	if err != nil {
		return err
	}
	if r == nil {
		return fmt.Errorf("there is no rebase to %s to continue; start one with: carry rebase %[1]s", t.Release)
	}
	r.NoBuild = r.NoBuild || noBuild
	r.UpstreamGit = cmp.Or(upstreamGit, r.UpstreamGit)
	if err := saveRebase(t, r); err != nil {
		return err
	}
	s, err := t.Load()
	if err != nil {
		return err
	}
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return err
	}
	if s.Conflict != "" {
		if slices.ContainsFunc(patches, func(p patch.Patch) bool { return p.Path == s.Conflict }) {
			if err := t.Adapting(r).Resume(ctx); err != nil {
				return err
			}
			return finishRebase(ctx, t, r)
		}
		// It was resolved by dropping the patch.
		if err := t.Abort(ctx); err != nil {
			return err
		}
		return goOn(ctx, t, r)
	}
	if s.Workspace != "" && s.Switching == "" {
		head, err := t.Git().Run(ctx, "rev-parse", "HEAD")
		if err != nil {
			return err
		}
		// The user mended in the tree what did not compile.
		if head != s.Head || len(s.Applied) == len(patches) {
			return finishRebase(ctx, t, r)
		}
	}
	return goOn(ctx, t, r)
}

func finishRebase(ctx context.Context, t *tree.Tree, r *rebase) error {
	if err := underWay(t); err != nil {
		return err
	}
	if err := t.Export(ctx); err != nil {
		return err
	}
	known, err := t.Project.Releases()
	if err != nil {
		return err
	}
	if t.Release == known[0] {
		if err := keepForOlder(ctx, t, r, known); err != nil {
			return err
		}
		if err := t.Update(ctx); err != nil {
			return err
		}
		if err := raiseModules(ctx, t); err != nil {
			return err
		}
	}
	if !r.NoBuild {
		if _, _, err := build.Compile(ctx, t); err != nil {
			return fmt.Errorf("the series applies to %s, but does not compile there (%w).\nMend it in %s, git commit, and go on with: carry rebase %[1]s --continue", t.Release, err, t.Shown())
		}
	}
	if err := os.Remove(rebasePath(t)); err != nil {
		return err
	}
	size, err := series.SizeOf(t.Project, t.Release)
	if err != nil {
		return err
	}
	t.Say("done: %d patches, %d of them overrides; see that the series is right everywhere with: carry verify; and name the release in the README's table", size.Patches, size.Overrides)
	return nil
}

// keepForOlder gives older releases the common patches of before where the new ones
// do not do for them.
func keepForOlder(ctx context.Context, t *tree.Tree, r *rebase, known []string) error {
	names, err := series.Order(t.Project)
	if err != nil {
		return err
	}
	written := map[string]bool{}
	for _, release := range known[1:] {
		o := tree.Of(t.Project, release)
		for {
			var failing string
			if err := o.Locked(func() (err error) {
				failing, err = firstThatFails(ctx, o)
				return err
			}); err != nil {
				return err
			}
			if failing == "" {
				break
			}
			before, was := r.Before[filepath.Join(project.PatchesDir, failing)]
			path := filepath.Join(series.OverrideDir(t.Project, release, known), failing)
			if _, overridden := r.Before[path]; !was || overridden || written[path] || !slices.Contains(names, failing) {
				return fmt.Errorf("%s does not apply to %s any more", failing, release)
			}
			t.Say("%s keeps the %s of before", release, failing)
			written[path] = true
			if err := disk.Write(t.Project.Path(path), before); err != nil {
				return err
			}
		}
	}
	return nil
}

// firstThatFails returns the name of the first patch that does not apply, without
// touching the tree's files.
func firstThatFails(ctx context.Context, t *tree.Tree) (string, error) {
	s, err := t.Base(ctx)
	if err != nil {
		return "", err
	}
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return "", err
	}
	head := s.Upstream
	for _, p := range patches {
		if head, err = t.Apply(ctx, p, head, s.Released); err != nil {
			if tree.DoesNotApply(err) {
				return p.Name, nil
			}
			return "", err
		}
	}
	return "", nil
}

// raiseModules makes the project's own modules require the newest release.
func raiseModules(ctx context.Context, t *tree.Tree) error {
	want, err := pins.Read(t.Project, t.Release)
	if err != nil {
		return err
	}
	for _, dir := range project.RaisedDirs {
		data, err := os.ReadFile(t.Project.Path(dir, "go.mod"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		args := []string{"mod", "edit", "-fmt"}
		for _, match := range requirement.FindAllStringSubmatch(string(data), -1) {
			if version := want.Modules[match[1]]; version != "" {
				args = append(args, "-require="+match[1]+"@"+version)
			}
		}
		for _, args := range [][]string{args, {"mod", "tidy"}} {
			cmd := exec.CommandContext(ctx, "go", args...)
			cmd.Dir = t.Project.Path(dir)
			cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("go %s in %s: %w: %s", strings.Join(args[:2], " "), dir, err, out)
			}
		}
	}
	return nil
}

var requirement = regexp.MustCompile(`(?m)^\t(k8s\.io/\S+) v`)

// abortRebase leaves everything as it was.
func abortRebase(ctx context.Context, t *tree.Tree) error {
	r, err := loadRebase(t)
	if err != nil {
		return err
	}
	if r == nil {
		return fmt.Errorf("there is no rebase to %s to abort", t.Release)
	}
	// The tree goes first, since there may be no room for anything.
	if err := errors.Join(os.RemoveAll(t.Dir), os.RemoveAll(filepath.Join(filepath.Dir(t.Dir), "modules"))); err != nil {
		return err
	}
	now, err := mayChange(t.Project)
	if err != nil {
		return err
	}
	for path := range now {
		if _, was := r.Before[path]; !was {
			err = errors.Join(err, os.Remove(t.Project.Path(path)))
			// Its folder goes with the last file.
			_ = os.Remove(filepath.Dir(t.Project.Path(path)))
		}
	}
	for path, content := range r.Before {
		if !bytes.Equal(now[path], content) {
			err = errors.Join(err, disk.Write(t.Project.Path(path), content))
		}
	}
	// What was is known to nobody else until it is all there again.
	if err = errors.Join(err, os.RemoveAll(t.Project.Path(project.ReleasesDir, t.Release))); err != nil {
		return err
	}
	return os.Remove(rebasePath(t))
}

// Adapt finds another way for a patch that does not apply, during a rebase: upstream
// has the change already, another release's file of that name does, or a three-way
// merge. It returns the commit; the same as parent for a patch that is dropped.
func (r *rebase) Adapt(ctx context.Context, t *tree.Tree, p patch.Patch, parent string, released time.Time, _ error) (commit string, err error) {
	g, done, err := t.ScratchIndex(ctx, parent)
	if err != nil {
		return "", err
	}
	defer done()
	if _, err := g.Input(ctx, string(p.Data), "apply", "--reverse", "--check", "--cached", "-"); err == nil {
		// The release's own: its minor version has the change from some patch release on.
		path := filepath.Join(project.PatchesDir, t.Release, project.DroppedName)
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
		return "", tree.NotApplied("the files that the patch was made from are not known")
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

func (r *rebase) Command() string { return "rebase" }

// Background lists upstream's commits between two releases that change the patch's
// files, from a clone of upstream.
func (r *rebase) Background(ctx context.Context, t *tree.Tree, p patch.Patch) string {
	if r.UpstreamGit == "" {
		return "\nUpstream's commits are not known here; --upstream-git names a clone of upstream that has them."
	}
	args := []string{"log", "--oneline", "--no-merges", r.From + "..." + t.Release, "--"}
	for _, file := range p.Files {
		args = append(args, file.Path)
	}
	log, err := git.Repo{Dir: r.UpstreamGit}.Run(ctx, args...)
	if err != nil {
		return fmt.Sprintf("\nUpstream's commits are not known: %v", err)
	}
	return fmt.Sprintf("\nUpstream's commits between %s and %s in these files:\n%s", r.From, t.Release, log)
}
