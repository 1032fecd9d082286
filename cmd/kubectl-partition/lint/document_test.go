// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yml", "c.json", "d.txt", ".git/e.yaml", "f/g.yaml"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../d.txt", filepath.Join(dir, "f/h.yaml")); err != nil {
		t.Fatal(err)
	}
	sources, err := Read([]string{dir, filepath.Join(dir, "f/../a.yaml"), Stdin, filepath.Join(dir, "d.txt")}, strings.NewReader("input"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range sources {
		name, _ := strings.CutPrefix(s.Name, dir+"/")
		got = append(got, name+"="+string(s.Data))
	}
	if want := []string{"a.yaml=a.yaml", "b.yml=b.yml", "c.json=c.json", "f/g.yaml=f/g.yaml", "f/h.yaml=d.txt", "-=input", "d.txt=d.txt"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
