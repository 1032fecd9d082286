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

package executor

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
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

// readOnlyDisk refuses all that changes it, as a read-only mount does.
type readOnlyDisk struct{ hostDisk }

func (readOnlyDisk) create(string, File) error   { return fs.ErrPermission }
func (readOnlyDisk) rename(string, string) error { return fs.ErrPermission }
func (readOnlyDisk) remove(string) error         { return fs.ErrPermission }
