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
	"io/fs"
	"os"
	"path/filepath"
)

// Replace calls write with a new directory beside dir, and then puts it in dir's place. If that
// fails, nothing is left behind, and what was there before stays.
func Replace(dir string, write func(dir string) error) (err error) {
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
