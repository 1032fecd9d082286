// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/partition"
)

// describe sets the program and the arguments of each component.
func (c *Cluster) describe() {
	kubelet := cmp.Or(c.Config.Kubelet, filepath.Join(c.Config.Bin, "kubelet"))
	path := []string{"PATH=" + c.Config.Tools + ":" + os.Getenv("PATH")}
	client, peer := c.EtcdURL(), fmt.Sprintf("https://127.0.0.1:%d", c.Config.Ports.EtcdPeer)
	etcd := []string{c.tool("etcd"), "--name=etcd", "--data-dir=" + c.data("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd=" + peer,
		"--cert-file=" + c.pki("etcd/server.crt"), "--key-file=" + c.pki("etcd/server.key"), "--client-cert-auth", "--trusted-ca-file=" + c.pki("etcd/ca.crt"),
		// Its gateway from JSON is a client of it.
		"--client-cert-file=" + c.pki("etcd/client.crt"), "--client-key-file=" + c.pki("etcd/client.key"),
		"--peer-cert-file=" + c.pki("etcd/peer.crt"), "--peer-key-file=" + c.pki("etcd/peer.key"), "--peer-client-cert-auth", "--peer-trusted-ca-file=" + c.pki("etcd/ca.crt")}
	if !c.Config.Durable {
		etcd = append(etcd, "--unsafe-no-fsync")
	}
	c.Etcd = c.component(program{name: "etcd", args: etcd})
	c.Containerd = c.component(program{name: "containerd", args: []string{c.tool("containerd"), "--config=" + c.data("containerd.toml")}, env: path,
		// With Delegate, systemd enables the controllers at the root of all cgroups.
		service: []string{"Delegate=yes", "KillMode=process", "TasksMax=infinity", "OOMScoreAdjust=-999"}})
	c.APIServer = c.component(program{name: "kube-apiserver", args: c.apiServerArgs(c.Config.Ports.APIServer, "audit.log")})
	if c.Config.APIServer != "" {
		c.APIServer.Args()[0] = c.Config.APIServer
	}
	c.SecondAPIServer = c.component(program{name: "kube-apiserver-2", args: c.apiServerArgs(c.Config.Ports.SecondAPIServer, "audit-2.log")})
	var rate []string
	if slices.Contains(c.Config.Controllers, "kwok") {
		// By default kube-controller-manager sends 20 requests a second, and takes minutes to remove
		// the first taints of a thousand nodes.
		rate = []string{"--kube-api-qps=5000", "--kube-api-burst=5000"}
	}
	c.ControllerManager = c.component(program{name: "kube-controller-manager", args: append([]string{filepath.Join(c.Config.Bin, "kube-controller-manager"),
		"--kubeconfig=" + c.data("kube-controller-manager.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.Config.Ports.ControllerManager), "--cert-dir=" + c.pki("kube-controller-manager"),
		"--use-service-account-credentials", "--service-account-private-key-file=" + c.pki("service-account.key"), "--root-ca-file=" + c.pki("ca.crt"), "--v=2"}, rate...)})
	c.Scheduler = c.component(program{name: "kube-scheduler", args: append([]string{filepath.Join(c.Config.Bin, "kube-scheduler"),
		"--kubeconfig=" + c.data("kube-scheduler.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.Config.Ports.Scheduler), "--cert-dir=" + c.pki("kube-scheduler"), "--v=2"}, rate...)})
	c.Kwok = c.component(program{name: "kwok", args: []string{c.tool("kwok"), "--kubeconfig=" + c.data("kwok.kubeconfig"), "--config=" + c.tool("kwok-stages.yaml"),
		"--manage-nodes-with-annotation-selector=" + simulatedAnnotation + "=" + simulatedValue},
		// It reads kwok.yaml there, too, where a user may have settings for other clusters.
		env: []string{"KWOK_WORKDIR=" + c.Config.Paths.Data}})
	c.Proxy = c.component(program{name: "kube-proxy", args: []string{filepath.Join(c.Config.Bin, "kube-proxy"), "--config=" + c.data("kube-proxy.yaml")}})
	c.Kubelet = c.component(program{name: "kubelet", args: []string{kubelet, "--config=" + c.data("kubelet.yaml"), "--kubeconfig=" + c.data("kubelet.kubeconfig"),
		"--hostname-override=" + c.Config.Node.Name, "--node-ip=" + c.Config.Node.Address, "--root-dir=" + c.data("kubelet"), "--cert-dir=" + c.pki("kubelet"), "--v=2"}, env: path,
		service: []string{"KillMode=process", "OOMScoreAdjust=-999", "NotifyAccess=main", "WatchdogSec=30s", EnableControllers}})
}

// EnableControllers is a line for the unit of a kubelet. systemd does not know the hugetlb controller, and
// the kubelet requires all that the kernel has.
const EnableControllers = "ExecStartPre=/bin/sh -c '[ ! -e /sys/fs/cgroup/cgroup.controllers ] || echo +cpuset +cpu +io +memory +hugetlb +pids > /sys/fs/cgroup/cgroup.subtree_control'"

// frontProxy is kube-apiserver's name to extension API servers.
const frontProxy = "front-proxy-client"

func (c *Cluster) apiServerArgs(port int, auditLog string) []string {
	bind := c.Config.Node.Address
	if !c.ownBridge() { // the host's other addresses, too: those by which clients enter a VM
		bind = "0.0.0.0"
	}
	return []string{filepath.Join(c.Config.Bin, "kube-apiserver"),
		"--etcd-servers=" + c.EtcdURL(), "--etcd-cafile=" + c.pki("etcd/ca.crt"), "--etcd-certfile=" + c.pki("etcd/client.crt"), "--etcd-keyfile=" + c.pki("etcd/client.key"),
		"--bind-address=" + bind, "--advertise-address=" + c.Config.Node.Address, "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.pki("kube-apiserver.crt"), "--tls-private-key-file=" + c.pki("kube-apiserver.key"), "--client-ca-file=" + c.pki("ca.crt"), "--cert-dir=" + c.pki(""),
		"--kubelet-client-certificate=" + c.pki("kubelet-client.crt"), "--kubelet-client-key=" + c.pki("kubelet-client.key"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.pki("service-account.key"), "--service-account-signing-key-file=" + c.pki("service-account.key"),
		"--service-cluster-ip-range=" + c.Config.Network.Services, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		// Extension API servers know by these who asks.
		"--requestheader-client-ca-file=" + c.pki("front-proxy/ca.crt"), "--requestheader-allowed-names=" + frontProxy, "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--proxy-client-cert-file=" + c.pki("front-proxy/client.crt"), "--proxy-client-key-file=" + c.pki("front-proxy/client.key"),
		"--audit-policy-file=" + c.data("audit-policy.yaml"), "--audit-log-path=" + c.data("logs/"+auditLog), "--v=2",
		"--admission-control-config-file=" + c.data("admission.yaml")}
}

// WriteAdmissionConfiguration writes kube-apiserver's file of that kind, as Config has it.
func (c *Cluster) WriteAdmissionConfiguration() error {
	content := cmp.Or(c.Config.AdmissionConfiguration, "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: []\n")
	return os.WriteFile(c.data("admission.yaml"), []byte(content), 0o644)
}

// UseKubelet makes StartKubelet run another kubelet.
func (c *Cluster) UseKubelet(path string) {
	c.Config.Kubelet = path
	c.describe()
}

// UseAPIServer makes StartAPIServer run another kube-apiserver.
func (c *Cluster) UseAPIServer(path string) {
	c.Config.APIServer = path
	c.describe()
}

// Unprivileged reports whether root lacks CAP_SYS_RESOURCE, as in some VMs
// and containers. Then no process can lower OOM scores.
func Unprivileged() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0
}

// CgroupV1 reports whether the host has its controllers in cgroup v1.
func CgroupV1() bool { return !cgroups.IsCgroup2UnifiedMode() }

// configureRuntime writes the configuration of containerd, CNI, kube-proxy and the
// audit log.
func (c *Cluster) configureRuntime() error {
	for path, content := range c.runtimeFiles() {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// runtimeFiles returns the files of configureRuntime, by their paths.
func (c *Cluster) runtimeFiles() map[string]string {
	containerd := fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q
[grpc]
  address = %[3]q
[plugins.'io.containerd.nri.v1.nri']
  disable = %[10]t
  socket_path = %[11]q
  plugin_path = %[12]q
  plugin_config_path = %[12]q
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %[4]q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = %[5]t
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[6]q]
    conf_dir = %[7]q
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = %[8]q
      SystemdCgroup = %[9]t
`, c.data("containerd"), filepath.Join(c.Config.Paths.Run, "containerd"), c.socket(), image.Pause, Unprivileged(), c.Config.Tools, c.data("cni"), c.tool("runc"), c.CgroupDriver() == SystemdDriver,
		!c.Config.NRI, c.NRISocket(), c.data("nri"))
	if len(c.Config.Mirrors) > 0 {
		containerd += fmt.Sprintf("[plugins.'io.containerd.cri.v1.images'.registry]\n  config_path = %q\n", c.data("registries"))
	}
	var hostPorts string
	if c.Config.HostPorts {
		hostPorts = `,
  {"type": "portmap", "capabilities": {"portMappings": true}}`
	}
	network := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "partitioned", "plugins": [
  {"type": "bridge", "bridge": %q, "isGateway": true, "ipam":
    {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}%s
]}
`, c.Config.Network.Bridge, filepath.Join(c.Config.Paths.Run, "cni"), c.Config.Node.PodNet, hostPorts)
	proxy := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection:
  kubeconfig: %s
hostnameOverride: %s
clusterCIDR: %s
mode: iptables
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
`, c.data("kube-proxy.kubeconfig"), c.Config.Node.Name, c.Config.Node.PodNet)
	const audit = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch]
  resources: [{group: "", resources: [pods, pods/status]}]
- level: None
`
	files := map[string]string{
		c.data("containerd.toml"): containerd, c.data("cni/10-partitioned.conflist"): network,
		c.data("kube-proxy.yaml"): proxy, c.data("audit-policy.yaml"): audit,
	}
	for registry, mirror := range c.Config.Mirrors {
		files[c.data(filepath.Join("registries", registry, "hosts.toml"))] = fmt.Sprintf("server = %[1]q\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", mirror)
	}
	return files
}

// pinningCopy is next to the record.
const pinningCopy = "pinning"

// Description returns how the components are configured: their arguments and files. It is the same wherever the
// programs are.
func (c *Cluster) Description() string {
	files := c.runtimeFiles()
	files[c.data("kubelet.yaml")] = c.kubeletConfiguration()
	var text strings.Builder
	for _, component := range c.components() {
		fmt.Fprintln(&text, strings.Join(component.Args(), " "))
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&text, "%s\n%s\n", path, files[path])
	}
	var places []string
	for _, dir := range []string{c.Config.Bin, c.Config.Tools, c.Config.Tree} {
		if dir != "" {
			places = append(places, dir, "")
		}
	}
	return strings.NewReplacer(places...).Replace(text.String())
}

// configureKubelet writes the kubelet's configuration and the pinning file.
func (c *Cluster) configureKubelet() error {
	if err := os.WriteFile(c.data("kubelet.yaml"), []byte(c.kubeletConfiguration()), 0o644); err != nil {
		return err
	}
	if c.Config.Pinning == "" {
		if err := os.Remove(partition.PinningFilePath); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	// The copy tells Down after a reboot whether the file is ours.
	if err := os.WriteFile(c.data(pinningCopy), []byte(c.Config.Pinning), 0o600); err != nil {
		return err
	}
	return os.WriteFile(partition.PinningFilePath, []byte(c.Config.Pinning), 0o600)
}

// kubeletConfiguration returns the content of the kubelet's file of that kind.
func (c *Cluster) kubeletConfiguration() string {
	runtime := cmp.Or(c.Config.RuntimeSocket, c.socket())
	policy := cmp.Or(c.Config.CPUManagerPolicy, "static")
	// A start is over once the kubelet has reported. Without a change it waits for its turn.
	report := time.Second
	if c.Config.Slow {
		report = 5 * time.Second
	}
	var config strings.Builder
	fmt.Fprintf(&config, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %s}
authorization: {mode: Webhook}
cgroupDriver: %s
containerRuntimeEndpoint: unix://%s
cpuManagerPolicy: %s
cpuManagerReconcilePeriod: %s
evictionHard: {memory.available: 300Mi}
failSwapOn: false
fileCheckFrequency: 2s
nodeStatusReportFrequency: %s
nodeStatusUpdateFrequency: %[6]s
staticPodPath: %s
syncFrequency: 10s
`, c.pki("ca.crt"), c.CgroupDriver(), runtime, policy, cmp.Or(c.Config.ReconcilePeriod, 2*time.Second), report, c.Config.Paths.Manifests())
	if !c.Config.WithoutReservation {
		config.WriteString("kubeReserved: {cpu: 500m} # the static policy requires some; the CPUs of pools replace it\n")
	}
	config.WriteString(c.Config.KubeletConfiguration)
	if c.Config.StaticPodURL != "" {
		fmt.Fprintf(&config, "staticPodURL: %s\nhttpCheckFrequency: 2s\n", c.Config.StaticPodURL)
	}
	if !c.Config.Dedicated {
		// The root file system of a container may have no statistics, without which the kubelet
		// evicts nothing.
		config.WriteString("localStorageCapacityIsolation: false\n")
	}
	if CgroupV1() {
		config.WriteString("failCgroupV1: false\n")
	}
	if Unprivileged() {
		config.WriteString("featureGates: {KubeletInUserNamespace: true}\n")
	}
	return config.String()
}
