// SPDX-License-Identifier: Apache-2.0

// Package host runs a single-node Kubernetes cluster on this host, component by component:
// etcd, containerd, the control plane, kube-proxy and a kubelet, with the pinning
// file at its real path. `make up` and the end-to-end tests configure a node with
// it and with nothing else, so what the tests see is what a user gets.
//
// A host has one such node at most, since its kubelet owns the host's cgroups,
// and the pinning file is the host's. Control planes without a node may run next to it.
//
// The package knows how a node is configured, started, stopped and removed. It must not know
// what is tested on it, nor whether the host is virtual.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a single-node cluster on this host.
type Cluster struct {
	Config Config

	Etcd, Containerd, APIServer, ControllerManager, Scheduler, Proxy, Kubelet Component
	// SecondAPIServer is another kube-apiserver on the same etcd, which only tests start.
	SecondAPIServer Component
	// Kwok plays the kubelets of simulated nodes. It runs if Config.Controllers has it; see
	// CreateNodes.
	Kwok Component
	// Client is the administrator's, set by Up and Attach.
	Client *kubernetes.Clientset

	// read is how far Faults has read each log.
	read map[string]int64
}

// New describes a cluster; Up starts it.
func New(config Config) *Cluster {
	c := &Cluster{Config: config.withDefaults()}
	c.describe()
	return c
}

// CgroupDriver returns the driver of the kubelet and of the runtime.
func (c *Cluster) CgroupDriver() CgroupDriver { return cmp.Or(c.Config.CgroupDriver, Cgroupfs) }

func (c *Cluster) say(format string, args ...any) {
	if c.Config.Progress != nil {
		c.Config.Progress(format, args...)
	}
}

func (c *Cluster) tool(name string) string { return filepath.Join(c.Config.Tools, name) }
func (c *Cluster) data(name string) string { return filepath.Join(c.Config.Paths.Data, name) }
func (c *Cluster) pki(name string) string  { return filepath.Join(c.Config.Paths.Data, "pki", name) }
func (c *Cluster) socket() string          { return filepath.Join(c.Config.Paths.Run, "containerd.sock") }

// components returns all components, in the order in which Down stops them.
func (c *Cluster) components() []Component {
	return []Component{c.Kubelet, c.Proxy, c.Kwok, c.Scheduler, c.ControllerManager, c.SecondAPIServer, c.APIServer, c.Etcd, c.Containerd}
}

// EtcdURL is where etcd serves clients that have a certificate of its authority, as EtcdClient has.
func (c *Cluster) EtcdURL() string { return fmt.Sprintf("https://127.0.0.1:%d", c.Config.Ports.Etcd) }

// EtcdClient returns a client of etcd, with kube-apiserver's certificate.
func (c *Cluster) EtcdClient() (*http.Client, error) {
	// By their content: clients of files with the same names share what was in them before.
	var config rest.Config
	for name, data := range map[string]*[]byte{"ca.crt": &config.CAData, "client.crt": &config.CertData, "client.key": &config.KeyData} {
		content, err := os.ReadFile(c.pki("etcd/" + name))
		if err != nil {
			return nil, err
		}
		*data = content
	}
	return rest.HTTPClientFor(&config)
}

// ownBridge reports whether Up makes the bridge, whose address is then the node's. If the node has
// another address of the host, the CNI plugin makes the bridge for the first pod.
func (c *Cluster) ownBridge() bool {
	return c.Config.Node.Address == firstAddress(c.Config.Network.Pods)
}

// Exists reports whether the cluster is running, or has left something behind.
func (c *Cluster) Exists() bool {
	for _, dir := range []string{c.Config.Paths.Data, c.Config.Paths.Run} {
		if _, err := os.Stat(dir); err == nil {
			return true
		}
	}
	return false
}

// startContainerd starts containerd and imports the images.
func (c *Cluster) startContainerd(ctx context.Context) error {
	if err := c.Containerd.Start(); err != nil {
		return err
	}
	if err := c.awaitContainerd(ctx); err != nil {
		return err
	}
	return c.importImages(ctx)
}

func (c *Cluster) awaitContainerd(ctx context.Context) error {
	return c.await(ctx, c.Containerd, time.Minute, func(ctx context.Context) error { return c.ctr(ctx, "version") })
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	if err := c.Etcd.Start(); err != nil {
		return err
	}
	client, err := c.EtcdClient()
	if err != nil {
		return err
	}
	return c.await(ctx, c.Etcd, time.Minute, func(ctx context.Context) error { return get(ctx, client, c.EtcdURL()+"/health") })
}

// controllers returns the components that Config.Controllers names.
func (c *Cluster) controllers() (controllers []Component, err error) {
	for _, name := range c.Config.Controllers {
		component, err := c.Component(name)
		if err != nil {
			return nil, err
		}
		controllers = append(controllers, component)
	}
	return controllers, nil
}

// StartControlPlane starts kube-apiserver, waits until the API is ready, and starts the
// controllers.
func (c *Cluster) StartControlPlane(ctx context.Context) error {
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	controllers, err := c.controllers()
	for _, controller := range controllers {
		err = errors.Join(err, controller.Start())
	}
	return err
}

// RestartAPIServer kills kube-apiserver and starts it again, as Config says.
// The controllers are killed with it: their watches would come back only after client-go's
// back-off, of up to a minute, and a scheduler that misses the end of a pod and the start of
// its namesake exits (UpdatePod, upstream's pkg/scheduler/backend/cache).
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	controllers, err := c.controllers()
	for _, component := range append(controllers, c.APIServer) {
		err = errors.Join(err, component.Kill())
	}
	if err != nil {
		return err
	}
	return c.StartControlPlane(ctx)
}

// StartAPIServer starts kube-apiserver, with the admission configuration as Config has
// it, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.WriteAdmissionConfiguration(); err != nil {
		return err
	}
	if err := c.APIServer.Start(); err != nil {
		return err
	}
	if err := c.Attach(); err != nil {
		return err
	}
	return c.await(ctx, c.APIServer, 2*time.Minute, ready(c.Client))
}

// ready returns a function that asks a kube-apiserver whether it is ready.
func ready(client *kubernetes.Clientset) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	}
}

// StartSecondAPIServer starts another kube-apiserver, and returns its address.
func (c *Cluster) StartSecondAPIServer(ctx context.Context) (url string, err error) {
	if err := c.SecondAPIServer.Start(); err != nil {
		return "", err
	}
	url = c.server(c.Config.Ports.SecondAPIServer)
	client, err := c.clientFor(url)
	if err != nil {
		return "", err
	}
	return url, c.await(ctx, c.SecondAPIServer, 2*time.Minute, ready(client))
}

// Attach connects to a running cluster.
func (c *Cluster) Attach() (err error) {
	if err := c.bypassProxy(); err != nil {
		return err
	}
	c.Client, err = c.clientFor(c.server(c.Config.Ports.APIServer))
	return err
}

// server returns the URL of this host's kube-apiserver, or of the one that the host joins.
func (c *Cluster) server(port int) string {
	return cmp.Or(c.Config.Join, "https://"+net.JoinHostPort(c.Config.Node.Address, strconv.Itoa(port)))
}

func (c *Cluster) clientFor(url string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Config.Paths.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("%w; is a cluster up?", err)
	}
	config.Host = url
	config.QPS = -1 // no limit: the server is ours, and tests send it as much as they mean to
	return kubernetes.NewForConfig(config)
}

// StartKubelet writes the kubelet's configuration and the pinning file as Config
// has them, starts the kubelet, and waits until it has reported its node as Ready.
func (c *Cluster) StartKubelet(ctx context.Context) error {
	if err := c.configureKubelet(); err != nil {
		return err
	}
	before := c.lastReport(ctx)
	if err := c.Kubelet.Start(); err != nil {
		return err
	}
	return c.awaitNode(ctx, before)
}

// lastReport returns the time at which a kubelet last reported the node's condition Ready. Without
// a node, or a control plane that answers, it is the second before this one.
func (c *Cluster) lastReport(ctx context.Context) time.Time {
	if c.Client != nil {
		if node, err := c.Client.CoreV1().Nodes().Get(ctx, c.Config.Node.Name, metav1.GetOptions{}); err == nil {
			for _, condition := range node.Status.Conditions {
				if condition.Type == v1.NodeReady {
					return condition.LastHeartbeatTime.Time
				}
			}
		}
	}
	// The times in a status are in whole seconds.
	return time.Now().Truncate(time.Second).Add(-time.Second)
}

// awaitNode waits until the kubelet has reported its node as Ready. before is the last report of
// the kubelet before it: a kubelet changes its node before it reports, and controllers do so at
// any time, so that the node has changed says nothing.
func (c *Cluster) awaitNode(ctx context.Context, before time.Time) error {
	return c.await(ctx, c.Kubelet, 2*time.Minute, func(ctx context.Context) error {
		// The port was closed before the start, so this kubelet is the one that answers.
		if _, err := c.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(c.Config.Node.Name).SubResource("proxy").Suffix("healthz").DoRaw(ctx); err != nil {
			return err
		}
		node, err := c.Client.CoreV1().Nodes().Get(ctx, c.Config.Node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type != v1.NodeReady {
				continue
			}
			if condition.Status == v1.ConditionTrue && condition.LastHeartbeatTime.After(before) {
				return nil
			}
			return fmt.Errorf("node is not Ready: %s", condition.Message)
		}
		return errors.New("node has no condition Ready")
	})
}

// StopKubelet stops the kubelet; its pods keep running.
func (c *Cluster) StopKubelet() error { return c.Kubelet.Stop(20 * time.Second) }

// KubeletDir is the kubelet's root directory.
func (c *Cluster) KubeletDir() string { return c.data("kubelet") }

// RuntimeSocket is containerd's; ProxySocket is the path for one of a proxy in front of it.
func (c *Cluster) RuntimeSocket() string { return c.socket() }
func (c *Cluster) ProxySocket() string   { return filepath.Join(c.Config.Paths.Run, "proxy.sock") }

// NRISocket is where containerd listens to NRI plugins, if Config.NRI says so.
func (c *Cluster) NRISocket() string { return filepath.Join(c.Config.Paths.Run, "nri.sock") }

// RestartContainerd kills containerd, as a crash would, and starts it again;
// containers keep running.
func (c *Cluster) RestartContainerd(ctx context.Context) error {
	if err := c.Containerd.Kill(); err != nil {
		return err
	}
	if err := c.Containerd.Start(); err != nil {
		return err
	}
	return c.awaitContainerd(ctx)
}

// ChangeCPUManagerPolicy stops the kubelet and sets another policy for its next start. Upstream
// requires that the checkpoint be deleted first, so all exclusive assignments are lost.
func (c *Cluster) ChangeCPUManagerPolicy(policy string) error {
	if err := c.StopKubelet(); err != nil {
		return err
	}
	c.Config.CPUManagerPolicy = policy
	if err := os.Remove(filepath.Join(c.KubeletDir(), "cpu_manager_state")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// SaveLogs copies the logs of all components to a directory. It overwrites no file there.
func (c *Cluster) SaveLogs(to string) error { return os.CopyFS(to, os.DirFS(c.data("logs"))) }

// AuditLog is the path of kube-apiserver's audit log, which records the creation and each
// update of pods.
func (c *Cluster) AuditLog() string { return c.data("logs/audit.log") }
