// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"workload.openshift.io/operators/tuning/daemon"
)

// kept is where the operand keeps on the host what the next boot needs.
const kept = "/var/lib/partition-node/tuned"

// newTunedCommand is the daemon of the companion tuning.
func newTunedCommand() *cobra.Command {
	var kubeconfig string
	// On the host, EtcDir and RunDir are directories that do not outlive a boot, and Kept is one that does. The pod has the host's processes.
	d := &daemon.Daemon{
		Python: "/usr/bin/python3", EtcDir: "/etc/tuned", RunDir: "/run/tuned",
		Kept: kept, Unit: "/proc/1/root/etc/systemd/system/partition-tuned.service", Image: os.Getenv("OPERAND_IMAGE"),
	}
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
			var err error
			if d.BootID, err = bootID(); err != nil {
				return err
			}
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

// newTunedAtBootCommand is what partition-tuned.service of a host runs.
func newTunedAtBootCommand() *cobra.Command {
	// The directories are the host's, and the interpreter is in the root file system that was kept. The unit allows a minute in all.
	d := &daemon.Daemon{
		Python: "/usr/bin/python3", EtcDir: "/run/partition-node/tuned/profiles", RunDir: "/run/partition-node/tuned/originals",
		Kept: kept, ApplyLimit: 45 * time.Second,
	}
	return &cobra.Command{
		Use:   "tuned-at-boot",
		Short: "Apply the profile that the node had before it booted, and end",
		Long: `Apply the profile that the node had before it booted, or that has waited for this boot, and end. The host's unit
partition-tuned.service runs this before the kubelet, in a mount namespace of its own. TuneD runs in the root file system that
the pod of the operand has kept on the host, and the next pod goes on with what it changed.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var err error
			if d.BootID, err = bootID(); err != nil {
				return err
			}
			return d.Boot(logr.NewContext(command.Context(), klog.Background()))
		},
	}
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
