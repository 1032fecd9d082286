// Package check says in seconds whether the series still fits what is around it: it
// type-checks a tree from source, with nothing compiled. It must not know what the types
// are for, nor change a patch. packages.go is about Go, and this file about the tree.
package check

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// Release type-checks what the series can break in a tree as it stands: this project's
// packages, those that a patch touches, and the commands that are built of them. Files of
// the problems are relative to the project.
func Release(ctx context.Context, t *tree.Tree) (checked int, problems []Problem, err error) {
	ours, err := t.Project.Packages()
	if err != nil {
		return 0, nil, err
	}
	touched, err := build.Touched(t)
	if err != nil {
		return 0, nil, err
	}
	patterns := slices.Concat(ours, touched)
	for _, command := range project.HookedCommands {
		patterns = append(patterns, "./cmd/"+command+"/...")
	}
	checked, problems, err = Packages(ctx, Source{Dir: t.Dir, Flags: build.Flags}, patterns...)
	if err != nil {
		return 0, nil, err
	}
	patches, err := patchesOf(t)
	if err != nil {
		return 0, nil, err
	}
	for i, p := range problems {
		if p.File == "" {
			continue
		}
		if inTree, err := filepath.Rel(t.Dir, p.File); err == nil {
			problems[i].Patches = strings.Join(patches[inTree], ", ")
		}
		problems[i].File = shown(t, p.File)
	}
	return checked, problems, nil
}

// patchesOf maps the files that the series touches to the patches that do.
func patchesOf(t *tree.Tree) (map[string][]string, error) {
	listed, err := series.Read(t.Project, t.Release)
	if err != nil {
		return nil, err
	}
	patches := map[string][]string{}
	for _, p := range listed {
		for _, file := range p.Files {
			patches[filepath.FromSlash(file.Path)] = append(patches[filepath.FromSlash(file.Path)], p.Path)
		}
	}
	return patches, nil
}

// shown is a file's path in the project. A tree has this project's own files by links.
func shown(t *tree.Tree, path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	root, err := filepath.EvalSymlinks(t.Project.Dir)
	if err != nil {
		return path
	}
	if relative, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(relative) {
		return relative
	}
	return path
}
