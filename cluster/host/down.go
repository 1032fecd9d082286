// SPDX-License-Identifier: Apache-2.0

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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/cgroups"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"workload.openshift.io/kubernetes/cluster/poll"
)

// Down ends every process of the cluster and removes every trace: containers,
// mounts, cgroups, the network, the pinning file and all files. The control planes next to it
// ([Config.Beside]) end first. It does what is left to do after a crash, or after a Down that
// was interrupted, too.
func (c *Cluster) Down(ctx context.Context) error {
	// An interrupt and the main program may both call Down. The second call finds nothing left.
	downs.Lock()
	defer downs.Unlock()
	return c.down(ctx)
}

func (c *Cluster) down(ctx context.Context) error {
	if !c.Exists() {
		return nil
	}
	defer c.end()()
	besides, err := filepath.Glob(c.data(beside + "*"))
	if err != nil {
		return err
	}
	// One that cannot be removed does not keep the others, nor this cluster, from ending.
	var errs []error
	for _, dir := range besides {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), beside))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is not a control plane's directory: %w", dir, err))
			continue
		}
		errs = append(errs, New(c.Config.Beside(number)).down(ctx))
	}

	data, err := os.ReadFile(c.data(recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		// Up writes this record before it changes anything else on the host.
		if err := errors.Join(errs...); err != nil {
			return err
		}
		return errors.Join(os.RemoveAll(c.Config.Paths.Run), c.removeData())
	}
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("%s: %w", c.data(recordFile), err)
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	if boot == r.Boot {
		for _, p := range append(c.programs(), c.components()...) {
			if p == c.Containerd && !r.WithoutNode { // after the pods
				continue
			}
			errs = append(errs, p.Stop(10*time.Second), p.Remove())
		}
		// An interrupt does not end Down in the middle of a step.
		ctx := context.WithoutCancel(ctx)
		if !r.WithoutNode {
			errs = append(errs, c.removePods(r))
		}
		errs = append(errs, removeBridge(ctx, c.bridge(r)))
		if !r.WithoutNode {
			errs = append(errs, removeRules(ctx, r))
		}
	} else {
		c.say("the host has rebooted since; removing files only")
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !r.WithoutNode {
		restore := c.restoreHost
		if boot != r.Boot {
			restore = c.restoreFiles
		}
		if err := restore(r); err != nil {
			return err
		}
	}
	// The directory with the record goes last.
	return errors.Join(os.RemoveAll(c.Config.Paths.Run), c.removeData())
}

// removeData removes the cluster's directory. A process that is killed halfway leaves the file that identifies the rest.
func (c *Cluster) removeData() error {
	entries, err := os.ReadDir(c.Config.Paths.Data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	last := []string{c.data(recordFile), owner(c.Config.Paths.Data).file()}
	for _, entry := range entries {
		if path := c.data(entry.Name()); !slices.Contains(last, path) {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(c.Config.Paths.Data)
}

var downs sync.Mutex

// End lets nothing be started until the function that it returns is called. After an interrupt
// it comes before Down, since an Up may be under way.
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

// end is End for this cluster alone. The caller holds downs.
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

// removePods ends all pods and then their runtime, and removes their mounts and cgroups.
func (c *Cluster) removePods(r record) error {
	var errs []error
	if c.CgroupDriver() == SystemdDriver {
		errs = append(errs, c.killPods(), systemctl("stop", "kubepods.slice"))
	}
	errs = append(errs, c.killPods(), c.killShims(), c.Containerd.Stop(10*time.Second), c.Containerd.Remove(), c.unmount(r), c.removeCgroups())
	return errors.Join(errs...)
}

// nodeCgroups returns the cgroups in which our kubelet puts pods, one for each controller.
func (c *Cluster) nodeCgroups() ([]string, error) {
	if c.CgroupDriver() == SystemdDriver {
		return topCgroups("kubepods.slice")
	}
	return topCgroups("kubepods")
}

// topCgroups returns the cgroups with a name directly below the root, one for each controller.
func topCgroups(name string) ([]string, error) {
	root := "/sys/fs/cgroup"
	if CgroupV1() {
		root += "/*" // on v2 that may be a container with its own node
	}
	return filepath.Glob(filepath.Join(root, name))
}

// killPods kills the processes in the node's cgroups until none is left.
func (c *Cluster) killPods() error {
	return poll.Until(context.Background(), endPause, 20*time.Second, func(context.Context) error {
		groups, err := c.nodeCgroups()
		if err != nil {
			return err
		}
		var left []int
		for _, group := range groups {
			pids, err := cgroups.GetAllPids(group)
			if err != nil {
				return err // it may vanish while we look
			}
			for _, pid := range pids {
				// Zero is a process of a PID namespace that we do not see.
				if pid > 1 {
					left = append(left, pid)
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("processes %v of pods have been killed and do not end", left)
		}
		return nil
	})
}

// killShims kills the shims of our containerd, which have its socket's path as an argument.
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
			return fmt.Errorf("shims %v have been killed and do not end", left)
		}
		return nil
	})
}

// unmount removes all mounts in the cluster's directories, the last one first.
func (c *Cluster) unmount(r record) error {
	dirs := []string{c.Config.Paths.Data, c.Config.Paths.Run}
	if slices.Contains(r.Absent, kubeletDir) {
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

// removeCgroups removes the node's cgroups, which have no processes left.
func (c *Cluster) removeCgroups() error {
	return poll.Until(context.Background(), endPause, 10*time.Second, func(context.Context) error {
		groups, err := c.nodeCgroups()
		if err != nil {
			return err
		}
		var errs []error
		for _, group := range groups {
			errs = append(errs, cgroups.RemovePath(group))
		}
		return errors.Join(errs...)
	})
}

// bridge returns the name of the bridge that Down removes; empty means none.
func (c *Cluster) bridge(r record) string {
	if r.WithoutNode {
		return r.Bridge
	}
	return cmp.Or(r.Bridge, c.Config.Network.Bridge)
}

func removeBridge(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join("/sys/class/net", name)); err != nil {
		return nil // there is none
	}
	if output, err := exec.CommandContext(ctx, "ip", "link", "delete", name).CombinedOutput(); err != nil {
		return fmt.Errorf("ip link delete %s: %w: %s", name, err, output)
	}
	return nil
}

// hostPortChains begin the names of the chains of the CNI plugin portmap.
var hostPortChains = []string{"CNI-HOSTPORT-", "CNI-DN-"}

// removeRules removes the chains of the kubelet, kube-proxy and the CNI plugin portmap, by how their names
// begin, and the rules of other chains that lead there. All others keep their counters.
func removeRules(ctx context.Context, r record) error {
	prefixes := []string{"KUBE-"}
	if r.HostPorts {
		prefixes = append(prefixes, hostPortChains...)
	}
	// Where the host's iptables writes the older tables, that of a pod may have written the newer.
	for _, family := range []string{"iptables", "ip6tables", "iptables-nft", "ip6tables-nft"} {
		var stderr bytes.Buffer
		save := exec.CommandContext(ctx, family+"-save")
		save.Stderr = &stderr
		rules, err := save.Output()
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if err != nil && strings.HasSuffix(family, "-nft") && bytes.Contains(stderr.Bytes(), []byte("Could not fetch rule set generation id")) {
			continue // The kernel lacks the newer tables.
		}
		if err != nil {
			return fmt.Errorf("%s-save: %w: %s", family, err, stderr.Bytes())
		}
		removal := removalOf(string(rules), prefixes)
		if removal == "" {
			continue
		}
		cmd := exec.CommandContext(ctx, family+"-restore", "--noflush")
		cmd.Stdin = strings.NewReader(removal)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s-restore: %w: %s", family, err, output)
		}
	}
	return nil
}

// target matches the chain to which a rule leads, in a rule without what is quoted: comments may say anything.
var target, quoted = regexp.MustCompile(` -[jg] (\S+)`), regexp.MustCompile(`"(\\.|[^"\\])*"`)

// removalOf returns what iptables-restore --noflush must read to remove chains from the rules that iptables-save
// prints; empty if there is none. A chain goes once no rule leads to it.
func removalOf(rules string, prefixes []string) string {
	ours := func(chain string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
	}
	var removal, table strings.Builder
	var chains []string
	for line := range strings.Lines(rules) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table.Reset()
			chains = nil
			fmt.Fprintln(&table, line)
		case strings.HasPrefix(line, ":"):
			if chain, _, _ := strings.Cut(line[1:], " "); ours(chain) {
				chains = append(chains, chain)
				fmt.Fprintf(&table, ":%s - [0:0]\n", chain) // This empties it.
			}
		case strings.HasPrefix(line, "-A "):
			chain, _, _ := strings.Cut(strings.TrimPrefix(line, "-A "), " ")
			if to := target.FindStringSubmatch(quoted.ReplaceAllString(line, "")); !ours(chain) && to != nil && ours(to[1]) {
				fmt.Fprintln(&table, "-D "+strings.TrimPrefix(line, "-A "))
			}
		case line == "COMMIT" && len(chains) > 0:
			for _, chain := range chains {
				fmt.Fprintln(&table, "-X "+chain)
			}
			removal.WriteString(table.String() + "COMMIT\n")
		}
	}
	return removal.String()
}
