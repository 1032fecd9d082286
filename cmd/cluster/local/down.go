package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"workload.openshift.io/partition"
)

// hostPaths are written by a kubelet and its runtime at places that can not be
// configured. Those that are not there before Up are removed by Down.
var hostPaths = []string{
	filepath.Dir(partition.PinningFilePath), "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd", "/run/runc", "/run/xtables.lock",
	"/usr/libexec/kubernetes", "/var/run/kubernetes", "/run/netns", "/opt/containerd", "/opt/nri", "/etc/nri", "/var/run/nri", "/run/flannel", "/etc/cni", "/etc/containerd",
}

// rememberHost records which of hostPaths exist already.
func (c *Cluster) rememberHost() error {
	var absent []string
	for _, path := range hostPaths {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, path)
		}
	}
	data, err := json.Marshal(absent)
	if err != nil {
		return err
	}
	return os.WriteFile(c.data("absent.json"), data, 0o644)
}

// Down ends every process of the cluster and removes every trace: containers,
// mounts, cgroups, the network, the pinning file and all files. It does what is
// left to do after a crash, or after a Down that was interrupted, too.
func (c *Cluster) Down(ctx context.Context) error {
	if !c.Exists() {
		return nil
	}
	var errs []error
	for _, p := range c.parts()[:6] {
		errs = append(errs, p.Stop(10*time.Second))
	}
	errs = append(errs, c.killPods(), c.killShims(), c.Containerd.Stop(10*time.Second), c.unmount(), removeCgroups(), c.removeNetwork(ctx))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// The file that says what to remove goes last.
	absent, err := os.ReadFile(c.data("absent.json"))
	if err == nil {
		var paths []string
		if err := json.Unmarshal(absent, &paths); err != nil {
			return fmt.Errorf("%s: %w", c.data("absent.json"), err)
		}
		if err := os.Remove(partition.PinningFilePath); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, path := range paths {
			// Not ours to choose freely: only what stands in the list of this program.
			if !slices.Contains(hostPaths, path) {
				continue
			}
			remove := os.RemoveAll
			if path == filepath.Dir(partition.PinningFilePath) {
				// Somebody may have put a file of their own beside the pinning file.
				remove = removeEmpty
			}
			if err := remove(path); err != nil {
				return err
			}
		}
	}
	return errors.Join(os.RemoveAll(c.dirs.run), os.RemoveAll(c.dirs.data))
}

func removeEmpty(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

// nodeCgroups returns the cgroups in which kubelets put pods, one a controller.
func nodeCgroups() ([]string, error) {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods"} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		found = append(found, matches...)
	}
	return found, nil
}

// killPods kills all processes in the node's cgroups, until there are none.
func (c *Cluster) killPods() error {
	var left []int
	if eventually(20*time.Second, func() bool {
		left = nil
		groups, err := nodeCgroups()
		if err != nil {
			return false
		}
		for _, group := range groups {
			_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
				// Cgroups vanish while we look.
				if err != nil || !entry.IsDir() {
					return nil
				}
				procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
				if err != nil {
					return nil
				}
				for line := range bytes.FieldsSeq(procs) {
					if pid, err := strconv.Atoi(string(line)); err == nil && pid > 1 {
						left = append(left, pid)
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
				}
				return nil
			})
		}
		return len(left) == 0
	}) {
		return nil
	}
	return fmt.Errorf("processes %v of pods do not end", left)
}

// killShims kills the shims of our containerd, known by its socket's path.
func (c *Cluster) killShims() error {
	var left []int
	if eventually(10*time.Second, func() bool {
		left = nil
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return false
		}
		for _, entry := range entries {
			pid, err := strconv.Atoi(entry.Name())
			if err != nil {
				continue
			}
			line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
			if err != nil {
				continue
			}
			args := strings.Split(string(line), "\x00")
			if strings.HasSuffix(args[0], "containerd-shim-runc-v2") && slices.Contains(args, c.socket()) {
				if _, err := startTime(pid); err == nil {
					left = append(left, pid)
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		return len(left) == 0
	}) {
		return nil
	}
	return fmt.Errorf("shims %v do not end", left)
}

// unmount removes all mounts below the cluster's folders, the last one first.
func (c *Cluster) unmount() error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		const mountPoint = 4
		if len(fields) <= mountPoint {
			continue
		}
		point := unescape.Replace(fields[mountPoint])
		for _, dir := range []string{c.dirs.data, c.dirs.run, "/var/lib/kubelet"} {
			if strings.HasPrefix(point, dir+"/") {
				points = append(points, point)
			}
		}
	}
	slices.Reverse(points)
	for _, point := range points {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// unescape undoes what the kernel does to blanks in mountinfo (proc(5)).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// removeCgroups removes the node's cgroups, which have no processes any more.
func removeCgroups() error {
	var last error
	if eventually(10*time.Second, func() bool {
		last = nil
		groups, err := nodeCgroups()
		if err != nil {
			last = err
			return false
		}
		for _, group := range groups {
			var folders []string
			_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					folders = append(folders, path)
				}
				return nil
			})
			for _, folder := range slices.Backward(folders) {
				if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
					last = err
				}
			}
		}
		return last == nil
	}) {
		return nil
	}
	return last
}

// removeNetwork removes the bridge, and the rules of the kubelet and kube-proxy,
// whose chains all start with KUBE-.
func (c *Cluster) removeNetwork(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join("/sys/class/net", bridge)); err == nil {
		if output, err := exec.CommandContext(ctx, "ip", "link", "delete", bridge).CombinedOutput(); err != nil {
			return fmt.Errorf("ip link delete %s: %w: %s", bridge, err, output)
		}
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		rules, err := exec.CommandContext(ctx, family+"-save").Output()
		if err != nil || !bytes.Contains(rules, []byte("KUBE-")) {
			continue
		}
		var kept bytes.Buffer
		for line := range bytes.Lines(rules) {
			if !bytes.Contains(line, []byte("KUBE-")) {
				kept.Write(line)
			}
		}
		cmd := exec.CommandContext(ctx, family+"-restore")
		cmd.Stdin = &kept
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s-restore: %w: %s", family, err, output)
		}
	}
	return nil
}
