// SPDX-License-Identifier: Apache-2.0

package scheduled

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/kubernetes/node/topology/topologytest"
	"workload.openshift.io/operators/internal/testenv"
	"workload.openshift.io/operators/numaresources"
)

// machine is imagined, and so are its containers. Its kubelet and its exporter are real.
type machine struct {
	name string
	// zones have so many CPUs and GiB of memory each.
	zones, cpus, memory int
	policy, scope       string
	// dir has the files of the machine and of the kubelet.
	dir     string
	runtime *recorder
}

// What a kubelet keeps back: a CPU of the first NUMA node, and memory of each in MiB.
const (
	reservedCPU    = 0
	reservedMemory = 1024
	evictionMemory = 100
)

func (m *machine) String() string {
	return fmt.Sprintf("%s, %s, %d NUMA nodes", m.policy, m.scope, m.zones)
}

// script has a program see an imagined machine, whose directory is all of the root file system that it can write to. Elsewhere, a kubelet would set
// sysctls, keep sockets and logs in directories that no setting names, and read a pinning file. The kernel forgets all mounts with the process.
const script = `set -e
cd "$1"
mount --bind "$1" "$1"
mount -o remount,bind,ro /
mount --bind "$1/sysfs/devices/system/cpu" /sys/devices/system/cpu
mount --bind "$1/sysfs/devices/system/node" /sys/devices/system/node
(cd proc && find . -type f) | while read -r file; do mount --bind "$1/proc/$file" "/proc/$file"; done
for directory in /var/lib /var/log /etc/kubernetes; do [ ! -d $directory ] || mount -t tmpfs none $directory; done
cd "$1"
shift
exec "$@"`

// sysctls are those that a kubelet wants, with what it wants them to be (k8s.io/component-helpers/node/util/sysctl).
var sysctls = map[string]string{"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}

// start starts the machine's kubelet, which ends with the test.
func (m *machine) start(t *testing.T, plane *testenv.ControlPlane) {
	t.Helper()
	// The path of a socket is short.
	dir, err := os.MkdirTemp(plane.Directory(), "m")
	if err != nil {
		t.Fatal(err)
	}
	m.dir, m.runtime = dir, record(t, filepath.Join(dir, "cri.sock"))
	sysfs := topologytest.Sysfs(t, topologytest.Host{Nodes: m.zones, CoresPerNode: m.cpus, ThreadsPerCore: 1, MemoryPerNode: int64(m.memory) << 30})
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	total := m.zones * m.memory << 20
	files := map[string]string{
		"kubelet.yaml":  m.configuration(dir, ports[0]),
		"exporter.yaml": "{}",
		"proc/meminfo":  fmt.Sprintf("MemTotal: %d kB\nMemFree: %[1]d kB\nMemAvailable: %[1]d kB\nSwapTotal: 0 kB\nSwapFree: 0 kB", total),
		"proc/swaps":    "Filename Type Size Used Priority",
		"proc/cpuinfo":  "",
	}
	for cpu := range m.zones * m.cpus {
		files["proc/cpuinfo"] += fmt.Sprintf("processor\t: %d\nvendor_id\t: Imagined\ncpu MHz\t\t: 2000.000\nphysical id\t: %d\ncore id\t\t: %d\n\n", cpu, cpu/m.cpus, cpu%m.cpus)
	}
	for name, value := range sysctls {
		files["proc/sys/"+name] = value
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(sysfs, filepath.Join(dir, "sysfs")); err != nil {
		t.Fatal(err)
	}
	testenv.RunFile(t, "unshare", "--map-root-user", "--mount", "--propagation=private", "sh", "-c", script, "sh", dir,
		testenv.Beside(t, "kubelet"), "--config="+filepath.Join(dir, "kubelet.yaml"), "--kubeconfig="+plane.Kubeconfig, "--hostname-override="+m.name,
		"--node-ip="+address(t), "--root-dir="+filepath.Join(dir, "root"), "--cert-dir="+dir)
}

// join waits for the kubelet, and starts the exporter.
func (m *machine) join(t *testing.T, plane *testenv.ControlPlane, exporter string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	testenv.Eventually(t, patience, func() error {
		if err := plane.Client.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		if !ready(node) {
			return fmt.Errorf("node %s is not ready: %v", m.name, node.Status.Conditions)
		}
		return nil
	})
	// kube-apiserver has tainted it, as one that is not ready.
	if err := plane.Client.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"taints": null}}`))); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: exporters, Name: m.name},
		Spec: corev1.PodSpec{
			ServiceAccountName: exportersAccount, NodeName: m.name, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "topology", Image: "partition-node"}},
		},
	}
	if err := plane.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	testenv.RunFile(t, exporter, "topology", "--kubeconfig="+plane.KubeconfigOf(t, plane.Token(t, exporters, exportersAccount, pod)),
		"--config="+filepath.Join(m.dir, "exporter.yaml"), "--podresources-socket="+filepath.Join(m.dir, "root/pod-resources/kubelet.sock"), "--sysfs="+filepath.Join(m.dir, "sysfs"),
		"--kubelet-host=127.0.0.1", fmt.Sprintf("--kubelet-port=%d", node.Status.DaemonEndpoints.KubeletEndpoint.Port), "--cluster-ca=", "--kubelet-certificate="+filepath.Join(m.dir, "kubelet.crt"))
}

// reported waits until the exporter says what the kubelet was told.
func (m *machine) reported(t *testing.T, plane *testenv.ControlPlane) {
	t.Helper()
	testenv.Eventually(t, patience, func() error {
		report := &v1alpha2.NodeResourceTopology{}
		if err := plane.Client.Get(t.Context(), client.ObjectKey{Name: m.name}, report); err != nil {
			return err
		}
		said := map[string]string{}
		for _, attribute := range report.Attributes {
			said[attribute.Name] = attribute.Value
		}
		if len(report.Zones) != m.zones || said[numaresources.AttributePolicy] != m.policy || said[numaresources.AttributeScope] != m.scope {
			return fmt.Errorf("%s has %d zones, and %v", m.name, len(report.Zones), said)
		}
		return nil
	})
}

// configuration is the kubelet's.
func (m *machine) configuration(dir string, port int) string {
	var reserved []string
	for zone := range m.zones {
		reserved = append(reserved, fmt.Sprintf("{numaNode: %d, limits: {memory: %dMi}}", zone, reservedMemory))
	}
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: %d
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://%s/cri.sock
podLogsDir: %[2]s/logs
volumePluginDir: %[2]s/plugins
# It touches neither cgroups nor the network.
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
oomScoreAdj: 0
featureGates: {KubeletInUserNamespace: true}
cpuManagerPolicy: static
reservedSystemCPUs: "%d"
memoryManagerPolicy: Static
reservedMemory: [%s]
systemReserved: {memory: %dMi}
evictionHard: {memory.available: %dMi}
topologyManagerPolicy: %s
topologyManagerScope: %s
`, port, dir, reservedCPU, strings.Join(reserved, ", "), m.zones*reservedMemory-evictionMemory, evictionMemory, m.policy, m.scope)
}

// address is one of this host that is not only its own: a kubelet wants no other for its Node.
func address(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if of, is := one.(*net.IPNet); is && of.IP.IsGlobalUnicast() {
			return of.IP.String()
		}
	}
	t.Skip("a kubelet needs an address for its Node that other hosts could reach")
	return ""
}
