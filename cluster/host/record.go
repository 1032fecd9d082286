package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"workload.openshift.io/kubernetes/cluster/atomicfile"
	"workload.openshift.io/partition"
)

// kubeletDir has sockets of the kubelet, whatever its root directory is.
const kubeletDir = "/var/lib/kubelet"

// shimSockets has those of the shims of every containerd of the host.
const shimSockets = "/run/containerd/s"

// hostPaths are written by a kubelet and its runtime, and cannot be configured. Down removes those
// that did not exist before Up.
var hostPaths = []string{
	"/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/pod-resources", kubeletDir,
	"/var/lib/cni/results", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd/runc/k8s.io", "/run/containerd/runc", shimSockets, "/run/containerd",
	"/run/runc", "/run/xtables.lock", "/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes", "/run/netns", "/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd",
	filepath.Dir(partition.PinningFilePath),
}

// sharedPaths are those of hostPaths in which others keep files, too. Down removes them only if
// they are empty.
var sharedPaths = []string{kubeletDir, "/var/lib/cni", "/run/containerd", "/run/containerd/runc", shimSockets, "/usr/libexec/kubernetes", "/opt/containerd", "/run/netns", "/run/runc", filepath.Dir(partition.PinningFilePath)}

// sysctls are set by the kubelet, kube-proxy and the bridge plugin.
var sysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet"}

// record is what Up found on the host, so that Down can restore it.
type record struct {
	// Boot identifies the boot of the host. After another boot our processes, mounts and
	// cgroups are gone, and any that exist are somebody else's.
	Boot    string
	Absent  []string
	Sysctls map[string]string
	// WithoutNode means that the cluster has only processes, its bridge and its own directories
	// on the host.
	WithoutNode bool
	// Bridge is the name of the bridge; empty means none. Records from before this field was
	// added leave it out: a cluster with a node then has the bridge of its configuration.
	Bridge string
	// HostPorts means that there are rules of the CNI plugin portmap.
	HostPorts bool
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
	r := record{Boot: boot, Sysctls: map[string]string{}, WithoutNode: c.Config.WithoutNode, HostPorts: c.Config.HostPorts}
	if c.ownBridge() || !r.WithoutNode {
		r.Bridge = c.Config.Network.Bridge
	}
	if r.WithoutNode {
		return c.writeRecord(r)
	}
	for _, path := range hostPaths {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			r.Absent = append(r.Absent, path)
		}
	}
	for _, name := range sysctls {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			r.Sysctls[name] = strings.TrimSpace(string(value))
		}
	}
	return c.writeRecord(r)
}

func (c *Cluster) writeRecord(r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(c.data("host.json"), data, 0o644)
}

// restoreHost undoes what a kubelet has changed on the host outside of the cluster's directories.
func (c *Cluster) restoreHost(r record) error {
	for name, value := range r.Sysctls {
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
	if err := removeDeadSockets(shimSockets); err != nil {
		return err
	}
	// The list has directories after what is in them.
	for _, path := range hostPaths {
		if !slices.Contains(r.Absent, path) {
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

// removeDeadSockets removes the sockets of a directory on which nobody listens.
func removeDeadSockets(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(directory, entry.Name())
		connection, err := net.Dial("unix", path)
		if err == nil {
			_ = connection.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func removeEmpty(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}
