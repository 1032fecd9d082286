// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/klauspost/compress/gzip"

	"workload.openshift.io/kubernetes/cmd/images/oci"
	"workload.openshift.io/kubernetes/cmd/images/program"
)

// Verify checks a directory that Write wrote: its checksums, their signature if there is a key, and
// that each program starts. Those of other architectures run under QEMU's user emulation. The script
// of hyperkube runs within its image. It prints a line for each.
func Verify(ctx context.Context, dir string, key crypto.PublicKey, out io.Writer) error {
	count, err := CheckSums(dir, key)
	if err != nil {
		return err
	}
	signed := ""
	if key != nil {
		attached, err := checkAttached(dir, key)
		if err != nil {
			return err
		}
		signed = fmt.Sprintf(", signed with the key, and %d attestations of images are", attached)
	}
	fmt.Fprintf(out, "%d files match %s%s\n\n", count, sumsFile, signed)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "IN\tPLATFORM\tPROGRAM\tSAYS")
	if err := verifyImages(ctx, dir, table); err != nil {
		return errors.Join(table.Flush(), err)
	}
	tarballs, err := filepath.Glob(filepath.Join(dir, packagesDir, "*.tar.gz"))
	if err != nil {
		return err
	}
	for _, name := range tarballs {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		stream, err := gzip.NewReader(file)
		if err == nil {
			err = startAll(ctx, stream, "", func(name, platform, says string) {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", filepath.Base(file.Name()), platform, name, says)
			})
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return errors.Join(table.Flush(), fmt.Errorf("%s: %w", name, err))
		}
	}
	return table.Flush()
}

func verifyImages(ctx context.Context, dir string, table io.Writer) error {
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, Layout))
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, image := range manifest.Manifests {
		if !image.MediaType.IsIndex() {
			continue // a chart has no program, and neither has what is attached to images
		}
		named := image.Annotations[oci.RefName]
		below, err := index.ImageIndex(image.Digest)
		if err != nil {
			return fmt.Errorf("image %s: %w", named, err)
		}
		platforms, err := below.IndexManifest()
		if err != nil {
			return fmt.Errorf("image %s: %w", named, err)
		}
		for _, descriptor := range platforms.Manifests {
			row := func(name, platform, says string) {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", named, platform, name, says)
			}
			err := verifyImage(ctx, below, descriptor, row)
			if name, _, _ := strings.Cut(named, ":"); err == nil && name == hyperkubeName {
				err = verifyHyperkube(ctx, below, descriptor, row)
			}
			if err != nil {
				return fmt.Errorf("image %s, %s: %w", named, descriptor.Platform, err)
			}
		}
	}
	return nil
}

// verifyImage starts the programs of an image, which are in its last layer.
func verifyImage(ctx context.Context, index v1.ImageIndex, descriptor v1.Descriptor, started func(name, platform, says string)) error {
	image, err := index.Image(descriptor.Digest)
	if err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	stream, err := layers[len(layers)-1].Uncompressed()
	if err != nil {
		return err
	}
	return errors.Join(startAll(ctx, stream, descriptor.Platform.String(), started), stream.Close())
}

// verifyHyperkube has the script of that image start the kubelet. The script needs bash, which is of
// the base.
func verifyHyperkube(ctx context.Context, index v1.ImageIndex, descriptor v1.Descriptor, started func(name, platform, says string)) error {
	image, err := index.Image(descriptor.Digest)
	if err != nil {
		return err
	}
	platform, says := descriptor.Platform.String(), "not run, since QEMU is not in the image"
	if platform == "linux/"+runtime.GOARCH {
		says, err = within(ctx, image, "/"+hyperkubePath, "kubelet", "--version")
		if errors.Is(err, errNoRoot) {
			says, err = err.Error(), nil
		}
	}
	if err == nil {
		started("/"+hyperkubePath+" kubelet", platform, says)
	}
	return err
}

// startAll starts the Go programs of a tar archive. All must be for the platform, unless that is
// empty.
func startAll(ctx context.Context, from io.Reader, platform string, started func(name, platform, says string)) error {
	count := 0
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg || header.Mode&0o111 == 0 {
			continue
		}
		of, says, err := start(ctx, path.Base(header.Name), archive)
		if err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
		if of == "" {
			continue
		}
		if platform != "" && of != platform {
			return fmt.Errorf("%s is for %s", header.Name, of)
		}
		count++
		started("/"+header.Name, of, says)
	}
	if count == 0 {
		return errors.New("it contains no program")
	}
	return nil
}

// emulators are the programs of Debian's qemu-user-static, by Go's names of architectures.
var emulators = map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static", "ppc64le": "qemu-ppc64le-static", "s390x": "qemu-s390x-static"}

// emulator returns the program that runs those of an architecture; none for this host's.
func emulator(architecture string) (string, error) {
	if architecture == runtime.GOARCH {
		return "", nil
	}
	found, err := exec.LookPath(emulators[architecture])
	if err != nil {
		return "", fmt.Errorf("programs of linux/%s cannot be started: %w; Debian's package qemu-user-static has it", architecture, err)
	}
	return found, nil
}

// start starts a program under a name, and returns its platform and the first line that it prints.
// What is not a Go program has no platform.
func start(ctx context.Context, name string, content io.Reader) (platform, says string, err error) {
	file, err := os.CreateTemp("", "program-")
	if err != nil {
		return "", "", err
	}
	defer os.Remove(file.Name())
	_, err = io.Copy(file, content)
	if err := errors.Join(err, file.Chmod(0o700), file.Close()); err != nil {
		return "", "", err
	}
	if _, err := buildinfo.ReadFile(file.Name()); err != nil {
		return "", "", nil
	}
	p, err := program.Read(file.Name())
	if err != nil {
		return "", "", err
	}
	platform = p.Platform()
	command, argv0 := []string{file.Name()}, name
	if qemu, err := emulator(strings.TrimPrefix(platform, "linux/")); err != nil {
		return "", "", err
	} else if qemu != "" {
		command, argv0 = []string{qemu, "-0", name, file.Name()}, qemu
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	// Not all programs know --version.
	var failures []error
	for _, flag := range []string{"--version", "--help"} {
		cmd := exec.CommandContext(ctx, command[0], append(command[1:], flag)...)
		cmd.Args[0] = argv0
		out, err := cmd.CombinedOutput()
		line, _, _ := strings.Cut(string(bytes.TrimSpace(out)), "\n")
		if err == nil {
			return platform, line, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w: %.200s", flag, err, line))
	}
	return "", "", fmt.Errorf("does not start: %w", errors.Join(failures...))
}
