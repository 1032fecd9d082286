// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"workload.openshift.io/partition"
)

// Unfit returns why this host cannot run a node, or nil if it can. scripts/why-no-node.sh asks the same before
// anything is compiled; change both.
func Unfit() error {
	switch {
	case runtime.GOOS != "linux":
		return errors.New("this host does not run Linux")
	case os.Getuid() != 0:
		return errors.New("a node needs root; run this as root")
	case runtime.NumCPU() < 2:
		return errors.New("a partitioned node needs two CPUs")
	}
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		return fmt.Errorf("a node needs cgroups: %w", err)
	}
	return nil
}

// preflight returns what the host lacks, before anything is started.
func (c *Cluster) preflight(context.Context) error {
	if err := Unfit(); err != nil {
		return err
	}
	tools, programs, components := []string{"etcd"}, []string{"ip"}, []Component{c.APIServer}
	controllers, err := c.controllers()
	if err != nil {
		return err
	}
	for _, controller := range controllers {
		if controller != c.Kwok {
			components = append(components, controller)
		} else if _, err := os.Stat(c.Kwok.Args()[0]); err != nil {
			return fmt.Errorf("%w; make kwok builds it", err)
		}
	}
	if !c.Config.WithoutNode {
		tools = append(tools, "containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local", "loopback")
		programs = append(programs, "iptables")
		if c.Config.Images == "" {
			programs = append(programs, "gcc")
		}
		if c.Config.HostPorts {
			tools = append(tools, "portmap")
		}
		components = append(components, c.Kubelet)
		if !c.Config.WithoutProxy {
			components = append(components, c.Proxy)
		}
	}
	if c.Config.RuntimeAlone {
		components = nil // what Kubernetes runs there is not ours
	}
	for _, name := range tools {
		if _, err := os.Stat(c.tool(name)); err != nil {
			return fmt.Errorf("%w; make tools builds it", err)
		}
	}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w; scripts/install-packages.sh installs it", err)
		}
	}
	for _, p := range components {
		if _, err := os.Stat(p.Args()[0]); err != nil {
			return fmt.Errorf("%w; carry build builds it", err)
		}
	}
	return nil
}

// foreign refuses a host that already has another node, or a program on one of the
// cluster's ports.
func (c *Cluster) foreign(ctx context.Context) error {
	if c.Config.HostPorts {
		if err := foreignHostPorts(ctx); err != nil {
			return err
		}
	}
	if bridge := c.Config.Network.Bridge; c.ownBridge() {
		if _, err := os.Stat(filepath.Join("/sys/class/net", bridge)); err == nil {
			return fmt.Errorf("the host has an interface %s, which this command did not make, and the cluster needs the name", bridge)
		}
	}
	ports := c.Config.Ports.fields()
	if !c.Config.WithoutNode {
		if err := c.foreignNode(); err != nil {
			return err
		}
		kubelet := 10250
		ports = slices.Insert(ports, 0, &kubelet)
	}
	for _, port := range ports {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", *port))
		if err != nil {
			return fmt.Errorf("the cluster needs port %d, which is not free: %w", *port, err)
		}
		listener.Close()
	}
	return nil
}

// foreignHostPorts refuses a host on which another program uses the CNI plugin portmap: Down could not
// tell whose rules are whose.
func foreignHostPorts(ctx context.Context) error {
	rules, err := exec.CommandContext(ctx, "iptables-save").Output()
	if err != nil {
		return fmt.Errorf("iptables-save: %w", err)
	}
	for _, prefix := range hostPortChains {
		if bytes.Contains(rules, []byte(prefix)) {
			return fmt.Errorf("iptables has chains %s..., which this command did not make: other containers have ports of the host", prefix)
		}
	}
	return nil
}

func (c *Cluster) foreignNode() error {
	if _, err := os.Lstat(partition.PinningFilePath); err == nil { // it may be a link to nothing
		return fmt.Errorf("%s exists, and this command did not write it: the host is already a node", partition.PinningFilePath)
	}
	// The names of the two cgroup drivers, cgroupfs and systemd.
	for _, name := range []string{"kubepods", "kubepods.slice"} {
		groups, err := topCgroups(name)
		if err != nil {
			return err
		}
		if len(groups) > 0 {
			return fmt.Errorf("%s exists, and this command did not make it: another kubelet runs here, or has left it; if none runs, remove it", groups[0])
		}
	}
	return nil
}

// prepare makes the directories, certificates, kubeconfigs, configuration files and the bridge.
func (c *Cluster) prepare(ctx context.Context) error {
	starting.Lock()
	defer starting.Unlock()
	if isEnding(c.Config.Paths.Data) {
		return errEnding
	}
	// The directory and the record come first: by them Down knows what to remove.
	if err := os.MkdirAll(c.Config.Paths.Data, 0o755); err != nil {
		return err
	}
	if c.Config.Temporary {
		if err := Own(c.Config.Paths.Data); err != nil {
			return err
		}
	}
	if err := c.rememberHost(); err != nil {
		return err
	}
	dirs := []string{c.Config.Paths.Run, c.data("logs"), c.Config.Paths.Manifests(), c.data("cni")}
	if !c.Config.WithoutNode {
		dirs = append(dirs, filepath.Dir(partition.PinningFilePath))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := c.writeCertificates(); err != nil {
		return err
	}
	if err := c.configureRuntime(); err != nil {
		return err
	}
	if !c.ownBridge() {
		return nil
	}
	bridge := c.Config.Network.Bridge
	for _, args := range [][]string{
		{"link", "add", bridge, "type", "bridge"},
		{"address", "add", c.Config.Node.Address + "/24", "dev", bridge},
		{"link", "set", bridge, "up"},
	} {
		if output, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args[0], err, output)
		}
	}
	return nil
}

// writeCertificates writes the certificates, keys and kubeconfigs.
func (c *Cluster) writeCertificates() error {
	authority, err := newPKI(c.pki(""))
	if err != nil {
		return err
	}
	if c.Config.Dedicated {
		if err := authority.keep(); err != nil {
			return err
		}
	}
	if err := authority.issue("kube-apiserver", pkix.Name{CommonName: "kube-apiserver"}, c.Config.Node.Address, firstAddress(c.Config.Network.Services), "127.0.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"); err != nil {
		return err
	}
	if err := authority.issue("kubelet-client", pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}}); err != nil {
		return err
	}
	// A separate authority: a client with its certificate can be any user.
	front, err := newPKI(c.pki("front-proxy"))
	if err != nil {
		return err
	}
	if err := front.issue("client", pkix.Name{CommonName: frontProxy}); err != nil {
		return err
	}
	// Another: a client with its certificate can write every object.
	etcd, err := newPKI(c.pki("etcd"))
	if err != nil {
		return err
	}
	for _, server := range []string{"server", "peer"} {
		if err := etcd.issue(server, pkix.Name{CommonName: "etcd"}, "127.0.0.1"); err != nil {
			return err
		}
	}
	if err := etcd.issue("client", pkix.Name{CommonName: "kube-apiserver-etcd-client"}); err != nil {
		return err
	}
	if err := authority.serviceAccountKey(); err != nil {
		return err
	}
	for path, user := range map[string][]string{
		c.Config.Paths.Kubeconfig():                  {"admin", "system:masters"},
		c.data("kubelet.kubeconfig"):                 {"system:node:" + c.Config.Node.Name, "system:nodes"},
		c.data("kube-controller-manager.kubeconfig"): {"system:kube-controller-manager"},
		c.data("kube-scheduler.kubeconfig"):          {"system:kube-scheduler"},
		c.data("kube-proxy.kubeconfig"):              {"system:kube-proxy"},
		c.data("kwok.kubeconfig"):                    {"kwok", "system:masters"},
	} {
		if err := authority.kubeconfig(path, c.server(c.Config.Ports.APIServer), user[0], user[1:]...); err != nil {
			return err
		}
	}
	return nil
}
