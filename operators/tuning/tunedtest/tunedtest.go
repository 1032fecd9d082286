// SPDX-License-Identifier: Apache-2.0

// Package tunedtest gives tests a kernel for TuneD: a sysctl of its own, and directories for TuneD's files, in namespaces
// that end with the test binary. Nothing of the host changes.
package tunedtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workload.openshift.io/operators/internal/testenv"
)

// The sysctl belongs to an IPC namespace (ipc/ipc_sysctl.c in Linux).
const (
	Sysctl   = "kernel.msgmnb"
	Original = "16384" // MSGMNB in include/uapi/linux/msg.h
	Python   = "/usr/bin/python3"
)

// sysctlFile is the sysctl's.
var sysctlFile = "/proc/sys/" + strings.ReplaceAll(Sysctl, ".", "/")

// Programs adds those of this package to a test binary's, for testenv.Main.
func Programs(programs testenv.Programs) testenv.Programs {
	maps.Copy(programs, testenv.Programs{"namespaces": namespaces, "inside": inside, "watch": watch})
	return programs
}

// become replaces this process.
func become(arguments ...string) int {
	path, err := exec.LookPath(arguments[0])
	if err == nil {
		err = syscall.Exec(path, arguments, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// namespaces holds those of a kernel whose directories are below $1.
func namespaces() int {
	return become("unshare", "--ipc", "--mount", "sh", "-ec", `
mkdir -p /run/tuned "$0/etc" "$0/run" "$0/sysctl.d"
mount --bind "$0/etc" /etc/tuned
mount --bind "$0/run" /run/tuned
mount --bind "$0/sysctl.d" /etc/sysctl.d
echo Y >"$0/sysfs"
mount --bind "$0/sysfs" /sys/module/printk/parameters/time
echo ready
exec sleep infinity`, os.Args[1])
}

// inside is the program $2 in the namespaces of the process $1.
func inside() int {
	testenv.Become(os.Args[2])
	return become(append([]string{"nsenter", "--target", os.Args[1], "--ipc", "--mount", "--", os.Args[0]}, os.Args[3:]...)...)
}

// watch writes each value of the sysctl, with the time, as often as it can.
func watch() int {
	for last := ""; ; time.Sleep(200 * time.Microsecond) {
		data, err := os.ReadFile(sysctlFile)
		if err != nil {
			panic(err)
		}
		if value := strings.TrimSpace(string(data)); value != last {
			fmt.Println(time.Now().Format("15:04:05.000"), value)
			last = value
		}
	}
}

// Kernel is what a TuneD of a test changes.
type Kernel struct {
	// Dir has the directories etc, run and sysctl.d, and the file sysfs, which are TuneD's and the host's inside.
	Dir    string
	holder string
}

// New returns a kernel. It skips the test where TuneD cannot run.
func New(t *testing.T) *Kernel {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("TuneD runs as root only")
	}
	for _, path := range []string{"/usr/sbin/tuned", Python} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("TuneD is not installed: %v; Debian's package is tuned", err)
		}
	}
	k := &Kernel{Dir: t.TempDir()}
	holder := testenv.Run(t, "namespaces", k.Dir)
	testenv.Eventually(t, 10*time.Second, func() error {
		if !strings.Contains(holder.Output(), "ready") {
			return fmt.Errorf("no namespaces: %s", holder.Log())
		}
		return nil
	})
	k.holder = fmt.Sprint(holder.Pid())
	if got := k.Value(t); got != Original {
		t.Fatalf("%s is %s in a new namespace, want %s", Sysctl, got, Original)
	}
	return k
}

// Run starts a program of the test binary inside.
func (k *Kernel) Run(t *testing.T, program string, arguments ...string) *testenv.Process {
	t.Helper()
	return testenv.Run(t, "inside", append([]string{k.holder, program}, arguments...)...)
}

// PID is that of TuneD; empty before its first start.
func (k *Kernel) PID() string {
	data, _ := os.ReadFile(filepath.Join(k.Dir, "run", "tuned.pid"))
	return string(data)
}

// Value returns the value of the sysctl.
func (k *Kernel) Value(t *testing.T) string {
	t.Helper()
	output, err := exec.Command("nsenter", "--target", k.holder, "--ipc", "cat", sysctlFile).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return strings.TrimSpace(string(output))
}

// Boot gives the sysctl the kernel's own value, as a boot of the node does.
func (k *Kernel) Boot(t *testing.T) {
	t.Helper()
	if output, err := exec.Command("nsenter", "--target", k.holder, "--ipc", "sh", "-c", "echo "+Original+" >"+sysctlFile).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// Eventually waits until the sysctl has a value, and logs how long that took.
func (k *Kernel) Eventually(t *testing.T, want string, within time.Duration) {
	t.Helper()
	begin := time.Now()
	testenv.Eventually(t, within, func() error {
		if got := k.Value(t); got != want {
			return fmt.Errorf("%s is %s, want %s", Sysctl, got, want)
		}
		return nil
	})
	t.Logf("%s is %s after %s", Sysctl, want, time.Since(begin).Round(10*time.Millisecond))
}

// Watch begins to watch the sysctl. The function that it returns says which values it has had since, in their order.
func (k *Kernel) Watch(t *testing.T) (values func() []string) {
	t.Helper()
	process := k.Run(t, "watch")
	return func() (values []string) {
		for line := range strings.Lines(process.Output()) {
			if _, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				values = append(values, value)
			}
		}
		return values
	}
}
