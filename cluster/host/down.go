package host

import (
	"bytes"
	"cmp"
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
	"sync"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"workload.openshift.io/kubernetes/cluster/internal/atomicfile"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/partition"
)

// kubeletDir has sockets of a kubelet, whatever its root directory is.
const kubeletDir = "/var/lib/kubelet"

// hostPaths are written by a kubelet and its runtime at places that cannot be
// configured. Those that are not there before Up are removed by Down.
var hostPaths = []string{
	"/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/pod-resources", kubeletDir,
	"/var/lib/cni/results", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd/runc/k8s.io", "/run/containerd/runc", "/run/containerd/s", "/run/containerd",
	"/run/runc", "/run/xtables.lock", "/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes", "/run/netns", "/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd",
	filepath.Dir(partition.PinningFilePath),
}

// sharedPaths are those of hostPaths in which others keep files too: they are removed
// only if they are empty.
var sharedPaths = []string{kubeletDir, "/var/lib/cni", "/run/containerd", "/run/containerd/runc", "/usr/libexec/kubernetes", "/opt/containerd", "/run/netns", "/run/runc", filepath.Dir(partition.PinningFilePath)}

// sysctls are set by the kubelet, kube-proxy and the bridge plugin.
var sysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet"}

// host is what Up has found, so that Down can leave it as it was.
type host struct {
	// Boot identifies the boot of the host: processes, mounts and cgroups of ours are
	// gone after another, and what is there then is somebody else's.
	Boot    string
	Absent  []string
	Sysctls map[string]string
	// WithoutNode says that a cluster has nothing on the host but processes, the bridge and
	// its own directories.
	WithoutNode bool
	// Bridge is the name of the bridge; it is empty if the cluster has none. Before there was
	// this field, a cluster with a node had that of its configuration.
	Bridge string
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// rememberHost records the host as it is.
func (c *Cluster) rememberHost() error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	h := host{Boot: boot, Sysctls: map[string]string{}, WithoutNode: c.Config.WithoutNode}
	if c.ownBridge() || !h.WithoutNode {
		h.Bridge = c.Config.Network.Bridge
	}
	if h.WithoutNode {
		return c.writeHost(h)
	}
	for _, path := range hostPaths {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			h.Absent = append(h.Absent, path)
		}
	}
	for _, name := range sysctls {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			h.Sysctls[name] = strings.TrimSpace(string(value))
		}
	}
	return c.writeHost(h)
}

func (c *Cluster) writeHost(h host) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return atomicfile.Write(c.data("host.json"), data, 0o644)
}

// restoreHost undoes what a kubelet does to a host outside the cluster's directories.
func (c *Cluster) restoreHost(h host) error {
	for name, value := range h.Sysctls {
		path := filepath.Join("/proc/sys", name)
		if now, err := os.ReadFile(path); !slices.Contains(sysctls, name) || err != nil || strings.TrimSpace(string(now)) == value {
			continue
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("sysctl %s: %w", name, err)
		}
	}
	if err := os.Remove(partition.PinningFilePath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// In the order of the list, which has directories after what is in them.
	for _, path := range hostPaths {
		if !slices.Contains(h.Absent, path) {
			continue
		}
		remove := os.RemoveAll
		if slices.Contains(sharedPaths, path) {
			remove = removeEmpty
		}
		if err := remove(path); err != nil {
			return err
		}
	}
	return nil
}

// Down ends every process of the cluster and removes every trace: containers,
// mounts, cgroups, the network, the pinning file and all files. It does what is
// left to do after a crash, or after a Down that was interrupted, too.
func (c *Cluster) Down(ctx context.Context) error {
	// An interrupt's, and that of the main program: the second finds nothing left.
	downs.Lock()
	defer downs.Unlock()
	if !c.Exists() {
		return nil
	}
	defer c.end()()

	data, err := os.ReadFile(c.data("host.json"))
	if errors.Is(err, fs.ErrNotExist) {
		// Up records the host before it does anything to it.
		return errors.Join(os.RemoveAll(c.Config.Paths.Run), os.RemoveAll(c.Config.Paths.Data))
	}
	if err != nil {
		return err
	}
	var h host
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf("%s: %w", c.data("host.json"), err)
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	if boot == h.Boot {
		var errs []error
		for _, p := range c.components() {
			if p == c.Containerd && !h.WithoutNode { // after the pods
				continue
			}
			errs = append(errs, p.Stop(10*time.Second), p.Remove())
		}
		// An interrupt that ends Down ends it between two steps and not within one.
		ctx := context.WithoutCancel(ctx)
		if !h.WithoutNode {
			errs = append(errs, c.removePods(h))
		}
		errs = append(errs, removeBridge(ctx, c.bridge(h)))
		if !h.WithoutNode {
			errs = append(errs, removeRules(ctx))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	} else {
		c.say("the host has booted since; removing files only")
	}
	if !h.WithoutNode {
		if err := c.restoreHost(h); err != nil {
			return err
		}
	}
	// The directory with the record goes last.
	return errors.Join(os.RemoveAll(c.Config.Paths.Run), os.RemoveAll(c.Config.Paths.Data))
}

var downs sync.Mutex

// End stops everything from being started until the function that it returns is
// called: what an interrupt calls for before a Down, while an Up may be under way.
func End() (resume func()) {
	starting.Lock()
	defer starting.Unlock()
	endingAll++
	return sync.OnceFunc(func() {
		starting.Lock()
		defer starting.Unlock()
		endingAll--
	})
}

// end is End for this cluster alone. It is called by Down, which has locked downs.
func (c *Cluster) end() (resume func()) {
	starting.Lock()
	defer starting.Unlock()
	ending[c.Config.Paths.Data] = true
	return func() {
		starting.Lock()
		defer starting.Unlock()
		delete(ending, c.Config.Paths.Data)
	}
}

// Own notes that what is in a directory is to end with this process.
func Own(dir string) error {
	pid := os.Getpid()
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	return owner(dir).remember(identity{pid, started})
}

// Abandoned reports whether what is in a directory was to end with a process that has ended
// and left it: that was killed.
func Abandoned(dir string) bool {
	p := owner(dir)
	_, err := os.Stat(p.file())
	return err == nil && p.PID() == 0
}

func owner(dir string) *process { return newProcess(dir, "owner") }

func removeEmpty(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

// removePods ends all pods and then their runtime, and removes what the kernel has of
// them.
func (c *Cluster) removePods(h host) error {
	var errs []error
	if c.CgroupDriver() == SystemdDriver {
		errs = append(errs, c.killPods(), systemctl("stop", "kubepods.slice"))
	}
	errs = append(errs, c.killPods(), c.killShims(), c.Containerd.Stop(10*time.Second), c.Containerd.Remove(), c.unmount(h), c.removeCgroups())
	return errors.Join(errs...)
}

// nodeCgroups returns the cgroups in which our kubelet puts pods, one a controller.
func (c *Cluster) nodeCgroups() ([]string, error) {
	if c.CgroupDriver() == SystemdDriver {
		return topCgroups("kubepods.slice")
	}
	return topCgroups("kubepods")
}

// topCgroups returns the cgroups of a name right below the root, one a controller.
func topCgroups(name string) ([]string, error) {
	var found []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		matches, err := filepath.Glob(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		found = append(found, matches...)
	}
	return found, nil
}

// killPods kills all processes in the node's cgroups, until there are none.
func (c *Cluster) killPods() error {
	return poll.Until(context.Background(), endPause, 20*time.Second, func(context.Context) error {
		groups, err := c.nodeCgroups()
		if err != nil {
			return err
		}
		var left []int
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
		if len(left) > 0 {
			return fmt.Errorf("processes %v of pods do not end", left)
		}
		return nil
	})
}

// killShims kills the shims of our containerd, known by its socket's path.
func (c *Cluster) killShims() error {
	return poll.Until(context.Background(), endPause, 10*time.Second, func(context.Context) error {
		processes, err := procfs.AllProcs()
		if err != nil {
			return err
		}
		var left []int
		for _, process := range processes {
			args, err := process.CmdLine()
			if err != nil || len(args) == 0 || !strings.HasSuffix(args[0], "containerd-shim-runc-v2") || !slices.Contains(args, c.socket()) {
				continue // also if it has ended
			}
			if _, err := startTime(process.PID); err == nil {
				left = append(left, process.PID)
				_ = syscall.Kill(process.PID, syscall.SIGKILL)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("shims %v do not end", left)
		}
		return nil
	})
}

// unmount removes all mounts below the cluster's directories, the last one first.
func (c *Cluster) unmount(h host) error {
	dirs := []string{c.Config.Paths.Data, c.Config.Paths.Run}
	if slices.Contains(h.Absent, kubeletDir) {
		dirs = append(dirs, kubeletDir)
	}
	mounts, err := mountinfo.GetMounts(func(mount *mountinfo.Info) (skip, stop bool) {
		return !slices.ContainsFunc(dirs, func(dir string) bool {
			return mount.Mountpoint == dir || strings.HasPrefix(mount.Mountpoint, dir+"/")
		}), false
	})
	if err != nil {
		return err
	}
	for _, mount := range slices.Backward(mounts) {
		if err := unix.Unmount(mount.Mountpoint, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", mount.Mountpoint, err)
		}
	}
	return nil
}

// removeCgroups removes the node's cgroups, which have no processes any more.
func (c *Cluster) removeCgroups() error {
	return poll.Until(context.Background(), endPause, 10*time.Second, func(context.Context) error {
		groups, err := c.nodeCgroups()
		if err != nil {
			return err
		}
		var last error
		for _, group := range groups {
			var dirs []string
			_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) {
				if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
					last = err
				}
			}
		}
		return last
	})
}

// bridge returns the name of the bridge that Down removes, or nothing if there is none.
func (c *Cluster) bridge(h host) string {
	if h.WithoutNode {
		return h.Bridge
	}
	return cmp.Or(h.Bridge, c.Config.Network.Bridge)
}

func removeBridge(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join("/sys/class/net", name)); err != nil {
		return nil // it is gone
	}
	if output, err := exec.CommandContext(ctx, "ip", "link", "delete", name).CombinedOutput(); err != nil {
		return fmt.Errorf("ip link delete %s: %w: %s", name, err, output)
	}
	return nil
}

// removeRules removes the rules of the kubelet and kube-proxy, whose chains all start with
// KUBE-.
func removeRules(ctx context.Context) error {
	for _, family := range []string{"iptables", "ip6tables"} {
		rules, err := exec.CommandContext(ctx, family+"-save").Output()
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s-save: %w", family, err)
		}
		if !bytes.Contains(rules, []byte("KUBE-")) {
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
