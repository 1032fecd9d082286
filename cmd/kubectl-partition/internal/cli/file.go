// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// openFile opens a file; "-" is standard input.
func openFile(name string, in io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(in), nil
	}
	return os.Open(name)
}

// readFile reads what openFile opens.
func readFile(name string, in io.Reader) ([]byte, error) {
	file, err := openFile(name, in)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// replaceFile replaces a file atomically, so that no one reads half of it, and nothing is lost if there is no
// room. Its mode does not depend on the umask. The temporary name begins with a dot, because a kubelet that
// watches the directory would start a static pod from any other. Its owner is that of the file as it was, as far as
// this process may give files away; nil means this process.
func replaceFile(name string, content []byte, mode os.FileMode, was os.FileInfo) error {
	return replaceFileBy(name, mode, was, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// replaceFileBy is [replaceFile] for a content that a function writes. If that fails, nothing is replaced.
func replaceFileBy(name string, mode os.FileMode, was os.FileInfo, write func(io.Writer) error) error {
	temporary, err := os.CreateTemp(filepath.Dir(name), ".kubectl-partition-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	if was != nil {
		if err := keepOwner(temporary, was); err != nil {
			return errors.Join(err, temporary.Close())
		}
	}
	err = errors.Join(write(temporary), temporary.Chmod(mode), temporary.Sync(), temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}
