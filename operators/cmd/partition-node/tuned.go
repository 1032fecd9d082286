// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"workload.openshift.io/operators/tuning/daemon"
)

// newTunedCommand is the daemon of the companion tuning.
func newTunedCommand() *cobra.Command {
	var kubeconfig string
	// On the host, EtcDir and RunDir are directories that do not outlive a boot.
	d := &daemon.Daemon{Python: "/usr/bin/python3", EtcDir: "/etc/tuned", RunDir: "/run/tuned"}
	command := &cobra.Command{
		Use:   "tuned",
		Short: "Run TuneD with what the node's Profile says",
		Long: `Run TuneD with what the node's Profile says, and report in its status what TuneD says.

What TuneD changed is undone when the Profile is gone, and at SIGTERM if the DaemonSet is. Otherwise it stays for the next start.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if d.Node == "" {
				return errors.New("--node-name: the name of the node is missing; the DaemonSet takes it from spec.nodeName")
			}
			boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
			if err != nil {
				return err
			}
			d.BootID = strings.TrimSpace(string(boot))
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			config.UserAgent = "partition-node/tuned"
			if d.Client, err = daemon.NewClient(config); err != nil {
				return err
			}
			return d.Run(logr.NewContext(command.Context(), klog.Background()))
		},
	}
	flags := command.Flags()
	flags.StringVar(&d.Node, "node-name", os.Getenv("NODE_NAME"), "name of the node; the default is NODE_NAME")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "file that says how to reach kube-apiserver; the default is the pod's ServiceAccount")
	flags.DurationVar(&d.Settle, "settle", daemon.DefaultSettle, "how long a changed Profile must stay as it is before it counts")
	return command
}
