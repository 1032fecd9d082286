package machine

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
)

// Files are what a node in a machine runs.
type Files struct {
	// Bin has the Kubernetes binaries, Tools what runs beside them, and Tree the source of
	// the pause program.
	Bin, Tools, Tree string
	// Cluster is our own command, for a machine; empty means the program that runs.
	Cluster string
	// More are further files, by their paths below /payload.
	More map[string]string
	// images is a folder with archives.
	images string
}

// Payload returns the files by their paths in a machine. Close removes those that were
// made for it; a machine that was created keeps its own copies.
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
	if err := host.SaveImages(ctx, f.Tree, f.images); err != nil {
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

// StartCluster makes the machine a node of a cluster, as the configuration says, whose
// paths and node it sets, and waits until it is Ready. It returns the file with which a
// client on this host reaches the cluster's API.
func (m *Machine) StartCluster(ctx context.Context, config host.Config) (kubeconfig string, err error) {
	config.Systemd = true
	config.Bin, config.Tools, config.Images = "/payload/bin", "/payload/tools", "/payload/images"
	config.Node = host.Node{Name: m.Name(), Address: m.Address(), PodNet: "10.247." + strconv.Itoa(m.Config.Number) + ".0/24"}
	data, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	// What it says of its progress comes with an error.
	if err := m.Stream(ctx, "/payload/cluster vm node", bytes.NewReader(data), os.Stderr); err != nil {
		return "", err
	}
	return m.Kubeconfig(ctx)
}

// Join makes the machine a further node of the cluster whose control plane is in another,
// and waits until it is Ready. The other runs, and both have their ends of the link.
func (m *Machine) Join(ctx context.Context, other *Machine, config host.Config) error {
	for _, file := range host.Authority {
		content, err := other.Run(ctx, "cat "+file)
		if err != nil {
			return err
		}
		if err := m.Write(ctx, file, []byte(content+"\n")); err != nil {
			return err
		}
	}
	config.Join = "https://" + other.Address() + ":6443"
	_, err := m.StartCluster(ctx, config)
	return err
}

// Kubeconfig writes the administrator's file for clients on this host, and returns its path.
func (m *Machine) Kubeconfig(ctx context.Context) (string, error) {
	text, err := m.Run(ctx, "cat "+host.Kubeconfig)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.Load([]byte(text))
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = fmt.Sprintf("https://127.0.0.1:%d", m.state.API)
	}
	return m.file("kubeconfig"), clientcmd.WriteToFile(*config, m.file("kubeconfig"))
}

// Client reaches the API of the cluster whose kube-apiserver is in the machine.
func (m *Machine) Client() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", m.file("kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 100, 200
	return kubernetes.NewForConfig(config)
}

func (m *Machine) sshOptions(port string) string {
	return fmt.Sprintf("-i %s %s %d -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR", m.state.Key, port, m.state.SSH)
}

// ShellCommand is what gives a user a shell in the machine.
func (m *Machine) ShellCommand() string { return "ssh " + m.sshOptions("-p") + " root@127.0.0.1" }

// CopyCommand is what copies a file into the machine.
func (m *Machine) CopyCommand() string { return "scp " + m.sshOptions("-P") + " FILE root@127.0.0.1:" }
