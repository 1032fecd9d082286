// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// errNoRoot says that this user, or this host, cannot give a program another root directory.
var errNoRoot = errors.New("not run, since it needs root or user namespaces")

// nobody is the user, and its group, that has no rights on this host.
const nobody = 65534

// within runs a command of an image with all of the image as its root directory, as its base is what
// a script stands on. It returns the first line that it prints. The base may come from anyone, and to root
// another root directory is not a boundary, so root runs it as nobody.
func within(ctx context.Context, image v1.Image, command ...string) (string, error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := unpack(image, dir); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + searchPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := os.Chmod(dir, 0o755); err != nil { // otherwise nobody could not enter it
			return "", err
		}
	} else {
		// root of a user namespace may do it, too.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // a child of it may keep the output open
	// Kernels that allow no user namespaces say so with ENOSPC, EPERM or EINVAL; see clone(2).
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) || cmd.SysProcAttr.Cloneflags != 0 && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL)) {
		return "", fmt.Errorf("%w: %w", errNoRoot, err)
	} else if err != nil {
		return "", fmt.Errorf("%s does not start: %w", strings.Join(command, " "), err)
	}
	err = cmd.Wait()
	line, _, _ := strings.Cut(string(bytes.TrimSpace(out.Bytes())), "\n")
	if err != nil {
		return "", fmt.Errorf("%s: %w: %.200s", strings.Join(command, " "), err, line)
	}
	return line, nil
}

// unpack writes the files of an image into a directory. Owners, devices and what a layer hides of
// those below it are left out: programs start without them. No link leads out of the directory.
func unpack(image v1.Image, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		stream, err := layer.Uncompressed()
		if err != nil {
			return err
		}
		for archive := tar.NewReader(stream); err == nil; {
			var header *tar.Header
			if header, err = archive.Next(); err == nil {
				if err = unpackFile(root, header, archive); err != nil {
					err = fmt.Errorf("%s: %w", header.Name, err)
				}
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if err := errors.Join(err, stream.Close()); err != nil {
			return err
		}
	}
	return nil
}

func unpackFile(root *os.Root, header *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	if name == "" || strings.HasPrefix(path.Base(name), ".wh.") {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if header.Typeflag == tar.TypeDir {
		// One of a lower layer, or a link to one, stays.
		return root.MkdirAll(name, 0o755)
	}
	if err := root.RemoveAll(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch header.Typeflag {
	case tar.TypeSymlink:
		target := header.Linkname
		if path.IsAbs(target) {
			// It is meant from the image's root, and os.Root follows none from this host's.
			var err error
			if target, err = filepath.Rel(path.Dir("/"+name), target); err != nil {
				return err
			}
		}
		return root.Symlink(target, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+header.Linkname), "/"), name)
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, header.FileInfo().Mode().Perm()|0o400)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Close())
	}
	return nil
}
