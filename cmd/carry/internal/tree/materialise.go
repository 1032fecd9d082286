// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/sync/errgroup"

	"workload.openshift.io/kubernetes/cmd/carry/internal/disk"
	"workload.openshift.io/kubernetes/cmd/carry/internal/git"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// materialised changes when this file lays out trees differently, so that old
// ones are made again.
const materialised = "2"

// materialise makes the tree with its first commit, upstream's files. It works in
// a directory next to it and renames that at the end, so that there is a whole tree or
// none.
func (t *Tree) materialise(ctx context.Context, want pins.Pins) error {
	modules, released, err := pins.Download(t.Project, t.Release, want)
	if err != nil {
		return err
	}
	t.Say("materialising %s and %d staging modules", t.Release, len(modules)-1)
	building, err := os.MkdirTemp(filepath.Dir(t.Dir), "kubernetes.building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(building)
	if err := os.Chmod(building, 0o755); err != nil {
		return err
	}
	var copies errgroup.Group
	copies.SetLimit(4)
	for path, m := range modules {
		to := building
		if path != project.UpstreamModule {
			to = filepath.Join(building, "staging", "src", filepath.FromSlash(path))
		}
		copies.Go(func() error { return copyModule(ctx, m.Dir, to) })
	}
	if err := copies.Wait(); err != nil {
		return err
	}
	// A module's zip has no symbolic links. This is the one that a build needs.
	if err := os.Symlink(filepath.Join("build", "root", "Makefile"), filepath.Join(building, "Makefile")); err != nil {
		return err
	}
	g := git.Repo{Dir: building}
	if _, err := g.Run(ctx, "init", "-q", "-b", "carry", "."); err != nil {
		return err
	}
	t.Say("committing upstream's files")
	// Upstream ignores some of the files that it ships.
	if _, err := g.Run(ctx, "add", "--all", "--force", "."); err != nil {
		return err
	}
	treeID, err := g.Run(ctx, "write-tree")
	if err != nil {
		return err
	}
	commit, err := g.CommitTree(ctx, git.Commit{Tree: treeID, Message: fmt.Sprintf("Kubernetes %s\n\nThe Go modules %s %[1]s and its staging modules.\n", t.Release, project.UpstreamModule), By: project.Identity, Authored: released, Committed: released})
	if err != nil {
		return err
	}
	for _, ref := range []string{"refs/heads/carry", "refs/tags/" + t.Release} {
		if _, err := g.Run(ctx, "update-ref", ref, commit); err != nil {
			return err
		}
	}
	built := &Tree{Project: t.Project, Release: t.Release, Dir: building}
	if err := built.Save(State{Pins: PinsKey(want), Released: released, Upstream: commit, Head: commit}); err != nil {
		return err
	}
	if kept, err := t.keepOld(ctx); err != nil {
		return err
	} else if kept != "" {
		t.Say("the old tree has branches or a stash that you made; it is kept as %s", kept)
	}
	return replaceFolder(building, t.Dir)
}

// keepOld moves a tree out of the way that has refs which carry has not made, and
// returns where to.
func (t *Tree) keepOld(ctx context.Context) (string, error) {
	if _, err := os.Stat(filepath.Join(t.Dir, ".git")); err != nil {
		return "", nil
	}
	refs, err := t.Git().Run(ctx, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return "", err
	}
	for ref := range strings.FieldsSeq(refs) {
		if ref != "refs/heads/carry" && ref != "refs/tags/"+t.Release {
			kept := t.Dir + ".before-" + time.Now().UTC().Format("20060102T150405")
			return kept, os.Rename(t.Dir, kept)
		}
	}
	return "", nil
}

// PinsKey identifies the modules that a tree is made from, and how it is laid out.
func PinsKey(p pins.Pins) string { return materialised + ":" + p.Digest }

// replaceFolder renames from to to, which may exist and is no longer needed.
func replaceFolder(from, to string) error {
	old := from + ".old"
	if err := os.Rename(to, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// copyModule copies a module from the read-only cache. Execute bits are lost in a
// zip: scripts get them back. The vendor directory of the zip has no packages, and
// one that go finds makes it expect all of them there.
func copyModule(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			if relative == "vendor" {
				return filepath.SkipDir
			}
			return os.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(data, []byte("#!")) {
			mode = 0o755
		}
		return os.WriteFile(target, data, mode)
	})
}

// linkModules makes the directory next to the tree through which it uses this project's
// modules: their sources by links, so that an edit is built at once, and a go.mod for
// each that asks for nothing and speaks the release's Go. A workspace takes the highest
// version that any of its modules asks for, and the go.mod files of the project ask for
// the newest release's.
func (t *Tree) linkModules(want pins.Pins) error {
	for module, from := range project.ModuleDirs {
		dir := t.module(module)
		if err := disk.Write(filepath.Join(dir, "go.mod"), fmt.Appendf(nil, "module %s\n\ngo %s\n", module, want.GoVersion)); err != nil {
			return err
		}
		there, err := os.ReadDir(t.Project.Path(from))
		if err != nil {
			return err
		}
		links := map[string]bool{"go.mod": true}
		for _, entry := range there {
			name := entry.Name()
			if !slices.Contains(project.LinkedDirs, name) && !strings.HasSuffix(name, ".go") {
				continue
			}
			links[name] = true
			to, err := filepath.Rel(dir, t.Project.Path(from, name))
			if err != nil {
				return err
			}
			if now, err := os.Readlink(filepath.Join(dir, name)); err == nil && now == to {
				continue
			}
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return err
			}
			if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		// A file that is gone must not be compiled.
		mine, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range mine {
			if !links[entry.Name()] {
				if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// module is the directory through which the tree uses a module of this project.
func (t *Tree) module(path string) string {
	return filepath.Join(filepath.Dir(t.Dir), "modules", filepath.Base(path))
}

// workspace makes what stands below the patches: base, upstream without the modules
// that were not published at the release, which is upstream's own commit if all were;
// and workspace, on it, in which go.work lists this project's modules. They are named by
// relative paths, so the commits are the same in every checkout.
//
// A module that a binary needs, which only a preview may lack, becomes one without packages:
// go can load the rest then.
func (t *Tree) workspace(ctx context.Context, want pins.Pins, upstream string, released time.Time) (base, workspace string, err error) {
	g, done, err := t.ScratchIndex(ctx, upstream)
	if err != nil {
		return "", "", err
	}
	defer done()
	absent := func(path string) (name string, absent bool) {
		name, staged := strings.CutPrefix(path, "./staging/src/")
		return name, staged && want.Modules[name] == ""
	}
	content, err := g.Run(ctx, "show", upstream+":go.work")
	if err != nil {
		return "", "", err
	}
	work, err := modfile.ParseWork("go.work", []byte(content+"\n"), nil)
	if err != nil {
		return "", "", err
	}
	if content, err = g.Run(ctx, "show", upstream+":go.mod"); err != nil {
		return "", "", err
	}
	mod, err := modfile.Parse("go.mod", []byte(content+"\n"), nil)
	if err != nil {
		return "", "", err
	}
	commit := func(parent, message string) (string, error) {
		work.Cleanup()
		work.SortBlocks()
		if err := addFile(ctx, g, "go.work", modfile.Format(work.Syntax)); err != nil {
			return "", err
		}
		treeID, err := g.Run(ctx, "write-tree")
		if err != nil {
			return "", err
		}
		return g.CommitTree(ctx, git.Commit{Tree: treeID, Parent: parent, Message: message, By: project.Identity, Authored: project.PatchDate, Committed: released})
	}

	base = upstream
	var left, empty []string
	for _, use := range slices.Clone(work.Use) {
		name, absent := absent(use.Path)
		switch {
		case !absent:
		case slices.Contains(project.UnneededModules, name):
			left = append(left, name)
			if err := work.DropUse(use.Path); err != nil {
				return "", "", err
			}
		default:
			empty = append(empty, name)
			if err := addFile(ctx, g, filepath.Join(use.Path, "go.mod"), fmt.Appendf(nil, "module %s\n\ngo %s\n", name, want.GoVersion)); err != nil {
				return "", "", err
			}
		}
	}
	for _, replace := range slices.Clone(mod.Replace) {
		name, absent := absent(replace.New.Path)
		if !absent || !slices.Contains(project.UnneededModules, name) {
			continue
		}
		path := replace.Old.Path // DropReplace clears it.
		if err := errors.Join(mod.DropReplace(path, replace.Old.Version), mod.DropRequire(path)); err != nil {
			return "", "", err
		}
	}
	if len(empty) > 0 {
		if base, err = commit(base, fmt.Sprintf("Leave out the packages of %s\n\nThey were not published at this release.\n", strings.Join(empty, ", "))); err != nil {
			return "", "", err
		}
	}
	if len(left) > 0 {
		mod.Cleanup()
		if err := addFile(ctx, g, "go.mod", modfile.Format(mod.Syntax)); err != nil {
			return "", "", err
		}
		if base, err = commit(base, fmt.Sprintf("Leave out %s\n\nThey were not published at this release, and no binary needs them.\n", strings.Join(left, ", "))); err != nil {
			return "", "", err
		}
	}
	for _, path := range []string{project.RootModule, project.CoreModule} {
		if err := work.AddUse("../modules/"+filepath.Base(path), ""); err != nil {
			return "", "", err
		}
	}
	workspace, err = commit(base, fmt.Sprintf("Use %s\n\nThe packages that the patches call are built from where they are.\n", project.RootModule))
	return base, workspace, err
}

// ScratchIndex returns a git with a separate index that holds the commit, so
// that commits can be made without touching the work tree.
func (t *Tree) ScratchIndex(ctx context.Context, commit string) (git.Repo, func(), error) {
	index, err := os.MkdirTemp(filepath.Dir(t.Dir), "index-")
	if err != nil {
		return git.Repo{}, nil, err
	}
	g := t.Git().With("GIT_INDEX_FILE=" + filepath.Join(index, "index"))
	done := func() { os.RemoveAll(index) }
	if _, err := g.Run(ctx, "read-tree", commit); err != nil {
		done()
		return git.Repo{}, nil, err
	}
	return g, done, nil
}

func addFile(ctx context.Context, g git.Repo, path string, data []byte) error {
	blob, err := g.Input(ctx, string(data), "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	_, err = g.Run(ctx, "update-index", "--add", "--cacheinfo", "100644,"+blob+","+path)
	return err
}
