// SPDX-License-Identifier: Apache-2.0

// Command conformance runs upstream's conformance specs on a partitioned cluster and on the same
// cluster with unpatched binaries, and upstream's tests of the kubelet in virtual machines, and
// compares the results.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/test/conformance/testbed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), host.EndSignals()...)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// options are those of all commands.
type options struct {
	config                 host.Config
	cluster, unpatched     string
	debs, out, focus, skip string
	parallel               int
	fresh, retry           bool
}

func command() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:           "conformance",
		Short:         "Run upstream's conformance specs on a partitioned cluster",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVar(&o.config.Bin, "bin", "", "directory of the patched binaries, and of upstream's tests")
	flags.StringVar(&o.unpatched, "upstream-bin", "", "directory of the unpatched kubelet and kube-apiserver, to compare with")
	flags.StringVar(&o.config.Tools, "tools", "", "directory of etcd, containerd, runc, the CNI plugins and CoreDNS")
	flags.StringVar(&o.config.Tree, "tree", "", "source tree of the release")
	flags.StringVar(&o.cluster, "cluster", "", "path of the command cluster, of this project")
	flags.StringVar(&o.debs, "debs", "", "directory in which Debian packages are kept")
	flags.StringVar(&o.out, "out", "", "directory for results, logs and images")
	flags.StringVar(&o.focus, "focus", "", "regular expression of the names of the specs that are to run; empty means all of the suite")
	flags.StringVar(&o.skip, "skip", "", "regular expression of the names of those that are not; empty means none")
	flags.IntVar(&o.parallel, "parallel", 16, "how many conformance specs run at a time, unless they are serial")
	flags.BoolVar(&o.fresh, "fresh", false, "begin again, in place of going on with what an earlier run did not do")
	flags.BoolVar(&o.retry, "retry", false, "run again what did not pass")
	for _, name := range []string{"bin", "tools", "tree", "cluster", "debs", "out"} {
		if err := root.MarkPersistentFlagRequired(name); err != nil {
			panic(err)
		}
	}
	run := &cobra.Command{
		Use:   "run",
		Short: "Run the specs on a partitioned cluster",
		Long: `Run the specs on a partitioned cluster on this host, whose control plane, kube-proxy and CoreDNS
are partitioned pods. A run that is interrupted goes on where it stopped, as long as the
programs, images and configuration are the same. It fails if a spec fails unexpectedly, or if one
passes that is known to fail.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	compare := &cobra.Command{
		Use:   "compare",
		Short: "Run them there and on the same cluster with unpatched binaries, and compare",
		Long: `Run the specs on a partitioned cluster, and on the same cluster with the unpatched kubelet and
kube-apiserver and without a pinning file. A spec that ends otherwise on one of them runs three
more times on both. It prints what still differs, and fails if there is anything.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.compare(cmd.Context()) },
	}
	collect := &cobra.Command{
		Use:    "collect ENDPOINT CGROUPS",
		Short:  "Remove what is left of pods that are gone, in a VM of node",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		// It needs no flag of the others.
		DisableFlagParsing: true,
		RunE:               func(cmd *cobra.Command, args []string) error { return testbed.Collect(cmd.Context(), args[0], args[1]) },
	}
	root.AddCommand(run, compare, o.nodeCommand(), collect)
	return root
}
