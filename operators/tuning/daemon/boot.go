// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

// kept is a directory of the host that outlives boots. It has what Boot needs: the Profile that the node has, or that waits for the
// node's next boot, and the root file system of the operand's image, since no container runs before the kubelet.
type kept struct{ directory string }

func (k kept) profile() string { return filepath.Join(k.directory, "profile.json") }
func (k kept) root() string    { return filepath.Join(k.directory, "root") }

// image has the name of the image whose root file system is there.
func (k kept) image() string { return filepath.Join(k.directory, "image") }

// unit reports whether the host has the unit that runs Boot.
func (d *Daemon) unit() bool {
	if d.Kept == "" {
		return false
	}
	_, err := os.Stat(d.Unit)
	return err == nil
}

// keep keeps the Profile, unless it is kept already.
func (d *Daemon) keep() error {
	wanted := hashOf(d.desired)
	if wanted == d.stored || !d.unit() {
		return nil
	}
	if err := (kept{d.Kept}).store(d.desired); err != nil {
		return err
	}
	d.stored = wanted
	return nil
}

// keepImage keeps the root file system that this program runs in, unless it is kept already. It returns at once; the channel is closed
// when that is done.
func (d *Daemon) keepImage(ctx context.Context) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var err error
		if d.unit() {
			err = kept{d.Kept}.storeImage("/", d.Image)
		} else {
			err = d.forget()
		}
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Keeping the image for the next boot failed")
		}
	}()
	return ended
}

// forget removes what is kept.
func (d *Daemon) forget() error {
	if d.Kept == "" {
		return nil
	}
	entries, err := os.ReadDir(d.Kept)
	errs := []error{absent(err)}
	for _, entry := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(d.Kept, entry.Name())))
	}
	return errors.Join(errs...)
}

// store keeps a Profile, or removes it if it asks for nothing.
func (k kept) store(profile *tunedv1.Profile) error {
	if hashOf(profile) == "" {
		return absent(os.Remove(k.profile()))
	}
	data, err := json.Marshal(&tunedv1.Profile{
		ObjectMeta: metav1.ObjectMeta{Namespace: profile.Namespace, Name: profile.Name, UID: profile.UID, Generation: profile.Generation},
		Spec:       profile.Spec,
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(k.directory, 0o700); err != nil {
		return err
	}
	return replace(k.profile(), string(data))
}

// load returns the Profile, or nil if there is none.
func (k kept) load() (*tunedv1.Profile, error) {
	data, err := os.ReadFile(k.profile())
	if err != nil {
		return nil, absent(err)
	}
	profile := &tunedv1.Profile{}
	if err := json.Unmarshal(data, profile); err != nil {
		return nil, fmt.Errorf("%s: %w", k.profile(), err)
	}
	return profile, nil
}

// storeImage copies a root file system, without what is mounted in it, unless that of this image is there.
func (k kept) storeImage(root, image string) error {
	if data, err := os.ReadFile(k.image()); err == nil && string(data) == image {
		return nil
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return err
	}
	source := imageFS{os.DirFS(root).(fs.ReadLinkFS), root, map[string]bool{}}
	for _, mount := range mounts {
		source.mounted[mount.MountPoint] = true
	}
	next := k.root() + ".new"
	if err := errors.Join(absent(os.Remove(k.image())), os.RemoveAll(next), os.MkdirAll(next, 0o700)); err != nil {
		return err
	}
	if err := os.CopyFS(next, source); err != nil {
		return errors.Join(err, os.RemoveAll(next)) // the host may need the room
	}
	directory, err := os.Open(k.directory)
	if err != nil {
		return err
	}
	// The name is written once the files would outlive a power cut.
	err = errors.Join(unix.Syncfs(int(directory.Fd())), directory.Close(), os.RemoveAll(k.root()))
	if err != nil {
		return err
	}
	if err := os.Rename(next, k.root()); err != nil {
		return err
	}
	return replace(k.image(), image)
}

// imageFS is a root file system without what is mounted in it, such as the pod's token.
type imageFS struct {
	fs.ReadLinkFS
	root    string
	mounted map[string]bool
}

// ReadDir implements fs.ReadDirFS.
func (f imageFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.ReadLinkFS, name)
	return slices.DeleteFunc(entries, func(entry fs.DirEntry) bool {
		kind := entry.Type()
		return f.mounted[filepath.Join(f.root, name, entry.Name())] || !kind.IsRegular() && !kind.IsDir() && kind != fs.ModeSymlink
	}), err
}

// startOf returns when the oldest process of a program started; zero if there is none.
func startOf(program string) (start time.Time) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return time.Time{}
	}
	for _, process := range processes {
		stat, err := process.Stat()
		if err != nil || stat.Comm != program {
			continue
		}
		if seconds, err := stat.StartTime(); err == nil {
			if at := time.UnixMilli(int64(seconds * 1000)); start.IsZero() || at.Before(start) {
				start = at
			}
		}
	}
	return start
}

// Boot applies the Profile that Run has kept, with the TuneD of the image that Run has kept, and ends. TuneD's changes stay, and the
// next Run goes on with them. It does nothing if there is no Profile, or if Run was here in this boot. EtcDir and RunDir are as the host
// has them. The process must have a mount namespace of its own, which it changes.
//
// The error says that TuneD has not applied the Profile within ApplyLimit, or why it cannot.
func (d *Daemon) Boot(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	profile, err := kept{d.Kept}.load()
	if err != nil || profile == nil {
		return err
	}
	if err := d.enter(kept{d.Kept}.root()); err != nil {
		return err
	}
	d.defaults()
	booted, err := d.files.booted(d.BootID)
	if err != nil {
		return err
	}
	if record, err := d.read(); err != nil || !booted || record.Profile != "" {
		log.Info("A profile was applied in this boot already", "profile", record.Profile)
		return err
	}
	if d.held, err = d.write(profile); err != nil {
		return err
	}
	d.start(ctx, time.Now())
	d.await(ctx)
	if d.running != nil {
		d.running.kill()
	}
	if err := replace(d.boot(), atBoot+d.BootID); err != nil {
		return err
	}
	took := time.Since(d.begun).Round(time.Millisecond)
	if d.state.phase != applied {
		return errors.Join(fmt.Errorf("TuneD has not applied the profile %s after %s: %s", d.held.Profile, took, strings.Join(d.state.errors, "; ")), d.state.problem)
	}
	log.Info("TuneD has applied the profile", "profile", d.held.Profile, "generation", d.held.Generation, "after", took)
	return nil
}

// enter makes a directory the root file system of this process, with what the operand's pods have of the host.
func (d *Daemon) enter(directory string) error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if host, err := os.Readlink("/proc/1/ns/mnt"); err == nil && host == own {
		return errors.New("this process has the mount namespace of the host, and would change it; partition-tuned.service has PrivateMounts=yes")
	}
	for _, path := range []string{d.EtcDir, d.RunDir} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, mount := range []struct{ source, target string }{
		{"/proc", "/proc"}, {"/sys", "/sys"}, {"/dev", "/dev"}, {d.EtcDir, "/etc/tuned"}, {d.RunDir, "/run/tuned"},
		{"/etc/sysctl.d", "/etc/sysctl.d"}, {"/run/sysctl.d", "/run/sysctl.d"}, {"/lib/modules", "/lib/modules"},
	} {
		if _, err := os.Stat(mount.source); errors.Is(err, fs.ErrNotExist) {
			continue // not every host has each of the last three
		}
		if err := root.MkdirAll(strings.TrimPrefix(mount.target, "/"), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(mount.source, filepath.Join(directory, mount.target), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", mount.source, filepath.Join(directory, mount.target), err)
		}
	}
	if err := unix.Chroot(directory); err != nil {
		return fmt.Errorf("%s: %w", directory, err)
	}
	d.EtcDir, d.RunDir = "/etc/tuned", "/run/tuned"
	return os.Chdir("/")
}
