// SPDX-License-Identifier: Apache-2.0

// Package disk writes directories atomically. It knows nothing of their contents.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// Replaceable returns an error for what Replace must not remove: anything but an empty directory and
// one that has the file mark, since an earlier Replace wrote it.
func Replaceable(dir, mark string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, mark)); err != nil {
		return fmt.Errorf("%s would be replaced as a whole, but it has files that this command did not write: it has no %s; name another directory, or empty this one", dir, mark)
	}
	return nil
}

// Replace calls write with a new directory next to dir, and then puts it in dir's place. If that
// fails, nothing is left behind, and what was there before stays. What is not Replaceable stays, too. It
// removes what an earlier Replace of dir left behind because it was killed.
func Replace(dir, mark string, write func(dir string) error) (err error) {
	if err := Replaceable(dir, mark); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	beside, lock, err := begin(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	defer func() { err = errors.Join(err, os.RemoveAll(beside)) }()
	if err := os.Chmod(beside, 0o755); err != nil {
		return err
	}
	if err := write(beside); err != nil {
		return err
	}
	old := beside + oldSuffix
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(beside, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

// oldSuffix follows the name of a new directory in that of the one whose place it takes.
const oldSuffix = ".old"

// begin makes a new directory next to dir. It is locked until the file is closed, so that no other process takes it for
// one that was left behind.
func begin(dir string) (string, *os.File, error) {
	above, prefix := filepath.Dir(dir), filepath.Base(dir)+".new-"
	// A directory cannot be made and locked at once.
	turn, err := lock(above, 0)
	if err != nil {
		return "", nil, err
	}
	defer turn.Close()
	if err := sweep(dir, prefix); err != nil {
		return "", nil, err
	}
	beside, err := os.MkdirTemp(above, prefix)
	if err != nil {
		return "", nil, err
	}
	file, err := lock(beside, syscall.LOCK_NB)
	if err != nil {
		return "", nil, errors.Join(err, os.Remove(beside))
	}
	return beside, file, nil
}

// sweep removes what was left behind next to dir. If what was in dir is among that, and nothing is in its
// place, it puts that back.
func sweep(dir, prefix string) error {
	above := filepath.Dir(dir)
	entries, err := os.ReadDir(above)
	if err != nil {
		return err
	}
	// os.MkdirTemp puts digits there. A name comes before the same name with a suffix.
	ours := regexp.MustCompile("^" + regexp.QuoteMeta(prefix) + "[0-9]+(" + regexp.QuoteMeta(oldSuffix) + ")?$")
	for _, entry := range entries {
		if !ours.MatchString(entry.Name()) || !entry.IsDir() {
			continue
		}
		name := filepath.Join(above, entry.Name())
		beside, old := strings.CutSuffix(name, oldSuffix)
		file, err := lock(beside, syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			continue
		case err == nil:
			file.Close()
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if _, err = os.Lstat(dir); old && errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(name, dir)
		} else {
			err = os.RemoveAll(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lock locks a directory for this process alone, until the file is closed or the process ends. With
// syscall.LOCK_NB, the error is syscall.EWOULDBLOCK if another has locked it.
func lock(dir string, how int) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|how); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: dir, Err: err}, file.Close())
	}
	return file, nil
}
