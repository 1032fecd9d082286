// SPDX-License-Identifier: Apache-2.0

package project

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// Checkout is a checkout of this repository.
type Checkout struct{ Dir string }

// Find walks up from the working directory, so that carry works in a tree
// below _output as well.
func Find() (Checkout, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Checkout{}, err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modfile.ModulePath(data) == RootModule {
			return Checkout{dir}, nil
		}
		if dir == filepath.Dir(dir) {
			return Checkout{}, fmt.Errorf("%s is not inside a checkout of %s", start, RootModule)
		}
	}
}

// Path is that of a file of the checkout.
func (c Checkout) Path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

// Releases returns the known releases, the newest first.
func (c Checkout) Releases() ([]string, error) {
	entries, err := os.ReadDir(c.Path(ReleasesDir))
	if err != nil {
		return nil, err
	}
	var releases []string
	for _, entry := range entries {
		if semver.IsValid(entry.Name()) {
			releases = append(releases, entry.Name())
		}
	}
	if len(releases) == 0 {
		return nil, errors.New("build/releases has no release")
	}
	semver.Sort(releases)
	slices.Reverse(releases)
	return releases, nil
}

var looksLikeRelease = regexp.MustCompile(`^v?[0-9]`)

// Release takes the release from the arguments, and returns the others.
func (c Checkout) Release(args []string) (release string, rest []string, err error) {
	known, err := c.Releases()
	if err != nil {
		return "", nil, err
	}
	if len(args) == 0 || !looksLikeRelease.MatchString(args[0]) {
		return known[0], args, nil
	}
	if err := c.Knows(args[0]); err != nil {
		return "", nil, err
	}
	return args[0], args[1:], nil
}

// Knows returns an error for a release that is neither known nor previewed.
func (c Checkout) Knows(release string) error {
	known, err := c.Releases()
	if err != nil {
		return err
	}
	previews, err := c.Previews()
	if err != nil {
		return err
	}
	if !slices.Contains(known, release) && !slices.Contains(previews, release) {
		return fmt.Errorf("unknown release %q; known are %s", release, strings.Join(append(known, previews...), ", "))
	}
	return nil
}

// Previews returns the releases that are previewed, the newest first. They are not known
// releases: only a command that is given one by name takes it.
func (c Checkout) Previews() ([]string, error) {
	pins, err := filepath.Glob(c.Path(PreviewPins("*"), "go.mod"))
	if err != nil {
		return nil, err
	}
	var previews []string
	for _, path := range pins {
		previews = append(previews, filepath.Base(filepath.Dir(filepath.Dir(path))))
	}
	semver.Sort(previews)
	slices.Reverse(previews)
	return previews, nil
}

// PreviewPins is the directory with the pins of a previewed release, and PreviewPatches that
// with its overrides, relative to the checkout. Both can be made again, so they are not
// committed.
func PreviewPins(release string) string    { return filepath.Join(OutputDir, release, "pins") }
func PreviewPatches(release string) string { return filepath.Join(OutputDir, release, "patches") }

// PinsDir is the directory with the pins of a release, known or else previewed, relative to the
// checkout.
func (c Checkout) PinsDir(release string) string {
	known := filepath.Join(ReleasesDir, release)
	if _, err := os.Stat(c.Path(known)); err == nil {
		return known
	}
	if _, err := os.Stat(c.Path(PreviewPins(release))); err == nil {
		return PreviewPins(release)
	}
	return known
}

// Packages returns the import paths of this project's packages that trees use. go does
// not find them itself behind links.
func (c Checkout) Packages() ([]string, error) {
	var packages []string
	for module, from := range ModuleDirs {
		dirs := []string{""}
		if module == RootModule {
			dirs = LinkedDirs
		}
		for _, dir := range dirs {
			root := c.Path(from, dir)
			err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				if err != nil || !entry.IsDir() {
					return err
				}
				if entry.Name() == "testdata" {
					return fs.SkipDir
				}
				sources, err := filepath.Glob(filepath.Join(path, "*.go"))
				if err != nil || len(sources) == 0 {
					return err
				}
				relative, err := filepath.Rel(c.Path(from), path)
				packages = append(packages, filepath.ToSlash(filepath.Join(module, relative)))
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(packages)
	return packages, nil
}

// ReleaseForm matches the releases that upstream publishes as Go modules.
var ReleaseForm = regexp.MustCompile(`^v1\.(\d+)\.(\d+)(-(alpha|beta|rc)\.\d+)?$`)

// Minor is a release's minor version, v1.37 for v1.37.1.
func Minor(release string) string { return semver.MajorMinor(release) }
