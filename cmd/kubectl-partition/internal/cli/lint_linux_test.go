// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// In a container a manifest may be a mount, which cannot be replaced, and all around it the read-only image.
func TestLintFixesAFileThatIsMounted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	manifest, err := os.ReadFile("testdata/lint/manifests/namespace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	operator, err := os.ReadFile("testdata/lint/manifests/operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		imageFlags, fileFlags uintptr
		refused               bool
	}{
		"in an image that can be written": {},
		"in a read-only image":            {imageFlags: syscall.MS_RDONLY},
		"that is read-only itself":        {imageFlags: syscall.MS_RDONLY, fileFlags: syscall.MS_RDONLY, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			mounted, image := filepath.Join(t.TempDir(), "namespace.yaml"), t.TempDir()
			file, asks := filepath.Join(image, "namespace.yaml"), filepath.Join(t.TempDir(), "operator.yaml")
			if err := errors.Join(os.WriteFile(mounted, manifest, 0o644), os.WriteFile(file, nil, 0o644), os.WriteFile(asks, operator, 0o644)); err != nil {
				t.Fatal(err)
			}
			var stderr string
			inMountNamespace(t, func() error {
				for _, mount := range []struct {
					from, to string
					flags    uintptr
				}{{image, image, test.imageFlags}, {mounted, file, test.fileFlags}} {
					if err := syscall.Mount(mount.from, mount.to, "", syscall.MS_BIND, ""); err != nil {
						return err
					}
					if err := syscall.Mount("", mount.to, "", syscall.MS_BIND|syscall.MS_REMOUNT|mount.flags, ""); err != nil {
						return err
					}
				}
				_, stderr, _ = runLint(t, "", file, asks, "--fix")
				return nil
			})
			got, err := os.ReadFile(mounted)
			if err != nil {
				t.Fatal(err)
			}
			switch fixed := strings.Contains(string(got), "workload.openshift.io/allowed: management"); {
			case fixed == test.refused:
				t.Errorf("it is fixed: %t, want %t; it says %s, and the file is\n%s", fixed, !test.refused, stderr, got)
			case test.refused && (string(got) != string(manifest) || !strings.Contains(stderr, file+": read-only file system")):
				t.Errorf("it says %s, which does not name %s, or the file has changed:\n%s", stderr, file, got)
			}
		})
	}
}

// inMountNamespace calls a function whose mounts end with it.
func inMountNamespace(t *testing.T, call func() error) {
	t.Helper()
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := syscall.Unshare(syscall.CLONE_NEWNS)
		if err == nil {
			err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		}
		if err == nil {
			err = call()
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
