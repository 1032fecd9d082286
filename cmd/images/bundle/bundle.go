// SPDX-License-Identifier: Apache-2.0

// Package bundle gathers a version of this project in one directory: images and packages of
// releases, the kubectl plugin, the series, the documentation, results of tests, and what has
// changed. It must not know how any of them is made.
package bundle

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"workload.openshift.io/kubernetes/cmd/images/internal/disk"
	"workload.openshift.io/kubernetes/cmd/images/program"
	"workload.openshift.io/kubernetes/cmd/images/provenance"
	"workload.openshift.io/kubernetes/cmd/images/release"
	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// Options say what to gather.
type Options struct {
	// Checkout is a checkout of this project.
	Checkout string
	// Version is the project's, such as v0.1.0.
	Version string
	// Releases are upstream's; empty means all that are known. make images has written their images.
	Releases []string
	// Plugin are the directories that have the kubectl plugin, by platform. Those of Linux are also in images.
	Plugin map[string][]string
	// URL is where the files of this version are published, for krew's manifest; empty means that there is none.
	URL string
	// Parts are those of make test-all. Results of others, or of these for another content, are left out.
	Parts []Part
	// Key signs the checksums, and must have signed those of the images; nil means that they are
	// not signed.
	Key crypto.Signer
	// Say reports progress.
	Say func(format string, arguments ...any)
}

const (
	pluginName = "kubectl-partition"
	license    = "LICENSE"
	// changelogFile is the name of the changelog in the bundle.
	changelogFile = "CHANGELOG.md"
)

// archives are the archives of parts of the checkout, by their names: the series with the Go modules
// that its hooks call, and the documentation.
var archives = map[string][]string{
	"series.tar.gz": {license, "build/releases", "go.mod", "go.sum", "openshift-kube-apiserver", "patches", "pkg", "staging"},
	"docs.tar.gz":   {license, "CONTRIBUTING.md", "README.md", "docs"},
}

// Dir is the directory of the bundle.
func (o Options) Dir() string { return filepath.Join(o.Checkout, "_output", "release", o.Version) }

// imagesOf is the directory that make images has written.
func (o Options) imagesOf(release string) string {
	return filepath.Join(o.Checkout, "_output", release, "images")
}

// Check returns an error if there can be no bundle of this version: the version must be newer than
// the last one, nothing uncommitted, and each release known. It does not look at what make builds.
func Check(ctx context.Context, o Options) error {
	s, err := o.examine(ctx)
	if err != nil {
		return err
	}
	if _, err := s.notesSince(ctx, o); err != nil {
		return err
	}
	return disk.Replaceable(o.Dir(), changelogFile)
}

// Write writes the bundle. If it fails, nothing is left behind, and what was there before stays.
func Write(ctx context.Context, o Options) error {
	s, err := o.examine(ctx)
	if err != nil {
		return err
	}
	notes, err := s.notesSince(ctx, o)
	if err != nil {
		return err
	}
	binaries := map[string]string{}
	plugins := map[string]string{}
	for _, name := range s.releases {
		o.Say("%s: checking the images of %s", o.Version, name)
		if binaries[name], err = o.checkImages(name, s, plugins); err != nil {
			return fmt.Errorf("%w: make images RELEASE=%s", err, name)
		}
	}
	return disk.Replace(o.Dir(), changelogFile, func(dir string) error {
		for _, name := range s.releases {
			if err := link(o.imagesOf(name), filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		for platform, dirs := range o.Plugin {
			if err := o.plugin(dir, platform, dirs, plugins[platform], s.date); err != nil {
				return err
			}
		}
		if o.URL != "" {
			if err := o.writeManifest(dir); err != nil {
				return fmt.Errorf("%s: %w", manifestFile, err)
			}
		}
		found, err := o.junit(s.releases, binaries)
		if err != nil {
			return err
		}
		page, err := conformance(o.Version, s.releases, binaries, found)
		if err != nil {
			return fmt.Errorf("%s: %w", conformancePage, err)
		}
		made := map[string]map[string]string{"docs.tar.gz": {conformancePage: page}}
		for name, paths := range archives {
			o.Say("%s: %s", o.Version, name)
			if err := o.archive(ctx, filepath.Join(dir, name), s.commit, paths, made[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if err := o.tests(dir, found); err != nil {
			return err
		}
		if err := s.writeChangelog(ctx, o, filepath.Join(dir, changelogFile), binaries); err != nil {
			return fmt.Errorf("%s: %w", changelogFile, err)
		}
		if err := os.WriteFile(filepath.Join(dir, notesFile), []byte(notes), 0o644); err != nil {
			return err
		}
		o.Say("%s: checksums", o.Version)
		return release.WriteSums(dir, o.Key)
	})
}

// checkImages checks that the images of a release are as they were written, and were so by this
// commit. It returns the version of their binaries, and adds the hashes of the plugin, by platform.
func (o Options) checkImages(name string, s source, plugins map[string]string) (version string, err error) {
	dir := o.imagesOf(name)
	var key crypto.PublicKey
	if o.Key != nil {
		key = o.Key.Public()
	}
	if _, err := release.CheckSums(dir, key); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "provenance", "*"))
	if err != nil {
		return "", err
	}
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			return "", err
		}
		statement, err := provenance.Read(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if statement.Builder != s.commit {
			return "", fmt.Errorf("%s: the image was made at commit %q, but the checkout is at %s", path, statement.Builder, s.commit)
		}
		version, _ = statement.Parameters["version"].(string)
		for _, material := range statement.Materials {
			if platform, ok := strings.CutSuffix(material.Name, "/"+pluginName); ok {
				plugins[platform] = material.Digest["sha256"]
			}
		}
	}
	if version == "" {
		return "", fmt.Errorf("%s: no image names its version", dir)
	}
	return version, nil
}

// link makes a directory of links to the files of another one. Images of all releases have
// gigabytes, and no file of either directory is written to: both are replaced as a whole.
func link(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		at := filepath.Join(to, name)
		if entry.IsDir() {
			return os.Mkdir(at, 0o755)
		}
		return os.Link(path, at)
	})
}

// KnownPlatform returns an error for a platform for which there is no plugin.
func KnownPlatform(platform string) error {
	system, architecture, _ := strings.Cut(platform, "/")
	if slices.Contains([]string{"linux", "darwin", "windows"}, system) && slices.Contains([]string{"amd64", "arm64"}, architecture) {
		return nil
	}
	return fmt.Errorf("platform %q: neither linux, darwin nor windows, with amd64 or arm64", platform)
}

// plugin writes the tarball of the plugin for a platform. For Linux, it must be the one in its image.
func (o Options) plugin(dir, platform string, dirs []string, sum string, date time.Time) error {
	binary, err := program.Find(pluginName, platform, dirs)
	if err != nil {
		return err
	}
	if binary.SHA256 != sum && strings.HasPrefix(platform, "linux/") {
		return fmt.Errorf("%s has sha256 %s, but the image contains %q: make images again", binary.File, binary.SHA256, sum)
	}
	tree := rootfs.New()
	if err := tree.Copy(binary.Name, 0o755, binary.File); err != nil {
		return err
	}
	if err := tree.Copy(license, 0o644, filepath.Join(o.Checkout, license)); err != nil {
		return err
	}
	return compress(filepath.Join(dir, pluginArchive(platform)), func(to io.Writer) error { return tree.Write(to, "", date) })
}

// pluginArchive is the name of the tarball of the plugin for a platform.
func pluginArchive(platform string) string {
	return pluginName + "-" + strings.ReplaceAll(platform, "/", "-") + ".tar.gz"
}

// archive writes an archive of paths of the checkout, as they are in a commit, and of files that are made for this version: their
// contents by their paths.
func (o Options) archive(ctx context.Context, file, commit string, paths []string, made map[string]string) error {
	return compress(file, func(to io.Writer) error {
		prefix := "workload-partitioning-" + o.Version + "/"
		args := []string{"-c", "tar.umask=022", "archive", "--format=tar", "--prefix=" + prefix}
		for _, path := range slices.Sorted(maps.Keys(made)) {
			args = append(args, "--add-virtual-file="+prefix+path+":"+made[path])
		}
		return o.git(ctx, to, slices.Concat(args, []string{commit, "--"}, paths)...)
	})
}

// compress writes a file that is compressed with gzip. It has no time, so that the same content gives
// the same bytes.
func compress(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	stream := gzip.NewWriter(file)
	return errors.Join(write(stream), stream.Close(), file.Close())
}
