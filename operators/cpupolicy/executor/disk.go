// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// File is a file's content and permissions.
type File struct {
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode"`
}

// disk is the file system, as far as the steps need it. It says which calls a power cut may undo;
// tests have one that does.
type disk interface {
	// read returns nil if there is no such file.
	read(path string) (*File, error)
	// create writes a new file. Its content is on the disk when create returns, but its name
	// may not be.
	create(path string, file File) error
	// try returns an error if create could not write the file. It leaves nothing behind, whatever ends
	// the process.
	try(path string, file File) error
	// mkdir makes a directory, unless it is there.
	mkdir(path string) error
	// rename and remove may not be on the disk when they return. A file that is not there
	// counts as removed.
	rename(from, to string) error
	remove(path string) error
	// sync puts the names in a directory on the disk.
	sync(dir string) error
}

// put makes a path have a file, or none if file is nil. After a power cut there is what was there,
// or this; when put returns, this.
func put(d disk, path string, file *File) error {
	temporary := temporaryOf(path)
	if err := d.remove(temporary); err != nil {
		return err
	}
	if file == nil {
		if err := d.remove(path); err != nil {
			return err
		}
		return d.sync(filepath.Dir(path))
	}
	if err := d.create(temporary, *file); err != nil {
		return errors.Join(err, d.remove(temporary))
	}
	if err := d.rename(temporary, path); err != nil {
		return errors.Join(err, d.remove(temporary))
	}
	return d.sync(filepath.Dir(path))
}

// temporaryOf is where put writes a file first. Neither the kubelet nor rke2 reads a drop-in with this end.
func temporaryOf(path string) string { return path + ".new" }

// restore makes a path have again what it had, as put does. Where it has that already it writes nothing: the
// disk may be full or read-only, which is perhaps why there is something to restore.
func restore(d disk, path string, had *File) error {
	has, err := d.read(path)
	if err != nil || (has == nil) != (had == nil) || has != nil && (has.Mode != had.Mode || !bytes.Equal(has.Content, had.Content)) {
		return put(d, path, had)
	}
	// What an attempt has left, and what a power cut could still bring back.
	if left, err := d.read(temporaryOf(path)); err != nil || left != nil {
		if err := d.remove(temporaryOf(path)); err != nil && !errors.Is(err, unix.EROFS) {
			return err // nobody reads it, if it must stay
		}
	}
	err = d.sync(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EINVAL) {
		return nil // there is nothing in it, or it cannot be changed
	}
	return err
}

// hostDisk is the file system below a directory: "/" for a process of the host. It reads and
// writes regular files alone that belong to the user of this process, root, and that nobody else
// can write. It does not follow symbolic links to them.
type hostDisk string

// at returns by which path this process finds a file of the host. Symbolic links on the way to it
// are the host's, so that an absolute one begins at the host's root. The file may be a link itself.
func (d hostDisk) at(path string) string {
	return filepath.Join(d.follow(filepath.Dir(path)), filepath.Base(path))
}

// follow is [hostDisk.at] for a file that is followed if it is a link.
func (d hostDisk) follow(path string) string {
	if d == "/" {
		return path
	}
	followed, err := securejoin.SecureJoin(string(d), path)
	if err != nil {
		return filepath.Join(string(d), path) // the kernel will say what is wrong with it
	}
	return followed
}

func (d hostDisk) read(path string) (*File, error) {
	info, err := os.Lstat(d.at(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %s, not a regular file", path, info.Mode().Type())
	}
	if err := ownedByUs(path, info); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(d.at(path))
	if err != nil {
		return nil, err
	}
	return &File{content, info.Mode().Perm()}, nil
}

func (d hostDisk) create(path string, file File) error {
	f, err := os.OpenFile(d.at(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file.Content)
	if err == nil {
		err = f.Chmod(file.Mode.Perm())
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (d hostDisk) try(path string, file File) error {
	dir := d.at(filepath.Dir(path))
	f, err := os.OpenFile(dir, os.O_WRONLY|unix.O_TMPFILE, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		// The file system has no files without a name.
		return os.NewSyscallError("access", unix.Access(dir, unix.W_OK))
	}
	if err != nil {
		return err
	}
	_, err = f.Write(file.Content)
	return errors.Join(err, f.Sync(), f.Close())
}

func (d hostDisk) mkdir(path string) error {
	if err := os.Mkdir(d.at(path), 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (d hostDisk) rename(from, to string) error { return os.Rename(d.at(from), d.at(to)) }

func (d hostDisk) remove(path string) error {
	if err := os.Remove(d.at(path)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d hostDisk) sync(dir string) error {
	f, err := os.Open(d.at(dir))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// volatile returns the file system of a directory, or of what it would be made in, if a reboot empties that; empty
// if none does, or nobody can say.
func (d hostDisk) volatile(dir string) (fileSystem string, err error) {
	at := d.follow(dir)
	var of unix.Statfs_t
	err = unix.Statfs(at, &of)
	if errors.Is(err, fs.ErrNotExist) && dir != "/" {
		return d.volatile(filepath.Dir(dir))
	}
	if err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	if name := inMemory(of); name != "" || of.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return name, nil
	}
	// What is written there goes to another directory. That of a container is not to be seen from within.
	upper, err := upperOf(at)
	if err != nil {
		return "", fmt.Errorf("file system of %s: %w", dir, err)
	}
	if unix.Statfs(d.follow(upper), &of) == nil && inMemory(of) != "" {
		return fmt.Sprintf("an overlay that writes to %s, which is on %s", upper, inMemory(of)), nil
	}
	return "", nil
}

// inMemory returns the name of a file system that is in memory alone; empty for any other.
func inMemory(of unix.Statfs_t) string {
	switch of.Type {
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.RAMFS_MAGIC:
		return "ramfs"
	}
	return ""
}

// upperOf returns to which directory of the host an overlay writes; empty if to none.
func upperOf(dir string) (string, error) {
	var of unix.Stat_t
	if err := unix.Stat(dir, &of); err != nil {
		return "", err
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return "", err
	}
	for _, mount := range mounts {
		if mount.MajorMinorVer == fmt.Sprintf("%d:%d", unix.Major(of.Dev), unix.Minor(of.Dev)) {
			return mount.SuperOptions["upperdir"], nil
		}
	}
	return "", nil
}

// checkDirectory returns an error if anybody but root can change what is in a directory of the host, or put
// another directory in its place. On the way there are no symbolic links.
func (d hostDisk) checkDirectory(path string) error {
	names := strings.Split(strings.Trim(path, "/"), "/")
	for i := range names {
		at := "/" + filepath.Join(names[:i+1]...)
		info, err := os.Lstat(d.at(at))
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%s is %s, not a directory", at, info.Mode().Type())
		}
		if err := ownedByUs(at, info); err != nil {
			return err
		}
	}
	return nil
}

// ownedByUs returns an error unless the file belongs to the user of this process, who is root on a
// host, and nobody else can write it.
func ownedByUs(path string, info fs.FileInfo) error {
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to user %d; run: chown %[3]d %[1]s", path, owner, os.Geteuid())
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s has mode %#o, which lets others write it; run: chmod go-w %[1]s", path, mode)
	}
	return nil
}
