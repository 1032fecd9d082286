// SPDX-License-Identifier: Apache-2.0

package tree

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

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
)

// Plugin is the git repository of the plugin's module: upstream's files, and a commit for each patch. It is
// small, so it is made again whenever anything that it is made of has changed.
type Plugin struct {
	Project project.Checkout
	// Release has one of its own, in the directory of what is made for it. If it is empty, the repository is project.PluginDir.
	Release string
}

// shown is the repository's directory, relative to the checkout.
func (p Plugin) shown() string {
	if p.Release == "" {
		return project.PluginDir
	}
	return filepath.Join(project.OutputDir, p.Release, filepath.Base(project.PluginDir))
}

func (p Plugin) dir() string { return p.Project.Path(p.shown()) }

// pinned is the directory that pins the module: that of the release's minor version, if there is one.
func (p Plugin) pinned() string {
	own := filepath.Join(project.PluginPins, project.Minor(p.Release))
	if _, err := os.Stat(p.Project.Path(own)); err != nil {
		return project.PluginPins
	}
	return own
}

func (p Plugin) git() git.Repo { return git.Repo{Dir: p.dir()} }

// upstreamRef is the commit with upstream's files, and madeRef the one that carry left.
const (
	upstreamRef = "refs/carry/upstream"
	madeRef     = "refs/carry/made"
)

// Update makes the repository as the series has it. An error names work in it that the series does not have.
func (p Plugin) Update(ctx context.Context) error {
	patches, err := series.ReadPlugin(p.Project, p.Release)
	if err != nil {
		return err
	}
	want, err := pins.ReadDir(p.Project, p.pinned())
	if err != nil {
		return err
	}
	fake, err := p.fake()
	if err != nil {
		return err
	}
	parts := [][]byte{[]byte(want.Digest), []byte(strings.Join(project.PluginKept, " "))}
	for _, name := range slices.Sorted(maps.Keys(fake)) {
		parts = append(parts, []byte(name), fake[name])
	}
	for _, patch := range patches {
		parts = append(parts, patch.Data)
	}
	digest := disk.Digest(parts...)
	stamp := filepath.Join(p.dir(), ".git", "carry")
	if made, err := os.ReadFile(stamp); err == nil {
		if string(made) == digest {
			return nil
		}
		if err := p.unchanged(ctx); err != nil {
			return err
		}
	} else if entries, err := os.ReadDir(p.dir()); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s was not made by carry; move it away", p.shown())
	}
	if err := os.MkdirAll(filepath.Dir(p.dir()), 0o755); err != nil {
		return err
	}
	building, err := os.MkdirTemp(filepath.Dir(p.dir()), "scheduler-plugins.building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(building)
	if err := p.build(ctx, building, want, fake, patches); err != nil {
		return err
	}
	if err := disk.Write(filepath.Join(building, ".git", "carry"), []byte(digest)); err != nil {
		return err
	}
	return replaceFolder(building, p.dir())
}

// fake are the files that stand for upstream's package test/util.
func (p Plugin) fake() (map[string][]byte, error) {
	files := map[string][]byte{}
	entries, err := os.ReadDir(p.Project.Path(project.PluginFake))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if files[filepath.Join("test", "util", entry.Name())], err = os.ReadFile(p.Project.Path(project.PluginFake, entry.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// build makes the repository in a directory.
func (p Plugin) build(ctx context.Context, dir string, want pins.Pins, fake map[string][]byte, patches []patch.Patch) error {
	modules, err := pins.DownloadDir(p.Project, p.pinned(), want)
	if err != nil {
		return err
	}
	module := modules[project.PluginModule]
	released, err := module.Released()
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for _, kept := range project.PluginKept {
		if err := copyModule(ctx, filepath.Join(module.Dir, kept), filepath.Join(dir, kept)); err != nil {
			return err
		}
	}
	// The tests of its configuration are about all plugins.
	if err := os.Remove(filepath.Join(dir, project.PluginLeftOut)); err != nil {
		return err
	}
	// It asks for nothing: the module that uses it says which Kubernetes that is.
	fake["go.mod"] = fmt.Appendf(nil, "module %s\n\ngo %s\n", project.PluginModule, want.GoVersion)
	for name, data := range fake {
		if err := disk.Write(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	g := git.Repo{Dir: dir}
	for _, args := range [][]string{{"init", "-q", "-b", "carry", "."}, {"add", "--all", "--force", "."}} {
		if _, err := g.Run(ctx, args...); err != nil {
			return err
		}
	}
	id, err := commitIndex(ctx, g, git.Commit{Message: fmt.Sprintf("%s %s\n\nWhat this project uses of it.\n", project.PluginModule, module.Version), Authored: released, Committed: released})
	if err != nil {
		return err
	}
	if _, err := g.Run(ctx, "update-ref", upstreamRef, id); err != nil {
		return err
	}
	for _, patch := range patches {
		if _, err := g.Input(ctx, string(patch.Data), "apply", "--index", "--whitespace=nowarn", "-"); err != nil {
			return fmt.Errorf("%s does not apply to %s %s: %w; change the patch, or the version in %s", patch.Path, project.PluginModule, module.Version, err, p.pinned())
		}
		if id, err = commitIndex(ctx, g, git.Commit{Parent: id, Message: patch.Message + "\n" + fileTrailer + patch.Name + "\n", Authored: project.PatchDate, Committed: released}); err != nil {
			return err
		}
	}
	for _, ref := range []string{"refs/heads/carry", madeRef} {
		if _, err := g.Run(ctx, "update-ref", ref, id); err != nil {
			return err
		}
	}
	return nil
}

func commitIndex(ctx context.Context, g git.Repo, c git.Commit) (string, error) {
	var err error
	if c.Tree, err = g.Run(ctx, "write-tree"); err != nil {
		return "", err
	}
	c.By = project.Identity
	return g.CommitTree(ctx, c)
}

// unchanged returns an error if the repository has work that the series does not have.
func (p Plugin) unchanged(ctx context.Context) error {
	g := p.git()
	dirty, err := g.Run(ctx, "status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return err
	}
	if dirty != "" {
		return fmt.Errorf("%s has uncommitted work (%s); commit it in %s and run carry plugin --export, or drop it with git reset --hard", p.shown(), git.FirstLine(dirty), project.PluginDir)
	}
	refs, err := g.Run(ctx, "rev-parse", "HEAD", madeRef)
	if err != nil {
		return err
	}
	if head, made, _ := strings.Cut(refs, "\n"); head != made {
		return fmt.Errorf("%s has commits that %s lacks; keep them in %s with carry plugin --export, or drop them with git reset --keep %.12s", p.shown(), project.PluginPatches, project.PluginDir, made)
	}
	return nil
}

// Export writes the repository's commits to the common series, with the comments at its top, and makes the repository again.
func (p Plugin) Export(ctx context.Context) error {
	if p.Release != "" {
		return fmt.Errorf("only %s can be exported: it has what the releases share", project.PluginDir)
	}
	g := p.git()
	dirty, err := g.Run(ctx, "status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return err
	}
	if dirty != "" {
		return fmt.Errorf("%s has uncommitted work (%s); commit it first", project.PluginDir, git.FirstLine(dirty))
	}
	list, err := g.Run(ctx, "rev-list", "--reverse", upstreamRef+"..HEAD")
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	var names []string
	for id := range strings.FieldsSeq(list) {
		message, err := g.Run(ctx, "log", "-1", "--format=%B", id)
		if err != nil {
			return err
		}
		message, name := splitFileTrailer(message)
		if name == "" || slices.Contains(names, name) {
			name = fileName(git.FirstLine(message), names)
		}
		data, err := formatPatch(ctx, g, id, message)
		if err != nil {
			return err
		}
		if read, err := patch.Parse(name, data); err != nil || read.Message != message {
			return fmt.Errorf("commit %.12s (%s) cannot be written as a patch: it is empty, or its message has a line ---", id, git.FirstLine(message))
		}
		files[name], names = data, append(names, name)
	}
	order := filepath.Join(project.PluginPatches, "series")
	old, err := os.ReadFile(p.Project.Path(order))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, err := filepath.Glob(p.Project.Path(project.PluginPatches, "*.patch"))
	if err != nil {
		return err
	}
	for name, data := range files {
		if err := disk.Write(p.Project.Path(project.PluginPatches, name), data); err != nil {
			return err
		}
	}
	if err := disk.Write(p.Project.Path(order), withOrder(old, names)); err != nil {
		return err
	}
	for _, path := range before {
		if files[filepath.Base(path)] == nil {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	head, err := g.Run(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if _, err := g.Run(ctx, "update-ref", madeRef, head); err != nil {
		return err
	}
	return p.Update(ctx)
}
