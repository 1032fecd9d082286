// SPDX-License-Identifier: Apache-2.0

// Package series reads the directory of patches: which there are, in which order they
// apply, and which file of a name counts for a release. It must not know trees, nor what
// a patch is allowed to do.
package series

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/carry/internal/patch"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

// Dirs returns where patches for a release are looked for, in this order: that of a preview,
// its own directory, that of its minor version, and that of the common ones.
func Dirs(release string) []string {
	return []string{project.PreviewPatches(release), filepath.Join(project.PatchesDir, release), filepath.Join(project.PatchesDir, project.Minor(release)), project.PatchesDir}
}

// Read reads the patches that apply to a release in the order of
// patches/series.
func Read(c project.Checkout, release string) ([]patch.Patch, error) {
	return readIn(c, project.SeriesFile, Dirs(release))
}

// ReadPlugin reads the series of the plugin's module for a release, or if that is empty, the common one.
func ReadPlugin(c project.Checkout, release string) ([]patch.Patch, error) {
	return readIn(c, filepath.Join(project.PluginPatches, "series"), []string{filepath.Join(project.PluginPatches, project.Minor(release)), project.PluginPatches})
}

// readIn reads the patches that a file lists, each from the first of the directories that has it.
func readIn(c project.Checkout, list string, dirs []string) ([]patch.Patch, error) {
	names, err := orderOf(c, list)
	if err != nil {
		return nil, err
	}
	dropped, err := droppedIn(c, dirs)
	if err != nil {
		return nil, err
	}
	var patches []patch.Patch
	for _, name := range names {
		if dropped[name] {
			continue
		}
		path, data, err := fileIn(c, dirs, name)
		if err != nil {
			return nil, err
		}
		parsed, err := patch.Parse(path, data)
		if err != nil {
			return nil, err
		}
		patches = append(patches, parsed)
	}
	return patches, nil
}

// Dropped returns the names of the patches that a release does not need.
func Dropped(c project.Checkout, release string) (map[string]bool, error) {
	return droppedIn(c, Dirs(release))
}

func droppedIn(c project.Checkout, dirs []string) (map[string]bool, error) {
	dropped := map[string]bool{}
	for _, dir := range dirs {
		lines, err := Ledger(c, filepath.Join(dir, project.DroppedName))
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			dropped[line.Name] = true
		}
	}
	return dropped, nil
}

// File returns the file of a patch that counts for a release.
func File(c project.Checkout, release, name string) (path string, data []byte, err error) {
	return fileIn(c, Dirs(release), name)
}

// Overridden returns the file of a patch that would count for a release without its preview.
func Overridden(c project.Checkout, release, name string) (path string, data []byte, err error) {
	return fileIn(c, Dirs(release)[1:], name)
}

func fileIn(c project.Checkout, dirs []string, name string) (path string, data []byte, err error) {
	for _, dir := range dirs {
		path = filepath.Join(dir, name)
		if data, err = os.ReadFile(c.Path(path)); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("%s/series lists %s: %w", dirs[len(dirs)-1], name, err)
	}
	return path, data, err
}

// Entry is a line of a ledger: a name, and why it is there.
type Entry struct{ Name, Reason string }

// Ledger reads a file of entries, with comments that start with #. A ledger that
// is not there is empty.
func Ledger(c project.Checkout, path string) ([]Entry, error) {
	data, err := os.ReadFile(c.Path(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var entries []Entry
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, " ")
		if !ok {
			return nil, fmt.Errorf("%s: %q has no reason", path, line)
		}
		entries = append(entries, Entry{name, strings.TrimSpace(reason)})
	}
	return entries, err
}

// Order reads patches/series: a file name a line, and comments that start with #.
func Order(c project.Checkout) ([]string, error) { return orderOf(c, project.SeriesFile) }

func orderOf(c project.Checkout, path string) ([]string, error) {
	data, err := os.ReadFile(c.Path(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if filepath.Base(line) != line || !strings.HasSuffix(line, ".patch") {
			return nil, fmt.Errorf("%s: %q is not the name of a patch", path, line)
		}
		if slices.Contains(names, line) {
			return nil, fmt.Errorf("%s lists %s twice", path, line)
		}
		names = append(names, line)
	}
	return names, err
}

// Files lists the patch files, common and overrides, relative to the project.
func Files(c project.Checkout) ([]string, error) {
	var files []string
	for _, pattern := range []string{"*.patch", "v*/*.patch"} {
		found, err := filepath.Glob(c.Path(project.PatchesDir, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			relative, err := filepath.Rel(c.Dir, path)
			if err != nil {
				return nil, err
			}
			files = append(files, relative)
		}
	}
	return files, nil
}

// All reads every patch file, whichever releases it is for.
func All(c project.Checkout) ([]patch.Patch, error) {
	files, err := Files(c)
	if err != nil {
		return nil, err
	}
	var patches []patch.Patch
	for _, path := range files {
		data, err := os.ReadFile(c.Path(path))
		if err != nil {
			return nil, err
		}
		parsed, err := patch.Parse(path, data)
		if err != nil {
			return nil, err
		}
		patches = append(patches, parsed)
	}
	return patches, nil
}

// Users returns the releases for which patches are looked for in a directory.
func Users(dir string, known []string) []string {
	return slices.DeleteFunc(slices.Clone(known), func(release string) bool { return !slices.Contains(Dirs(release), dir) })
}

// OverrideDir is where a release's overrides go: to its minor version, so that the
// next patch release finds them there, unless another known release would get them, too. A
// release that is not known keeps them to itself.
func OverrideDir(c project.Checkout, release string, known []string) string {
	if !slices.Contains(known, release) {
		return project.PreviewPatches(release)
	}
	shared := filepath.Join(project.PatchesDir, project.Minor(release))
	if len(Users(shared, known)) > 1 {
		return filepath.Join(project.PatchesDir, release)
	}
	return shared
}
