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
	"workload.openshift.io/kubernetes/cluster/atomicfile"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

// kept is a directory of the host that outlives boots. It has what Boot needs: the Profile that the node has, or that waits for the
// node's next boot, and the root file system of the operand's image, since no container runs before the kubelet.
type kept struct{ directory string }

func (k kept) profile() string { return filepath.Join(k.directory, "profile.json") }
func (k kept) root() string    { return filepath.Join(k.directory, "root") }

// tried has the hash of a Profile that TuneD was told to apply, until the operand has reached the API server after that.
func (k kept) tried() string { return filepath.Join(k.directory, "tried") }

// proven has the proof of the last Profile that Boot has applied before the operand reached the API server.
func (k kept) proven() string { return filepath.Join(k.directory, "proven") }

// proof tells a Profile of this hash from all others, and from itself under another TuneD or another kernel.
func (k kept) proof(wanted string) string {
	return strings.Join([]string{wanted, text(k.image()), text("/proc/sys/kernel/osrelease")}, " ")
}

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

// recall takes what earlier boots have noted. atBoot is true if Boot has applied a Profile in this one.
func (d *Daemon) recall(atBoot bool) {
	if !d.unit() {
		return
	}
	k := kept{d.Kept}
	d.unproven = text(k.tried())
	if atBoot {
		d.proofAtBoot = k.proof(d.unproven)
	} else if d.booted {
		d.leftOut = d.unproven
	}
}

// try notes that TuneD is about to apply a Profile of this hash. Without the unit there is no boot to beware of.
func (d *Daemon) try(ctx context.Context, wanted string) {
	d.proofAtBoot, d.unproven = "", ""
	if d.unit() {
		unproven, err := kept{d.Kept}.try(wanted)
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Noting the profile failed: if it cuts the node off, the next boot applies it again")
		}
		if unproven {
			d.unproven = wanted
		}
	}
	if d.leftOut != d.unproven {
		d.leftOut = "" // nothing else would take it away
	}
}

// prove notes that the node reaches the API server with what TuneD holds, once that is due. It returns when it is due next; zero is never.
func (d *Daemon) prove(ctx context.Context, now time.Time) time.Time {
	if !d.seen || d.unproven == "" || d.unproven != d.held.Hash || d.state.phase == applying {
		return time.Time{}
	}
	if at := d.begun.Add(d.Probation); d.proveAt.Before(at) {
		d.proveAt = at
	}
	if now.Before(d.proveAt) {
		return d.proveAt
	}
	d.proveAt = now.Add(reportAgain)
	k := kept{d.Kept}
	asked, cancel := context.WithTimeout(ctx, min(asking, d.Probation))
	defer cancel()
	_, err := d.uninstalled(asked)
	if err == nil {
		if d.proofAtBoot != "" {
			if err := atomicfile.Write(k.proven(), []byte(d.proofAtBoot), 0o600); err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Noting the proof failed: a boot may leave the profile out while the API server is down", "profile", d.held.Profile)
			}
		}
		err = absent(os.Remove(k.tried()))
	}
	if err != nil {
		if ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "The profile is not proven yet: the next boot leaves it out", "profile", d.held.Profile)
		}
		return d.proveAt
	}
	d.unproven, d.leftOut = "", ""
	d.reportSoon(now)
	return time.Time{}
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
		return errors.Join(absent(os.Remove(k.profile())), absent(os.Remove(k.tried())))
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
	return atomicfile.Write(k.profile(), data, 0o600)
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

// text returns the content of a file; empty if there is none.
func text(path string) string {
	data, _ := os.ReadFile(path)
	return strings.TrimSpace(string(data))
}

// try notes that TuneD is about to apply a Profile of this hash; empty stands for none. It outlives a node that ends at that. It reports
// whether the Profile is yet to be proven.
func (k kept) try(wanted string) (unproven bool, err error) {
	if wanted == "" || k.proof(wanted) == text(k.proven()) {
		return false, absent(os.Remove(k.tried()))
	}
	if err := os.MkdirAll(k.directory, 0o700); err != nil {
		return false, err
	}
	return true, atomicfile.Write(k.tried(), []byte(wanted), 0o600)
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
// A Profile can cut its node off from the API server, which then cannot correct it. So Boot leaves out one that was tried already, and since
// which Run has not reached the API server, unless Run has reached it at an earlier boot with this Profile, this image and this kernel.
//
// The error says that Boot has left the Profile out, that TuneD has not applied it within ApplyLimit, or why it cannot.
func (d *Daemon) Boot(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	k := kept{d.Kept}
	profile, err := k.load()
	if err != nil || profile == nil {
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
	wanted := hashOf(profile)
	if wanted == text(k.tried()) && k.proof(wanted) != text(k.proven()) {
		return fmt.Errorf("the profile %s is left out at this boot: when it was applied last, the node did not reach the API server", profile.Spec.Config.TunedProfile)
	}
	if _, err := k.try(wanted); err != nil {
		return err
	}
	if err := d.enter(k.root()); err != nil {
		return err
	}
	d.files = files{d.EtcDir, d.RunDir}
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
