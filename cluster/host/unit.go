// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"workload.openshift.io/kubernetes/cluster/atomicfile"
)

// unitDir has the administrator's systemd units.
const unitDir = "/etc/systemd/system"

// unit is a component that systemd runs as a service, and starts again when the host boots.
type unit struct {
	program
	// prefix begins the name of the service.
	prefix string
}

// serviceName returns the name by which systemd knows the service.
func (u *unit) serviceName() string { return u.prefix + u.name }

func (u *unit) file() string { return filepath.Join(unitDir, u.serviceName()+".service") }

// content returns the content of the unit file.
func (u *unit) content() string {
	content := &strings.Builder{}
	fmt.Fprintf(content, "[Unit]\nDescription=%s\nAfter=network.target payload.mount containerd.service\nStartLimitIntervalSec=0\n\n[Service]\nType=exec\n", u.name)
	for _, variable := range u.env {
		fmt.Fprintf(content, "Environment=%s\n", strconv.Quote(variable))
	}
	quoted := make([]string, len(u.args))
	for i, arg := range u.args {
		quoted[i] = strconv.Quote(arg)
	}
	fmt.Fprintf(content, "ExecStart=%s\nStandardOutput=append:%[2]s\nStandardError=append:%[2]s\nRestart=always\nRestartSec=1s\nLimitNOFILE=1048576\n", strings.Join(quoted, " "), u.Log())
	for _, line := range u.service {
		fmt.Fprintln(content, line)
	}
	fmt.Fprint(content, "\n[Install]\nWantedBy=multi-user.target\n")
	return content.String()
}

// Start starts the service. If its file is missing or has changed, Start writes it first.
func (u *unit) Start() error { return startUnlessEnding(u, u.data, u.start) }

func (u *unit) start() error {
	content := u.content()
	if now, err := os.ReadFile(u.file()); err != nil || string(now) != content {
		if err := atomicfile.Write(u.file(), []byte(content), 0o644); err != nil {
			return err
		}
		if err := systemctl("daemon-reload"); err != nil {
			return err
		}
		if err := systemctl("enable", u.serviceName()); err != nil {
			return err
		}
	}
	return systemctl("start", u.serviceName())
}

// PID returns the number of the service's main process, or zero. It looks at the service's
// cgroup, since it is called often and systemd is slow to answer.
func (u *unit) PID() int {
	program, err := filepath.EvalSymlinks(u.args[0])
	if err != nil {
		return 0
	}
	hierarchy := "/sys/fs/cgroup"
	if CgroupV1() {
		hierarchy += "/systemd"
	}
	pids, err := cgroups.GetPids(filepath.Join(hierarchy, "system.slice", u.serviceName()+".service"))
	if err != nil {
		return 0
	}
	for _, pid := range pids {
		// The cgroup of containerd's service has its shims, too. There is nothing to parse, so procfs
		// would do the same.
		if runs, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && runs == program {
			return pid
		}
	}
	return 0
}

// exists reports whether Start has written the unit file.
func (u *unit) exists() bool {
	_, err := os.Stat(u.file())
	return err == nil
}

// Stop stops the service, and does nothing if there is none. The grace period is systemd's.
func (u *unit) Stop(time.Duration) error {
	if !u.exists() {
		return nil
	}
	return systemctl("stop", u.serviceName())
}

// Kill ends the service as a crash would. It then stops the service, or systemd would start it
// again.
func (u *unit) Kill() error {
	if u.PID() == 0 {
		return u.Stop(0)
	}
	return errors.Join(systemctl("kill", "--kill-whom=main", "--signal=KILL", u.serviceName()), systemctl("stop", u.serviceName()))
}

// Remove makes systemd forget the service, which must have ended.
func (u *unit) Remove() error {
	if !u.exists() {
		return nil
	}
	if err := systemctl("disable", u.serviceName()); err != nil {
		return err
	}
	if err := os.Remove(u.file()); err != nil {
		return err
	}
	return systemctl("daemon-reload")
}

func systemctl(args ...string) error {
	if output, err := exec.Command("systemctl", append([]string{"--quiet"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
