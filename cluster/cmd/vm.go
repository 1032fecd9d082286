// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/vm"
)

func vmCommand() *cobra.Command {
	parent := &cobra.Command{Use: "vm", Short: "Run a partitioned node in a virtual machine"}
	var files vm.Files
	var topology, pinning, arguments string
	up := &cobra.Command{
		Use:   "up",
		Short: "Start a VM with a single-node cluster in it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := vm.ParseTopology(topology)
			if err != nil {
				return err
			}
			return alone(vm.Dir, func() error {
				return vmUp(cmd.Context(), files, vm.Config{Topology: t, Append: arguments}, pinning)
			})
		},
	}
	up.Flags().StringVar(&files.Bin, "bin", "", "directory of the Kubernetes binaries")
	up.Flags().StringVar(&files.Tools, "tools", "", "directory of etcd, containerd, runc and the CNI plugins")
	up.Flags().StringVar(&files.Tree, "tree", "", "source tree of the Kubernetes release")
	up.Flags().StringVar(&topology, "topology", vm.DefaultTopology.String(), "sockets x cores x threads; each socket is a NUMA node")
	up.Flags().StringVar(&pinning, "pinning", `{"management": {"cpuset": "0-1"}}`, "content of the pinning file")
	up.Flags().StringVar(&arguments, "append", "", "arguments added to the kernel's command line, such as isolcpus=6-7")
	for _, name := range []string{"bin", "tools", "tree"} {
		utilruntime.Must(up.MarkFlagRequired(name))
	}
	parent.AddCommand(up, &cobra.Command{
		Use:   "down",
		Short: "End all VMs and remove every trace of them",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return alone(vm.Dir, vm.Down) },
	}, &cobra.Command{
		Use:   "base",
		Short: "Make the system that VMs start from, unless it is there",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return vm.MakeBase(cmd.Context(), progress(time.Now())) },
	}, &cobra.Command{
		Use:    "node",
		Short:  "Make this VM a node, with the configuration on standard input",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var config host.Config
			if err := json.NewDecoder(os.Stdin).Decode(&config); err != nil {
				return err
			}
			config.Progress = progress(time.Now())
			return host.New(config).Up(cmd.Context())
		},
	})
	return parent
}

func vmUp(ctx context.Context, files vm.Files, config vm.Config, pinning string) (err error) {
	start := time.Now()
	config.Progress = progress(start)
	defer files.Close()
	config.Payload, err = files.Payload(ctx)
	if err != nil {
		return err
	}
	node := vm.New(config)
	kubeconfig := ""
	if err = node.Create(ctx); err == nil {
		config.Progress("the VM is running; starting a cluster in it")
		kubeconfig, err = node.StartCluster(ctx, host.Config{Pinning: pinning, ControlPlaneType: "management"})
	}
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), node.Remove())
	}
	if err != nil {
		return fmt.Errorf("%w\nmake vm-down removes what was started", err)
	}
	config.Progress("%s is Ready", node.Name())
	fmt.Printf("\nexport KUBECONFIG=%s\n\nA shell:     %s\nCopy a file: %s\nIts console: %s\n\nmake vm-down ends it.\n", kubeconfig, node.ShellCommand(), node.CopyCommand(), node.Console())
	return nil
}
