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

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
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

func (t *tree) rebasePath() string { return filepath.Join(filepath.Dir(t.dir), "rebase.json") }

func (t *tree) loadRebase() (*rebase, error) {
	data, err := os.ReadFile(t.rebasePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r rebase
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return &r, err
}

func (t *tree) saveRebase(r *rebase) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return disk.Write(t.rebasePath(), append(data, '\n'))
}

// underWay returns an error if a rebase to another release is under way, which may
// change the same files.
func (t *tree) underWay() error {
	others, err := filepath.Glob(t.project.Path(project.OutputDir, "*", filepath.Base(t.rebasePath())))
	for _, other := range others {
		if other != t.rebasePath() {
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
func (t *tree) startRebase(ctx context.Context, noBuild bool, upstreamGit string) error {
	if under, err := t.loadRebase(); err != nil || under != nil {
		return errors.Join(err, fmt.Errorf("a rebase to %s is under way; go on with --continue, or drop it with --abort", t.release))
	}
	if err := t.underWay(); err != nil {
		return err
	}
	known, err := t.project.Releases()
	if err != nil {
		return err
	}
	if slices.Contains(known, t.release) {
		return fmt.Errorf("%s is known already; see whether the series is right there with: carry verify %[1]s", t.release)
	}
	if _, err := os.Stat(t.dir); err == nil {
		return fmt.Errorf("%s is there, though %s is not known; move it out of the way", t.shown(), t.release)
	}
	before, err := mayChange(t.project)
	if err != nil {
		return err
	}
	r := &rebase{From: nearest(t.release, known), Before: before, NoBuild: noBuild, UpstreamGit: upstreamGit}
	if err := t.saveRebase(r); err != nil {
		return err
	}
	if err := pins.Write(ctx, t.project, t.release); err != nil {
		return errors.Join(err, t.abortRebase(ctx))
	}
	t.say("pinned; starting from the patches of %s", r.From)
	return t.goOn(ctx, r)
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
func (t *tree) goOn(ctx context.Context, r *rebase) error {
	// The files that patches were made for are in these trees.
	known, err := t.project.Releases()
	if err != nil {
		return err
	}
	for _, release := range slices.Compact([]string{r.From, newestBut(t.release, known)}) {
		other := treeOf(t.project, release)
		if err := other.locked(func() error { return other.update(ctx) }); err != nil {
			return fmt.Errorf("the tree of %s: %w", release, err)
		}
	}
	if err := t.adapting(r).update(ctx); err != nil {
		return err
	}
	return t.finishRebase(ctx, r)
}

func newestBut(release string, known []string) string {
	return known[slices.IndexFunc(known, func(k string) bool { return k != release })]
}

func (t *tree) continueRebase(ctx context.Context, noBuild bool, upstreamGit string) error {
	r, err := t.loadRebase()
	if err != nil {
		return err
	}
	if r == nil {
		return fmt.Errorf("there is no rebase to %s to continue; start one with: carry rebase %[1]s", t.release)
	}
	r.NoBuild = r.NoBuild || noBuild
	r.UpstreamGit = cmp.Or(upstreamGit, r.UpstreamGit)
	if err := t.saveRebase(r); err != nil {
		return err
	}
	s, err := t.load()
	if err != nil {
		return err
	}
	patches, err := series.Read(t.project, t.release)
	if err != nil {
		return err
	}
	if s.Conflict != "" {
		if slices.ContainsFunc(patches, func(p patch.Patch) bool { return p.Path == s.Conflict }) {
			if err := t.adapting(r).resume(ctx); err != nil {
				return err
			}
			return t.finishRebase(ctx, r)
		}
		// It was resolved by dropping the patch.
		if err := t.abort(ctx); err != nil {
			return err
		}
		return t.goOn(ctx, r)
	}
	if s.Workspace != "" && s.Switching == "" {
		head, err := t.git().Run(ctx, "rev-parse", "HEAD")
		if err != nil {
			return err
		}
		// The user mended in the tree what did not compile.
		if head != s.Head || len(s.Applied) == len(patches) {
			return t.finishRebase(ctx, r)
		}
	}
	return t.goOn(ctx, r)
}

func (t *tree) finishRebase(ctx context.Context, r *rebase) error {
	if err := t.export(ctx); err != nil {
		return err
	}
	known, err := t.project.Releases()
	if err != nil {
		return err
	}
	if t.release == known[0] {
		if err := t.keepForOlder(ctx, r, known); err != nil {
			return err
		}
		if err := t.update(ctx); err != nil {
			return err
		}
		if err := t.raiseModules(ctx); err != nil {
			return err
		}
	}
	if !r.NoBuild {
		if _, _, err := t.compile(ctx); err != nil {
			return fmt.Errorf("the series applies to %s, but does not compile there (%w).\nMend it in %s, git commit, and go on with: carry rebase %[1]s --continue", t.release, err, t.shown())
		}
	}
	if err := os.Remove(t.rebasePath()); err != nil {
		return err
	}
	size, err := series.SizeOf(t.project, t.release)
	if err != nil {
		return err
	}
	t.say("done: %d patches, %d of them overrides; see that the series is right everywhere with: carry verify; and name the release in the README's table", size.Patches, size.Overrides)
	return nil
}

// compile builds the packages that the series touches, and this project's, and returns
// both.
func (t *tree) compile(ctx context.Context) (touched, ours []string, err error) {
	if touched, err = t.touched(); err != nil {
		return nil, nil, err
	}
	if ours, err = t.project.Packages(); err != nil {
		return nil, nil, err
	}
	env, err := t.goEnv(ctx)
	if err != nil {
		return nil, nil, err
	}
	t.say("compiling %d packages that the series touches, and %d of ours", len(touched), len(ours))
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-v"}, buildFlags, touched, ours)...)
	cmd.Dir, cmd.Env = t.dir, env
	return touched, ours, t.follow(cmd, "compiled")
}

// keepForOlder gives older releases the common patches of before where the new ones
// do not do for them.
func (t *tree) keepForOlder(ctx context.Context, r *rebase, known []string) error {
	names, err := series.Order(t.project)
	if err != nil {
		return err
	}
	written := map[string]bool{}
	for _, release := range known[1:] {
		o := treeOf(t.project, release)
		for {
			var failing string
			if err := o.locked(func() (err error) {
				failing, err = o.firstThatFails(ctx)
				return err
			}); err != nil {
				return err
			}
			if failing == "" {
				break
			}
			before, was := r.Before[filepath.Join(project.PatchesDir, failing)]
			path := filepath.Join(series.OverrideDir(t.project, release, known), failing)
			if _, overridden := r.Before[path]; !was || overridden || written[path] || !slices.Contains(names, failing) {
				return fmt.Errorf("%s does not apply to %s any more", failing, release)
			}
			t.say("%s keeps the %s of before", release, failing)
			written[path] = true
			if err := disk.Write(t.project.Path(path), before); err != nil {
				return err
			}
		}
	}
	return nil
}

// firstThatFails returns the name of the first patch that does not apply, without
// touching the tree's files.
func (t *tree) firstThatFails(ctx context.Context) (string, error) {
	s, err := t.base(ctx)
	if err != nil {
		return "", err
	}
	patches, err := series.Read(t.project, t.release)
	if err != nil {
		return "", err
	}
	head := s.Upstream
	for _, p := range patches {
		if head, err = t.apply(ctx, p, head, s.Released); err != nil {
			if doesNotApply(err) {
				return p.Name, nil
			}
			return "", err
		}
	}
	return "", nil
}

// raiseModules makes the project's own modules require the newest release.
func (t *tree) raiseModules(ctx context.Context) error {
	want, err := pins.Read(t.project, t.release)
	if err != nil {
		return err
	}
	for _, dir := range project.RaisedDirs {
		data, err := os.ReadFile(t.project.Path(dir, "go.mod"))
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
			cmd.Dir = t.project.Path(dir)
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
func (t *tree) abortRebase(ctx context.Context) error {
	r, err := t.loadRebase()
	if err != nil {
		return err
	}
	if r == nil {
		return fmt.Errorf("there is no rebase to %s to abort", t.release)
	}
	// The tree goes first, since there may be no room for anything.
	if err := errors.Join(os.RemoveAll(t.dir), os.RemoveAll(filepath.Join(filepath.Dir(t.dir), "modules"))); err != nil {
		return err
	}
	now, err := mayChange(t.project)
	if err != nil {
		return err
	}
	for path := range now {
		if _, was := r.Before[path]; !was {
			err = errors.Join(err, os.Remove(t.project.Path(path)))
			// Its folder goes with the last file.
			_ = os.Remove(filepath.Dir(t.project.Path(path)))
		}
	}
	for path, content := range r.Before {
		if !bytes.Equal(now[path], content) {
			err = errors.Join(err, disk.Write(t.project.Path(path), content))
		}
	}
	// What was is known to nobody else until it is all there again.
	if err = errors.Join(err, os.RemoveAll(t.project.Path(project.ReleasesDir, t.release))); err != nil {
		return err
	}
	return os.Remove(t.rebasePath())
}

// adapt finds another way for a patch that does not apply, during a rebase: upstream
// has the change already, another release's file of that name does, or a three-way
// merge. It returns the commit; the same as parent for a patch that is dropped.
func (r *rebase) adapt(ctx context.Context, t *tree, p patch.Patch, parent string, released time.Time, _ error) (commit string, err error) {
	g, done, err := t.scratchIndex(ctx, parent)
	if err != nil {
		return "", err
	}
	defer done()
	if _, err := g.Input(ctx, string(p.Data), "apply", "--reverse", "--check", "--cached", "-"); err == nil {
		// The release's own: its minor version has the change from some patch release on.
		path := filepath.Join(project.PatchesDir, t.release, project.DroppedName)
		before, err := os.ReadFile(t.project.Path(path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		t.say("%s: upstream has it; dropped, see %s", p.Path, path)
		return parent, disk.Write(t.project.Path(path), fmt.Appendf(before, "%s upstream has it in %s\n", p.Name, t.release))
	}
	others, err := filepath.Glob(t.project.Path(project.PatchesDir, "v*", p.Name))
	if err != nil {
		return "", err
	}
	next, _, err := series.File(t.project, r.From, p.Name)
	if err != nil {
		return "", err
	}
	for _, other := range append([]string{t.project.Path(next), t.project.Path(project.PatchesDir, p.Name)}, others...) {
		relative, err := filepath.Rel(t.project.Dir, other)
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
		commit, err := t.apply(ctx, candidate, parent, released)
		if err == nil {
			t.say("applied %s", relative)
			return commit, nil
		}
		if !doesNotApply(err) {
			return "", err
		}
	}
	if err := t.importBlobs(ctx, p); err != nil {
		return "", err
	}
	if !t.hasPreimages(ctx, p) {
		return "", notApplied("the files that the patch was made from are not known")
	}
	if _, err := g.Input(ctx, string(p.Data), "apply", "--cached", "--3way", "--whitespace=nowarn", "-"); err != nil {
		return "", err
	}
	if unmerged, err := g.Run(ctx, "ls-files", "--unmerged"); err != nil || unmerged != "" {
		return "", errors.Join(err, notApplied("conflict"))
	}
	treeID, err := g.Run(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	t.say("merged %s three-way", p.Path)
	return commitPatch(ctx, g, p, treeID, parent, released)
}

func (r *rebase) command() string { return "rebase" }

// background lists upstream's commits between two releases that change the patch's
// files, from a clone of upstream.
func (r *rebase) background(ctx context.Context, t *tree, p patch.Patch) string {
	if r.UpstreamGit == "" {
		return "\nUpstream's commits are not known here; --upstream-git names a clone of upstream that has them."
	}
	args := []string{"log", "--oneline", "--no-merges", r.From + "..." + t.release, "--"}
	for _, file := range p.Files {
		args = append(args, file.Path)
	}
	log, err := git.Repo{Dir: r.UpstreamGit}.Run(ctx, args...)
	if err != nil {
		return fmt.Sprintf("\nUpstream's commits are not known: %v", err)
	}
	return fmt.Sprintf("\nUpstream's commits between %s and %s in these files:\n%s", r.From, t.release, log)
}
