// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"workload.openshift.io/kubernetes/cmd/images/internal/digest"
	"workload.openshift.io/kubernetes/cmd/images/internal/gobinary"
	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

var date = time.Date(2026, 8, 26, 10, 44, 20, 0, time.UTC)

func TestMain(m *testing.M) {
	os.Setenv("APT_CONFIG", "testdata/apt.conf")
	os.Exit(m.Run())
}

// pin writes a package into a store, and returns what a lock file says of it.
func pin(t *testing.T, store *Store, name string, files *rootfs.Tree) Package {
	t.Helper()
	var deb bytes.Buffer
	d := &Deb{Name: name, Version: "1.0-1", Architecture: "amd64", Maintainer: "a <a@example.com>", Summary: "a package", Files: files, Date: date}
	if err := d.Write(&deb); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(deb.Bytes())
	p := Package{Name: name, Version: d.Version, Architecture: d.Architecture, Path: "pool/main/" + name + ".deb", SHA256: hex.EncodeToString(sum[:]), Size: int64(deb.Len())}
	gobinary.Write(t, filepath.Join(store.Dir, p.SHA256+".deb"), deb.Bytes())
	return p
}

func TestABaseIsWhatThePackagesInstallAndScriptsWould(t *testing.T) {
	store := &Store{Dir: t.TempDir()}
	files := rootfs.New()
	files.File("bin/tool-nft", fs.ModeSetuid|0o755, []byte("tool"))
	files.File("usr/share/man/man1/tool.1", 0o644, []byte("manual"))
	files.File("usr/lib/tool/scripts/run", 0o755, []byte("script"))
	files.File("usr/lib/toolbox", 0o755, []byte("box"))
	files.File("usr/share/doc/tool/README", 0o644, []byte("readme"))
	files.File("usr/share/doc/tool/copyright", 0o644, []byte("free"))
	files.File("usr/share/ca-certificates/a.crt", 0o644, []byte("certificate A\n"))
	files.File("usr/share/ca-certificates/b.crt", 0o644, []byte("certificate B\n"))
	lock := &Lock{Suite: "bookworm", Bases: map[string]*Base{"base": {
		Links:    map[string]string{"usr/bin/tool": "tool-nft"},
		Without:  []string{"usr/lib/tool"},
		Packages: map[string][]Package{"linux/amd64": {pin(t, store, "tool", files)}},
	}}}
	tree, packages, err := lock.Assemble(t.Context(), store, "base", "linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 1 || packages[0].Name != "tool" {
		t.Errorf("the base has packages %v, want tool", packages)
	}
	for name, want := range map[string]string{
		"usr/bin/tool-nft":             "tool",
		"usr/bin/tool":                 "-> tool-nft",
		"bin":                          "-> usr/bin",
		"usr/lib/tool/scripts/run":     "nothing",
		"usr/lib/toolbox":              "box",
		"usr/share/man/man1/tool.1":    "nothing",
		"usr/share/doc/tool/README":    "nothing",
		"usr/share/doc/tool/copyright": "free",
		"var/lib/dpkg/status.d/tool":   "Package: tool\nVersion: 1.0-1\nArchitecture: amd64\nMaintainer: a <a@example.com>\nInstalled-Size: 1\nPriority: optional\nDescription: a package\n",
		bundle:                         "certificate A\ncertificate B\n",
	} {
		if got := content(t, tree, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if entry, _ := tree.Get("usr/bin/tool-nft"); entry.Mode != 0o755 {
		t.Errorf("the tool has mode %s, want 0755: no image needs set-user-ID", entry.Mode)
	}
}

func content(t *testing.T, tree *rootfs.Tree, name string) string {
	t.Helper()
	entry, ok := tree.Get(name)
	switch {
	case !ok:
		return "nothing"
	case entry.Mode&fs.ModeSymlink != 0:
		return "-> " + entry.Link
	}
	file, err := entry.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestABaseThatCannotBeAssembledIsRefusedByName(t *testing.T) {
	store := &Store{Dir: t.TempDir(), Mirrors: []string{"copy:///nowhere"}}
	tool := rootfs.New()
	tool.File("usr/bin/tool", 0o755, []byte("tool"))
	dynamic := rootfs.New()
	// Of any host's programs, git is there: the tests of carry need it.
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	if err := dynamic.Copy("usr/bin/git", 0o755, git); err != nil {
		t.Fatal(err)
	}
	good, missing := pin(t, store, "tool", tool), pin(t, store, "missing", tool)
	if err := os.Remove(filepath.Join(store.Dir, missing.SHA256+".deb")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, want string
		base       Base
		platform   string
	}{
		{"a platform that is not pinned", "base base: no packages for linux/arm64 in the lock file", Base{}, "linux/arm64"},
		{"a package that is gone", "base base, linux/amd64: package missing 1.0-1 cannot be downloaded (/usr/lib/apt/apt-helper: exit status 100: E: Failed to fetch copy:/nowhere/pool/main/missing.deb  ", Base{Packages: map[string][]Package{"linux/amd64": {missing}}}, "linux/amd64"},
		{"a program without its libraries", "usr/bin/git needs lib", Base{Packages: map[string][]Package{"linux/amd64": {pin(t, store, "git", dynamic)}}}, "linux/amd64"},
		{"a link that leads nowhere", "link usr/bin/other: no package has its target tool-nft", Base{Links: map[string]string{"usr/bin/other": "tool-nft"}, Packages: map[string][]Package{"linux/amd64": {good}}}, "linux/amd64"},
		{"without what is not there", "without usr/bin/other: no package has that file", Base{Without: []string{"usr/bin/other"}, Packages: map[string][]Package{"linux/amd64": {good}}}, "linux/amd64"},
		{"a link over a file", "link usr/bin/tool: a package has that file", Base{Links: map[string]string{"usr/bin/tool": "tool"}, Packages: map[string][]Package{"linux/amd64": {good}}}, "linux/amd64"},
	} {
		t.Run(test.name, func(t *testing.T) {
			lock := &Lock{Bases: map[string]*Base{"base": &test.base}}
			if _, _, err := lock.Assemble(t.Context(), store, "base", test.platform); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestAPackageFromAnArchiveIsKept fetches with apt, from a directory.
func TestAPackageFromAnArchiveIsKept(t *testing.T) {
	archive := t.TempDir()
	store := &Store{Dir: t.TempDir(), Mirrors: []string{"copy://" + archive}}
	tree := rootfs.New()
	tree.File("usr/bin/tool", 0o755, []byte("tool"))
	p := pin(t, store, "tool", tree)
	kept := filepath.Join(store.Dir, p.SHA256+".deb")
	if err := os.MkdirAll(filepath.Join(archive, "pool", "main"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(kept, filepath.Join(archive, p.Path)); err != nil {
		t.Fatal(err)
	}
	// Builds of several releases share a store.
	errs := make([]error, 4)
	var builds sync.WaitGroup
	for i := range errs {
		builds.Go(func() {
			_, errs[i] = (&Store{Dir: store.Dir, Mirrors: store.Mirrors}).Fetch(context.Background(), p)
		})
	}
	builds.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(store.Dir); err != nil || len(entries) != 1 {
		t.Errorf("the store has %v (%v), want only the package", entries, err)
	}
	if err := os.RemoveAll(archive); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Fetch(context.Background(), p); err != nil || got != kept {
		t.Errorf("a package that was fetched before gives %q and error %v, want %q", got, err, kept)
	}
}

// TestTheSourceOfAPackageIsKnown has dpkg-deb write one, since ours have no source.
func TestTheSourceOfAPackageIsKnown(t *testing.T) {
	store, from := &Store{Dir: t.TempDir()}, t.TempDir()
	const control = "Package: libtool\nSource: tool (1.0-1)\nVersion: 1.0-1+b1\nArchitecture: amd64\nMaintainer: a <a@example.com>\nDescription: a library\n"
	if err := os.Mkdir(filepath.Join(from, "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	gobinary.Write(t, filepath.Join(from, "DEBIAN", "control"), []byte(control))
	file := filepath.Join(t.TempDir(), "libtool.deb")
	if _, err := run(t.Context(), "dpkg-deb", "--root-owner-group", "--build", from, file); err != nil {
		t.Fatal(err)
	}
	sum, err := digest.File(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file, filepath.Join(store.Dir, sum+".deb")); err != nil {
		t.Fatal(err)
	}
	lock := &Lock{Bases: map[string]*Base{"base": {Packages: map[string][]Package{"linux/amd64": {{Name: "libtool", Version: "1.0-1+b1", SHA256: sum}}}}}}
	_, packages, err := lock.Assemble(t.Context(), store, "base", "linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 1 || packages[0].Source != "tool (1.0-1)" {
		t.Errorf("the base has %+v, want a package of the source tool (1.0-1)", packages)
	}
}

// A lock file has packages of Debian's archive, and of that of its security updates.
func TestPackagesOfSeveralArchivesAreFetched(t *testing.T) {
	store := &Store{Dir: t.TempDir()}
	var packages []Package
	for _, name := range []string{"tool", "updated"} {
		files, archive := rootfs.New(), t.TempDir()
		files.File("usr/bin/"+name, 0o755, []byte("tool"))
		p := pin(t, store, name, files)
		if err := os.MkdirAll(filepath.Join(archive, "pool", "main"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(store.Dir, p.SHA256+".deb"), filepath.Join(archive, p.Path)); err != nil {
			t.Fatal(err)
		}
		packages, store.Mirrors = append(packages, p), append(store.Mirrors, "copy://"+archive)
	}
	lock := &Lock{Bases: map[string]*Base{"base": {Packages: map[string][]Package{"linux/amd64": packages}}}}
	one := &Store{Dir: t.TempDir(), Mirrors: store.Mirrors[:1]}
	if _, err := lock.Fetch(t.Context(), one, "base", "linux/amd64"); err == nil || !strings.Contains(err.Error(), "package updated 1.0-1 cannot be downloaded") {
		t.Errorf("of one archive: got error %v, want one that names the package of the other", err)
	}
	if files, err := lock.Fetch(t.Context(), store, "base", "linux/amd64"); err != nil || len(files) != 2 {
		t.Errorf("of both archives: got %v and error %v, want two files", files, err)
	}
}

func TestTheLockFilePinsBothPlatforms(t *testing.T) {
	lock, err := Pinned()
	if err != nil {
		t.Fatal(err)
	}
	for name, base := range lock.Bases {
		for _, platform := range gobinary.Platforms {
			has := map[string]bool{}
			for _, p := range base.Packages[platform] {
				has[p.Name] = true
			}
			for _, wanted := range base.Install {
				wanted, _, _ := strings.Cut(wanted, "/")
				if !has[wanted] {
					t.Errorf("base %s, %s: %s must be installed, and is not pinned", name, platform, wanted)
				}
			}
			for _, left := range base.Leave {
				if has[left] {
					t.Errorf("base %s, %s: %s must be left out, and is pinned", name, platform, left)
				}
			}
		}
	}
}

func TestDebianHasItsOwnNamesOfArchitectures(t *testing.T) {
	for platform, want := range map[string]string{"linux/arm64": "arm64", "linux/ppc64le": "ppc64el", "linux/s390x": "s390x"} {
		if got := Architecture(platform); got != want {
			t.Errorf("%s is %s to Debian, want %s", platform, got, want)
		}
	}
}

func TestALockFileThatPinsNothingIsRefused(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"a package without a hash", `{"bases": {"b": {"packages": {"linux/amd64": [{"name": "bash", "version": "5", "path": "pool/b.deb"}]}}}}`, `base b, linux/amd64: package "bash" is not pinned: version "5", path "pool/b.deb", sha256 ""`},
		{"an unknown field", `{"bases": {"b": {"instal": ["bash"]}}}`, `unknown field "instal"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := parse("lock.json", []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestDpkgReadsOurPackages asks dpkg-deb, since it is the one that has to.
func TestDpkgReadsOurPackages(t *testing.T) {
	files := rootfs.New()
	files.File("usr/bin/tool", 0o755, []byte("tool"))
	files.File("etc/default/tool", 0o644, []byte("FLAGS=\n"))
	files.Dir("var/lib/tool", 0o755)
	deb := &Deb{
		Name: "tool", Version: "1.37.0+wp.1234567-1", Architecture: "arm64", Section: "net", Maintainer: "a <a@example.com>",
		Depends: []string{"mount", "util-linux"}, Summary: "a tool", Description: []string{"It is one."},
		Files: files, ConfigFiles: []string{"/etc/default/tool"}, Scripts: map[string]string{"postinst": "#!/bin/sh\n"}, Date: date,
	}
	name := filepath.Join(t.TempDir(), "tool.deb")
	var first, second bytes.Buffer
	if err := deb.Write(&first); err != nil {
		t.Fatal(err)
	}
	if err := deb.Write(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("two packages of the same files differ (%v)", err)
	}
	gobinary.Write(t, name, first.Bytes())
	fields, err := run(t.Context(), "dpkg-deb", "--field", name)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Package: tool\nVersion: 1.37.0+wp.1234567-1\nArchitecture: arm64\nMaintainer: a <a@example.com>\nInstalled-Size: 1\nDepends: mount, util-linux\nSection: net\nPriority: optional\nDescription: a tool\n It is one.\n"; fields != want {
		t.Errorf("dpkg-deb --field prints %q, want %q", fields, want)
	}
	listed, err := run(t.Context(), "dpkg-deb", "--fsys-tarfile", name)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for reader := tar.NewReader(strings.NewReader(listed)); ; {
		header, err := reader.Next()
		if err != nil {
			break
		}
		names = append(names, header.Name)
	}
	if got, want := strings.Join(names, " "), "./etc/ ./etc/default/ ./etc/default/tool ./usr/ ./usr/bin/ ./usr/bin/tool ./var/ ./var/lib/ ./var/lib/tool/"; got != want {
		t.Errorf("the package installs %q, want %q", got, want)
	}
	if scripts, err := run(t.Context(), "dpkg-deb", "--info", name, "conffiles", "postinst"); err != nil || scripts != "/etc/default/tool\n#!/bin/sh\n" {
		t.Errorf("conffiles and postinst are %q (%v)", scripts, err)
	}
}
