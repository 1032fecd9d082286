/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package disk writes directories of which nobody sees half. It knows nothing of what is in them.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
		return fmt.Errorf("%s would be replaced as a whole, and it has files that this command did not write: there is no %s in it; name another directory, or empty this one", dir, mark)
	}
	return nil
}

// Replace calls write with a new directory beside dir, and then puts it in dir's place. If that
// fails, nothing is left behind, and what was there before stays. What is not Replaceable stays, too.
func Replace(dir, mark string, write func(dir string) error) (err error) {
	if err := Replaceable(dir, mark); err != nil {
		return err
	}
	above := filepath.Dir(dir)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return err
	}
	beside, err := os.MkdirTemp(above, filepath.Base(dir)+".new-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(beside)) }()
	if err := os.Chmod(beside, 0o755); err != nil {
		return err
	}
	if err := write(beside); err != nil {
		return err
	}
	old := beside + ".old"
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(beside, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}
