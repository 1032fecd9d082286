// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"
)

// Config says what to run.
type Config struct {
	// Bin has the Kubernetes binaries. Kubelet and APIServer, if set, are run instead
	// of Bin's.
	Bin, Kubelet, APIServer string
	// Tools has etcd, containerd, its shim and ctr, runc and the CNI plugins, and kwok if
	// Controllers has it.
	Tools string
	// Tree is the release's source tree, for the pause program.
	Tree string
	// Pinning is the content of the pinning file. Empty means that there is no file.
	Pinning string
	// CPUManagerPolicy is the kubelet's; empty means static.
	CPUManagerPolicy string
	// StaticPodURL is a second source of static pods; it may be empty.
	StaticPodURL string
	// RuntimeSocket is what the kubelet uses in place of containerd's; it may be empty.
	RuntimeSocket string
	// WithoutNode leaves out containerd, the kubelet and kube-proxy. Such clusters can be on a
	// host next to each other, and next to one with a node, if their Paths, Ports and Network
	// differ; see [Config.Beside].
	WithoutNode bool
	// RuntimeAlone leaves out all but containerd, for a kubelet that another program starts.
	RuntimeAlone bool
	// Controllers are the components, by their names, that run with etcd and kube-apiserver.
	// Nil means kube-controller-manager and, with a node, kube-scheduler. There is kwok, too,
	// for simulated nodes.
	Controllers []string
	// AdmissionConfiguration is the content of kube-apiserver's file of that kind; it
	// may be empty.
	AdmissionConfiguration string
	// ControlPlaneType, if set, has etcd and the control plane run as static pods that
	// ask for this workload type, and not as processes.
	ControlPlaneType string
	// ControlPlaneImages is a directory that images build has written. These pods, but etcd's, then
	// run its images, and not the host's programs. It may be empty.
	ControlPlaneImages string
	// WithoutProxy leaves out kube-proxy, which another program then runs on the node.
	WithoutProxy bool
	// HostPorts has containers get the ports of the host that they ask for.
	HostPorts bool
	// Mirrors are the URLs of registries that containerd asks in place of others, such as
	// registry.k8s.io, by the names of these.
	Mirrors map[string]string
	// Paths, Ports and Network are what the cluster has on this host. Their zero fields mean
	// those of [DefaultPaths], [DefaultPorts] and [DefaultNetwork].
	Paths   Paths
	Ports   Ports
	Network Network
	// Node is how the cluster knows this node.
	Node Node
	// Supervisor is what runs the components; its zero value means [Unsupervised].
	Supervisor Supervisor
	// Durable makes etcd wait for its disk, for a host that may lose its power.
	Durable bool
	// CgroupDriver is the kubelet's and the runtime's; its zero value means [Cgroupfs].
	CgroupDriver CgroupDriver
	// Dedicated means that the host belongs to the cluster. The kubelet then measures file
	// systems, and the authority's key is kept, so that other hosts can join.
	Dedicated bool
	// Slow is for a host whose CPUs may be emulated: components get more time to become
	// ready, and are asked less often, since each question takes CPU time, too.
	Slow bool
	// Temporary means that the cluster must end with this process ([Own]).
	Temporary bool
	// NRI has containerd listen to NRI plugins at [Cluster.NRISocket].
	NRI bool
	// Images is a directory of archives of [image.Save]. If it is empty, Up makes them.
	Images string
	// KubeletConfiguration is added to the kubelet's; it may be empty.
	KubeletConfiguration string
	// ReconcilePeriod is the time after which the CPU manager looks at each container again. Zero
	// means 2 s, a fifth of the kubelet's default.
	ReconcilePeriod time.Duration
	// WithoutReservation leaves the kubelet without kubeReserved, as installers do whose
	// only reservation is the pinning file.
	WithoutReservation bool
	// Join, if set, is the URL of the kube-apiserver of another host, from which the
	// certificate authority ([Paths.Authority]) was copied to the same paths here: this host then
	// has a node and no control plane.
	Join string
	// Progress is called with what is being done; it may be nil.
	Progress func(format string, args ...any) `json:"-"`
}

// Supervisor is what runs the components of a cluster.
type Supervisor string

const (
	// Unsupervised components are processes that outlive the command. Nothing starts them again
	// when they fail, or when the host boots.
	Unsupervised Supervisor = ""
	// Systemd starts components again when they fail, and when the host boots.
	Systemd Supervisor = "systemd"
)

// CgroupDriver is what makes the cgroups of pods.
type CgroupDriver string

// The drivers, as the kubelet's configuration calls them.
const (
	Cgroupfs      CgroupDriver = "cgroupfs"
	SystemdDriver CgroupDriver = "systemd"
)

// OnDedicatedHost returns the configuration for a host that is the cluster's own, has
// systemd, and may lose its power: a VM. A CgroupDriver that is set stays.
func (c Config) OnDedicatedHost() Config {
	c.Supervisor, c.Durable, c.Dedicated, c.Slow = Systemd, true, true, true
	c.CgroupDriver = cmp.Or(c.CgroupDriver, SystemdDriver)
	return c
}

// NodeName is the default name of a node.
const NodeName = "partitioned"

// Node describes the node of a host to the cluster.
type Node struct {
	// Name of the node; empty means [NodeName].
	Name string
	// Address is one of the host's. Empty means that of the bridge, which Up then makes.
	Address string
	// PodNet is the network of the node's pods: 24 bits, such as 10.247.1.0/24. Empty means
	// that of the bridge.
	PodNet string
}

// Paths are the directories of a cluster. Down removes them with all that is in them.
type Paths struct {
	// Data has the state of etcd, containerd and the kubelet, and certificates, configuration
	// and logs.
	Data string
	// Run has sockets and the files of running processes. Its path must be short: that of a
	// socket has at most 107 bytes.
	Run string
	// UnitPrefix begins the names of systemd units; it may be empty.
	UnitPrefix string
}

// DefaultPaths are those of the cluster that has the host's node.
var DefaultPaths = Paths{Data: "/var/lib/workload-partitioning", Run: "/run/workload-partitioning"}

// Kubeconfig is the administrator's.
func (p Paths) Kubeconfig() string { return filepath.Join(p.Data, "admin.kubeconfig") }

// Manifests is the directory in which the kubelet looks for static pods.
func (p Paths) Manifests() string { return filepath.Join(p.Data, "manifests") }

// Authority returns the files of the certificate authority. Only a dedicated host keeps the
// key.
func (p Paths) Authority() []string {
	return []string{filepath.Join(p.Data, "pki", "ca.crt"), filepath.Join(p.Data, "pki", "ca.key")}
}

// The paths in [DefaultPaths].
var (
	// Dir has the state, configuration and logs of the cluster.
	Dir = DefaultPaths.Data
	// Kubeconfig is the administrator's.
	Kubeconfig = DefaultPaths.Kubeconfig()
	// ManifestDir is where the kubelet looks for static pods.
	ManifestDir = DefaultPaths.Manifests()
)

// Ports are those on which the control plane listens. The kubelet and kube-proxy use their
// usual ports, since a host has one node.
type Ports struct {
	// Of the loopback interface.
	Etcd, EtcdPeer, ControllerManager, Scheduler int
	// Of the node's address.
	APIServer, SecondAPIServer int
}

// DefaultPorts are the usual ones, except etcd's, which another etcd of the host may use.
var DefaultPorts = Ports{Etcd: 23790, EtcdPeer: 23800, ControllerManager: 10257, Scheduler: 10259, APIServer: 6443, SecondAPIServer: 6444}

// fields returns the ports in the order in which Up looks whether they are free.
func (p *Ports) fields() []*int {
	return []*int{&p.APIServer, &p.SecondAPIServer, &p.Etcd, &p.EtcdPeer, &p.ControllerManager, &p.Scheduler}
}

// Network is the cluster's own, so that the cluster does not depend on other addresses of the
// host.
type Network struct {
	// Bridge is the name of the interface that connects the pods of this host.
	Bridge string
	// Pods is the bridge's network: 24 bits, of which the bridge has the first address.
	Pods string
	// Services is the network of Services, with 24 bits, too.
	Services string
}

// DefaultNetwork is that of the cluster that has the host's node.
var DefaultNetwork = Network{Bridge: "wp0", Pods: "10.247.0.0/24", Services: "10.247.128.0/24"}

// beside begins the names, in the directories of a cluster, of those of control planes next to it.
const beside = "beside-"

// Beside returns the configuration of a control plane without a node that shares the host with
// a cluster of this configuration. Control planes of different numbers, 1 to 50, share it with
// each other, too. Their directories are in the cluster's, whose Down ends them with it.
func (c Config) Beside(number int) Config {
	c = c.withDefaults()
	name := beside + strconv.Itoa(number)
	c.WithoutNode, c.Controllers, c.Node, c.Join, c.ControlPlaneType = true, nil, Node{}, "", ""
	c.Paths.Data, c.Paths.Run = filepath.Join(c.Paths.Data, name), filepath.Join(c.Paths.Run, name)
	c.Paths.UnitPrefix += name + "-"
	for _, port := range c.Ports.fields() {
		// No two ports of a cluster, a kubelet and kube-proxy end in the same two digits.
		*port += 100 * number
	}
	c.Network = Network{Bridge: fmt.Sprintf("%s-%d", c.Network.Bridge, number), Pods: fmt.Sprintf("10.249.%d.0/24", number), Services: fmt.Sprintf("10.249.%d.0/24", 128+number)}
	return c.withDefaults()
}

// firstAddress returns the first address of a network. It returns a text that is not a network
// unchanged, for a program to complain about.
func firstAddress(network string) string {
	prefix, err := netip.ParsePrefix(network)
	if err != nil {
		return network
	}
	return prefix.Masked().Addr().Next().String()
}

// withDefaults fills in empty fields.
func (c Config) withDefaults() Config {
	c.Paths.Data = cmp.Or(c.Paths.Data, DefaultPaths.Data)
	c.Paths.Run = cmp.Or(c.Paths.Run, DefaultPaths.Run)
	for i, port := range c.Ports.fields() {
		*port = cmp.Or(*port, *DefaultPorts.fields()[i])
	}
	if c.Controllers == nil {
		c.Controllers = []string{"kube-controller-manager"}
		if !c.WithoutNode {
			c.Controllers = append(c.Controllers, "kube-scheduler")
		}
	}
	c.Network.Bridge = cmp.Or(c.Network.Bridge, DefaultNetwork.Bridge)
	c.Network.Pods = cmp.Or(c.Network.Pods, DefaultNetwork.Pods)
	c.Network.Services = cmp.Or(c.Network.Services, DefaultNetwork.Services)
	c.Node.Name = cmp.Or(c.Node.Name, NodeName)
	c.Node.Address = cmp.Or(c.Node.Address, firstAddress(c.Network.Pods))
	c.Node.PodNet = cmp.Or(c.Node.PodNet, c.Network.Pods)
	return c
}
