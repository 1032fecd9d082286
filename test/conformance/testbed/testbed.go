// SPDX-License-Identifier: Apache-2.0

// Package testbed runs the cluster on which conformance is tested: a single node on this host whose
// control plane, kube-proxy and CoreDNS are pods that ask for a partition. With unpatched binaries
// nothing answers them, and the cluster is the same otherwise. It also runs the VM in which upstream's
// tests of the kubelet make their own cluster. The package must know no spec.
package testbed

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"text/template"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/poll"
	"workload.openshift.io/partition"
)

// Type is the workload type that the management workloads ask for, and Pinning the file that gives it
// CPU 0.
const (
	Type    = "management"
	Pinning = `{"management": {"cpuset": "0"}}`
)

// The registry whose images are served, and the port on the node's address at which they are.
const (
	registry     = "registry.k8s.io"
	registryPort = 5000
)

// References of the two images of the cluster's own.
const (
	CoreDNS = registry + "/coredns/coredns:built"
	Proxy   = registry + "/kube-proxy:built"
)

// Addons are the objects of kube-proxy and CoreDNS, a template.
//
//go:embed addons.yaml
var Addons string

// Testbed is such a cluster.
type Testbed struct {
	*host.Cluster
	partitioned bool
	images      http.Handler
	server      *http.Server
}

// New describes a cluster with the binaries of a configuration. Images serves those that pods use, as
// a registry does. With a directory of unpatched binaries, kubelet and kube-apiserver come from there,
// and there is no pinning file.
func New(config host.Config, images http.Handler, unpatched string) *Testbed {
	config.Temporary = true
	config.ControlPlaneType = Type
	config.WithoutProxy, config.HostPorts = true, true
	node := host.New(config).Config // with its defaults
	dns, gateway := clusterDNS(node), node.Node.Address
	config.Mirrors = map[string]string{registry: "http://" + net.JoinHostPort(gateway, strconv.Itoa(registryPort))}
	config.KubeletConfiguration += fmt.Sprintf("clusterDNS: [%s]\nclusterDomain: cluster.local\nserializeImagePulls: false\n", dns)
	t := &Testbed{partitioned: unpatched == "", images: images}
	if t.partitioned {
		config.Pinning = Pinning
	} else {
		config.Kubelet, config.APIServer = filepath.Join(unpatched, "kubelet"), filepath.Join(unpatched, "kube-apiserver")
	}
	t.Cluster = host.New(config)
	return t
}

// clusterDNS is the address of the DNS Service: the tenth of the Services' network.
func clusterDNS(config host.Config) string {
	ip, _, err := net.ParseCIDR(config.Network.Services)
	if err != nil {
		return config.Network.Services // for the kubelet to complain about
	}
	ip = ip.To4()
	ip[3] += 10
	return ip.String()
}

// Up starts the cluster, and waits until its management workloads run, and are partitioned where
// they should be.
func (t *Testbed) Up(ctx context.Context) error {
	// Before anything is started, since the node's address exists only then.
	free, err := net.Listen("tcp", fmt.Sprintf(":%d", registryPort))
	if err != nil {
		return fmt.Errorf("the registry of the images needs port %d: %w", registryPort, err)
	}
	free.Close()
	if err := t.Cluster.Up(ctx); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(t.Config.Node.Address, strconv.Itoa(registryPort)))
	if err != nil {
		return fmt.Errorf("the registry of the images: %w", err)
	}
	server := &http.Server{Handler: t.images, ReadHeaderTimeout: 10 * time.Second}
	t.server = server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Config.Progress("the registry of the images has ended: %v", err)
		}
	}()
	allow := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, partition.AllowedAnnotation, Type)
	if _, err := t.Client.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceSystem, types.MergePatchType, []byte(allow), metav1.PatchOptions{}); err != nil {
		return err
	}
	if t.partitioned {
		// Pods that are created earlier would not be partitioned.
		if err := t.await(ctx, "the type is active", t.active); err != nil {
			return err
		}
	}
	if err := t.applyAddons(ctx); err != nil {
		return err
	}
	return t.await(ctx, "the management workloads run", t.management)
}

// Down ends the cluster, and removes every trace of it.
func (t *Testbed) Down(ctx context.Context) error {
	var err error
	if t.server != nil {
		err = t.server.Close()
	}
	return errors.Join(t.Cluster.Down(ctx), err)
}

// podLogs is where the kubelet keeps the logs of containers.
const podLogs = "/var/log/pods"

// SaveLogs copies the logs of all components to a directory: of processes, and of the pods that others
// are.
func (t *Testbed) SaveLogs(to string) error {
	pods, err := filepath.Glob(filepath.Join(podLogs, metav1.NamespaceSystem+"_*"))
	errs := []error{err, t.Cluster.SaveLogs(to)}
	for _, pod := range pods {
		errs = append(errs, os.CopyFS(filepath.Join(to, filepath.Base(pod)), os.DirFS(pod)))
	}
	return errors.Join(errs...)
}

func (t *Testbed) await(ctx context.Context, what string, condition func(context.Context) error) error {
	if err := poll.Until(ctx, time.Second, 3*time.Minute, condition); err != nil {
		return fmt.Errorf("%s: not within 3 minutes: %w", what, err)
	}
	return nil
}

func (t *Testbed) active(ctx context.Context) error {
	namespace, err := t.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if namespace.Annotations[partition.EnabledAnnotation] != Type {
		return fmt.Errorf("kube-system has %s=%q", partition.EnabledAnnotation, namespace.Annotations[partition.EnabledAnnotation])
	}
	return nil
}

// applyAddons creates kube-proxy and CoreDNS.
func (t *Testbed) applyAddons(ctx context.Context) error {
	text, err := template.New("addons.yaml").Parse(Addons)
	if err != nil {
		return err
	}
	var manifests bytes.Buffer
	if err := text.Execute(&manifests, map[string]string{
		"Target": partition.TargetAnnotation(Type), "Proxy": Proxy, "CoreDNS": CoreDNS, "DNS": clusterDNS(t.Config), "Data": t.Config.Paths.Data,
	}); err != nil {
		return err
	}
	// kubectl knows the resources of kinds. What a user has configured for it does not matter here.
	kubectl := exec.CommandContext(ctx, filepath.Join(t.Config.Bin, "kubectl"), "--kubeconfig="+t.Config.Paths.Kubeconfig(), "--cache-dir="+filepath.Join(t.Config.Paths.Data, "kubectl"), "apply", "--filename=-")
	kubectl.Env = append(os.Environ(), "KUBERC=off")
	kubectl.Stdin = &manifests
	if output, err := kubectl.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply of addons.yaml: %w: %s", err, output)
	}
	return nil
}

// management returns nil if the management workloads are ready, and partitioned if they should be.
func (t *Testbed) management(ctx context.Context) error {
	pods, err := t.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	const components = 6 // etcd, three of the control plane, kube-proxy and CoreDNS
	if len(pods.Items) < components {
		return fmt.Errorf("there are %d pods in kube-system, want %d", len(pods.Items), components)
	}
	for _, pod := range pods.Items {
		ready := false
		for _, condition := range pod.Status.Conditions {
			ready = ready || condition.Type == v1.PodReady && condition.Status == v1.ConditionTrue
		}
		if !ready {
			return fmt.Errorf("pod %s is %s, and not ready: %v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		_, partitioned := pod.Spec.Containers[0].Resources.Requests[v1.ResourceName(partition.CoresResource(Type))]
		if partitioned != t.partitioned {
			return fmt.Errorf("pod %s is partitioned: %t, want %t", pod.Name, partitioned, t.partitioned)
		}
	}
	return nil
}
