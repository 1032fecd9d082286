package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// unitDir is where an administrator's units of systemd are.
const unitDir = "/etc/systemd/system"

func (p *Process) unitFile() string { return filepath.Join(unitDir, p.Name+".service") }

// unitText is the content of the unit file.
func (p *Process) unitText() string {
	unit := &strings.Builder{}
	fmt.Fprintf(unit, "[Unit]\nDescription=%s\nAfter=network.target payload.mount containerd.service\nStartLimitIntervalSec=0\n\n[Service]\nType=exec\n", p.Name)
	for _, variable := range p.Env {
		fmt.Fprintf(unit, "Environment=%s\n", strconv.Quote(variable))
	}
	quoted := make([]string, len(p.Args))
	for i, arg := range p.Args {
		quoted[i] = strconv.Quote(arg)
	}
	fmt.Fprintf(unit, "ExecStart=%s\nStandardOutput=append:%[2]s\nStandardError=append:%[2]s\nRestart=always\nRestartSec=1s\nLimitNOFILE=1048576\n", strings.Join(quoted, " "), p.Log())
	for _, line := range p.unit {
		fmt.Fprintln(unit, line)
	}
	fmt.Fprint(unit, "\n[Install]\nWantedBy=multi-user.target\n")
	return unit.String()
}

// startUnit makes the program a service that also starts with the host, and starts it.
func (p *Process) startUnit() error {
	unit := p.unitText()
	if now, err := os.ReadFile(p.unitFile()); err != nil || string(now) != unit {
		if err := writeFile(p.unitFile(), []byte(unit)); err != nil {
			return err
		}
		if err := systemctl("daemon-reload"); err != nil {
			return err
		}
		if err := systemctl("enable", p.Name); err != nil {
			return err
		}
	}
	return systemctl("start", p.Name)
}

// unitPID returns the number of the service's main process, or zero. It looks at the
// service's cgroup: it is asked often, and systemd would be slow to answer.
func (p *Process) unitPID() int {
	program, err := filepath.EvalSymlinks(p.Args[0])
	if err != nil {
		return 0
	}
	tasks, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/system.slice", p.Name+".service", "cgroup.procs"))
	if err != nil {
		return 0
	}
	for task := range strings.FieldsSeq(string(tasks)) {
		// The service of containerd has its shims, too.
		if runs, err := os.Readlink("/proc/" + task + "/exe"); err == nil && runs == program {
			pid, _ := strconv.Atoi(task)
			return pid
		}
	}
	return 0
}

// isUnit reports whether the service has been started once.
func (p *Process) isUnit() bool {
	_, err := os.Stat(p.unitFile())
	return err == nil
}

// stopUnit ends the service, and stays silent of one that never was.
func (p *Process) stopUnit() error {
	if !p.isUnit() {
		return nil
	}
	return systemctl("stop", p.Name)
}

// killUnit ends the service as a crash would; systemd would start it again.
func (p *Process) killUnit() error {
	if p.PID() == 0 {
		return p.stopUnit()
	}
	return errors.Join(systemctl("kill", "--kill-whom=main", "--signal=KILL", p.Name), systemctl("stop", p.Name))
}

// removeUnit makes systemd forget the program, which has ended.
func (p *Process) removeUnit() error {
	if p.unit == nil || !p.isUnit() {
		return nil
	}
	if err := systemctl("disable", p.Name); err != nil {
		return err
	}
	if err := os.Remove(p.unitFile()); err != nil {
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
