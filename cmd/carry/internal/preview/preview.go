// SPDX-License-Identifier: Apache-2.0

// Package preview tries the series on a release that is not to be supported, such as a
// pre-release, so that what will break is known months before. All that it makes is in
// _output/RELEASE, until the user wants its overrides.
package preview

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"workload.openshift.io/kubernetes/cmd/carry/internal/check"
	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/lint"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/rebase"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Newest returns the newest pre-release that can be compiled here of those after the newest known
// release; none if there is none.
func Newest(ctx context.Context, c project.Checkout) (string, error) {
	known, err := c.Releases()
	if err != nil {
		return "", err
	}
	listed, err := pins.Listed(ctx, c)
	if err != nil {
		return "", err
	}
	prereleases := slices.DeleteFunc(pins.After(known[0], listed), func(r string) bool { return semver.Prerelease(r) == "" })
	newest, refused, err := pins.Newest(ctx, prereleases, true)
	for _, p := range refused {
		fmt.Fprintf(os.Stderr, "%s is listed but cannot be downloaded: %s\n", p.Release, p.Missing())
		if p.HasUpstream() {
			fmt.Fprintf(os.Stderr, "to check what needs none of these modules: carry preview %s --no-build\n", p.Release)
		}
	}
	return newest.Release, err
}

// Start pins the release, if that is not done yet, and applies the series to it.
func Start(ctx context.Context, t *tree.Tree, upstreamGit string) error {
	known, err := t.Project.Releases()
	if err != nil {
		return err
	}
	if slices.Contains(known, t.Release) {
		return fmt.Errorf("%s is already known; check the series there with: carry verify %[1]s", t.Release)
	}
	previews, err := t.Project.Previews()
	if err != nil {
		return err
	}
	if !slices.Contains(previews, t.Release) {
		if err := pin(ctx, t); err != nil {
			return errors.Join(err, t.Vanish())
		}
	}
	if err := dropStale(t); err != nil {
		return err
	}
	if err := rebase.Preview(ctx, t, upstreamGit); err != nil {
		return err
	}
	return record(t)
}

// Continue goes on after the user has resolved a conflict, or fixed what did not compile.
func Continue(ctx context.Context, t *tree.Tree, upstreamGit string) error {
	if err := rebase.ResumePreview(ctx, t, upstreamGit); err != nil {
		return err
	}
	return record(t)
}

// pin has less demands than a rebase: a module may be of an older version.
func pin(ctx context.Context, t *tree.Tree) error {
	if _, err := os.Stat(t.Dir); err == nil {
		return fmt.Errorf("%s exists, though no preview of %s does; move it away", t.Shown(), t.Release)
	}
	published, err := pins.Fetch(ctx, t.Release)
	if err != nil {
		return err
	}
	if !published.HasUpstream() {
		return fmt.Errorf("%s cannot be downloaded: %s", t.Release, published.Refused[0])
	}
	if err := published.Borrow(ctx); err != nil {
		return err
	}
	return published.Write(ctx, t.Project, project.PreviewPins(t.Release))
}

// madeFrom says of which content of a patch each override of the preview is made, and which it
// was that upstream has: a file with a line for each, name and digest.
func madeFrom(t *tree.Tree) string {
	return filepath.Join(project.PreviewPatches(t.Release), "made-from")
}

func overrides(t *tree.Tree) (names []string, err error) {
	paths, err := filepath.Glob(t.Project.Path(project.PreviewPatches(t.Release), "*.patch"))
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names, err
}

func dropped(t *tree.Tree) ([]series.Entry, error) {
	return series.Ledger(t.Project, filepath.Join(project.PreviewPatches(t.Release), project.DroppedName))
}

// record writes madeFrom.
func record(t *tree.Tree) error {
	names, err := overrides(t)
	if err != nil {
		return err
	}
	entries, err := dropped(t)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		names = append(names, entry.Name)
	}
	if len(names) == 0 {
		return nil
	}
	var lines strings.Builder
	for _, name := range names {
		_, data, err := series.Overridden(t.Project, t.Release, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s %s\n", name, disk.Digest(data))
	}
	return disk.Write(t.Project.Path(madeFrom(t)), []byte(lines.String()))
}

// dropStale sets aside what was found out about a patch that has changed since, or is gone: it
// would hide whether the patch fits.
func dropStale(t *tree.Tree) error {
	entries, err := series.Ledger(t.Project, madeFrom(t))
	if err != nil {
		return err
	}
	for _, made := range entries {
		_, now, err := series.Overridden(t.Project, t.Release, made.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && disk.Digest(now) == made.Reason {
			continue
		}
		path := filepath.Join(project.PreviewPatches(t.Release), made.Name)
		if _, err := os.Stat(t.Project.Path(path)); errors.Is(err, fs.ErrNotExist) {
			path = filepath.Join(filepath.Dir(path), project.DroppedName)
		}
		if err := os.Rename(t.Project.Path(path), t.Project.Path(path+".before")); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		t.Say("%s has changed since the last preview; the old results are now in %s.before", made.Name, path)
	}
	return nil
}

// Fit says whether the rules and types of a tree allow the series.
type Fit struct {
	// Problems are what is wrong, a line each.
	Problems []string
	// Checked is whether the types were checked, and Missing the modules that they were checked without.
	Checked bool
	Missing []check.Missing
}

// Fits returns, in seconds, how the series fits.
func Fits(ctx context.Context, t *tree.Tree) (fit Fit, err error) {
	findings, err := lint.Findings(ctx, t)
	if err != nil {
		return fit, err
	}
	for _, f := range findings {
		fit.Problems = append(fit.Problems, f.String())
	}
	found, err := check.Release(ctx, t)
	if errors.Is(err, check.ErrOlderGo) {
		t.Say("%v; compiling finds what that would", err)
		return fit, nil
	}
	for _, p := range found.Problems {
		fit.Problems = append(fit.Problems, p.String())
	}
	fit.Checked, fit.Missing = true, found.Missing
	return fit, err
}

// Differences says in what the preview is not the release with patches/ as it is: a line for
// each module of another version, each override, and each patch that upstream has.
func Differences(t *tree.Tree) (lines []string, err error) {
	pinned, err := pins.Read(t.Project, t.Release)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(pinned.Modules)) {
		if version := pinned.Modules[path]; path != project.UpstreamModule && version != pins.StagingVersion(t.Release) {
			lines = append(lines, fmt.Sprintf("%s is at %s, since it cannot be downloaded at %s", path, version, pins.StagingVersion(t.Release)))
		}
	}
	names, err := overrides(t)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		lines = append(lines, filepath.Join(project.PreviewPatches(t.Release), name)+": needed here; to have further previews and the rebase find it: carry preview --keep")
	}
	entries, err := dropped(t)
	for _, entry := range entries {
		lines = append(lines, entry.Name+": "+entry.Reason)
	}
	return lines, err
}

// Keep moves what the preview found out to the overrides of the release's minor version, where
// further previews and the rebase find it. If a known release would get them, too, the rebase
// alone finds them, in the release's own.
func Keep(ctx context.Context, t *tree.Tree) error {
	if err := rebase.UnderWay(t); err != nil {
		return err
	}
	known, err := t.Project.Releases()
	if err != nil {
		return err
	}
	from := project.PreviewPatches(t.Release)
	to := filepath.Join(project.PatchesDir, project.Minor(t.Release))
	if len(series.Users(to, known)) > 0 {
		to = filepath.Join(project.PatchesDir, t.Release)
	}
	names, err := overrides(t)
	if err != nil {
		return err
	}
	dropped, err := os.ReadFile(t.Project.Path(from, project.DroppedName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(names) == 0 && len(dropped) == 0 {
		return fmt.Errorf("the preview of %s has nothing to keep: patches/ applies as it is", t.Release)
	}
	for _, name := range names {
		data, err := os.ReadFile(t.Project.Path(from, name))
		if err != nil {
			return err
		}
		if err := disk.Write(t.Project.Path(to, name), data); err != nil {
			return err
		}
		t.Say("kept %s", filepath.Join(to, name))
	}
	if len(dropped) > 0 {
		path := t.Project.Path(to, project.DroppedName)
		before, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := disk.Write(path, append(before, dropped...)); err != nil {
			return err
		}
		t.Say("kept %s", filepath.Join(to, project.DroppedName))
	}
	if err := os.RemoveAll(t.Project.Path(from)); err != nil {
		return err
	}
	return t.Update(ctx)
}

// Program is where carry compiles itself with the release's Go, if that is newer than its own.
func Program(t *tree.Tree) string { return filepath.Join(filepath.Dir(t.Dir), "carry") }

// Abort removes the preview, with work of the user in its tree and overrides that were not
// kept.
func Abort(t *tree.Tree) error {
	// The pins go last: they say that there is a preview.
	for _, path := range []string{t.Dir, filepath.Join(filepath.Dir(t.Dir), "modules"), Program(t), t.Project.Path(project.PreviewPatches(t.Release)), t.Project.Path(project.PreviewPins(t.Release))} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return t.Vanish()
}
