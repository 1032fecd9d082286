// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"workload.openshift.io/kubernetes/cmd/images/internal/digest"
	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// Store fetches packages, and keeps them under their hashes.
type Store struct {
	// Dir is where they are kept.
	Dir string
	// Mirrors are URIs of archives to fetch from, in this order, before those of the host's apt. Each
	// package may be in another one: Debian's security updates have a separate archive.
	Mirrors []string
	// found are those of the host's apt, once they are known.
	found []string
}

// helper is apt's own program that fetches a file with apt's settings, and checks its hash.
const helper = "/usr/lib/apt/apt-helper"

// Fetch returns the file of a package, whose hash is the pinned one.
func (s *Store) Fetch(ctx context.Context, p Package) (string, error) {
	file := filepath.Join(s.Dir, p.SHA256+".deb")
	if sum, err := digest.File(file); err == nil && sum == p.SHA256 {
		return file, nil
	}
	archives, err := s.archives(ctx)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return "", err
	}
	// Other builds may fetch the same file.
	directory, err := os.MkdirTemp(s.Dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(directory)
	if err := os.Chmod(directory, 0o755); err != nil { // for apt's user
		return "", err
	}
	temporary := filepath.Join(directory, filepath.Base(file))
	var failures []string
	for _, archive := range archives {
		uri := strings.TrimSuffix(archive, "/") + "/" + p.Path
		_, err := run(ctx, helper, "download-file", uri, temporary, "SHA256:"+p.SHA256)
		if err == nil {
			return file, os.Rename(temporary, file)
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		failures = append(failures, err.Error())
		// apt leaves what has another hash.
		if err := os.Remove(temporary + ".FAILED"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("package %s %s cannot be downloaded (%s); images lock pins the current versions, and --mirror names archives that keep older ones", p.Name, p.Version, strings.Join(failures, "; "))
}

// archives returns the URIs of all archives. A host that has none can do with mirrors.
func (s *Store) archives(ctx context.Context) ([]string, error) {
	if s.found == nil {
		repositories, err := repositories(ctx)
		if err != nil && len(s.Mirrors) == 0 {
			return nil, err
		}
		for _, r := range repositories {
			s.found = append(s.found, r.uri)
		}
		slices.Sort(s.found)
		s.found = slices.Compact(s.found)
	}
	return slices.Concat(s.Mirrors, s.found), nil
}

// Fetch fetches the packages of a base, and returns their files in the packages' order.
func (l *Lock) Fetch(ctx context.Context, store *Store, name, platform string) (files []string, err error) {
	base, ok := l.Bases[name]
	if !ok {
		return nil, fmt.Errorf("base %s: not in the lock file", name)
	}
	packages, ok := base.Packages[platform]
	if !ok {
		return nil, fmt.Errorf("base %s: no packages for %s in the lock file; images lock --platform %[2]s pins them", name, platform)
	}
	for _, p := range packages {
		file, err := store.Fetch(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("base %s, %s: %w", name, platform, err)
		}
		files = append(files, file)
	}
	return files, nil
}

// Assemble returns the root file system of a base and its packages.
func (l *Lock) Assemble(ctx context.Context, store *Store, name, platform string) (*rootfs.Tree, []Package, error) {
	files, err := l.Fetch(ctx, store, name, platform)
	if err != nil {
		return nil, nil, err
	}
	base, tree := l.Bases[name], rootfs.New()
	packages := slices.Clone(base.Packages[platform])
	for i, p := range packages {
		if packages[i].Source, err = unpack(ctx, tree, p.Name, files[i]); err != nil {
			return nil, nil, fmt.Errorf("base %s, %s: package %s %s: %w", name, platform, p.Name, p.Version, err)
		}
	}
	for _, left := range base.Without {
		if !tree.Remove(left) {
			return nil, nil, fmt.Errorf("base %s, %s: without %s: no package has that file", name, platform, left)
		}
	}
	for link, target := range base.Links {
		if _, there := tree.Get(link); there {
			return nil, nil, fmt.Errorf("base %s, %s: link %s: a package has that file", name, platform, link)
		}
		if _, there := tree.Get(path.Join(path.Dir(link), target)); !there {
			return nil, nil, fmt.Errorf("base %s, %s: link %s: no package has its target %s", name, platform, link, target)
		}
		tree.Symlink(link, target)
	}
	if err := finish(tree); err != nil {
		return nil, nil, fmt.Errorf("base %s, %s: %w", name, platform, err)
	}
	return tree, packages, nil
}

// merged are the directories that are links into /usr since Debian 12. Some packages still have
// files in them.
var merged = []string{"bin", "lib", "lib64", "sbin"}

// leftOut is documentation, which an image does not need. Copyright notices stay.
func leftOut(name string) bool {
	if path.Base(name) == "copyright" {
		return false
	}
	for _, dir := range []string{"doc", "doc-base", "info", "lintian", "locale", "man", "bash-completion", "bug", "menu"} {
		if below := "usr/share/" + dir; name == below || strings.HasPrefix(name, below+"/") {
			return true
		}
	}
	return false
}

// unpack adds the files of a package to a tree, and what image scanners look for. It returns the package's
// source.
func unpack(ctx context.Context, tree *rootfs.Tree, name, file string) (source string, err error) {
	control, err := run(ctx, "dpkg-deb", "--field", file)
	if err != nil {
		return "", err
	}
	tree.File("var/lib/dpkg/status.d/"+name, 0o644, []byte(control))
	for line := range strings.Lines(control) {
		if value, ok := strings.CutPrefix(line, "Source: "); ok {
			source = strings.TrimSpace(value)
		}
	}
	return source, extract(ctx, tree, file)
}

// extract adds the files of a package to a tree.
func extract(ctx context.Context, tree *rootfs.Tree, file string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = add(tree, out)
	// dpkg-deb ends only once all is read.
	_, copyErr := io.Copy(io.Discard, out)
	if waitErr := cmd.Wait(); waitErr != nil {
		return fmt.Errorf("dpkg-deb: %w: %s", waitErr, complaint(errs.String()))
	}
	return errors.Join(err, copyErr)
}

func add(tree *rootfs.Tree, from io.Reader) error {
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := usr(header.Name)
		if name == "" || slices.Contains(merged, name) || leftOut(name) {
			continue
		}
		mode := fs.FileMode(header.Mode).Perm()
		if header.Mode&0o1000 != 0 {
			mode |= fs.ModeSticky
		}
		switch header.Typeflag {
		case tar.TypeDir:
			tree.Dir(name, mode)
		case tar.TypeSymlink:
			tree.Symlink(name, header.Linkname)
		case tar.TypeLink:
			target, ok := tree.Get(usr(header.Linkname))
			if !ok {
				return fmt.Errorf("%s: hard link to %s, which is not there", name, header.Linkname)
			}
			tree.Set(name, target)
		case tar.TypeReg:
			data, err := io.ReadAll(archive)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			tree.File(name, mode, data)
		default:
			return fmt.Errorf("%s: neither a file, a directory nor a link (type %q)", name, header.Typeflag)
		}
	}
}

// usr returns where a path is once the merged directories are links.
func usr(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if first, _, below := strings.Cut(name, "/"); below && slices.Contains(merged, first) {
		return "usr/" + name
	}
	return name
}

// bundle is where both Debian's and Red Hat's programs find the certificates of public authorities:
// OpenShift's static pods put another file there. update-ca-certificates would write it.
const bundle = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"

// finish does what maintainer scripts of all bases would do, and checks that each program finds its
// libraries.
func finish(tree *rootfs.Tree) error {
	var certificates bytes.Buffer
	libraries := map[string]bool{}
	needed := map[string][]string{}
	for _, name := range tree.Names() {
		libraries[path.Base(name)] = libraries[path.Base(name)] || strings.HasPrefix(name, "usr/lib")
		entry, _ := tree.Get(name)
		if !entry.Mode.IsRegular() {
			continue
		}
		file, err := entry.Open()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if strings.HasPrefix(name, "usr/share/ca-certificates/") {
			certificates.Write(data)
		}
		if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
			continue
		}
		program, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if needed[name], err = program.ImportedLibraries(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, name := range tree.Names() {
		for _, library := range needed[name] {
			if !libraries[library] {
				return fmt.Errorf("%s needs %s, which no package has; look at leave in the lock file", name, library)
			}
		}
	}
	if certificates.Len() > 0 {
		tree.File(bundle, 0o644, certificates.Bytes())
		tree.Symlink("etc/ssl/certs/ca-certificates.crt", "/"+bundle)
	}
	for _, dir := range merged {
		tree.Symlink(dir, "usr/"+dir)
		// A link whose target is missing would be of no use.
		tree.Dir("usr/"+dir, 0o755)
	}
	return nil
}
