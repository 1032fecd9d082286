// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/operators/cpudriver"
	"workload.openshift.io/operators/numaresources/daemon"
)

// hostIP is the variable by which a pod is told the address of its host (status.hostIP).
const hostIP = "HOST_IP"

func newTopologyCommand() *cobra.Command {
	e := daemon.Exporter{}
	kubeconfig := ""
	command := &cobra.Command{
		Use:   "topology",
		Short: "Write which resources the NUMA nodes of this node have, and which are free",
		Long: `Writes the NodeResourceTopology of the node that its token is bound to, and none else.
It runs as the exporters of the companion numaresources.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := restConfig(kubeconfig)
			if err != nil {
				return err
			}
			if e.Kubelet.Host == "" {
				return fmt.Errorf("--kubelet-host or the variable %s must name the address of this host", hostIP)
			}
			e.Kubelet.Token = func() (string, error) { return token(config) }
			text, err := token(config)
			if err != nil {
				return err
			}
			if e.Node, err = daemon.NodeOf(text); err != nil {
				return err
			}
			if e.Client, err = topologyClient(config); err != nil {
				return err
			}
			klog.FromContext(command.Context()).Info("Starting", "node", e.Node.Name, "podresources", e.Socket)
			return e.Run(command.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "how to reach kube-apiserver; a pod needs none")
	flags.StringVar(&e.Configuration, "config", "/etc/partition-node/config.yaml", "the configuration of the group's exporters")
	flags.StringVar(&e.Socket, "podresources-socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's socket of podresources")
	flags.StringVar(&e.Sysfs, "sysfs", topology.Sysfs, "where sysfs is mounted")
	flags.StringVar(&e.Kubelet.Host, "kubelet-host", os.Getenv(hostIP), "the address of this host, at which the kubelet answers; by default the variable "+hostIP)
	flags.StringVar(&e.Kubelet.Port, "kubelet-port", "10250", "the kubelet's port")
	flags.StringVar(&e.Kubelet.CA, "kubelet-ca", "", "a file with the CAs of kubelets' serving certificates")
	flags.StringVar(&e.Kubelet.ClusterCA, "cluster-ca", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "a file with the cluster's CAs")
	flags.StringVar(&e.Kubelet.Certificate, "kubelet-certificate", "", "the kubelet's own certificate file, for a certificate that no CA has signed")
	verbosity := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(verbosity)
	flags.AddGoFlag(verbosity.Lookup("v"))
	return command
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	config.Timeout = 10 * time.Second
	config.UserAgent = "partition-node-topology"
	return config, nil
}

// token returns the token of a pod, which the kubelet renews.
func token(config *rest.Config) (string, error) {
	if config.BearerTokenFile != "" {
		data, err := os.ReadFile(config.BearerTokenFile)
		return strings.TrimSpace(string(data)), err
	}
	if config.BearerToken == "" {
		return "", errors.New("the credentials are no token")
	}
	return config.BearerToken, nil
}

// topologyClient returns a client for NodeResourceTopologies and the metadata of ResourceSlices. It asks kube-apiserver for no list of
// kinds.
func topologyClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha2.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha2.SchemeGroupVersion, cpudriver.ResourceSlice.GroupVersion()})
	mapper.Add(cpudriver.ResourceSlice, meta.RESTScopeRoot)
	mapper.AddSpecific(v1alpha2.SchemeGroupVersion.WithKind("NodeResourceTopology"), v1alpha2.SchemeGroupVersion.WithResource("noderesourcetopologies"),
		v1alpha2.SchemeGroupVersion.WithResource("noderesourcetopology"), meta.RESTScopeRoot)
	return client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
}
