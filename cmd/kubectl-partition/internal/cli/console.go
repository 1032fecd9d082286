// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"workload.openshift.io/kubernetes/cmd/kubectl-partition/output"
	"workload.openshift.io/operators/cpupolicy/console"
)

type consoleOptions struct {
	flagsAlone
	*companion
	port uint16
}

func newConsole(streams genericiooptions.IOStreams) *cobra.Command {
	c := &consoleOptions{companion: newCompanion(streams)}
	command := &cobra.Command{
		Use:   "console",
		Short: "Switch the CPU manager policy of nodes in a browser",
		Long: `Serve pages on this host that show the CPU manager policy of nodes, switch it through the
companion cpupolicy, and give virtual machines dedicated CPUs. Open the URL that is printed.
Ctrl-C ends the command.

Each page and each button sends a request with your own credentials, as kubectl does. So you see
only what you may see, and kube-apiserver's audit log has your name. While the command runs, anyone
with the URL has your rights on these pages: keep it secret.

You need the rights to list, get and patch nodes, and to list events in the namespace default
for why a node could not be observed; for virtual machines, to list, get and patch them.

Exit codes: 0, or 2 if the cluster cannot be asked or the port is taken.`,
		Example: `  kubectl partition console`,
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: steps(c),
	}
	command.Flags().Uint16Var(&c.port, "port", 0, "port on this host for the pages; 0 takes a free one")
	c.flags(command)
	return command
}

func (c *consoleOptions) Run(ctx context.Context) error {
	config, err := c.config.ToRESTConfig()
	if err != nil {
		return err
	}
	return console.Open(ctx, console.Options{Config: config, Namespace: *c.config.Namespace, Port: c.port, Opened: func(is console.Opened) {
		fmt.Fprintf(c.streams.Out, "Console:  %s\nUser:     %s at %s\nPress Ctrl-C to end.\n", is.URL, output.Printable(is.User), config.Host)
	}})
}
