// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAFileThatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	// A directory in its place stands for a disk that is full.
	if err := os.MkdirAll(filepath.Join(path, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("x")); err == nil {
		t.Error("it was written")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}
