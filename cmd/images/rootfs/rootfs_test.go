// SPDX-License-Identifier: Apache-2.0

package rootfs

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var date = time.Date(2026, 8, 26, 10, 44, 20, 0, time.UTC)

func TestTheOrderOfAddingDoesNotMatter(t *testing.T) {
	add := []func(*Tree){
		func(tree *Tree) { tree.File("usr/bin/b", 0o755, []byte("b")) },
		func(tree *Tree) { tree.File("/usr/bin/a", 0o644, []byte("a")) },
		func(tree *Tree) { tree.Symlink("bin", "usr/bin") },
		func(tree *Tree) { tree.Dir("tmp", fs.ModeSticky|0o777) },
	}
	var archives [2]bytes.Buffer
	for i := range archives {
		tree := New()
		for _, add := range add {
			add(tree)
		}
		if err := tree.Write(&archives[i], "", date); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(add)
	}
	if !bytes.Equal(archives[0].Bytes(), archives[1].Bytes()) {
		t.Error("two archives of the same files differ")
	}
	var names []string
	for reader := tar.NewReader(&archives[0]); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		if !header.ModTime.Equal(date) || header.Uid != 0 {
			t.Errorf("%s is of %s and belongs to %d, want %s and 0", header.Name, header.ModTime, header.Uid, date)
		}
		if header.Name == "tmp/" && header.Mode != 0o1777 {
			t.Errorf("tmp has mode %o, want 1777", header.Mode)
		}
	}
	if got, want := strings.Join(names, " "), "bin tmp/ usr/ usr/bin/ usr/bin/a usr/bin/b"; got != want {
		t.Errorf("the archive has %q, want %q", got, want)
	}
}

func TestSpecialBitsAreInTheArchive(t *testing.T) {
	tree := New()
	tree.Dir("tmp", fs.ModeSticky|0o777)
	tree.File("usr/bin/ping", fs.ModeSetuid|0o755, []byte("ping"))
	tree.File("usr/bin/cat", 0o755, []byte("cat"))
	var archive bytes.Buffer
	if err := tree.Write(&archive, "", date); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"tmp/": 0o1777, "usr/bin/ping": 0o4755, "usr/bin/cat": 0o755}
	for reader := tar.NewReader(&archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if mode, ok := want[header.Name]; ok && header.Mode != mode {
			t.Errorf("%s has mode %o, want %o", header.Name, header.Mode, mode)
		}
		delete(want, header.Name)
	}
	if len(want) > 0 {
		t.Errorf("the archive lacks %v", want)
	}
}

func TestWhatCannotBeWrittenIsNamed(t *testing.T) {
	changed := filepath.Join(t.TempDir(), "program")
	for _, test := range []struct {
		name, want string
		tree       func(*Tree)
	}{
		{"a file below a file", "usr/bin: usr is not a directory", func(tree *Tree) {
			tree.File("usr", 0o644, nil)
			tree.File("usr/bin", 0o644, nil)
		}},
		{"a file that grew meanwhile", "program: archive/tar: write too long", func(tree *Tree) {
			if err := os.WriteFile(changed, []byte("a"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := tree.Copy("program", 0o755, changed); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(changed, []byte("ab"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := New()
			test.tree(tree)
			if err := tree.Write(io.Discard, "", date); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}
