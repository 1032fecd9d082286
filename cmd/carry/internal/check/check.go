// SPDX-License-Identifier: Apache-2.0

// Package check says in seconds whether the series still fits what is around it: it
// type-checks a tree from source, with nothing compiled. It must not know what the types
// are for, nor change a patch. packages.go is about Go, and this file about the tree.
package check

import (
	"context"
	"errors"
	"fmt"
	"go/version"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/pins"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
	"workload.openshift.io/kubernetes/cmd/carry/internal/series"
	"workload.openshift.io/kubernetes/cmd/carry/internal/tree"
)

// ErrOlderGo is the error of a release in a newer Go than that which compiled this program, and with it the
// type checker.
var ErrOlderGo = errors.New("type-checking needs a carry that is built with a newer Go")

// understood returns ErrOlderGo if a type checker compiled with this version of Go does not know the demanded
// version of the language. One in development, of which the version does not say it, knows all.
func understood(demanded, compiledWith string) error {
	if version.IsValid(compiledWith) && version.Compare(version.Lang("go"+demanded), version.Lang(compiledWith)) > 0 {
		return fmt.Errorf("%w: this one is built with %s, and the release is in Go %s", ErrOlderGo, compiledWith, demanded)
	}
	return nil
}

// KnowsGo returns ErrOlderGo if this program cannot type-check a tree of the release.
func KnowsGo(t *tree.Tree) error {
	pinned, err := pins.Read(t.Project, t.Release)
	if err != nil {
		return err
	}
	return understood(pinned.GoVersion, runtime.Version())
}

// Release type-checks what the series can break in a tree as it stands: this project's
// packages, those that a patch touches, and the commands that are built of them. Files of
// the problems are relative to the project. It may return ErrOlderGo. A preview may lack modules.
func Release(ctx context.Context, t *tree.Tree) (Result, error) {
	if err := KnowsGo(t); err != nil {
		return Result{}, err
	}
	from := Source{Dir: t.Dir, Flags: build.Flags}
	if t.Project.PinsDir(t.Release) == project.PreviewPins(t.Release) {
		empty, err := emptyModules(t)
		if err != nil {
			return Result{}, err
		}
		from.AllowMissing, from.Empty = true, empty
	}
	ours, err := t.Project.Packages()
	if err != nil {
		return Result{}, err
	}
	touched, err := build.Touched(t)
	if err != nil {
		return Result{}, err
	}
	patterns := slices.Concat(ours, touched)
	for _, command := range project.HookedCommands {
		patterns = append(patterns, "./cmd/"+command+"/...")
	}
	result, err := Packages(ctx, from, patterns...)
	if err != nil {
		return Result{}, err
	}
	// Upstream builds the kubelet for Windows, too (hack/lib/golang.sh, KUBE_SUPPORTED_NODE_PLATFORMS).
	from.GOOS = "windows"
	onWindows, err := Packages(ctx, from, "./cmd/kubelet")
	if err != nil {
		return Result{}, err
	}
	for _, p := range onWindows.Problems {
		if !slices.Contains(result.Problems, p) {
			p.Text = "on Windows: " + p.Text
			result.Problems = append(result.Problems, p)
		}
	}
	for _, more := range onWindows.Missing {
		at := slices.IndexFunc(result.Missing, func(m Missing) bool { return m.Module == more.Module })
		if at < 0 {
			result.Missing = append(result.Missing, more)
			continue
		}
		result.Missing[at].Files = slices.Compact(slices.Sorted(slices.Values(append(result.Missing[at].Files, more.Files...))))
	}
	patches, err := patchesOf(t)
	if err != nil {
		return Result{}, err
	}
	for i, p := range result.Problems {
		if p.File == "" {
			continue
		}
		if inTree, err := filepath.Rel(t.Dir, p.File); err == nil {
			result.Problems[i].Patches = strings.Join(patches[inTree], ", ")
		}
		result.Problems[i].File = shown(t, p.File)
	}
	for i, module := range result.Missing {
		for j, file := range module.Files {
			if inTree, err := filepath.Rel(t.Dir, file); err == nil && patches[inTree] != nil {
				result.Missing[i].Patched = append(result.Missing[i].Patched, inTree)
			}
			module.Files[j] = shown(t, file)
		}
	}
	return result, nil
}

// emptyModules are the staging modules of a tree that have no packages, since they cannot be downloaded.
func emptyModules(t *tree.Tree) ([]string, error) {
	pinned, err := pins.Read(t.Project, t.Release)
	if err != nil {
		return nil, err
	}
	staging := filepath.Join(t.Dir, "staging", "src")
	found, err := filepath.Glob(filepath.Join(staging, "k8s.io", "*", "go.mod"))
	if err != nil {
		return nil, err
	}
	var empty []string
	for _, file := range found {
		module, err := filepath.Rel(staging, filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		if pinned.Modules[filepath.ToSlash(module)] == "" {
			empty = append(empty, filepath.ToSlash(module))
		}
	}
	return empty, nil
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
