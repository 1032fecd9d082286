// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const mark = "SHA256SUMS"

// writing returns what writes the mark with this content into a directory.
func writing(content string) func(string) error {
	return func(dir string) error {
		return os.WriteFile(filepath.Join(dir, mark), []byte(content), 0o644)
	}
}

// expect says what is in the mark of dir, and which names are next to it.
func expect(t *testing.T, dir, content string, beside ...string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, mark))
	if err != nil || string(got) != content {
		t.Errorf("%s has %q (%v), want %q", dir, got, err, content)
	}
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if entry.Name() != filepath.Base(dir) {
			names = append(names, entry.Name())
		}
	}
	if !slices.Equal(names, beside) {
		t.Errorf("next to %s are %q, want %q", dir, names, beside)
	}
}

// leave puts a directory there, as a killed Replace would leave it.
func leave(t *testing.T, dir, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(dir, 0o755), writing(content)(dir)); err != nil {
		t.Fatal(err)
	}
}

func TestReplaceRemovesWhatAKilledOneLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	leave(t, dir, "before")
	leave(t, dir+".new-1", "half")
	leave(t, dir+".new-2.old", "older") // killed while it removed that
	leave(t, dir+".new-york", "another's")
	if err := Replace(dir, mark, writing("after")); err != nil {
		t.Fatal(err)
	}
	expect(t, dir, "after", "images.new-york")
}

func TestReplacePutsBackWhatAKilledOneMovedAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	leave(t, dir+".new-1", "new")
	leave(t, dir+".new-1.old", "before")
	failed := errors.New("no space")
	if err := Replace(dir, mark, func(string) error { return failed }); !errors.Is(err, failed) {
		t.Fatalf("the error is %v, want %v", err, failed)
	}
	expect(t, dir, "before")
}

func TestReplaceLeavesAloneWhatAnotherWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	err := Replace(dir, mark, func(first string) error {
		if err := writing("first")(first); err != nil {
			return err
		}
		if err := Replace(dir, mark, writing("second")); err != nil {
			return err
		}
		expect(t, dir, "second", filepath.Base(first))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, dir, "first")
}
