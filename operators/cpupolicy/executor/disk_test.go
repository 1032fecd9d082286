// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestATriedFileLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	if err := hostDisk("/").try(filepath.Join(dir, "file"), File{[]byte("content"), 0o600}); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v are left (%v)", entries, err)
	}
	if err := hostDisk("/").try(filepath.Join(dir, "none", "file"), File{[]byte("content"), 0o600}); err == nil {
		t.Error("a file could be written without its directory")
	}
}

// A disk on which nothing can be written must not keep a roll-back from its end.
func TestWhatIsAsItWasIsNotWritten(t *testing.T) {
	d := readOnlyDisk{hostDisk(t.TempDir())}
	had := &File{[]byte("content"), 0o600}
	if err := d.hostDisk.create("/file", *had); err != nil {
		t.Fatal(err)
	}
	for path, file := range map[string]*File{"/file": had, "/other": nil, "/none/file": nil} {
		if err := restore(d, path, file); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for path, file := range map[string]*File{"/file": nil, "/other": had} {
		if err := restore(d, path, file); err == nil {
			t.Errorf("%s is as it must be, and nothing was written", path)
		}
	}
}

// TestAFileSystemInMemoryIsKnown mounts some in namespaces of its own, which end with its process.
func TestAFileSystemInMemoryIsKnown(t *testing.T) {
	if !inOwnNamespaces(t) {
		return
	}
	root, memory := t.TempDir(), t.TempDir()
	mount := func(kind, at, options string) {
		t.Helper()
		if err := unix.Mount(kind, at, kind, 0, options); err != nil {
			t.Skipf("%s cannot be mounted here: %v", kind, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	mount("tmpfs", memory, "")
	overlay := func(dir string) (upper, merged string) {
		t.Helper()
		upper, merged = filepath.Join(dir, "upper"), filepath.Join(root, "merged-"+filepath.Base(dir))
		work := filepath.Join(dir, "work")
		for _, made := range []string{upper, work, merged} {
			if err := os.MkdirAll(made, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		mount("overlay", merged, "lowerdir="+root+",upperdir="+upper+",workdir="+work)
		return upper, merged
	}
	disk := hostDisk("/")
	inMemory, overMemory := overlay(memory)
	for dir, want := range map[string]string{
		memory:                               "tmpfs",
		filepath.Join(memory, "none/below"):  "tmpfs",
		filepath.Join(overMemory, "not-yet"): "an overlay that writes to " + inMemory + ", which is on tmpfs",
		"/proc/self":                         "",
	} {
		if got, err := disk.volatile(dir); err != nil || got != want {
			t.Errorf("%s is on %q, %v, want %q", dir, got, err, want)
		}
	}
	if got, err := disk.volatile(root); err != nil || got != "" {
		t.Skipf("the directory of this test is on %q, %v", got, err)
	}
	_, overDisk := overlay(t.TempDir())
	if got, err := disk.volatile(overDisk); err != nil || got != "" {
		t.Errorf("an overlay that writes to a disk is on %q, %v", got, err)
	}
}

// readOnlyDisk refuses all that changes it, as a read-only mount does.
type readOnlyDisk struct{ hostDisk }

func (readOnlyDisk) create(string, File) error   { return fs.ErrPermission }
func (readOnlyDisk) rename(string, string) error { return fs.ErrPermission }
func (readOnlyDisk) remove(string) error         { return fs.ErrPermission }
