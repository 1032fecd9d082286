// SPDX-License-Identifier: Apache-2.0

// Package image builds the container images that a cluster needs, since there is no registry, and
// writes them as archives that a runtime imports. It knows what is in an image. It must
// know neither clusters nor the runtime that imports the archives.
//
// It does not use cmd/images: that would save thirty lines, and cluster and test/e2e would have to
// require another module.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// References of the images.
const (
	// Pause is the image of every sandbox.
	Pause = "workload.openshift.io/pause:3.10.2"
	// Busybox has Debian's static busybox, with a link for each applet.
	Busybox = "workload.openshift.io/busybox:1.35"
)

const busyboxPath = "/bin/busybox"

// entry is a file of an image, or a symbolic link if link is its target.
type entry struct {
	path, link string
	data       []byte
}

// Save builds the images, with the pause program from a release's source tree, and
// writes their archives to a directory. The same content gives the same bytes.
func Save(ctx context.Context, tree, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pause, err := compilePause(ctx, tree, dir)
	if err != nil {
		return err
	}
	shell, err := os.ReadFile(busyboxPath)
	if err != nil {
		return fmt.Errorf("%w; Debian's package busybox-static has it", err)
	}
	applets, err := exec.CommandContext(ctx, busyboxPath, "--list").Output()
	if err != nil {
		return fmt.Errorf("%s --list: %w", busyboxPath, err)
	}
	files := []entry{{path: "bin/busybox", data: shell}}
	for applet := range bytes.FieldsSeq(applets) {
		if string(applet) != "busybox" {
			files = append(files, entry{path: "bin/" + string(applet), link: "busybox"})
		}
	}
	for reference, image := range map[string]struct {
		entrypoint string
		files      []entry
	}{
		Pause:   {"/pause", []entry{{path: "pause", data: pause}}},
		Busybox: {"/bin/sh", files},
	} {
		if err := save(dir, reference, image.entrypoint, image.files); err != nil {
			return fmt.Errorf("image %s: %w", reference, err)
		}
	}
	return nil
}

// SaveProgram writes the archive of an image that has a static program alone to a directory: that of
// etcd:3.6 is etcd.tar.
func SaveProgram(dir, reference, program string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	at := "bin/" + filepath.Base(program)
	return save(dir, reference, "/"+at, []entry{{path: at, data: data}})
}

// compilePause compiles upstream's pause, build/pause/linux/pause.c of the tree.
func compilePause(ctx context.Context, tree, dir string) ([]byte, error) {
	out := filepath.Join(dir, "pause")
	defer os.Remove(out)
	cmd := exec.CommandContext(ctx, "gcc", "-Os", "-static", "-DVERSION=v3.10.2", "-o", out, filepath.Join(tree, "build", "pause", "linux", "pause.c"))
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pause: gcc: %w: %s", err, output)
	}
	return os.ReadFile(out)
}

func save(dir, reference, entrypoint string, files []entry) error {
	var layer bytes.Buffer
	writer := tar.NewWriter(&layer)
	for _, file := range files {
		header := &tar.Header{Name: file.path, Mode: 0o755, Size: int64(len(file.data)), Typeflag: tar.TypeReg}
		if file.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, file.link
		}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		if _, err := writer.Write(file.data); err != nil {
			return err
		}
	}
	if err := writer.Close(); err != nil {
		return err
	}
	added, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, added)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{entrypoint}, Env: []string{"PATH=/bin"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(filepath.Join(dir, path.Base(tag.RepositoryStr())+".tar"), tag, image)
}
