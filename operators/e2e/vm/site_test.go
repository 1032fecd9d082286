// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/operators/e2e/internal/rig"
)

const (
	// dropIns is the --config-dir that prepare gives a kubelet.
	dropIns = "/etc/kubernetes/kubelet.conf.d"
	agent   = "/payload/partition-agent cpu-policy "
	// pinning is each node's file.
	pinning = `{"management": {"cpuset": "0"}}`
)

// Each VM of cpupolicy has four CPUs, and the pool has the first.
var (
	topology = vm.Topology{Sockets: 1, Cores: 4, Threads: 1}
	pool     = cpuset.New(0)
	shared   = cpuset.New(1, 2, 3)
)

// row is a behaviour. It begins on nodes as they were made, with their first policy and without pods of tests, and leaves
// them so.
type row struct {
	name string
	run  func(*testing.T, *site)
}

// site has the nodes, each in a VM that is booted when the first row asks for it.
type site struct {
	// t is the test of all rows.
	t       *testing.T
	nodes   [2]*node
	overlay string
}

// node is a VM with a node in it.
type node struct {
	*rig.Node
	vm *vm.VM
}

// runRows runs the rows of a companion that have not passed yet, one after another. One that fails leaves nodes of
// which the next one knows nothing, so it is the last; another run boots new ones. Those of tuning begin with what they need,
// whatever the node has.
func runRows(t *testing.T, of string, rows []row) {
	if companion != "" && companion != of {
		t.Skipf("the rows of %s were asked for", companion)
	}
	s := &site{t: t}
	for _, row := range rows {
		stamp := filepath.Join(passed, strings.ReplaceAll(row.name, " ", "-"))
		if when, err := os.ReadFile(stamp); err == nil && passed != "" {
			t.Logf("%s: passed before, %s", row.name, when)
			continue
		}
		begin := time.Now()
		asked := false // a row that -run does not ask for passes, too
		if !t.Run(row.name, func(t *testing.T) {
			progress("%s", row.name)
			asked = true
			row.run(t, s)
		}) {
			if of == "tuning" {
				continue
			}
			t.FailNow()
		}
		if passed == "" || !asked {
			continue
		}
		if err := os.WriteFile(stamp, fmt.Appendf(nil, "%s, in %s", time.Now().UTC().Format(time.RFC3339), time.Since(begin).Round(time.Second)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// first returns the node that has the control plane of the cluster and the companion.
func (s *site) first() *node {
	if s.nodes[0] != nil {
		return s.nodes[0]
	}
	n := s.start("cpupolicy", topology, host.Config{Pinning: pinning, CPUManagerPolicy: "none"})
	n.prepare(s.t)
	progress("installing the companion")
	s.overlay = n.Install(s.t, "../..", "kubelet")
	n.WaitFor(s.t, n.Limit, "the node is observed", func() error { return n.Labelled(s.t, "false") })
	n.CreateNamespace(s.t)
	s.nodes[0] = n
	return n
}

// start boots the first VM, and makes it the node of a cluster for a companion.
func (s *site) start(companion string, topology vm.Topology, config host.Config) *node {
	n := s.boot(1, topology)
	kubeconfig, err := n.vm.StartCluster(s.t.Context(), config)
	if err != nil {
		s.t.Fatal(err)
	}
	n.Cluster = &rig.Cluster{
		Kubectl: filepath.Join(files.Bin, "kubectl"), Kubeconfig: kubeconfig, Images: images, Controller: controller, Companion: companion,
		Pause: 500 * time.Millisecond, Limit: 5 * time.Minute, SwitchLimit: 8 * time.Minute,
	}
	if n.Client, err = n.vm.Client(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			n.Tell(s.t)
		}
	})
	return n
}

// second returns a further node of that cluster. Both are then nodes of the control plane, as far as
// their labels say.
func (s *site) second() *node {
	if s.nodes[1] != nil {
		return s.nodes[1]
	}
	first := s.first()
	n := s.boot(2, topology)
	n.Cluster = first.Cluster
	if err := n.vm.Join(s.t.Context(), first.vm, host.Config{Pinning: pinning, CPUManagerPolicy: "none"}); err != nil {
		s.t.Fatal(err)
	}
	n.prepare(s.t)
	n.WaitFor(s.t, n.Limit, "the node is observed", func() error { return n.Labelled(s.t, "false") })
	for _, name := range []string{first.Name, n.Name} {
		n.Call(s.t, "label", "node", name, "node-role.kubernetes.io/control-plane=")
	}
	s.nodes[1] = n
	return n
}

// boot boots a VM.
func (s *site) boot(number int, topology vm.Topology) *node {
	m := vm.New(vm.Config{Number: number, Topology: topology, Payload: payload, Progress: progress})
	s.t.Cleanup(func() {
		if err := m.Remove(); err != nil {
			s.t.Error(err)
		}
	})
	if err := m.Create(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return &node{vm: m, Node: &rig.Node{
		Name: m.Name(), Shell: m.Run, DropIns: dropIns, KubeletDir: filepath.Join(host.Dir, "kubelet"),
		CPUs: func(ctx context.Context, pod *corev1.Pod) (string, error) {
			_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
			return m.Run(ctx, "cat $(find /sys/fs/cgroup/kubepods.slice -name cri-containerd-"+id+".scope)/cpuset.cpus.effective")
		},
	}}
}

// prepare does what a person does before the first switch, gives the runtime the images, and has the
// kubelet write to systemd's journal, as usual. Without prepare each switch is refused.
func (n *node) prepare(t *testing.T) {
	t.Helper()
	n.Run(t, `mkdir -p /etc/systemd/system/kubelet.service.d
printf '[Service]\nStandardOutput=journal\nStandardError=journal\n' > /etc/systemd/system/kubelet.service.d/10-journal.conf
systemctl daemon-reload`)
	if before := n.observe(t); !strings.Contains(before, "the kubelet has no --config-dir; run: partition-agent cpu-policy prepare") {
		t.Errorf("a kubelet without --config-dir is observed as %s", before)
	}
	t.Log(n.Run(t, agent+"prepare"))
	n.restart(t)
}

// observe returns what the agent sees.
func (n *node) observe(t *testing.T) string {
	t.Helper()
	return n.Run(t, agent+"observe 2>&1 || true")
}

// restart restarts the kubelet, with what is new in its unit, and waits until it is healthy.
func (n *node) restart(t *testing.T) {
	t.Helper()
	n.Run(t, "systemctl daemon-reload && systemctl restart kubelet")
	n.WaitFor(t, n.Limit, "the kubelet is healthy", func() error {
		_, err := n.Shell(t.Context(), "busybox wget -q -O - http://127.0.0.1:10248/healthz")
		return err
	})
}

// reset cuts the VM's power, and boots it again.
func (n *node) reset(t *testing.T) {
	t.Helper()
	if err := n.vm.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if err := n.vm.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// write writes a file of the node.
func (n *node) write(t *testing.T, path, content string) {
	t.Helper()
	if err := n.vm.Write(t.Context(), path, []byte(content)); err != nil {
		t.Fatal(err)
	}
}

// kubelet returns the process of the kubelet.
func (n *node) kubelet(t *testing.T) string {
	t.Helper()
	return n.Run(t, "systemctl show --value --property=MainPID kubelet")
}
