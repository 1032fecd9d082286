// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
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

	"github.com/moby/sys/mountinfo"
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
var sysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/conf/all/route_localnet", ipForward, "net/ipv4/conf/all/accept_redirects"}

// ipForward is set by the CNI plugins. If it changes, the kernel sets all/accept_redirects and the forwarding of each
// interface, so these are restored after it.
const ipForward = "net/ipv4/ip_forward"

// forwarding are those of the interfaces.
const forwarding = "/proc/sys/net/ipv4/conf/*/forwarding"

// recordFile has the record, in the cluster's directory.
const recordFile = "host.json"

// record is what Up found on the host, so that Down can restore it.
type record struct {
	// Boot identifies the boot of the host. After another boot our processes, mounts and
	// cgroups are gone, and any that exist are not ours.
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
	names, err := restored()
	if err != nil {
		return err
	}
	for _, name := range names {
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
	return atomicfile.Write(c.data(recordFile), data, 0o644)
}

// restored returns the names of the sysctls that Down restores, in their order.
func restored() ([]string, error) {
	interfaces, err := filepath.Glob(forwarding)
	names := slices.Clone(sysctls)
	for _, path := range interfaces {
		names = append(names, strings.TrimPrefix(path, "/proc/sys/"))
	}
	return names, err
}

// restoreHost undoes what a kubelet has changed on the host outside of the cluster's directories.
func (c *Cluster) restoreHost(r record) error {
	names, err := restored()
	if err != nil {
		return err
	}
	forwarded := false
	for _, name := range names {
		value, recorded := r.Sysctls[name]
		path := filepath.Join("/proc/sys", name)
		now, err := os.ReadFile(path)
		if !recorded || err != nil || strings.TrimSpace(string(now)) == value {
			continue
		}
		if ofInterface := strings.HasSuffix(name, "/forwarding"); ofInterface && !forwarded {
			continue // another program changed it
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("sysctl %s: %w", name, err)
		}
		forwarded = forwarded || name == ipForward
	}
	// Another one was not written by this cluster, except by tests.
	if exists(c.data(pinningCopy)) || exists(owner(c.Config.Paths.Data).file()) {
		if err := os.Remove(partition.PinningFilePath); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return c.removeFiles(r)
}

// restoreFiles is restoreHost after a reboot. What is in memory is as the boot has made it. Files stay if a node of
// another node has come since.
func (c *Cluster) restoreFiles(r record) error {
	other, err := otherNode(r)
	if err != nil {
		return err
	}
	if other != "" {
		c.say("%s: another node has come since, so all that nodes share stays", other)
		return nil
	}
	content, err := os.ReadFile(partition.PinningFilePath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if written, wrote := os.ReadFile(c.data(pinningCopy)); err == nil && wrote == nil && bytes.Equal(content, written) {
		if err := os.Remove(partition.PinningFilePath); err != nil {
			return err
		}
	}
	r.Absent = slices.DeleteFunc(slices.Clone(r.Absent), func(path string) bool { return strings.HasPrefix(path, "/run/") })
	return c.removeFiles(r)
}

// otherNode says what of a node has come to the host since Up that no component of the cluster can have made; empty if
// nothing has.
func otherNode(r record) (string, error) {
	for _, name := range []string{"kubepods", "kubepods.slice"} {
		groups, err := topCgroups(name)
		if err != nil {
			return "", err
		}
		if len(groups) > 0 {
			return groups[0] + " exists", nil
		}
	}
	entries, err := os.ReadDir(kubeletDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, entry := range entries {
		if path := filepath.Join(kubeletDir, entry.Name()); slices.Contains(r.Absent, kubeletDir) && !slices.Contains(hostPaths, path) {
			return path + " exists", nil
		}
	}
	mounts, err := mountinfo.GetMounts(func(mount *mountinfo.Info) (skip, stop bool) {
		return !slices.ContainsFunc(hostPaths, func(path string) bool {
			return !strings.HasPrefix(path, "/run/") && (mount.Mountpoint == path || strings.HasPrefix(mount.Mountpoint, path+"/"))
		}), false
	})
	if err != nil || len(mounts) == 0 {
		return "", err
	}
	return mounts[0].Mountpoint + " is a mount", nil
}

// removeFiles removes what did not exist before Up.
func (c *Cluster) removeFiles(r record) error {
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

// removeDeadSockets removes the sockets of a directory on which no process listens.
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
	// It is busy if something was mounted there meanwhile, as ip netns does.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EBUSY) {
		return err
	}
	return nil
}
