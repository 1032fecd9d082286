// SPDX-License-Identifier: Apache-2.0

// Package rebase brings the series to a release that is not known yet, for good or for a
// preview, and takes that back.
// It knows pins, patches and trees, and must not know what the release is then built or
// tested for.
package rebase

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// rebase is one that is under way. It is on disk for that time, in
// _output/RELEASE/rebase.json, with a copy of every file that it may change.
type rebase struct {
	// From is the known release next to the new one, whose patches are tried first.
	From string
	// kind is not on disk, since a preview is not, either.
	kind kind
	// Before maps the paths of files to what they were; what is not in it was not there.
	Before map[string][]byte
	Options
}

// kind is what a rebase for good and one for a preview do differently.
type kind struct {
	// command is that of carry which goes on after a conflict.
	command string
	// patches returns the directory of what comes out of it for the release alone.
	patches func(release string) string
}

var (
	// forGood is that of a release which becomes a known one.
	forGood = kind{"rebase", func(release string) string { return filepath.Join(project.PatchesDir, release) }}
	// forPreview is that of a release which does not.
	forPreview = kind{"preview", project.PreviewPatches}
)

// Options are what the user wants of a rebase.
type Options struct {
	// AtEnd is what is done when the series applies.
	AtEnd AtEnd `json:",omitempty"`
	// UpstreamGit is a clone of upstream, if there is one, to name its commits in a conflict.
	UpstreamGit string `json:",omitempty"`
}

// AtEnd is the proof that a rebase ends with.
type AtEnd string

const (
	// Compile builds the packages that the series touches, and is the default.
	Compile AtEnd = ""
	// Nothing leaves that to the user.
	Nothing AtEnd = "nothing"
)

func recordPath(t *tree.Tree) string { return filepath.Join(filepath.Dir(t.Dir), "rebase.json") }

func load(t *tree.Tree) (*rebase, error) {
	data, err := os.ReadFile(recordPath(t))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := rebase{kind: forGood}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return &r, err
}

func save(t *tree.Tree, r *rebase) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return disk.Write(recordPath(t), append(data, '\n'))
}

// UnderWay returns an error if a rebase to another release is under way, which may
// change the same files.
func UnderWay(t *tree.Tree) error {
	releases, err := Releases(t.Project)
	for _, release := range releases {
		if release != t.Release {
			return fmt.Errorf("a rebase to %s is under way; end it first with: carry rebase --continue, or --abort", release)
		}
	}
	return err
}

// Releases returns those to which a rebase is under way.
func Releases(c project.Checkout) ([]string, error) {
	records, err := filepath.Glob(recordPath(tree.Of(c, "*")))
	var releases []string
	for _, record := range records {
		releases = append(releases, filepath.Base(filepath.Dir(record)))
	}
	return releases, err
}

// mayChange are the files that a rebase may change, besides the release's own directories.
func mayChange(p project.Checkout) (map[string][]byte, error) {
	before := map[string][]byte{}
	var paths []string
	for _, dir := range slices.Concat(project.RaisedDirs, project.ReaderDirs) {
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

// Start pins the release and begins.
func Start(ctx context.Context, t *tree.Tree, wanted Options) error {
	if under, err := load(t); err != nil || under != nil {
		return errors.Join(err, fmt.Errorf("a rebase to %s is under way; go on with --continue, or drop it with --abort", t.Release))
	}
	if err := UnderWay(t); err != nil {
		return err
	}
	known, err := t.Project.Releases()
	if err != nil {
		return err
	}
	if slices.Contains(known, t.Release) {
		return fmt.Errorf("%s is already known; check the series there with: carry verify %[1]s", t.Release)
	}
	if previews, err := t.Project.Previews(); err != nil || slices.Contains(previews, t.Release) {
		return errors.Join(err, fmt.Errorf("%s is being previewed; end that first with: carry preview %[1]s --abort", t.Release))
	}
	if _, err := os.Stat(t.Dir); err == nil {
		return fmt.Errorf("%s exists, though %s is not known; move it away", t.Shown(), t.Release)
	}
	before, err := mayChange(t.Project)
	if err != nil {
		return err
	}
	published, err := pins.Fetch(ctx, t.Release)
	if err == nil && !published.Whole() {
		err = refused(ctx, t, published)
	}
	if err != nil {
		return errors.Join(err, t.Vanish())
	}
	r := &rebase{From: nearest(t.Release, known), kind: forGood, Before: before, Options: wanted}
	if err := save(t, r); err != nil {
		return err
	}
	if err := published.Write(ctx, t.Project, filepath.Join(project.ReleasesDir, t.Release)); err != nil {
		return errors.Join(err, Abort(ctx, t))
	}
	t.Say("pinned; starting from the patches of %s", r.From)
	return goOn(ctx, t, r)
}

// refused is the error of a release without a module that a binary needs. It names the newest
// release of the minor version that can be downloaded, if go lists one.
func refused(ctx context.Context, t *tree.Tree, published pins.Published) error {
	text := fmt.Sprintf("%s cannot be downloaded; nothing was changed:", t.Release)
	for _, r := range published.Missing() {
		text += fmt.Sprintf("\n%s", r)
	}
	listed, err := pins.Listed(ctx, t.Project)
	if err != nil {
		return errors.Join(errors.New(text), err)
	}
	t.Say("cannot be downloaded; looking for the newest %s that can", project.Minor(t.Release))
	others := slices.DeleteFunc(pins.Finished(project.Minor(t.Release), listed), func(l string) bool { return l == t.Release })
	switch newest, _, err := pins.Newest(ctx, others, false); {
	case err != nil:
		return errors.Join(errors.New(text), err)
	case newest.Release == "":
		return fmt.Errorf("%s\nNo release of %s can be downloaded", text, project.Minor(t.Release))
	default:
		return fmt.Errorf("%s\nThe newest release of %s that can be downloaded is %s", text, project.Minor(t.Release), newest.Release)
	}
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
	if err := r.apply(ctx, t); err != nil {
		return err
	}
	return finish(ctx, t, r)
}

// apply applies what is left of the series.
func (r *rebase) apply(ctx context.Context, t *tree.Tree) error {
	// The files that patches were made for are in these trees.
	known, err := t.Project.Releases()
	if err != nil {
		return err
	}
	for _, release := range slices.Compact([]string{r.From, newestBut(t.Release, known)}) {
		other := tree.Of(t.Project, release)
		if err := other.Locked(ctx, func() error { return other.Update(ctx) }); err != nil {
			return fmt.Errorf("the tree of %s: %w", release, err)
		}
	}
	return t.Adapting(r).Update(ctx)
}

func newestBut(release string, known []string) string {
	return known[slices.IndexFunc(known, func(k string) bool { return k != release })]
}

// Continue goes on after the user has resolved a conflict, or fixed what did not compile.
func Continue(ctx context.Context, t *tree.Tree, wanted Options) error {
	r, err := load(t)
	if err != nil {
		return err
	}
	if r == nil {
		return fmt.Errorf("there is no rebase to %s to continue; start one with: carry rebase %[1]s", t.Release)
	}
	r.AtEnd = cmp.Or(wanted.AtEnd, r.AtEnd)
	r.UpstreamGit = cmp.Or(wanted.UpstreamGit, r.UpstreamGit)
	if err := save(t, r); err != nil {
		return err
	}
	if err := r.resume(ctx, t); err != nil {
		return err
	}
	return finish(ctx, t, r)
}

// resume applies what is left of the series after the user has resolved a conflict.
func (r *rebase) resume(ctx context.Context, t *tree.Tree) error {
	s, err := t.Load()
	if err != nil {
		return err
	}
	patches, err := series.Read(t.Project, t.Release)
	if err != nil {
		return err
	}
	if s.Conflict != "" {
		name := filepath.Base(s.Conflict)
		switch at := slices.IndexFunc(patches, func(p patch.Patch) bool { return filepath.Base(p.Path) == name }); {
		case at >= 0 && patches[at].Path == s.Conflict:
			return t.Adapting(r).Resume(ctx)
		case at >= 0:
			return fmt.Errorf("the conflict is in %s, but %s has taken its place; move that away to continue with your resolution, or drop the attempt with --abort", s.Conflict, patches[at].Path)
		}
		// It was resolved by dropping the patch.
		if err := t.Abort(ctx); err != nil {
			return err
		}
		return r.apply(ctx, t)
	}
	if s.Workspace != "" && s.Switching == "" {
		head, err := t.Git().Run(ctx, "rev-parse", "HEAD")
		if err != nil {
			return err
		}
		// The user fixed in the tree what did not compile.
		if head != s.Head || len(s.Applied) == len(patches) {
			return nil
		}
	}
	return r.apply(ctx, t)
}

// Preview applies the series to a release that is pinned for a preview, as a rebase does. What
// comes out of it stays with the preview.
func Preview(ctx context.Context, t *tree.Tree, upstreamGit string) error {
	r, err := previewOf(t, upstreamGit)
	if err != nil {
		return err
	}
	if err := r.apply(ctx, t); err != nil {
		return err
	}
	s, err := t.Load()
	if err != nil || !slices.ContainsFunc(s.Applied, func(a tree.Applied) bool { return a.Resolved }) {
		return err
	}
	return t.Export(ctx)
}

// ResumePreview goes on after the user has resolved a conflict, or fixed what did not compile.
func ResumePreview(ctx context.Context, t *tree.Tree, upstreamGit string) error {
	r, err := previewOf(t, upstreamGit)
	if err != nil {
		return err
	}
	if err := r.resume(ctx, t); err != nil {
		return err
	}
	return t.Export(ctx)
}

func previewOf(t *tree.Tree, upstreamGit string) (*rebase, error) {
	known, err := t.Project.Releases()
	if err != nil {
		return nil, err
	}
	return &rebase{From: nearest(t.Release, known), kind: forPreview, Options: Options{UpstreamGit: upstreamGit}}, nil
}

// finish writes what has come out to patches/, and ends the rebase.
func finish(ctx context.Context, t *tree.Tree, r *rebase) error {
	if err := UnderWay(t); err != nil {
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
	if r.AtEnd == Compile {
		if _, _, err := build.Compile(ctx, t); err != nil {
			return fmt.Errorf("the series applies to %s, but does not compile there (%w).\nFix it in %s, in the commit of its patch (git commit --fixup, git rebase --autosquash), and go on with: carry rebase --continue", t.Release, err, t.Shown())
		}
	}
	if err := os.Remove(recordPath(t)); err != nil {
		return err
	}
	size, err := series.SizeOf(t.Project, t.Release)
	if err != nil {
		return err
	}
	t.Say("done: %d patches, %d of them overrides; check the series against all releases with: carry verify; and add the release to the README's table", size.Patches, size.Overrides)
	return nil
}

// keepForOlder gives older releases the previous common patches where the new ones do not
// apply to them.
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
			if err := o.Locked(ctx, func() (err error) {
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
			t.Say("%s keeps the previous %s", release, failing)
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
	// go finds the module that one of them replaces only where it is.
	if _, err := os.Stat(t.Project.Path(project.PluginPins)); err == nil {
		if err := (tree.Plugin{Project: t.Project}).Update(ctx); err != nil {
			return err
		}
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
	return raiseGo(t.Project)
}

// raiseGo makes the modules that read Go demand at least the Go of the newest release, as far as the core does.
func raiseGo(p project.Checkout) error {
	read := func(dir string) (*modfile.File, error) {
		data, err := os.ReadFile(p.Path(dir, "go.mod"))
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(filepath.Join(dir, "go.mod"), data, nil)
		if err == nil && file.Go == nil {
			err = fmt.Errorf("%s/go.mod does not name its Go version", dir)
		}
		return file, err
	}
	core, err := read(project.ModuleDirs[project.CoreModule])
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, dir := range project.ReaderDirs {
		file, err := read(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if version.Compare("go"+file.Go.Version, "go"+core.Go.Version) >= 0 {
			continue
		}
		if err := file.AddGoStmt(core.Go.Version); err != nil {
			return err
		}
		data, err := file.Format()
		if err != nil {
			return err
		}
		if err := disk.Write(p.Path(dir, "go.mod"), data); err != nil {
			return err
		}
	}
	return nil
}

var requirement = regexp.MustCompile(`(?m)^\t(k8s\.io/\S+) v`)

// Abort leaves everything as it was. It keeps a copy of each file that it changes or removes: people
// may have worked on them meanwhile.
func Abort(ctx context.Context, t *tree.Tree) error {
	r, err := load(t)
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
	// People may have aborted a rebase to the same release before.
	aborted := filepath.Join(project.OutputDir, t.Release+".aborted", time.Now().UTC().Format("20060102T150405.000"))
	copies := 0
	for path, content := range now {
		if before, was := r.Before[path]; was && bytes.Equal(before, content) {
			continue
		}
		if err := disk.Write(t.Project.Path(aborted, path), content); err != nil {
			return err
		}
		copies++
	}
	if copies > 0 {
		t.Say("what the rebase and you have changed is in %s", aborted)
	}
	for path := range now {
		if _, was := r.Before[path]; !was {
			err = errors.Join(err, os.Remove(t.Project.Path(path)))
			// Its directory goes with the last file.
			_ = os.Remove(filepath.Dir(t.Project.Path(path)))
		}
	}
	for path, content := range r.Before {
		if !bytes.Equal(now[path], content) {
			err = errors.Join(err, disk.Write(t.Project.Path(path), content))
		}
	}
	// Only this process knows the previous state until all of it is restored.
	if err = errors.Join(err, os.RemoveAll(t.Project.Path(project.ReleasesDir, t.Release))); err != nil {
		return err
	}
	if err := os.Remove(recordPath(t)); err != nil {
		return err
	}
	return t.Vanish()
}
