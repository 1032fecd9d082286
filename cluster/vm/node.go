// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
)

// Files are what a node in a VM runs.
type Files struct {
	// Bin has the Kubernetes binaries, Tools what runs with them, and Tree the source of
	// the pause program.
	Bin, Tools, Tree string
	// Cluster is the path of the command cluster; empty means that of the running program.
	Cluster string
	// More are further files, by their paths below /payload.
	More map[string]string
	// images is a directory with image archives.
	images string
}

// Payload returns the files, by their paths below /payload in a VM. Close removes those that
// Payload has made; a VM that was created has its own copies.
func (f *Files) Payload(ctx context.Context) (payload map[string]string, err error) {
	payload = map[string]string{"cluster": f.Cluster}
	if f.Cluster == "" {
		if payload["cluster"], err = os.Executable(); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"} {
		payload["bin/"+name] = filepath.Join(f.Bin, name)
	}
	for _, name := range []string{"etcd", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local", "loopback", "portmap"} {
		payload["tools/"+name] = filepath.Join(f.Tools, name)
	}
	for name, file := range f.More {
		payload[name] = file
	}
	if f.images, err = os.MkdirTemp("", "workload-partitioning-images-"); err != nil {
		return nil, err
	}
	if err := image.Save(ctx, f.Tree, f.images); err != nil {
		return nil, err
	}
	archives, err := filepath.Glob(filepath.Join(f.images, "*.tar"))
	for _, archive := range archives {
		payload["images/"+filepath.Base(archive)] = archive
	}
	return payload, err
}

// Close removes what Payload has made.
func (f *Files) Close() error { return os.RemoveAll(f.images) }

// StartCluster makes the VM a node of a cluster and waits until the node is Ready. It sets the paths
// and the node in the configuration. It returns the kubeconfig for clients on this host.
func (vm *VM) StartCluster(ctx context.Context, config host.Config) (kubeconfig string, err error) {
	if !vm.linked() {
		return "", fmt.Errorf("VM number %d: a cluster needs an address, and only 1 and 2 have one", vm.Config.Number)
	}
	if err := vm.startNode(ctx, config); err != nil {
		return "", err
	}
	return vm.Kubeconfig(ctx)
}

// StartRuntime starts containerd in the VM, imports the images, and connects containers, for a kubelet
// that another program starts.
func (vm *VM) StartRuntime(ctx context.Context, config host.Config) error {
	config.RuntimeAlone = true
	return vm.startNode(ctx, config)
}

func (vm *VM) startNode(ctx context.Context, config host.Config) error {
	config = config.OnDedicatedHost()
	config.Bin, config.Tools, config.Images = "/payload/bin", "/payload/tools", "/payload/images"
	config.Node = host.Node{Name: vm.Name(), Address: vm.Address(), PodNet: "10.247." + strconv.Itoa(vm.Config.Number) + ".0/24"}
	data, err := json.Marshal(config)
	if err != nil {
		return err
	}
	// The error of Stream has what the command said about its progress.
	return vm.Stream(ctx, "/payload/cluster vm node", bytes.NewReader(data), os.Stderr)
}

// Join makes the VM a further node of the cluster whose control plane is in another VM, and waits
// until the node is Ready. The other VM must be running.
func (vm *VM) Join(ctx context.Context, other *VM, config host.Config) error {
	for _, file := range host.DefaultPaths.Authority() {
		content, err := other.Run(ctx, "cat "+file)
		if err != nil {
			return err
		}
		if err := vm.Write(ctx, file, []byte(content+"\n")); err != nil {
			return err
		}
	}
	config.Join = fmt.Sprintf("https://%s:%d", other.Address(), host.DefaultPorts.APIServer)
	_, err := vm.StartCluster(ctx, config)
	return err
}

// Kubeconfig writes the administrator's kubeconfig for clients on this host, and returns its path.
func (vm *VM) Kubeconfig(ctx context.Context) (string, error) {
	text, err := vm.Run(ctx, "cat "+host.Kubeconfig)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.Load([]byte(text))
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = fmt.Sprintf("https://127.0.0.1:%d", vm.state.API)
	}
	return vm.file("kubeconfig"), clientcmd.WriteToFile(*config, vm.file("kubeconfig"))
}

// Client returns an administrator's client of the kube-apiserver in the VM.
func (vm *VM) Client() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", vm.file("kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 100, 200
	return kubernetes.NewForConfig(config)
}

func (vm *VM) sshOptions(port string) string {
	return fmt.Sprintf("-i %s %s %d -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR", vm.state.Key, port, vm.state.SSH)
}

// ShellCommand returns the command that gives a user a shell in the VM.
func (vm *VM) ShellCommand() string { return "ssh " + vm.sshOptions("-p") + " root@127.0.0.1" }

// CopyCommand returns the command that copies a file into the VM.
func (vm *VM) CopyCommand() string { return "scp " + vm.sshOptions("-P") + " FILE root@127.0.0.1:" }
