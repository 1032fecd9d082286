// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// UnitName is the host unit, which does the steps of an operation. It is there only while one is
// under way.
const UnitName = "partition-agent-cpu-policy.service"

const unitDirectory = "/etc/systemd/system"

// unitFile returns the host unit. The kubelet's unit wants it and comes after it, so that a kubelet
// that is started, when the host boots or at any other time, waits until the agent has said by READY=1
// that it may (whole, journal.go), or until the start of the agent has failed: then systemd starts the
// kubelet all the same (systemd.unit(5), Wants=). An agent that ends with an error is started again.
// Nothing in it is from the cluster but the operation's id, which is a DNS label.
func unitFile(kubelet, id string) string {
	return fmt.Sprintf(`[Unit]
Description=Switch of the CPU manager policy, operation %s
Before=%s
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=%s cpu-policy execute
Restart=on-failure
RestartSec=1
TimeoutStartSec=60
OOMScoreAdjust=-999
UMask=0077
`, id, kubelet, agentFile)
}

// wantsLink is the link by which the kubelet's unit wants ours.
func wantsLink(kubelet string) string {
	return filepath.Join(unitDirectory, kubelet+".wants", UnitName)
}

// programDisk is a hostDisk on which files are programs that systemd may execute, also where SELinux is enforced.
type programDisk struct{ hostDisk }

func (d programDisk) create(path string, file File) error {
	if err := d.hostDisk.create(path, file); err != nil {
		return err
	}
	return labelProgram(d.at(path))
}

const (
	selinuxAttribute = "security.selinux"
	// programLabel is that of programs in /usr/bin. A service whose program has this label is not confined.
	programLabel = "system_u:object_r:bin_t:s0"
)

// labelProgram gives a new file the label of a program, and puts that on the disk. The file has the label of its
// directory, such as var_lib_t, which systemd may not execute. Without SELinux a new file has none, and gets none.
func labelProgram(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = unix.Fgetxattr(int(f.Fd()), selinuxAttribute, nil)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return f.Close()
	}
	if err == nil {
		err = unix.Fsetxattr(int(f.Fd()), selinuxAttribute, []byte(programLabel), 0)
	}
	if err != nil {
		err = fmt.Errorf("SELinux label %s of %s, without which systemd may not execute it: %w", programLabel, path, err)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// hostUnit is the host unit of an operation.
type hostUnit struct {
	disk    hostDisk
	systemd *systemd
	// kubelet is the kubelet's unit.
	kubelet string
}

// install puts the agent and the unit on the host's disk, and makes systemd read it.
func (u *hostUnit) install(ctx context.Context, agent, id string) error {
	program, err := os.ReadFile(agent)
	if err != nil {
		return fmt.Errorf("the agent's program: %w", err)
	}
	if err := put(programDisk{u.disk}, agentFile, &File{program, 0o700}); err != nil {
		return err
	}
	if err := u.disk.checkDirectory(unitDirectory); err != nil {
		return err
	}
	if err := put(u.disk, filepath.Join(unitDirectory, UnitName), &File{[]byte(unitFile(u.kubelet, id)), 0o644}); err != nil {
		return err
	}
	link := wantsLink(u.kubelet)
	if err := u.disk.mkdir(filepath.Dir(link)); err != nil {
		return err
	}
	if err := u.disk.checkDirectory(filepath.Dir(link)); err != nil {
		return err
	}
	if err := u.disk.remove(link); err != nil {
		return err
	}
	if err := os.Symlink("../"+UnitName, u.disk.at(link)); err != nil {
		return err
	}
	if err := errors.Join(u.disk.sync(filepath.Dir(link)), u.disk.sync(unitDirectory)); err != nil {
		return err
	}
	return u.systemd.conn.ReloadContext(ctx)
}

// remove removes all of that, whichever unit wants it.
func (u *hostUnit) remove(ctx context.Context) error {
	links, err := filepath.Glob(u.disk.at(wantsLink("*")))
	if err != nil {
		return err
	}
	for _, link := range links {
		dir := filepath.Join(unitDirectory, filepath.Base(filepath.Dir(link)))
		if err := put(u.disk, filepath.Join(dir, UnitName), nil); err != nil {
			return err
		}
		_ = os.Remove(u.disk.at(dir)) // unless others are wanted, too
	}
	for _, path := range []string{filepath.Join(unitDirectory, UnitName), agentFile} {
		if err := put(u.disk, path, nil); err != nil {
			return err
		}
	}
	return u.systemd.conn.ReloadContext(ctx)
}
