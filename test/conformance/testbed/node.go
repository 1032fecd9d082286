// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/partition"
)

// Node is a VM with a container runtime, in which upstream's tests of the kubelet run. They start a
// kubelet and their own control plane (test/e2e_node/services). Node is their program, as package
// specs wants it.
type Node struct {
	// Number is that of the VM.
	Number int
	// Topology is that of the VM's CPUs.
	Topology vm.Topology
	// Payload are the files of the VM, by their paths below /payload: those of [vm.Files], the tests as
	// e2e_node.test, the kubelet as Kubelet, and as Collector a program that calls [Collect].
	Payload map[string]string
	// Pinning is the content of the pinning file. Empty means that there is none.
	Pinning string
	// Progress is called with what is being done.
	Progress func(format string, args ...any)

	vm *vm.VM
	// stopped means that the VM no longer answers.
	stopped bool
}

// Kubelet and Collector are paths in the payload. The collector's arguments are the word collect, and what [Collect]
// wants.
const (
	Kubelet   = "bin/kubelet"
	Collector = "collector"
)

// nodeMemory is that of the VM in mebibytes.
const nodeMemory = 4096

// In the VM.
const (
	nodeDir    = "/var/lib/e2e_node"
	nodeReport = nodeDir + "/report.json"
)

// setUp prepares the VM for the tests. They start the kubelet in their directory, and use sudo, which the
// system has not; the user is root. Their kubelet is a unit whose name ends in the time.
//
// That kubelet looks its host's name up for the node's address. There is no DNS server, and each of the two
// times before it registers the node it would wait ten seconds for an answer. Meanwhile it tries to write the
// CSINode, gives up after twenty seconds, and goes on after two minutes (csi_plugin.go): so it depended on
// milliseconds whether the node became Ready in time.
const setUp = `
set -e
echo "$(ip -4 -oneline route get 10.0.2.2 | sed -E 's/.* src ([0-9.]+).*/\1/') $(hostname)" >>/etc/hosts
mkdir -p ` + nodeDir + `/logs /etc/systemd/system/kubelet-.service.d
touch ` + nodeDir + `/e2e_node.test ` + nodeDir + `/kubelet
mount --bind /payload/e2e_node.test ` + nodeDir + `/e2e_node.test
printf '#!/bin/sh\nexec "$@"\n' >/usr/local/bin/sudo
chmod +x /usr/local/bin/sudo
cat >/etc/systemd/system/kubelet-.service.d/controllers.conf <<'EOF'
[Service]
` + host.EnableControllers + `
EOF
systemctl daemon-reload
cat >` + nodeDir + `/kubelet.yaml <<'EOF'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
cgroupRoot: /
podCIDR: 10.100.0.0/24
volumeStatsAggPeriod: 10s
fileCheckFrequency: 10s
evictionPressureTransitionPeriod: 30s
evictionHard: {memory.available: 250Mi, nodefs.available: 10%, nodefs.inodesFree: 5%}
evictionMinimumReclaim: {nodefs.available: 5%, nodefs.inodesFree: 5%}
serializeImagePulls: false
EOF
`

// endpoint is that of the runtime.
var endpoint = "unix://" + host.DefaultPaths.Run + "/containerd.sock"

var collector = "systemd-run --quiet --unit=collector /payload/" + Collector + " collect " + endpoint + " /sys/fs/cgroup\n"

// Describe returns what results depend on besides the payload.
func (n *Node) Describe() string {
	return fmt.Sprint(n.Pinning, nodeMemory, n.Topology, setUp, collector, collectPeriod, arguments)
}

// OwnVMs makes this process the one that has all VMs of this host, and removes what a process has left
// that was killed. release removes all VMs.
func OwnVMs() (release func() error, err error) {
	left, unlock, err := host.Take(vm.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unlock())
		}
	}()
	if left {
		if err := vm.Down(); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(vm.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := host.Own(vm.Dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(vm.Dir))
	}
	return func() error { return errors.Join(vm.Down(), unlock()) }, nil
}

// Up starts the VM.
func (n *Node) Up(ctx context.Context) error {
	n.vm = vm.New(vm.Config{Number: n.Number, Memory: nodeMemory, Topology: n.Topology, Payload: n.Payload, Progress: n.Progress})
	if err := n.vm.Create(ctx); err != nil {
		return err
	}
	if err := n.vm.StartRuntime(ctx, host.Config{}); err != nil {
		return err
	}
	if n.Pinning != "" {
		if err := n.vm.Write(ctx, partition.PinningFilePath, []byte(n.Pinning)); err != nil {
			return err
		}
	}
	_, err := n.vm.Run(ctx, setUp+collector+"mount --bind /payload/"+Kubelet+" "+nodeDir+"/kubelet")
	return err
}

// Down removes the VM.
func (n *Node) Down(context.Context) error { return n.vm.Remove() }

// SaveLogs copies the console, the logs of the kubelet and those of systemd's services to a directory.
func (n *Node) SaveLogs(to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	var errs []error
	for name, file := range map[string]string{"console.log": n.vm.Console(), "qemu.log": n.vm.Log()} {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o644)
		}
		errs = append(errs, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, script := range map[string]string{"logs.tar.gz": "tar -cz --ignore-failed-read -C " + nodeDir + " logs", "journal.log": "journalctl --no-pager -o short-precise"} {
		file, err := os.Create(filepath.Join(to, name))
		if err == nil {
			err = errors.Join(n.vm.Stream(ctx, script, nil, file), file.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (n *Node) String() string { return "e2e_node.test" }

// tidy ends what a process that was killed has left: its children, and the kubelet, whose next one may have other
// policies and would not start on these checkpoints.
const tidy = "pkill -KILL e2e_node.test; systemctl stop 'kubelet-*.service'; rm -f /var/lib/kubelet/{cpu,memory}_manager_state " + nodeReport

// arguments are those of each run. The logs of the kubelet add up.
const arguments = nodeDir + "/e2e_node.test --kubelet-config-file=" + nodeDir + "/kubelet.yaml --prepull-images=false --report-dir=" + nodeDir + "/logs --ginkgo.json-report=" + nodeReport

// Run runs the tests in the VM. If the VM has stopped, Run starts another one first.
func (n *Node) Run(ctx context.Context, log io.Writer, args ...string) (report []byte, err error) {
	if n.stopped {
		n.Progress("the VM has stopped; starting another one")
		if err := n.Up(ctx); err != nil {
			return nil, err
		}
		n.stopped = false
	}
	defer func() { n.stopped = errors.Is(err, vm.ErrStopped) }()
	if _, err := n.vm.Run(ctx, tidy); err != nil {
		return nil, err
	}
	command := arguments + " --container-runtime-endpoint=" + endpoint
	for _, arg := range args {
		command += " '" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	runErr := n.vm.Stream(ctx, "cd "+nodeDir+" && exec "+command+" 2>&1", nil, log)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(runErr, vm.ErrStopped) {
		return nil, runErr
	}
	text, err := n.vm.Run(ctx, "cat "+nodeReport)
	if err != nil {
		return nil, errors.Join(runErr, err)
	}
	return []byte(text), runErr
}

// NodeLimit is how long a process of these tests may take, and NodeLimitEach how much longer for each spec: that of the
// topology manager takes ten minutes, and others one. Under emulation a process begins in a minute, so it runs
// NodeBatch of them. It begins NodeSetUps times at most: on a slow host a kubelet may take so long to
// register its node that it gives up on the CSINode, and the node does not become Ready.
const (
	NodeLimit     = 40 * time.Minute
	NodeLimitEach = 2 * time.Minute
	NodeBatch     = 13
	NodeSetUps    = 3
)
