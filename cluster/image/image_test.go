// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestSameFilesGiveSameBytes(t *testing.T) {
	files := []entry{{path: "bin/busybox", data: []byte("program")}, {path: "bin/sh", link: "busybox"}}
	var archives [2][]byte
	for i := range archives {
		dir := t.TempDir()
		if err := save(dir, Busybox, "/bin/sh", files); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(filepath.Join(dir, "busybox.tar")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same files differ")
	}
}

func TestArchiveHasFilesAndEntrypoint(t *testing.T) {
	dir := t.TempDir()
	if err := save(dir, Pause, "/pause", []entry{{path: "pause", data: []byte("program")}}); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(filepath.Join(dir, "pause.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Config.Entrypoint; len(got) != 1 || got[0] != "/pause" {
		t.Errorf("the entrypoint is %q, want /pause", got)
	}
	layers := mutate.Extract(image)
	defer layers.Close()
	if data, err := io.ReadAll(layers); err != nil || !bytes.Contains(data, []byte("program")) {
		t.Errorf("the image does not have what the file has (%v)", err)
	}
}
