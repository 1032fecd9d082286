// SPDX-License-Identifier: Apache-2.0

// Package rootfs is the content of an image's layer: a tree of files that all belong to root.
// The same tree gives the same bytes, on any host and at any time. The package must know
// neither images nor where files come from.
package rootfs

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Entry is a directory, a regular file or a symbolic link.
type Entry struct {
	// Mode has the type and the permissions, with fs.ModeSetuid and fs.ModeSticky if they are
	// wanted. There is no set-group-ID bit.
	Mode fs.FileMode
	// Link is the target of a symbolic link.
	Link string
	// Size is that of a regular file, in bytes, and Open opens it.
	Size int64
	Open func() (io.ReadCloser, error)
	// Capabilities is the extended attribute security.capability, as the kernel reads it;
	// empty means none.
	Capabilities string
}

// NetBindService is cap_net_bind_service=+ep for Entry.Capabilities, as setcap writes it: struct
// vfs_cap_data of the kernel's linux/capability.h, revision 2, with the capability 10.
const NetBindService = "\x01\x00\x00\x02" + "\x00\x04\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// Tree is a tree of files. Paths have slashes and do not begin with one.
type Tree struct {
	entries map[string]Entry
}

// New returns an empty tree.
func New() *Tree { return &Tree{entries: map[string]Entry{}} }

// Set adds an entry, or replaces the one that is there.
func (t *Tree) Set(name string, entry Entry) { t.entries[clean(name)] = entry }

// Dir adds a directory. Directories that are missing above an entry have mode 0755, so only
// others, and empty ones, need this.
func (t *Tree) Dir(name string, mode fs.FileMode) {
	t.Set(name, Entry{Mode: fs.ModeDir | mode})
}

// File adds a regular file.
func (t *Tree) File(name string, mode fs.FileMode, data []byte) {
	t.Set(name, Entry{Mode: mode, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}})
}

// Symlink adds a symbolic link.
func (t *Tree) Symlink(name, target string) {
	t.Set(name, Entry{Mode: fs.ModeSymlink | 0o777, Link: target})
}

// Copy adds a regular file of this host. It is read when the tree is written.
func (t *Tree) Copy(name string, mode fs.FileMode, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	t.Set(name, Entry{Mode: mode, Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(from) }})
	return nil
}

// Get returns an entry.
func (t *Tree) Get(name string) (Entry, bool) {
	entry, ok := t.entries[clean(name)]
	return entry, ok
}

// Remove removes an entry, and all below it, and reports whether there was any.
func (t *Tree) Remove(name string) bool {
	before := len(t.entries)
	maps.DeleteFunc(t.entries, func(entry string, _ Entry) bool {
		return entry == clean(name) || strings.HasPrefix(entry, clean(name)+"/")
	})
	return len(t.entries) < before
}

// Names returns the paths of all entries in order.
func (t *Tree) Names() []string {
	names := make([]string, 0, len(t.entries))
	for name := range t.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Write writes the tree as a tar archive in which every file has this time. Each path begins with
// a prefix: none in layers, and "./" in Debian's packages.
func (t *Tree) Write(to io.Writer, prefix string, date time.Time) error {
	all := New()
	for name, entry := range t.entries {
		all.entries[name] = entry
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			above, ok := t.entries[dir]
			if !ok {
				all.Dir(dir, 0o755)
			} else if !above.Mode.IsDir() {
				return fmt.Errorf("%s: %s is not a directory", name, dir)
			}
		}
	}
	archive := tar.NewWriter(to)
	for _, name := range all.Names() {
		if err := write(archive, prefix+name, all.entries[name], date); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return archive.Close()
}

func write(archive *tar.Writer, name string, entry Entry, date time.Time) error {
	header := &tar.Header{Name: name, Mode: int64(entry.Mode.Perm()), ModTime: date, Format: tar.FormatPAX, Uname: "root", Gname: "root"}
	if entry.Mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	if entry.Mode&fs.ModeSetuid != 0 {
		header.Mode |= 0o4000
	}
	switch {
	case entry.Mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	case entry.Mode&fs.ModeSymlink != 0:
		header.Typeflag, header.Linkname = tar.TypeSymlink, entry.Link
	default:
		header.Typeflag, header.Size = tar.TypeReg, entry.Size
	}
	if entry.Capabilities != "" {
		header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": entry.Capabilities}
	}
	if err := archive.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	file, err := entry.Open()
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(archive, file)
	return err
}

func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }
