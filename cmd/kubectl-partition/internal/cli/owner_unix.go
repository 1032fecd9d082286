// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file to the owner of another, if this process may.
func keepOwner(file *os.File, of os.FileInfo) error {
	owner, ok := of.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if err := file.Chown(int(owner.Uid), int(owner.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
