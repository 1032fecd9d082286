// SPDX-License-Identifier: Apache-2.0

// Package atomicfile writes files that are never incomplete, whatever happens to the writer or to
// its host. It must not know what is in them.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces a file. After a power cut there is the old file or the new one, never a part of
// it. The new one has the mode, less what the umask takes from it. Two writers must not write one
// file at once.
func Write(path string, data []byte, mode os.FileMode) error {
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
