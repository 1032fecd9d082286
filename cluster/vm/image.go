// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// packages are those that a VM has besides Debian's minimal system. busybox-static is for container
// images.
var packages = []string{"busybox-static", "conntrack", "initramfs-tools", "iproute2", "iptables", "kmod", "libseccomp2", "linux-image-cloud-amd64", "openssh-server", "systemd", "systemd-sysv", "udev"}

// root has our files for the base image, some in place of Debian's.
//
//go:embed all:root
var root embed.FS

// cacheDir returns the directory of images, named after the hash of what they are made of, and of
// the key to all VMs.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "workload-partitioning")
	return dir, os.MkdirAll(dir, 0o700)
}

// lock waits until no other program makes images, and keeps others from it until unlock.
func lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { file.Close() }, nil
}

// makeBase makes a Debian system, unless an earlier call has made it. It returns the raw image of
// the root file system, which never changes. The kernel and the initial RAM disk, vmlinuz and
// initrd, are in the same directory.
func makeBase(ctx context.Context, dir string, say func(string, ...any)) (image string, err error) {
	release, err := debian()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, release, packages, diskSize)
	if err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := root.ReadFile(name)
		fmt.Fprintf(hash, "%s %d\n%s", name, len(data), data)
		return err
	}); err != nil {
		return "", err
	}
	base := filepath.Join(dir, "base-"+hex.EncodeToString(hash.Sum(nil))[:16])
	image = filepath.Join(base, "root.ext4")
	if _, err := os.Stat(base); err == nil {
		return image, nil
	}
	say("making a Debian system for the VM, once (about two minutes)")
	if err := removeOthers(dir, "base-*"); err != nil {
		return "", err
	}
	work := filepath.Join(dir, "base.new")
	remove := func() error {
		// If debootstrap has left mounts, RemoveAll must not go into them.
		for _, mount := range []string{"proc", "sys"} {
			_ = syscall.Unmount(filepath.Join(work, "root", mount), syscall.MNT_DETACH)
		}
		return os.RemoveAll(work)
	}
	if err := remove(); err != nil { // of one that was killed
		return "", err
	}
	defer func() { err = errors.Join(err, remove()) }()
	system := filepath.Join(work, "root")
	if err := os.MkdirAll(system, 0o755); err != nil {
		return "", err
	}
	if err := run(ctx, "debootstrap", bootstrap(release, system, mirror(ctx, release))...); err != nil {
		return "", err
	}
	if err := overlay(system); err != nil {
		return "", err
	}
	for _, command := range [][]string{
		{"systemctl", "enable", "systemd-networkd"},
		{"systemctl", "mask", "systemd-networkd-wait-online.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"},
		{"update-initramfs", "-u"},
	} {
		if err := run(ctx, "chroot", append([]string{system}, command...)...); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"vmlinuz", "initrd"} {
		matches, err := filepath.Glob(filepath.Join(system, "boot", name+"*"))
		if err != nil || len(matches) != 1 {
			return "", fmt.Errorf("package %s has %d files %s*, want one", "linux-image-cloud-amd64", len(matches), name)
		}
		if err := os.Rename(matches[0], filepath.Join(work, name)); err != nil {
			return "", err
		}
	}
	if err := os.RemoveAll(filepath.Join(system, "var", "cache", "apt")); err != nil {
		return "", err
	}
	if err := run(ctx, "mkfs.ext4", "-q", "-F", "-d", system, filepath.Join(work, "root.ext4"), diskSize); err != nil {
		return "", err
	}
	if err := os.RemoveAll(system); err != nil {
		return "", err
	}
	return image, os.Rename(work, base)
}

// keyring is what Debian's package debian-archive-keyring has. debootstrap looks there by itself, but where
// there is none it warns, and takes whatever the mirror has.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// bootstrap are the arguments of debootstrap. An empty mirror is its default.
func bootstrap(release, system, mirror string) []string {
	args := []string{"--force-check-gpg", "--keyring=" + keyring, "--variant=minbase", "--include=" + strings.Join(packages, ","), release, system}
	if mirror != "" {
		args = append(args, mirror)
	}
	return args
}

// diskSize is the size of the root file system. The image is sparse, and takes less.
const diskSize = "8G"

// debian returns the host's release of Debian.
func debian() (release string, err error) {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = strings.Trim(value, `"`)
	}
	if values["ID"] != "debian" || values["VERSION_CODENAME"] == "" {
		return "", fmt.Errorf("VMs are made of Debian packages, and this host is %q", values["ID"])
	}
	return values["VERSION_CODENAME"], nil
}

// mirror returns the URL from which the host gets the release's packages. It is empty if apt names
// none that debootstrap understands, which then uses its default.
func mirror(ctx context.Context, release string) string {
	targets, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format=$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(targets)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == release && fields[1] == "main" && (strings.HasPrefix(fields[2], "http") || strings.HasPrefix(fields[2], "file:")) {
			return fields[2]
		}
	}
	return ""
}

// overlay writes the files of root into the system.
func overlay(system string) error {
	return fs.WalkDir(root, "root", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(system, strings.TrimPrefix(name, "root"))
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
}

// makePayload returns the image of a disk with the files, by their paths on it. It makes the image,
// unless an earlier call with the same files has. It follows links.
func makePayload(ctx context.Context, dir string, files map[string]string) (string, error) {
	hash := sha256.New()
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		file, err := os.Open(files[name])
		if err != nil {
			return "", err
		}
		content := sha256.New()
		_, err = io.Copy(content, file)
		file.Close()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %x\n", name, content.Sum(nil))
	}
	image := filepath.Join(dir, "payload-"+hex.EncodeToString(hash.Sum(nil))[:16]+".ext4")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	work := filepath.Join(dir, "payload.new")
	if err := os.RemoveAll(work); err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	var size int64
	for _, name := range names {
		to := filepath.Join(work, "files", path.Clean("/"+name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		from, err := filepath.EvalSymlinks(files[name])
		if err != nil {
			return "", err
		}
		// A reflink, where the file system has them, takes no time.
		if err := run(ctx, "cp", "--reflink=auto", "--preserve=mode", from, to); err != nil {
			return "", err
		}
		info, err := os.Stat(to)
		if err != nil {
			return "", err
		}
		size += info.Size()
	}
	const mebi = 1 << 20
	made := filepath.Join(work, "image")
	if err := run(ctx, "mkfs.ext4", "-q", "-F", "-L", "payload", "-m", "0", "-O", "^has_journal", "-d", filepath.Join(work, "files"), made, fmt.Sprintf("%dM", size*11/10/mebi+32)); err != nil {
		return "", err
	}
	if err := removeOthers(dir, "payload-*"); err != nil {
		return "", err
	}
	return image, os.Rename(made, image)
}

// removeOthers removes images of what has changed since, except those that VMs use.
func removeOthers(dir, pattern string) error {
	matches, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return err
	}
	used, err := imagesInUse()
	if err != nil {
		return err
	}
	for _, match := range matches {
		if !slices.ContainsFunc(used, func(image string) bool { return image == match || filepath.Dir(image) == match }) {
			if err := os.RemoveAll(match); err != nil {
				return err
			}
		}
	}
	return nil
}

// key returns the path of the private key with which this host's user enters VMs. The first call
// makes it. The public key is next to it.
func key(ctx context.Context, dir string) (string, error) {
	file := filepath.Join(dir, "id_ed25519")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	return file, run(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "workload-partitioning", "-f", file)
}

func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	// On SIGTERM, debootstrap unmounts what it has mounted.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	output, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w; scripts/install-packages.sh vm installs it", err)
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		return fmt.Errorf("%s: %w: %s", name, err, strings.Join(lines[max(0, len(lines)-3):], "; "))
	}
	return nil
}
